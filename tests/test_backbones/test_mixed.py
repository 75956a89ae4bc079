"""Batches of several architectures: masked = sliced = separate, outputs and gradients, for every family."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.families import VARIANTS, Family
from vitnas_core.backbones import S3, AutoFormer, ElasticBackbone, NASViT, ViTASDeiT, ViTASTwins
from vitnas_core.backbones.mixed import Active, Mixture
from vitnas_core.elastic import ElasticLayerNorm, ElasticLinear, importance_orders
from vitnas_core.errors import ArchError, VitnasError
from vitnas_core.spaces import Arch

every_family = pytest.mark.parametrize('family', VARIANTS.values(), ids=VARIANTS.keys())
# Families whose layers take masks with their usual settings; others say why not, which is tested below.
maskable = {name: family for name, family in VARIANTS.items() if not family.elastic().why_not_masked()}
every_family_and_way = pytest.mark.parametrize(
    ('family', 'way'),
    [
        pytest.param(family, way, id=f'{name}-{way}')
        for name, family in VARIANTS.items()
        for way in ('sliced', 'masked')
        if way == 'sliced' or name in maskable
    ],
)


def make(family: Family, dtype: torch.dtype = torch.float32, **settings: object) -> ElasticBackbone:
    torch.manual_seed(0)
    model = family.elastic(**settings).to(dtype)
    for name, parameter in model.named_parameters():  # weights that count, so that nothing hides behind zeros
        nn.init.normal_(parameter, mean=float(parameter.ndim == 1 and 'weight' in name), std=0.2)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()  # the statistics of a batch are no sum over its samples
    return model


def draw(family: Family, count: int) -> list[Arch]:
    """The largest, the smallest, and random ones."""
    rng = np.random.default_rng(0)
    return [family.space.largest(), family.space.smallest(), *(family.space.sample(rng) for _ in range(count - 2))]


Run = Callable[[ElasticBackbone, Tensor], Tensor]


def observe(model: ElasticBackbone, x: Tensor, run: Run, wanted: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The last output, and the gradients of a loss that weighs all its entries differently."""
    model.zero_grad(set_to_none=True)
    out = run(model, x)
    (out * wanted).sum().backward()
    return out.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def separate(archs: list[Arch], owners: list[int]) -> Run:
    """One pass an architecture, put together in the order of the batch."""

    def run(model: ElasticBackbone, x: Tensor) -> Tensor:
        rows = {i: [r for r, owner in enumerate(owners) if owner == i] for i in range(len(archs))}
        parts = []
        for i, arch in enumerate(archs):
            model.set_arch(arch)
            parts += list(zip(rows[i], model(x[rows[i]])[-1] if rows[i] else []))
        return torch.stack([out for _, out in sorted(parts, key=lambda part: part[0])])

    return run


def together(archs: list[Arch], way: str, interleaved: bool = False) -> Run:
    def run(model: ElasticBackbone, x: Tensor) -> Tensor:
        model.set_archs(archs, way, interleaved)
        return model(x)[-1]

    return run


@every_family_and_way
@pytest.mark.parametrize('interleaved', [False, True])
@pytest.mark.parametrize('dtype', [torch.float64, torch.float32])
def test_equals_separate_passes(family: Family, way: str, interleaved: bool, dtype: torch.dtype) -> None:
    model, archs = make(family, dtype), draw(family, 4)
    height, width = (family.image, family.image) if interleaved else (37, 51)
    x = torch.randn(9, 3, height, width, dtype=dtype)  # nine cannot be split evenly among four
    owners = [r % 4 for r in range(9)] if interleaved else [0, 0, 0, 1, 1, 2, 2, 3, 3]
    wanted = torch.randn_like(separate(archs, owners)(model, x)) / 9
    expected, gradients = observe(model, x, separate(archs, owners), wanted)
    found, shared = observe(model, x, together(archs, way, interleaved), wanted)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    assert shared.keys() == gradients.keys()
    for name, (a, b) in {'out': (found, expected), **{n: (shared[n], gradients[n]) for n in shared}}.items():
        assert (a - b).abs().max() <= tolerance * max(1.0, float(b.abs().max())), name


@every_family_and_way
def test_a_batch_of_fewer_samples_than_architectures(family: Family, way: str) -> None:
    model, archs = make(family), draw(family, 5)
    x = torch.randn(3, 3, family.image, family.image)
    expected = separate(archs, [0, 1, 3])(model, x)
    torch.testing.assert_close(together(archs, way)(model, x), expected, rtol=1e-4, atol=1e-5)


@every_family_and_way
def test_one_architecture_is_the_same_as_alone(family: Family, way: str) -> None:
    model, arch = make(family), family.space.smallest()
    x = torch.randn(2, 3, family.image, family.image)
    model.set_arch(arch)
    alone = model(x)[-1]
    torch.testing.assert_close(together([arch], way)(model, x), alone, rtol=1e-5, atol=1e-5)


@every_family_and_way
def test_what_was_shared_leaves_no_trace(family: Family, way: str) -> None:
    model, archs = make(family), draw(family, 3)
    x = torch.randn(4, 3, family.image, family.image)
    model.set_arch(archs[2])
    before = model(x)[-1]
    together(archs, way)(model, x)
    assert model.arch == archs[2] and model.active.archs == (archs[2],)
    assert all(m.inputs.mask is None for m in model.modules() if isinstance(m, ElasticLinear))
    assert all(m.axis.mask is None for m in model.modules() if isinstance(m, ElasticLayerNorm))
    model.set_arch(archs[2])
    assert torch.equal(model(x)[-1], before) and model.active.archs == (archs[2],)
    assert torch.equal(model.eval().extract()(x)[-1], before[:, model.out_masks(archs[2])[-1]])


@every_family_and_way
def test_a_pass_that_fails_leaves_no_trace(family: Family, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, archs = make(family), draw(family, 3)
    x = torch.randn(4, 3, family.image, family.image)
    model.set_arch(archs[0])
    before = model(x)[-1]
    calls = iter(range(100))

    def fails(*args: object) -> Tensor:
        if next(calls) < 1:
            return real(*args)
        raise MemoryError

    owner, name = (Active, '_each') if way == 'masked' else (model, 'run')
    real = getattr(owner, name)
    monkeypatch.setattr(owner, name, fails)
    with pytest.raises(MemoryError):
        together(archs, way)(model, x)
    monkeypatch.undo()
    model.set_arch(archs[0])
    assert torch.equal(model(x)[-1], before)


@every_family_and_way
def test_an_empty_batch_is_empty(family: Family, way: str) -> None:
    model = make(family)
    out = together(draw(family, 2), way)(model, torch.randn(0, 3, family.image, family.image))
    assert len(out) == 0


@every_family_and_way
def test_mixed_precision(family: Family, way: str) -> None:
    model, archs = make(family), draw(family, 3)
    x = torch.randn(6, 3, family.image, family.image)
    exact = separate(archs, [0, 0, 1, 1, 2, 2])(model, x)
    with torch.autocast('cpu', torch.bfloat16):
        out = together(archs, way)(model, x)
    out.float().square().sum().backward()
    assert all(p.grad is None or p.grad.dtype == p.dtype for p in model.parameters())
    assert (out - exact).abs().max() < 0.1 * exact.abs().max()


@every_family_and_way
def test_every_output_of_several(family: Family, way: str) -> None:
    """Necks of detectors read all of them."""
    model, archs = make(family, out_indices=(0, 1)), draw(family, 3)
    if way == 'masked' and model.why_not_masked():
        way = 'auto'
    x = torch.randn(5, 3, family.image, family.image)
    model.set_archs(archs, way)
    outs = model(x)
    assert len(outs) == 2
    for rows, arch in (([0, 1], archs[0]), ([2, 3], archs[1]), ([4], archs[2])):
        model.set_arch(arch)
        for whole, part in zip(outs, model(x[rows])):
            torch.testing.assert_close(whole[rows], part, rtol=1e-4, atol=1e-5)


def test_auto_goes_by_the_device_and_by_what_can_be_masked() -> None:
    cpu, cuda = torch.device('cpu'), torch.device('cuda')

    def sliced(model: ElasticBackbone, way: str, device: torch.device) -> bool:
        return Mixture((model.arch,), (model.active.network,), way).sliced(model, device)

    for name in VARIANTS:
        model = make(VARIANTS[name])
        assert sliced(model, 'auto', cpu) and sliced(model, 'auto', cuda) == (name not in maskable)
        assert sliced(model, 'sliced', cuda) and not sliced(model, 'masked', cpu)
    assert sliced(make(VARIANTS['autoformer'], official=True), 'auto', cuda)


def test_windows_of_different_sizes() -> None:
    """What the samples of a masked pass have beside widths and blocks."""
    family = VARIANTS['s3']
    model, (large, small) = make(family), draw(family, 2)
    seen: list[object] = []
    assert isinstance(model, S3)
    attention = model.stages[0].blocks[0].attn
    handle = attention.register_forward_pre_hook(lambda m, args: seen.append(args[1]))
    together([large, small, large], 'masked')(model, torch.randn(3, 3, 32, 32))
    model.set_arch(small)
    model(torch.randn(1, 3, 32, 32))
    handle.remove()
    assert seen == [[3, 2, 3], 2]  # one per sample where they differ


@pytest.mark.parametrize(
    ('archs', 'way', 'words'),
    [
        (0, 'sliced', '`archs` should have at least one architecture, but got none'),
        (2, 'sideways', '`way` should be one of auto, sliced, masked, but got .sideways.'),
    ],
)
def test_mistakes(archs: int, way: str, words: str) -> None:
    family = VARIANTS['s3']
    with pytest.raises(VitnasError, match=words):
        make(family).set_archs([family.space.largest()] * archs, way)


@every_family
def test_an_architecture_that_does_not_fit(family: Family) -> None:
    model, (large, small) = make(family), draw(family, 2)
    model.set_arch(small)
    (misfit, words), *_ = family.misfits
    data = large.to_dict()
    misfit(data)
    with pytest.raises(ArchError, match=re.escape(words)):
        model.set_archs([large, data])
    assert model.arch == small and model.active.archs == (small,)


@pytest.mark.parametrize('name', sorted(VARIANTS.keys() - maskable.keys()))
def test_families_that_cannot_be_masked(name: str) -> None:
    family = VARIANTS[name]
    never = (NASViT, ViTASDeiT, ViTASTwins)
    assert family.cls in never or {'scaling', 'sharing'} & family.settings.keys()
    model, archs = make(family), draw(family, 2)
    with pytest.raises(VitnasError, match="cannot run several architectures in a masked pass.*; use way='sliced'"):
        model.set_archs(archs, 'masked')


@pytest.mark.parametrize('setting', [dict(official=True), dict(rescale=(3, 2.0)), dict(out_indices=(0, 1))], ids=str)
def test_settings_that_cannot_be_masked(setting: dict) -> None:
    family = VARIANTS['autoformer']
    model, archs = make(family, **setting), draw(family, 2)
    assert isinstance(model, AutoFormer)
    (name,) = setting
    with pytest.raises(VitnasError, match=f"in a masked pass with {name}=.*; use way='sliced'"):
        model.set_archs(archs, 'masked')
    x = torch.randn(2, 3, 32, 32)
    expected = separate(archs, [0, 1])(model, x)
    torch.testing.assert_close(together(archs, 'auto')(model, x), expected)


@every_family
@torch.no_grad()
def test_sorting_changes_nothing_of_the_largest(family: Family) -> None:
    model = make(family)
    if model.pattern.name != 'ordinal':
        with pytest.raises(VitnasError, match="cannot be sorted with sharing='cyclic'"):
            importance_orders(model)
        return
    x = torch.randn(2, 3, family.image, family.image)
    before = model(x)[-1]
    changes = importance_orders(model)
    assert any((change.order.diff() < 0).any() for change in changes)
    for change in changes:
        change.apply(change.weight)
    torch.testing.assert_close(model(x)[-1], before, rtol=1e-4, atol=1e-4)
    for change in importance_orders(model):  # it is sorted now
        assert change.order.tolist() == list(range(len(change.order)))


def test_heads_without_a_place_of_their_own_are_not_sorted() -> None:
    for settings, reason in (
        (dict(official=True), 'cannot be sorted with official=True'),
        (dict(embed_dims=96), 'cannot be sorted with embed_dims=96: not all of them are used'),
    ):
        assert reason in make(VARIANTS['autoformer'], **settings).why_not_sorted()
