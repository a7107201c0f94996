"""Where a storage's bytes are. Owns `Device`; today there is one, the CPU's shared memory."""

from __future__ import annotations

__all__ = ["CPU", "Device", "check_device"]


class Device(str):
    """A device's name, such as "cpu": it compares as a string, and has torch's ``type`` and ``index``."""

    __slots__ = ()

    @property
    def type(self) -> str:
        """The kind of device: "cpu" or "cuda"."""
        return self.partition(":")[0]

    @property
    def index(self) -> int | None:  # type: ignore[override]
        """Which device of its kind, or None where there is only one."""
        ordinal = self.partition(":")[2]
        return int(ordinal) if ordinal else None

    def __repr__(self) -> str:
        return f"device({str(self)!r})"


CPU = Device("cpu")


def check_device(device: object) -> None:
    """Raises `ValueError` for a device that tensors can't be on. None is wherever they are."""
    if device is not None and str(device).partition(":")[0] != "cpu":
        raise ValueError(f"device {device!s}: tensors are in host memory only")
