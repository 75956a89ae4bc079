"""Windows and their biases against loops over tokens: attention masks and table entries."""

import itertools
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from vitnas_core.elastic import Axis, RelativeBias, Windows, WindowTables, zigzag
from vitnas_core.elastic.windows import resize_table
from vitnas_core.families.s3.layers import WindowAttention

CPU = torch.device('cpu')
MAPS = [(8, 8), (4, 12), (7, 7), (5, 9), (9, 6), (3, 10), (2, 2), (1, 1), (1, 6)]
SIZES = (1, 2, 3, 4, 5, 7, 14)
SETUPS = list(itertools.product(MAPS, SIZES, (False, True)))


class Rule(NamedTuple):
    """The windows of a block, said in words: see :func:`rule`."""

    window: int
    shift: int


def rule(grid: tuple[int, int], size: int, shifted: bool) -> Rule:
    """Windows no larger than the map; a shift by half a window, only where the map is larger than the window."""
    if min(grid) <= size:
        return Rule(min(grid), 0)
    return Rule(size, size // 2 if shifted else 0)


def together(a: tuple[int, int], b: tuple[int, int], window: int, shift: int) -> bool:
    """Whether two tokens of a map lie in one window, when windows start at ``shift`` − ``window`` on both axes."""
    return all((p - shift) // window == (q - shift) // window for p, q in zip(a, b))


def positions(grid: tuple[int, int]) -> list[tuple[int, int]]:
    return list(itertools.product(range(grid[0]), range(grid[1])))


def make_attention(size: int, shifted: bool, heads: int = 2, width: int = 6) -> WindowAttention:
    attention = WindowAttention(Axis(width), Axis(heads), [size], 99, shifted, shared=True, drop=0.0).double()
    for parameter in attention.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return attention


def by_loop(attention: WindowAttention, x: Tensor, window: int, shift: int) -> Tensor:
    """Attention of every token of a map (H, W, C) over the tokens in its window, one after another."""
    grid, heads = (x.shape[0], x.shape[1]), attention.bias.tables['shared'].shape[0]
    qkv = (x @ attention.qkv.weight.T + attention.qkv.bias).unflatten(-1, (heads, 3, 32))
    table, out = attention.bias.tables['shared'], torch.zeros(*grid, heads, 32, dtype=x.dtype)
    place = {offset: i for i, offset in enumerate(offsets(window))}
    for a in positions(grid):
        others = [b for b in positions(grid) if together(a, b, window, shift)]
        for head in range(heads):
            scores = torch.stack(
                [
                    qkv[a][head, 0] @ qkv[b][head, 1] * 32**-0.5 + table[head, place[a[0] - b[0]], place[a[1] - b[1]]]
                    for b in others
                ]
            )
            values = torch.stack([qkv[b][head, 2] for b in others])
            out[a][head] = scores.softmax(0) @ values
    return out.flatten(2) @ attention.proj.weight.T + attention.proj.bias


def offsets(size: int) -> list[int]:
    """0, −1, 1, −2, 2, … up to those of a window."""
    return [0, *(offset for distance in range(1, size) for offset in (-distance, distance))]


@pytest.mark.parametrize(('grid', 'size', 'shifted'), SETUPS)
def test_clamping_and_shift(grid: tuple[int, int], size: int, shifted: bool) -> None:
    windows = Windows.of(*grid, size, shifted)
    assert (windows.size, windows.shift) == rule(grid, size, shifted)
    assert windows.grid == tuple(len(range(0, side, windows.size)) for side in grid)


@pytest.mark.parametrize(('grid', 'size', 'shifted'), SETUPS)
def test_who_may_attend_to_whom(grid: tuple[int, int], size: int, shifted: bool) -> None:
    """Every token meets itself once, and just the tokens of its window of the endless, shifted grid of windows."""
    windows, (window, shift) = Windows.of(*grid, size, shifted), rule(grid, size, shifted)
    numbers = torch.arange(1.0, 1 + grid[0] * grid[1]).view(1, *grid, 1)  # 0 is padding
    entered = windows.enter(numbers)
    cut = windows.split(entered[..., None, None])[0, 0, :, 0, :, 0].long()
    mask = WindowTables(CPU).mask(windows, torch.float32)
    apart = torch.zeros(len(cut), 1, cut.shape[1], cut.shape[1]) if mask is None else mask
    found = set()
    for members, blocked in zip(cut.tolist(), apart[:, 0].tolist()):
        for (i, a), (j, b) in itertools.product(enumerate(members), repeat=2):
            assert blocked[i][j] in (0, -100)
            if blocked[i][j] == 0 and (a or b):
                assert a and b, 'a token attends to padding'
                assert (a, b) not in found
                found.add((a, b))
    tokens = list(enumerate(positions(grid), 1))
    assert found == {(i, j) for i, a in tokens for j, b in tokens if together(a, b, window, shift)}
    assert windows.whole == (mask is None)
    assert (mask is None) == (not shift and all(side % window == 0 for side in grid))


@pytest.mark.parametrize(('grid', 'size', 'shifted'), SETUPS)
def test_joining_undoes_what_splitting_did(grid: tuple[int, int], size: int, shifted: bool) -> None:
    windows, x = Windows.of(*grid, size, shifted), torch.randn(2, *grid, 3, 1, 4)
    split = windows.split(windows.enter(x.flatten(3)).unflatten(-1, (3, 1, 4)))
    assert split.shape == (1, 2, windows.grid[0] * windows.grid[1], 3, windows.size**2, 4)
    assert torch.equal(windows.join(split[0]), x.flatten(3))


@pytest.mark.parametrize(('grid', 'size', 'shifted'), [s for s in SETUPS if s[0] in ((8, 8), (5, 9), (3, 10), (1, 6))])
def test_attention_is_that_over_the_real_tokens_of_a_window(grid: tuple[int, int], size: int, shifted: bool) -> None:
    """So neither what the roll puts side by side nor padding has an influence, and biases belong to their offsets."""
    attention = make_attention(size, shifted)
    x = torch.randn(2, *grid, 6, dtype=torch.float64)
    out = attention(x, size, WindowTables(CPU))
    window, shift = rule(grid, size, shifted)
    for image, found in zip(x, out):
        torch.testing.assert_close(found, by_loop(attention, image, window, shift), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(('grid', 'size', 'shifted'), [((5, 9), 4, False), ((5, 9), 4, True), ((9, 6), 4, True)])
def test_gradients_are_those_of_the_loop(grid: tuple[int, int], size: int, shifted: bool) -> None:
    attention = make_attention(size, shifted)
    x = torch.randn(1, *grid, 6, dtype=torch.float64, requires_grad=True)
    ours, loop = attention(x, size, WindowTables(CPU)), by_loop(attention, x[0], *rule(grid, size, shifted))[None]
    inputs, weight = [x, *attention.parameters()], torch.randn_like(ours)
    for a, b in zip(torch.autograd.grad(ours, inputs, weight), torch.autograd.grad(loop, inputs, weight)):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_padding_is_not_seen_whatever_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even large values of it, with a map of which most is padding."""
    attention, x = make_attention(4, True), torch.randn(1, 5, 9, 6, dtype=torch.float64)
    expected, enter = attention(x, 4, WindowTables(CPU)), Windows.enter

    def with_noise(self: Windows, tokens: Tensor) -> Tensor:
        real = enter(self, torch.ones_like(tokens))
        return torch.where(real > 0, enter(self, tokens), 3 * torch.randn_like(real))

    monkeypatch.setattr(Windows, 'enter', with_noise)
    torch.testing.assert_close(attention(x, 4, WindowTables(CPU)), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize('size', [1, 2, 3, 7])
def test_entries_are_query_minus_key(size: int) -> None:
    order, tokens = offsets(size), positions((size, size))
    entries = WindowTables(CPU).entries(size, size, size).view(len(tokens), len(tokens))
    for (i, a), (j, b) in itertools.product(enumerate(tokens), repeat=2):
        row, column = divmod(entries[i, j].item(), 2 * size - 1)
        assert (order[row], order[column]) == (a[0] - b[0], a[1] - b[1])


@pytest.mark.parametrize('size', [1, 2, 3, 7, 14])
def test_zigzag(size: int) -> None:
    """Positions among −(size − 1), …, size − 1: of the smaller window the same offsets come first."""
    assert (zigzag(size) - (size - 1)).tolist() == offsets(size)
    assert sorted(zigzag(size).tolist()) == list(range(2 * size - 1))


def test_tables_are_made_once_a_pass() -> None:
    common = WindowTables(CPU)
    shifted, other = Windows.of(8, 8, 4, True), Windows.of(8, 8, 2, True)
    assert common.entries(4, 4, 4) is common.entries(4, 4, 4)
    assert common.mask(shifted, torch.float32) is common.mask(Windows.of(8, 8, 4, True), torch.float32)
    assert common.mask(other, torch.float32).shape == (16, 1, 4, 4)
    assert common.mask(Windows.of(8, 8, 4, False), torch.float32) is None


def bias_of(module: RelativeBias, asked: int, used: int, heads: int) -> Tensor:
    return module(asked, Windows.of(used, used, asked, False), heads, WindowTables(CPU))


def test_a_smaller_window_uses_the_centre_of_the_table() -> None:
    """Rows and columns W − w … W + w − 2 of the usual (2W − 1)² grid, by which the 7 of a 14 is its own network."""
    module, small = RelativeBias([7, 14], 3), RelativeBias([7], 2)
    torch.nn.init.normal_(module.tables['shared'])
    grid = module.tables['shared'][:, zigzag(14).argsort()][:, :, zigzag(14).argsort()]
    centre = grid[:2, 7:20, 7:20]
    with torch.no_grad():
        small.tables['shared'].copy_(centre[:, zigzag(7)][:, :, zigzag(7)])
    assert list(module.tables) == ['shared'] and module.tables['shared'].shape == (3, 27, 27)
    expected = bias_of(small, 7, 7, 2)
    assert torch.equal(bias_of(module, 7, 7, 2), expected)
    assert torch.equal(bias_of(module, 14, 7, 2), expected)  # clamped by its map
    tokens = positions((7, 7))
    for i, j in ((0, 0), (0, 48), (48, 0), (3, 44), (20, 7)):
        (y, x), (v, u) = tokens[i], tokens[j]
        assert torch.equal(expected[:, i, j], grid[:2, y - v + 13, x - u + 13])


def test_a_table_a_window() -> None:
    module = RelativeBias([14, 7], 3, shared=False)
    for table in module.tables.values():
        torch.nn.init.normal_(table)
    assert {name: tuple(table.shape) for name, table in module.tables.items()} == {'7': (3, 13, 13), '14': (3, 27, 27)}
    fourteen, seven = bias_of(module, 14, 7, 3), bias_of(module, 7, 7, 3)
    assert not torch.equal(fourteen, seven)
    seven.sum().backward()
    assert module.tables['14'].grad is None and module.tables['7'].grad.all()


def test_which_windows_are_served() -> None:
    shared, each = RelativeBias([3, 7], 1), RelativeBias([3, 7], 1, shared=False)
    assert [shared.serves(size) for size in (1, 3, 5, 7, 8)] == [True] * 4 + [False]
    assert [each.serves(size) for size in (1, 3, 5, 7, 8)] == [False, True, False, True, False]
    assert (shared.offers, each.offers) == ('up to 7', '3, 7')


def in_grid(table: Tensor) -> Tensor:
    """A stored table as a function of the offsets −(w − 1) … w − 1 on both axes."""
    order = zigzag((table.shape[-1] + 1) // 2).argsort()
    return table[:, order][:, :, order]


def stored(grid: Tensor) -> Tensor:
    order = zigzag((grid.shape[-1] + 1) // 2)
    return grid[:, order][:, :, order]


@pytest.mark.parametrize(('old', 'new'), [(7, 12), (14, 24), (12, 7), (2, 5), (1, 3)])
def test_resized_tables(old: int, new: int) -> None:
    """A constant and the offset 0 stay, a slope stays inside (its ends flatten), axes and heads are not confused."""
    flat = torch.full((2, 2 * old - 1, 2 * old - 1), 0.75)
    torch.testing.assert_close(resize_table(flat, new), torch.full((2, 2 * new - 1, 2 * new - 1), 0.75))

    def slopes(offset: Tensor) -> Tensor:
        rows, columns = torch.meshgrid(offset, offset, indexing='ij')
        return torch.stack([rows, columns, rows - columns])

    resized = in_grid(resize_table(stored(slopes(torch.arange(1.0 - old, old))), new))
    there = torch.arange(1.0 - new, new) * (2 * old - 1) / (2 * new - 1)  # the table keeps its whole extent
    inside = there.abs() <= max(0, old - 3)  # bicubic looks two entries far
    found, wanted = (grids[:, inside][:, :, inside] for grids in (resized, slopes(there)))
    torch.testing.assert_close(found, wanted, rtol=0, atol=0.1)  # torch's kernel bends a slope, by 0.05 an axis
    torch.testing.assert_close(resized, -resized.flip(1, 2), rtol=0, atol=1e-4)
    assert resized[:, new - 1, new - 1].abs().max() < 1e-5


def test_resizing_to_the_same_size_changes_nothing() -> None:
    table = torch.randn(3, 13, 13)
    assert torch.equal(resize_table(table, 7), table)
    assert resize_table(table.double(), 5).dtype == torch.float64


def test_a_checkpoint_of_other_windows_is_interpolated() -> None:
    small, large = RelativeBias([7], 3), RelativeBias([12], 3)
    torch.nn.init.normal_(small.tables['shared'])
    state = small.state_dict()
    large.load_state_dict(state)
    grid = in_grid(small.tables['shared'])[None]
    wanted = torch.nn.functional.interpolate(grid, (23, 23), mode='bicubic', align_corners=False)[0]
    torch.testing.assert_close(in_grid(large.tables['shared']), wanted)
    assert state['tables.shared'].shape == (3, 13, 13)  # the caller's is left as it was
    again = RelativeBias([7], 3)
    again.load_state_dict(state)
    assert torch.equal(again.tables['shared'], small.tables['shared'])
    with pytest.raises(RuntimeError, match='size mismatch for tables.shared'):
        RelativeBias([7], 2).load_state_dict(state)
    with pytest.raises(RuntimeError, match='Missing key'):
        RelativeBias([7], 3, shared=False).load_state_dict(state)
