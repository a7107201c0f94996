"""What a tensor says of itself: shape, strides, dtype, size, identity. Reads no element."""

from __future__ import annotations

from typing import SupportsIndex, overload

from shmtensor import dtypes
from shmtensor.base import READ_ONLY, VIEW, TensorBase
from shmtensor.device import Device
from shmtensor.dtypes import DType
from shmtensor.layout import Ints, Layout, MemoryFormat, Size, contiguous_format, dim_order
from shmtensor.reshaping import wrap_dim
from shmtensor.storage import Storage
from shmtensor.typed_storage import TypedStorage

__all__ = ["Metadata"]


class Metadata(TensorBase):
    """Questions about a tensor that its layout, dtype or storage answers."""

    __slots__ = ()

    @property
    def shape(self) -> Size:
        """The size of each dim, as a `Size`, which is a tuple."""
        return Size(self._layout.shape)

    @overload
    def size(self, dim: None = None) -> Size: ...
    @overload
    def size(self, dim: SupportsIndex) -> int: ...
    def size(self, dim: SupportsIndex | None = None) -> Size | int:
        """The shape, or the size of ``dim``. Raises `IndexError` for a dim that does not exist."""
        if dim is None:
            return Size(self._layout.shape)
        return self._layout.shape[self._existing(dim)]

    @overload
    def stride(self, dim: None = None) -> Ints: ...
    @overload
    def stride(self, dim: SupportsIndex) -> int: ...
    def stride(self, dim: SupportsIndex | None = None) -> Ints | int:
        """The strides in elements, or that of ``dim``. Raises `IndexError` for a dim that does not exist."""
        return self._layout.stride if dim is None else self._layout.stride[self._existing(dim)]

    def _existing(self, dim: SupportsIndex) -> int:
        if not self._layout.shape:
            raise IndexError("a 0-d tensor has no dims")
        return wrap_dim(dim, self._layout)

    def storage_offset(self) -> int:
        """The place of the first element in the storage, in elements."""
        return self._layout.offset

    def dim(self) -> int:
        """The number of dims."""
        return len(self._layout.shape)

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return len(self._layout.shape)

    def numel(self) -> int:
        """The number of elements."""
        return self._layout.numel

    nelement = numel

    @property
    def dtype(self) -> DType:
        """The NumPy dtype of the elements."""
        return self._dtype

    @property
    def layout(self) -> Layout:
        """Shape, strides and offset as one `Layout` value."""
        return self._layout

    @property
    def itemsize(self) -> int:
        """The size of an element in bytes."""
        return self._dtype.itemsize

    def element_size(self) -> int:
        """The size of an element in bytes."""
        return self._dtype.itemsize

    @property
    def nbytes(self) -> int:
        """The bytes of the elements: ``numel() * itemsize``. The storage may be larger, or smaller by
        strides of 0.
        """
        return self._layout.numel * self._dtype.itemsize

    def data_ptr(self) -> int:
        """The address of the first element in this process, 0 without elements. Other processes have
        another one.
        """
        return int(self.numpy().__array_interface__["data"][0]) if self._layout.numel else 0

    @property
    def device(self) -> Device:
        """Where the elements are: "cpu"."""
        return self._storage.device

    @property
    def is_cpu(self) -> bool:
        """Whether the elements are in host memory: True."""
        return not self._storage.is_cuda

    @property
    def is_cuda(self) -> bool:
        """Whether the elements are in device memory: False."""
        return self._storage.is_cuda

    def is_contiguous(self, memory_format: MemoryFormat = contiguous_format) -> bool:
        """Whether the elements lie gapless in the order of ``memory_format`` (rules 3 and 4)."""
        return self._layout.is_contiguous(memory_format)

    def dim_order(self) -> Ints:
        """The dims from the outermost in memory to the innermost."""
        return dim_order(self._layout)

    def untyped_storage(self) -> Storage:
        """The bytes: the same object for every view of them."""
        return self._storage

    def storage(self) -> TypedStorage:
        """The whole storage as a row of this tensor's dtype, whatever part of it the tensor views."""
        return TypedStorage(self._storage, self._dtype, writable=not self._flags & READ_ONLY)

    def is_set_to(self, other: TensorBase) -> bool:
        """Whether ``other`` has the same storage, offset, shape and strides; dtypes may differ."""
        return self._storage == other._storage and self._layout == other._layout

    def is_same_size(self, other: TensorBase) -> bool:
        """Whether ``other`` has the same shape."""
        return self._layout.shape == other._layout.shape

    def is_shared(self) -> bool:
        """True: a tensor is in shared memory from the start."""
        return True

    def is_view(self) -> bool:
        """Whether a view operation made this tensor, as against one that allocates."""
        return bool(self._flags & VIEW)

    def is_readonly(self) -> bool:
        """Whether the tensor can't be written: it comes from `readonly`, or its storage is sealed."""
        return bool(self._flags & READ_ONLY) or self._storage.is_sealed()

    def is_complex(self) -> bool:
        """Whether the dtype is complex."""
        return dtypes.is_complex(self._dtype)

    def is_floating_point(self) -> bool:
        """Whether the dtype is real floating point."""
        return dtypes.is_floating_point(self._dtype)

    def is_signed(self) -> bool:
        """Whether the dtype has negative values."""
        return dtypes.is_signed(self._dtype)
