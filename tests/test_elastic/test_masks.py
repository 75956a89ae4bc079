"""Masked norms are stable, and slices of one weight gather their gradients once."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F

from vitnas_core.elastic import GradientPool, keep, masked_layer_norm


def test_masked_norm_equals_the_norm_of_the_kept_channels() -> None:
    x = torch.randn(3, 5, 7, 16, dtype=torch.float64)
    weight, bias = torch.randn(2, 16, dtype=torch.float64)
    kept = [16, 9, 1]
    mask = torch.arange(16) < torch.tensor(kept)[:, None]
    found = masked_layer_norm(x, mask, weight, bias, 1e-6)
    for row, k in enumerate(kept):
        wanted = F.layer_norm(x[row, ..., :k], (k,), weight[:k], bias[:k], 1e-6)
        torch.testing.assert_close(found[row, ..., :k], wanted)
        assert not found[row, ..., k:].any()


def test_masked_norm_is_stable_far_from_zero() -> None:
    """Where the mean square less the square of the mean, as in the published code, has no digit left."""
    x = torch.randn(2, 4, 32) + 1e4
    mask = torch.arange(32) < torch.tensor([[20], [32]])
    weight, bias = torch.ones(32), torch.zeros(32)
    found = masked_layer_norm(x, mask, weight, bias, 1e-6)[0, :, :20]
    wanted = F.layer_norm(x[0, :, :20].double(), (20,)).float()
    torch.testing.assert_close(found, wanted, rtol=1e-2, atol=1e-2)
    part = x[0, :, :20]
    naive = part.square().mean(-1) - part.mean(-1).square()
    assert ((naive - part.var(-1, correction=0)).abs() > 0.5).any()  # so the test can fail


def test_keep() -> None:
    x, mask = torch.randn(2, 3, 4), torch.tensor([[True, True, False, False], [True] * 4])
    assert keep(x, None) is x
    assert torch.equal(keep(x, mask)[0, :, :2], x[0, :, :2]) and not keep(x, mask)[0, :, 2:].any()
    assert torch.equal(keep(x, mask)[1], x[1])


SLICES = [(3, 4), (6, 2), (6, 5), (1, 1), (3, 4)]


def uses(weight: torch.Tensor, cut) -> torch.Tensor:
    """Something of every slice."""
    return sum((cut(*sizes) * (i + 1)).square().sum() for i, sizes in enumerate(SLICES))


def test_gathered_gradients_are_those_of_slices() -> None:
    weight = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    uses(weight, lambda a, b: weight[:a, :b]).backward()
    expected, weight.grad = weight.grad, None
    calls: list[torch.Tensor] = []
    weight.register_hook(calls.append)
    pool = GradientPool(weight)
    loss = uses(weight, pool.cut)
    loss.backward(retain_graph=True)
    torch.testing.assert_close(weight.grad, expected)
    assert len(calls) == 1  # as DistributedDataParallel needs it
    loss.backward()  # once more: nothing was left behind
    torch.testing.assert_close(weight.grad, 2 * expected)


def test_slices_that_a_loss_does_not_see_are_not_waited_for() -> None:
    weight = torch.randn(6, 5, requires_grad=True)
    pool = GradientPool(weight)
    seen, unseen = pool.cut(2, 3), pool.cut(6, 5)
    assert unseen.requires_grad and unseen.data_ptr() == weight.data_ptr()
    (seen * 3).sum().backward()
    assert weight.grad is not None
    assert weight.grad.sum() == 18 and torch.equal(weight.grad[:2, :3], torch.full((2, 3), 3.0))


@pytest.mark.parametrize('backward', [True, False])
@pytest.mark.parametrize('sizes', [(2, 2), (4, 4)], ids=['part', 'whole'])
def test_nothing_is_kept_of_a_pass(sizes: tuple[int, int], backward: bool) -> None:
    """A training makes some hundred pools a step."""
    weight = torch.randn(4, 4, requires_grad=True)
    gc.collect()
    gc.disable()
    try:
        pool = GradientPool(weight)
        gone = weakref.ref(pool._sum)
        loss = (pool.cut(*sizes) @ torch.randn(sizes)).sum()
        if backward:
            loss.backward()
        del pool, loss
        assert gone() is None
    finally:
        gc.enable()


def test_a_weight_that_changed_before_its_backward_is_noticed() -> None:
    weight = torch.randn(4, 4, requires_grad=True)
    out = (GradientPool(weight).cut(2, 2) @ torch.randn(2, 2, requires_grad=True)).sum()
    with torch.no_grad():
        weight.mul_(2)
    with pytest.raises(RuntimeError, match='has been modified inplace'):
        out.backward()
