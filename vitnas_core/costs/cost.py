"""``Cost``: parameters and multiply-accumulates of one architecture."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cost:
    """What an architecture costs.

    Args:
        params: Number of parameters.
        macs: Multiply-accumulates of one image (what the papers call FLOPs), by the convention of the family.
    """

    params: int
    macs: int

    def __add__(self, other: 'Cost') -> 'Cost':
        return Cost(self.params + other.params, self.macs + other.macs)

    def __str__(self) -> str:
        return f'{self.params / 1e6:.2f}M params, {self.macs / 1e9:.3f}G MACs'
