"""``Cost``: parameters, multiply-accumulates and, where it was measured, latency of one architecture."""

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from ..errors import VitnasError
from ..spaces import Arch


@dataclass(frozen=True, slots=True)
class Cost:
    """What an architecture costs.

    Args:
        params: Number of parameters.
        macs: Multiply-accumulates of one image (what the papers call FLOPs), by the convention of the family.
        latency: Seconds that a :class:`~vitnas_core.latency.LatencyTable` predicts. Defaults to None: there is none.
    """

    params: int
    macs: int
    latency: float | None = None

    def __str__(self) -> str:
        time = '' if self.latency is None else f', {1000 * self.latency:.4g} ms'
        macs = f'{self.macs / 1e9:.3f}G' if self.macs >= 1e9 else f'{self.macs / 1e6:.3f}M'
        return f'{self.params / 1e6:.2f}M params, {macs} MACs{time}'


def priced_size(arch: Arch, input_size: Any, settings: Mapping[str, Any]) -> tuple[int, int]:
    """(height, width) of the image that a price holds for, whatever image is given.

    A classifier whose architecture has a ``resolution`` (NASViT) resizes images to it; a backbone of dense tasks, which
    has ``out_indices``, does not.

    Args:
        arch: The architecture.
        input_size: Side, or (height, width), of the image that is given.
        settings: Those of the backbone that there are.

    Raises:
        VitnasError: The size is none.
    """
    size = as_size('input_size', input_size)
    resizes = 'resolution' in arch.choices and settings.get('out_indices') is None
    return (int(arch.choices['resolution']),) * 2 if resizes else size


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
