"""Gradient projection: by hand in float64 on every family, and with all features of optimizer wrappers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from mmengine.optim import OptimWrapper
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from tests.families import FAMILIES
from tests.test_training.test_rules import (
    Watched,
    _double_inputs,  # noqa: F401  (a fixture that every test here uses)
    archs_of,
    assert_gradients,
    bound,
    make_batch,
    make_model,
    single_gradients,
    wrapper,
)
from vitnas_core.errors import VitnasError
from vitnas_core.spaces import Arch
from vitnas_core.training import BFloat16OptimWrapper
from vitnas_core.training.projection import ASIDE, GradientProjection
from vitnas_core.training.rules import Sandwich
from vitnas_core.training.samplers import SandwichSampler, UniformSampler

Gradients = dict[str, Tensor]


class Torn(Sandwich):
    """The largest learns other labels than the rest, so that there are conflicts in every family."""

    def objective(self, model: Any, data: Any) -> Callable[[Arch], Tensor]:
        coming = iter([super().objective(model, wrong(data))])
        others = super().objective(model, data)
        return lambda arch: next(coming, others)(arch)


def wrong(batch: dict) -> dict:
    samples = copy.deepcopy(batch['data_samples'])
    for sample in samples:
        sample.set_gt_label((sample.gt_label + 5) % 10)
    return {**batch, 'data_samples': samples}


def sandwich(model: nn.Module, **options: Any) -> Sandwich:
    return bound(Torn(conflict=dict(type='vitnas.GradientProjection', **options)), model)


def pair(model: nn.Module, batch: dict, archs: list) -> tuple[Gradients, Gradients]:
    """The gradients of the largest, and the sum of the others'."""
    subnets: Gradients = {}
    for arch in archs[1:]:
        for name, gradient in single_gradients(model, batch, arch).items():
            subnets[name] = subnets.get(name, 0) + gradient
    return single_gradients(model, wrong(batch), archs[0]), subnets


def by_hand(kept: Gradients, other: Gradients) -> tuple[Gradients, int]:
    """Eq. 1 on each tensor, and how many of them conflict; a gradient that is missing is zero."""
    like = {**kept, **other}
    found, conflicts = {}, 0
    for name, tensor in like.items():
        x, y = (side.get(name, torch.zeros_like(tensor)).flatten() for side in (kept, other))
        if x @ y < 0:
            conflicts += 1
            y = y - (x @ y) / (x @ x) * x
            assert (x @ y) / (x.norm() * y.norm()) >= -1e-12
        found[name] = (x + y).view_as(tensor)
    return found, conflicts


def assert_combined(model: nn.Module, expected: Gradients, rtol: float = 1e-9, atol: float = 1e-12) -> None:
    assert_gradients(model, expected, rtol, atol)
    assert all(getattr(parameter, ASIDE, None) is None for parameter in model.parameters())


@pytest.mark.parametrize('name', FAMILIES)
@pytest.mark.parametrize('keep', ['subnets', 'supernet'])
def test_equation_by_hand(name: str, keep: str) -> None:
    model = make_model(name)
    conflicts = 0
    for seed in range(3):
        archs, batch = archs_of(model, seed), make_batch(seed)
        supernet, subnets = pair(model, batch, archs)
        sides = (subnets, supernet) if keep == 'subnets' else (supernet, subnets)
        expected, number = by_hand(*sides)
        conflicts += number
        optim = wrapper(model)
        logs = sandwich(model, keep=keep).step(model, batch, archs, optim)
        assert optim.updates == optim.inner_count == 1 and 'loss_arch3' in logs
        assert_combined(model, expected)
    assert conflicts


@pytest.mark.parametrize('name', FAMILIES)
@pytest.mark.parametrize('precision', [torch.float32, torch.float64])
def test_nothing_that_is_added_opposes_what_is_kept(name: str, precision: torch.dtype) -> None:
    model, batch, opposed = make_model(name), make_batch(), 0
    archs = archs_of(model)
    supernet, subnets = pair(model, batch, archs)
    for key, parameter in model.named_parameters():
        if key not in supernet or key not in subnets:
            continue
        kept, other = subnets[key].to(precision), supernet[key].to(precision)
        cosine = torch.cosine_similarity(kept.flatten().double(), other.flatten().double(), 0)
        single = nn.Parameter(torch.zeros_like(parameter, dtype=precision))
        optim, projection = OptimWrapper(torch.optim.SGD([single], lr=1.0)), GradientProjection()
        single.grad = other.clone()
        projection.set_aside(nn.Identity(), optim)
        single.grad = kept.clone()
        projection.combine(optim)
        added = single.grad.double() - kept.double()
        # What is left of a gradient may be less than float32 rounds away when it is added: it is seen in proportion.
        size = added.norm() if precision == torch.float64 else other.norm()
        opposition = torch.dot(kept.flatten().double(), added.flatten()) / (kept.norm() * size).clamp(min=1e-300)
        nothing = kept.norm() < 1e-15  # zero but for rounding, as of a bias before a softmax; its square is no float32
        assert opposition >= -1e-6 or kept.numel() == 1 or nothing, key
        if cosine < 0:
            opposed += 1
        else:
            assert torch.equal(single.grad, kept + other)
    assert opposed > 10


@pytest.mark.parametrize('keep', ['subnets', 'supernet'])
def test_a_gradient_that_only_one_has_is_kept_once(keep: str) -> None:
    parameters = [nn.Parameter(torch.zeros(2)) for _ in range(3)]
    optim, projection = OptimWrapper(torch.optim.SGD(parameters, lr=1.0)), GradientProjection(keep=keep)
    parameters[0].grad = torch.tensor([1.0, 2.0])
    projection.set_aside(nn.Identity(), optim)
    parameters[1].grad = torch.tensor([3.0, 4.0])
    projection.combine(optim)
    assert parameters[0].grad.tolist() == [1, 2] and parameters[1].grad.tolist() == [3, 4]
    assert parameters[2].grad is None


@pytest.mark.parametrize('name', ['autoformer', 's3'])
def test_micro_batches_are_compared_once(name: str) -> None:
    """Two of 4 images are one of 8, and not the sum of two projections."""
    model = make_model(name)
    batch, archs = make_batch(size=8), archs_of(model)
    parts = [{key: values[i : i + 4] for key, values in batch.items()} for i in (0, 4)]
    expected, _ = by_hand(*reversed(pair(model, batch, archs)))
    optim, rule = wrapper(model, accumulative_counts=2), sandwich(model)
    optim.initialize_count_status(model, 0, 4)
    rule.step(model, parts[0], archs, optim)
    supernet, subnets = pair_of(model)
    assert optim.updates == 0
    for side, whole in zip((supernet, subnets), pair_again(name, parts[0], archs)):
        assert side.keys() == whole.keys()
        for key, gradient in side.items():
            torch.testing.assert_close(gradient, whole[key] / 2, rtol=1e-9, atol=1e-12)
    rule.step(model, parts[1], archs, optim)
    assert optim.updates == 1
    assert_combined(model, expected, rtol=1e-7, atol=1e-11)


def pair_of(model: nn.Module) -> tuple[Gradients, Gradients]:
    """What waits between two steps."""
    named = list(model.named_parameters())
    sides = [(name, p.grad, getattr(p, ASIDE)) for name, p in named]
    return {n: a for n, a, _ in sides if a is not None}, {n: b for n, _, b in sides if b is not None}


def pair_again(name: str, batch: dict, archs: list) -> tuple[Gradients, Gradients]:
    return pair(make_model(name), batch, archs)


def test_clips() -> None:
    """The subnets' before, the wrapper's after."""
    model, batch = make_model(), make_batch()
    archs = archs_of(model)
    supernet, subnets = pair(model, batch, archs)
    norm = torch.cat([gradient.flatten() for gradient in subnets.values()]).norm()
    limit = 0.1 * norm.item()
    expected, _ = by_hand({k: v * 0.1 for k, v in subnets.items()}, supernet)
    sandwich(model, clip_subnets=limit).step(model, batch, archs, wrapper(model))
    assert_combined(model, expected, rtol=1e-5, atol=1e-8)  # torch adds a millionth to the norm
    model.zero_grad()
    optim = OptimWrapper(torch.optim.SGD(model.parameters(), lr=1.0), clip_grad=dict(max_norm=1e-3))
    before = [p.detach().clone() for p in model.parameters()]
    sandwich(model, clip_subnets=limit).step(model, batch, archs, optim)
    moved = torch.cat([(a - b).detach().flatten() for a, b in zip(before, model.parameters())])
    assert moved.norm().item() == pytest.approx(1e-3, rel=1e-3)
    along = torch.cat([expected[name].flatten() for name, _ in model.named_parameters()])
    assert torch.cosine_similarity(moved, along, 0).item() == pytest.approx(1, abs=1e-6)


def test_cap_and_eps() -> None:
    model, batch = make_model(), make_batch()
    archs = archs_of(model)
    supernet, subnets = pair(model, batch, archs)
    expected = {}
    for name, other in supernet.items():
        kept = subnets[name]
        share = (-(kept * other).sum() / (0.5 + (kept * kept).sum())).clamp(0, 0.01)
        expected[name] = (1 + share) * kept + other
    sandwich(model, cap=0.01, eps=0.5).step(model, batch, archs, wrapper(model))
    assert_combined(model, expected)


def test_start() -> None:
    """The first quarter of 8 steps only adds; where a resumed training is comes from the wrapper, too."""
    model, batch = make_model(), make_batch()
    archs = archs_of(model)
    supernet, subnets = pair(model, batch, archs)
    added = {name: supernet[name] + subnets[name] for name in supernet}
    projected, _ = by_hand(subnets, supernet)
    rule = sandwich(model, start=0.25)
    for step in range(4):
        optim = wrapper(model)
        optim.initialize_count_status(model, step, 8)
        rule.step(model, batch, archs, optim)
        assert_combined(model, added if step < 2 else projected)
        model.zero_grad()


class Scaled(Watched):
    """What mmengine's AmpOptimWrapper does, which runs on no CPU: losses are scaled, gradients unscaled at the end."""

    def __init__(self, optimizer: Any, scale: float, **options: Any) -> None:
        super().__init__(optimizer, **options)
        self.loss_scaler = torch.amp.GradScaler('cpu', init_scale=scale)
        self.skipped = False

    def backward(self, loss: Tensor, **kwargs: Any) -> None:
        self.loss_scaler.scale(loss).backward(**kwargs)
        self._inner_count += 1

    def step(self, **kwargs: Any) -> None:
        super().step(**kwargs)
        self.loss_scaler.unscale_(self.optimizer)
        scale = self.loss_scaler.get_scale()
        self.loss_scaler.step(self.optimizer)
        self.loss_scaler.update()
        self.skipped = self.loss_scaler.get_scale() < scale


@pytest.mark.parametrize('keep', ['subnets', 'supernet'])
def test_loss_scaling_changes_nothing(keep: str) -> None:
    model, batch = make_model(), make_batch()
    archs, options = archs_of(model), dict(keep=keep, clip_subnets=0.5, eps=1e-2, cap=1.5)
    sandwich(model, **options).step(model, batch, archs, wrapper(model))
    expected = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    optim = Scaled(torch.optim.SGD(model.parameters(), lr=0.0), 2.0**16)
    sandwich(model, **options).step(model, batch, archs, optim)
    assert not optim.skipped
    assert_combined(model, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize('which', [0, 2], ids=['supernet', 'subnet'])
@pytest.mark.parametrize('keep', ['subnets', 'supernet'])
@pytest.mark.parametrize('clip', [None, 1.0])
def test_infinities_skip_the_step(monkeypatch: pytest.MonkeyPatch, which: int, keep: str, clip: float | None) -> None:
    from vitnas_core.training.rules import sandwich as module

    model, seen = make_model(), []

    def overflowing(*args: Any) -> None:
        if len(seen) == which:
            next(model.head.parameters()).grad[0, 0] = torch.inf
        seen.append(None)

    add = module.add_gradients
    monkeypatch.setattr(module, 'add_gradients', lambda *args: (add(*args), overflowing()))
    optim = Scaled(torch.optim.SGD(model.parameters(), lr=1.0), 2.0**10)
    before = [p.detach().clone() for p in model.parameters()]
    sandwich(model, keep=keep, clip_subnets=clip).step(model, make_batch(), archs_of(model), optim)
    assert optim.skipped
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters()))


def test_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward in bfloat16, gradients in float32: the equation holds for what they are."""
    model, seen = make_model().float(), {}
    monkeypatch.setattr(BFloat16OptimWrapper, 'step', lambda self: None)
    monkeypatch.setattr(BFloat16OptimWrapper, 'zero_grad', lambda self: None)
    combine = GradientProjection.combine

    def noted(self: Any, *args: Any) -> None:
        seen.update({n: (getattr(p, ASIDE).clone(), p.grad.clone()) for n, p in model.named_parameters()})
        combine(self, *args)

    monkeypatch.setattr(GradientProjection, 'combine', noted)
    monkeypatch.setattr('mmpretrain.models.ClsDataPreprocessor.forward', single_precision())
    optim = BFloat16OptimWrapper(torch.optim.SGD(model.parameters(), lr=0.1))
    sandwich(model).step(model, make_batch(), archs_of(model), optim)
    for name, parameter in model.named_parameters():
        supernet, subnets = seen[name]
        assert parameter.grad.dtype == torch.float32
        share = (-(supernet * subnets).sum() / (subnets * subnets).sum()).clamp(min=0)
        torch.testing.assert_close(parameter.grad, (1 + share) * subnets + supernet, rtol=1e-4, atol=1e-6)


def single_precision() -> Any:
    from mmpretrain.models import ClsDataPreprocessor

    double = ClsDataPreprocessor.forward
    return lambda self, data, training=False: {
        key: value.float() if key == 'inputs' else value for key, value in double(self, data, training).items()
    }


def test_samplers_and_arguments_that_do_not_do() -> None:
    model = make_model()
    sandwich(model).check(SandwichSampler(), model)
    with pytest.raises(VitnasError, match='`conflict` of vitnas.Sandwich compares others with the largest.*Uniform'):
        sandwich(model).check(UniformSampler(), model)
    for options, words in (
        (dict(keep='both'), '`keep` should be one of subnets, supernet, but got'),
        (dict(cap=0.0), '`cap` should be above 0, but got 0.0'),
        (dict(clip_subnets=-1.0), '`clip_subnets` should be above 0'),
        (dict(eps=-1e-6), '`eps` should be a number of at least 0'),
        (dict(start=2.0), '`start` should be from 0 to 1, but got 2.0'),
    ):
        with pytest.raises(VitnasError, match=words):
            GradientProjection(**options)
    distributed = DistributedDataParallel.__new__(DistributedDataParallel)
    nn.Module.__init__(distributed)
    distributed.gradient_as_bucket_view = True
    with pytest.raises(VitnasError, match='leave `gradient_as_bucket_view` out of `model_wrapper_cfg`'):
        GradientProjection().set_aside(distributed, wrapper(model))


def test_at_most_one_more_gradient_is_held() -> None:
    """While a step runs, and nothing of it after the update."""
    model, batch = make_model(), make_batch()
    held = []

    class Counting(OptimWrapper):
        def backward(self, loss: Tensor, **kwargs: Any) -> None:
            super().backward(loss, **kwargs)
            gradients = [g for p in model.parameters() for g in (p.grad, getattr(p, ASIDE, None)) if g is not None]
            held.append(sum(g.numel() for g in gradients))

    optim = Counting(torch.optim.SGD(model.parameters(), lr=0.1))
    sandwich(model).step(model, batch, archs_of(model), optim)
    size = sum(p.numel() for p in model.parameters())
    assert held[0] <= size and max(held) <= 2 * size
    assert all(p.grad is None and getattr(p, ASIDE) is None for p in model.parameters())
