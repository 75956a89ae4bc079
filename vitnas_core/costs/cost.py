"""``Cost``: parameters, multiply-accumulates and, if measured, latency of one architecture."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one architecture.

    Args:
        params: Number of parameters.
        macs: Multiply-accumulates of one image (what the papers call FLOPs), by the convention of the family.
        latency: Seconds that a :class:`~vitnas_core.latency.LatencyTable` predicts. Defaults to None: no table.
    """

    params: int
    macs: int
    latency: float | None = None

    def __str__(self) -> str:
        time = '' if self.latency is None else f', {1000 * self.latency:.4g} ms'
        macs = f'{self.macs / 1e9:.3f}G' if self.macs >= 1e9 else f'{self.macs / 1e6:.3f}M'
        return f'{self.params / 1e6:.2f}M params, {macs} MACs{time}'
