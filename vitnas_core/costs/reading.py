"""What costs of all families need: the choices of an architecture, read with the path of what is wrong, and grids."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from ..errors import ArchError, VitnasError
from ..spaces import Choices


def whole(choices: Choices, name: str) -> int:
    """A choice that is a whole number above 0.

    Raises:
        ArchError: It is not.
    """
    value = choices[name]
    if isinstance(value, str) or value < 1 or value != int(value):
        raise ArchError(f'.{name} should be a whole number above 0, but got {value!r}')
    return int(value)


def check_names(choices: Choices, names: tuple[str, ...], who: str) -> None:
    """Check that there are these choices and no others.

    Raises:
        ArchError: One is missing or unknown.
    """
    for name in choices:
        if name not in names:
            raise ArchError(f'.{name} is unknown; {who} has {", ".join(names)} here')
    for name in names:
        if name not in choices:
            raise ArchError(f'.{name} is missing; {who} has {", ".join(names)} here')


@lru_cache(maxsize=4096)
def read_width(choices: Choices, who: str) -> int:
    """``embed_dim`` of a stage that has no other choice.

    Raises:
        ArchError: It is missing, no whole number, or not alone.
    """
    check_names(choices, ('embed_dim',), who)
    return whole(choices, 'embed_dim')


def read_ratio(block: Choices, width: int) -> float:
    """``mlp_ratio`` of a block in a stage of a width.

    Raises:
        ArchError: It is no number above 0, or leaves no hidden unit.
    """
    ratio = block['mlp_ratio']
    if isinstance(ratio, str) or ratio <= 0:
        raise ArchError(f'.mlp_ratio should be a number above 0, but got {ratio!r}')
    if int(width * ratio) < 1:
        raise ArchError(f'.mlp_ratio is {ratio}, which leaves no hidden unit of {width} channels')
    return float(ratio)


def token_grid(size: tuple[int, int], patch_size: int) -> tuple[int, int]:
    """Rows and columns of patches; sides are padded to whole ones.

    Raises:
        VitnasError: ``patch_size`` is not a whole number of at least 1.
    """
    if isinstance(patch_size, bool) or patch_size != int(patch_size) or patch_size < 1:
        raise VitnasError(f'`patch_size` should be a whole number of at least 1, but got {patch_size!r}')
    return -(-size[0] // patch_size), -(-size[1] // patch_size)


def check_out_indices(indices: Sequence[int], stages: int) -> None:
    """Check after which stages features are returned.

    Raises:
        VitnasError: They are none, or not stages.
    """
    whole_numbers = isinstance(indices, (list, tuple)) and indices and all(type(i) is int for i in indices)
    if not whole_numbers or not all(-stages <= i < stages for i in indices):
        raise VitnasError(
            f'`out_indices` should be from {-stages} to {stages - 1}, as there are {stages} stages, but got {indices!r}'
        )


def stage_maps(size: tuple[int, int], patch_size: int, stages: int) -> list[tuple[int, int]]:
    """Rows and columns of each stage's tokens; sides are padded to whole patches, and to even ones for merging."""
    maps = [token_grid(size, patch_size)]
    for _ in range(stages - 1):
        maps.append((-(-maps[-1][0] // 2), -(-maps[-1][1] // 2)))
    return maps
