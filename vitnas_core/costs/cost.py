"""``Cost``: parameters, multiply-accumulates and, where it was measured, latency of one architecture."""

from dataclasses import dataclass
from numbers import Integral
from typing import Any

from ..errors import VitnasError


@dataclass(frozen=True, slots=True)
class Cost:
    """What an architecture costs.

    Args:
        params: Number of parameters.
        macs: Multiply-accumulates of one image (what the papers call FLOPs), by the convention of the family.
        latency: Seconds that a :class:`~vitnas_core.costs.LatencyTable` predicts. Defaults to None: there is none.
    """

    params: int
    macs: int
    latency: float | None = None

    def __str__(self) -> str:
        time = '' if self.latency is None else f', {1000 * self.latency:.4g} ms'
        return f'{self.params / 1e6:.2f}M params, {self.macs / 1e9:.3f}G MACs{time}'


def as_size(name: str, value: Any) -> tuple[int, int]:
    """(height, width) of a size that may be given as one side.

    Raises:
        VitnasError: It is neither a whole number above 0 nor a pair of them.
    """
    if type(value) is int and value > 0:
        return value, value
    pair = tuple(value) if isinstance(value, (list, tuple)) else (value, value)
    if len(pair) != 2 or any(not isinstance(side, Integral) or side < 1 for side in pair):
        raise VitnasError(f'`{name}` should be a whole number above 0 or a pair of them, but got {value!r}')
    return int(pair[0]), int(pair[1])
