"""Fused relative positions against the formula written as a double loop over tokens."""

import itertools

import pytest
import torch
from torch import Tensor

from vitnas_core.elastic import RelativePositions2D, TokenGrid

GRIDS = [(3, 3), (2, 5), (6, 4), (1, 1), (1, 7)]


def by_loop(module: RelativePositions2D, q: Tensor, k: Tensor, v: Tensor, grid: tuple[int, int], reach: int) -> Tensor:
    """AutoFormer's formula, pair by pair."""

    def row(i: int, j: int, axis: int) -> int:
        if i == 0 or j == 0:
            return 0
        a, b = (divmod(t - 1, grid[1])[axis] for t in (i, j))
        return max(-reach, min(reach, b - a)) + reach + 1

    tokens, scale = q.shape[2], q.shape[3] ** -0.5
    out = []
    for i in range(tokens):
        rows = [(row(i, j, 0), row(i, j, 1)) for j in range(tokens)]
        keys = torch.stack([module.key_vertical[r] + module.key_horizontal[c] for r, c in rows])
        values = torch.stack([module.value_vertical[r] + module.value_horizontal[c] for r, c in rows])
        weights = ((q[:, :, i, None] * (k + keys)).sum(-1) * scale).softmax(-1)
        out.append((weights[..., None] * (v + values)).sum(2))
    return torch.stack(out, 2)


def make(grid: tuple[int, int], reach: int, d: int = 8, dtype: torch.dtype = torch.float64) -> tuple:
    module = RelativePositions2D(d, reach).to(dtype)
    for table in module.parameters():
        torch.nn.init.normal_(table)
    q, k, v = (torch.randn(2, 3, 1 + grid[0] * grid[1], d, dtype=dtype, requires_grad=True) for _ in range(3))
    return module, q, k, v, TokenGrid.make(*grid, d, reach, q.device)


@pytest.mark.parametrize(('grid', 'reach'), itertools.product(GRIDS, (1, 2, 14)))
def test_outputs_and_all_gradients(grid: tuple[int, int], reach: int) -> None:
    module, q, k, v, layout = make(grid, reach)
    ours, expected = module(q, k, v, layout), by_loop(module, q, k, v, grid, reach)
    torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-10)
    inputs, weight = [q, k, v, *module.parameters()], torch.randn_like(ours)
    found = torch.autograd.grad(ours, inputs, weight)
    wanted = torch.autograd.grad(expected, inputs, weight)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_a_large_grid_needs_no_pairwise_tensor() -> None:
    """50 × 84 tokens (800 × 1344 pixels): the published form would hold 4201² × 64 numbers twice."""
    module, _, _, _, _ = make((2, 2), 14, d=64, dtype=torch.float32)
    q, k, v = (torch.randn(1, 1, 4201, 64) for _ in range(3))
    with torch.no_grad():
        out = module(q, k, v, TokenGrid.make(50, 84, 64, 14, q.device))
        some = torch.tensor([0, 1, 84, 85, 2100, 4200])
        # The same rows by the formula, for a few queries.
        pixel = torch.arange(4200)
        y, x = torch.div(pixel, 84, rounding_mode='floor'), pixel % 84
        for i in some.tolist():
            rows = torch.zeros(2, 4201, dtype=torch.long)
            if i:
                for axis, position in enumerate((y, x)):
                    rows[axis, 1:] = (position - position[i - 1]).clamp(-14, 14) + 15
            keys = module.key_vertical[rows[0]] + module.key_horizontal[rows[1]]
            values = module.value_vertical[rows[0]] + module.value_horizontal[rows[1]]
            weights = ((k[0, 0] + keys) @ q[0, 0, i] / 8).softmax(0)
            torch.testing.assert_close(out[0, 0, i], weights @ (v[0, 0] + values), rtol=1e-4, atol=1e-5)


def test_dropout_treats_both_terms_alike() -> None:
    """With one vector u as every value, and as the sum of any two table rows, both terms are u Σ p."""
    module, q, k, _, layout = make((3, 4), 2)
    u = torch.randn(8, dtype=torch.float64)
    v = u.expand_as(q)
    results = []
    for share in (0.0, 0.5):
        with torch.no_grad():
            module.value_vertical.copy_((share * u).expand_as(module.value_vertical))
            module.value_horizontal.copy_((share * u).expand_as(module.value_horizontal))
        torch.manual_seed(3)
        results.append(module(q, k, v, layout, drop=0.5))
    torch.testing.assert_close(results[1], 2 * results[0])
    assert results[0].std(2).max() > 0.01  # something was dropped


@pytest.mark.parametrize('grid', [(4, 4), (3, 6)])
def test_bfloat16(grid: tuple[int, int]) -> None:
    module, q, k, v, layout = make(grid, 2, d=16, dtype=torch.float32)
    expected = module(q, k, v, layout)
    low = module.to(torch.bfloat16)(*(x.to(torch.bfloat16) for x in (q, k, v)), layout)
    assert low.dtype == torch.bfloat16
    torch.testing.assert_close(low.float(), expected, rtol=0.1, atol=0.15)


def test_autocast_keeps_the_low_type() -> None:
    module, q, k, v, layout = make((3, 4), 2, d=16, dtype=torch.float32)
    with torch.autocast('cpu', torch.bfloat16):
        assert module(*(x.to(torch.bfloat16) for x in (q, k, v)), layout).dtype == torch.bfloat16
