"""`shmtensor metrics`: a pool's numbers for Prometheus. Names and units are stable."""

from __future__ import annotations

from collections.abc import Iterator

import click
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from allocator.looking import glance
from allocator.survey import survey
from allocator.tools.app import pool_argument

# field of PoolStats -> (metric, what it is). Bytes unless the name says otherwise.
GAUGES = {
    "limit_bytes": ("shmtensor_limit_bytes", "What all blocks together may use"),
    "used_bytes": ("shmtensor_used_bytes", "Allocated blocks, rounded up to slots and pages"),
    "committed_bytes": ("shmtensor_committed_bytes", "Memory that the pool has"),
    "warm_bytes": ("shmtensor_warm_bytes", "Committed and free"),
    "free_bytes": ("shmtensor_free_bytes", "A request of this size succeeds"),
    "peak_bytes": ("shmtensor_committed_peak_bytes", "The most that was ever committed"),
    "records": ("shmtensor_shared_blocks", "Blocks that were sent or published"),
    "holds": ("shmtensor_holds", "Holds on them, one for each process and block"),
    "tickets": ("shmtensor_messages_in_flight", "Messages that nobody has opened yet"),
    "tickets_without_sender": ("shmtensor_messages_without_sender", "Those whose sender is dead"),
    "names": ("shmtensor_names", "What is published"),
    "orphan_spans": ("shmtensor_orphan_spans", "Spans that outlive their owners"),
}
COUNTERS = {
    "reaped_clients": ("shmtensor_reaped_clients", "Dead processes that were taken back from"),
    "purged_bytes": ("shmtensor_purged_bytes", "Bytes given back to the kernel"),
    "delayed_allocations": ("shmtensor_delayed_allocations", "Allocations that were not met at once"),
    "refused_allocations": ("shmtensor_refused_allocations", "Allocations that were refused in the end"),
}


class PoolCollector:
    """Looks at the pool, from outside, whenever it is asked. For processes that aren't attached to it."""

    def __init__(self, pool: str) -> None:
        self.pool = pool

    def collect(self) -> Iterator[Metric]:
        """All metrics, with the label `pool`. Counters begin when the pool is made; Prometheus adds `_total`."""
        found = survey(self.pool)
        stats = found.stats()
        for field, (name, text) in GAUGES.items():
            gauge = GaugeMetricFamily(name, text, labels=["pool"])
            gauge.add_metric([self.pool], getattr(stats, field))
            yield gauge
        for field, (name, text) in COUNTERS.items():
            counter = CounterMetricFamily(name, text, labels=["pool"])
            counter.add_metric([self.pool], getattr(stats, field))
            yield counter
        facts = glance(self.pool)
        clients = GaugeMetricFamily("shmtensor_clients", "Attached processes", labels=["pool", "state"])
        clients.add_metric([self.pool, "living"], facts.living)
        clients.add_metric([self.pool, "dead"], len(facts.clients) - facts.living)
        yield clients
        used = GaugeMetricFamily(
            "shmtensor_slots_used_bytes", "Blocks by size of their slots; 0: whole spans", labels=["pool", "slot_bytes"]
        )
        for kind in found.size_classes():
            used.add_metric([self.pool, str(kind.slot_bytes)], kind.used_bytes)
        yield used


@click.command("metrics")
@pool_argument
def metrics_command(pool: str) -> None:
    """Print a pool's numbers as Prometheus reads them, e.g. for the node exporter's textfile collector."""
    registry = CollectorRegistry()
    registry.register(PoolCollector(pool))
    click.echo(generate_latest(registry).decode(), nl=False)
