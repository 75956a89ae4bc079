"""Rules: gradients are sums of single ones, one update per step, accumulation and distillation by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from mmcv.ops import SyncBatchNorm
from mmengine.optim import OptimWrapper
from mmengine.registry import MODELS as MM_MODELS
from torch import Tensor, nn

from tests.families import FAMILIES
from tests.supernets import model_config
from vitnas_core.backbones import elastic_backbone
from vitnas_core.errors import VitnasError
from vitnas_core.training import AdaptiveAlphaDivergence, KLDivergence
from vitnas_core.training.rules import MultiArch, Sandwich, SinglePath
from vitnas_core.training.samplers import MultiArchSampler, SandwichSampler


def make_model(name: str = 'autoformer') -> nn.Module:
    torch.manual_seed(0)
    model = MM_MODELS.build(model_config(FAMILIES[name], drop_path=0.0, mixup=False))
    for parameter in model.parameters():  # a head of zeros would hide mistakes
        nn.init.normal_(parameter, std=0.1)
    return model.double().train()


def make_batch(seed: int = 0, size: int = 4) -> dict[str, Any]:
    from mmpretrain.structures import DataSample

    g = torch.Generator().manual_seed(seed)
    images = [torch.randint(0, 256, (3, 32, 32), generator=g, dtype=torch.uint8) for _ in range(size)]
    return dict(inputs=images, data_samples=[DataSample().set_gt_label(i % 10) for i in range(size)])


def archs_of(model: nn.Module, seed: int = 0) -> list:
    return SandwichSampler(2).sample(elastic_backbone(model).space, np.random.default_rng(seed), 0.0)


def single_gradients(model: nn.Module, batch: dict, arch: Any) -> dict[str, Tensor]:
    model.zero_grad()
    elastic_backbone(model).set_arch(arch)
    data = model.data_preprocessor(batch, True)
    data['inputs'] = data['inputs'].double()
    model.parse_losses(model(**data, mode='loss'))[0].backward()
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return found


class Watched(OptimWrapper):
    """Leaves weights and gradients as they are, to be looked at; counts updates."""

    updates = 0

    def step(self, **kwargs: Any) -> None:
        self.updates += 1

    def zero_grad(self, **kwargs: Any) -> None:
        pass


@pytest.fixture(autouse=True)
def _double_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images in float64, so that sums are equal to many digits."""
    from mmpretrain.models import ClsDataPreprocessor

    forward = ClsDataPreprocessor.forward

    def in_double(self: Any, data: dict, training: bool = False) -> dict:
        out = forward(self, data, training)
        return {**out, 'inputs': out['inputs'].double()}

    monkeypatch.setattr(ClsDataPreprocessor, 'forward', in_double)


def bound(rule: Any, model: nn.Module) -> Any:
    """The rule, with what the loop hands over."""
    rule.bind(elastic_backbone(model))
    return rule


def wrapper(model: nn.Module, **options: Any) -> Watched:
    return Watched(torch.optim.SGD(model.parameters(), lr=0.1), **options)


@pytest.mark.parametrize('name', FAMILIES)
def test_sandwich_sums_the_gradients_of_single_architectures(name: str) -> None:
    model = make_model(name)
    archs = archs_of(model)
    expected: dict[str, Tensor] = {}
    for arch in archs:
        for key, gradient in single_gradients(model, make_batch(), arch).items():
            expected[key] = expected.get(key, 0) + gradient
    optim = wrapper(model)
    logs = bound(Sandwich(), model).step(model, make_batch(), archs, optim)
    assert optim.updates == 1 and optim.inner_count == 1
    assert set(logs) == {'loss', 'loss_arch0', 'loss_arch1', 'loss_arch2', 'loss_arch3'}
    assert float(logs['loss']) == pytest.approx(sum(float(v) for k, v in logs.items() if k != 'loss'))
    assert_gradients(model, expected, rtol=1e-9, atol=1e-12)


def assert_gradients(model: nn.Module, expected: dict[str, Tensor], rtol: float, atol: float) -> None:
    """Those that are expected, and no other: what no architecture of a step has stays without."""
    for key, parameter in model.named_parameters():
        if key in expected:
            torch.testing.assert_close(parameter.grad, expected[key], rtol=rtol, atol=atol, msg=key)
        else:
            assert parameter.grad is None, key


# Families whose layers take no masks say so when they are asked to.
SHARED = [
    (name, way)
    for name, family in FAMILIES.items()
    for way in ('sliced', 'masked')
    if way == 'sliced' or not family.elastic().why_not_masked()
]


@pytest.mark.parametrize(('name', 'way'), SHARED)
def test_multi_arch_sums_the_gradients_of_parts_of_the_batch(name: str, way: str) -> None:
    """The mean over the batch: each architecture's mean over its part, by the part's share."""
    model = make_model(name)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()  # ViT-Res's stem takes its statistics of the whole batch
    batch, archs = make_batch(size=6), archs_of(model)[:3]
    expected: dict[str, Tensor] = {}
    for i, arch in enumerate(archs):
        part = {key: values[2 * i : 2 * i + 2] for key, values in batch.items()}
        for key, gradient in single_gradients(model, part, arch).items():
            expected[key] = expected.get(key, 0) + gradient / 3
    optim = wrapper(model)
    logs = bound(MultiArch(way=way), model).step(model, batch, archs, optim)
    assert optim.updates == 1 and 'loss' in logs
    assert_gradients(model, expected, rtol=1e-8, atol=1e-11)


def test_multi_arch_refuses_norms_over_a_batch() -> None:
    model, rule = make_model(), MultiArch()
    rule.check(MultiArchSampler(4), model)
    model.neck = nn.Sequential(model.neck, nn.Flatten(), nn.BatchNorm1d(72))
    modes = [module.training for module in model.modules()]
    with pytest.raises(VitnasError, match=r'cannot train neck\.2: a batch norm takes its mean.*or train with rule='):
        rule.check(MultiArchSampler(4), model)
    assert [module.training for module in model.modules()] == modes
    model.neck[2].train = lambda mode=True: model.neck[2]  # frozen, as mm's `norm_eval` does it
    model.neck[2].training = False
    rule.check(MultiArchSampler(4), model)


def test_multi_arch_refuses_mmcvs_synchronised_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('torch.distributed.get_world_size', lambda group=None: 1)  # it wants a process group
    model = make_model()
    model.neck = nn.Sequential(model.neck, SyncBatchNorm(72, group=0))
    with pytest.raises(VitnasError, match=r'cannot train neck\.1'):
        MultiArch().check(MultiArchSampler(4), model)


def test_multi_arch_leaves_the_architecture_of_before_and_says_who_learns_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    monkeypatch.setattr('vitnas_core.training.rules.multi_arch.print_log', lambda text, *args: said.append(text))
    model, rule = make_model(), MultiArch()
    backbone, archs = bound(rule, model).backbone, archs_of(model)
    backbone.set_arch(archs[1])
    for size in (4, 2, 2):
        rule.step(model, make_batch(size=size), archs, wrapper(model))
    assert backbone.arch == archs[1] and backbone.active.archs == (archs[1],)
    with torch.no_grad():
        alone = backbone(torch.zeros(4, 3, 32, 32).double())[-1]
    assert not alone[:, backbone.out_channels(archs[1])[-1] :].any()
    assert said == [
        'vitnas.MultiArch splits a batch of 2 images among 4 architectures: 2 of them learn nothing in such a step'
    ]


def test_multi_arch_knows_what_all_architectures_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch norms of ViT-Res's stem see the whole batch, as in the published code; elsewhere they are refused."""
    model, rule = make_model('vit_res'), MultiArch()
    rule.check(MultiArchSampler(4), model)
    monkeypatch.setattr(elastic_backbone(model), 'entry_modules', tuple)
    with pytest.raises(VitnasError, match=r'cannot train backbone\.patch_embed\.conv1\.1'):
        rule.check(MultiArchSampler(4), model)


def test_multi_arch_says_which_way_cannot_be() -> None:
    with pytest.raises(VitnasError, match='`way` should be one of auto, sliced, masked, but got None'):
        MultiArch(way=None)
    model = make_model()
    elastic_backbone(model).settings['official'] = True
    with pytest.raises(VitnasError, match="with official=True; use way='sliced'"):
        MultiArch(way='masked').check(MultiArchSampler(4), model)
    MultiArch().check(MultiArchSampler(4), model)


def test_accumulation_counts_steps_not_architectures() -> None:
    model = make_model()
    expected: dict[str, Tensor] = {}
    for seed in (0, 1):
        for arch in archs_of(model, seed):
            for key, gradient in single_gradients(model, make_batch(seed), arch).items():
                expected[key] = expected.get(key, 0) + gradient / 2
    optim = wrapper(model, accumulative_counts=2)
    optim.initialize_count_status(model, 0, 4)
    for seed in (0, 1):
        bound(Sandwich(), model).step(model, make_batch(seed), archs_of(model, seed), optim)
        assert optim.updates == seed
    for key, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[key], rtol=1e-9, atol=1e-12)


def test_clipping_sees_the_sum() -> None:
    model = make_model()
    optim = OptimWrapper(torch.optim.SGD(model.parameters(), lr=1.0), clip_grad=dict(max_norm=1e-3))
    before = [p.detach().clone() for p in model.parameters()]
    bound(Sandwich(), model).step(model, make_batch(), archs_of(model), optim)
    moved = torch.cat([(a - b).flatten() for a, b in zip(before, model.parameters())]).norm()
    assert float(moved.detach()) == pytest.approx(1e-3, rel=1e-3)


def test_single_path_is_an_ordinary_step() -> None:
    model, other = make_model(), make_model()
    arch = archs_of(model)[2]
    optims = [OptimWrapper(torch.optim.SGD(m.parameters(), lr=0.1)) for m in (model, other)]
    bound(SinglePath(), model).step(model, make_batch(), [arch], optims[0])
    elastic_backbone(other).set_arch(arch)
    other.train_step(make_batch(), optims[1])
    for a, b in zip(model.parameters(), other.parameters()):
        assert torch.equal(a, b)


def test_subnets_learn_from_the_largest_alone() -> None:
    model = make_model()
    archs = archs_of(model)
    logits = []
    for arch in archs:
        elastic_backbone(model).set_arch(arch)
        logits.append(model(**model.data_preprocessor(make_batch(), True), mode='tensor'))
    labels = torch.tensor([0, 1, 2, 3])
    p = logits[0].detach().softmax(-1)
    entropy = -(p * p.log()).sum(-1).mean()
    expected = [F.cross_entropy(logits[0], labels)]
    for student in logits[1:]:
        cross = -(p * student.log_softmax(-1)).sum(-1).mean()
        expected.append(cross - entropy)
    gradients = torch.autograd.grad(sum(expected), list(model.parameters()), allow_unused=True)
    logs = bound(Sandwich(distill=dict(type='vitnas.KLDivergence')), model).step(
        model, make_batch(), archs, wrapper(model)
    )
    for i, loss in enumerate(expected):
        assert float(logs[f'loss_arch{i}']) == pytest.approx(float(loss), rel=1e-9)
    for parameter, gradient in zip(model.parameters(), gradients):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-8, atol=1e-12)


def test_temperature_and_low_precision() -> None:
    student, teacher = torch.randn(5, 7), torch.randn(5, 7)
    p = (teacher / 4).softmax(-1)
    by_hand = 16 * (p * (p.log() - (student / 4).log_softmax(-1))).sum(-1).mean()
    torch.testing.assert_close(KLDivergence(temperature=4)(student, teacher), by_hand)
    assert KLDivergence()(student.bfloat16(), teacher.bfloat16()).dtype == torch.float32
    with pytest.raises(VitnasError, match='`temperature` should be above 0, but got 0'):
        KLDivergence(temperature=0)


@pytest.mark.parametrize('alphas', [(-1.0, 1.0), (0.0, 1.0), (-0.5, 0.5), (-2.0, 0.0), (0.5, 2.0)])
def test_alpha_divergence_is_finite_where_probabilities_vanish(alphas: tuple[float, float]) -> None:
    """Logits so far apart that a float has no number for the probability of one side, of the other, or of both."""
    far = torch.tensor([[0.0, 300.0, -300.0], [300.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    student = far.clone().requires_grad_()
    loss = AdaptiveAlphaDivergence(*alphas)(student, far.roll(1, 0))
    loss.backward()
    assert loss.isfinite() and student.grad.isfinite().all()


def test_alpha_divergence_has_the_gradient_of_the_larger_one() -> None:
    """Where nothing is clipped: α = 1 is KL(p, q); α = -1 is half of Σ q² / p − 1."""
    student, teacher = (torch.randn(6, 5, dtype=torch.float64, requires_grad=grad) for grad in (True, False))
    q, p = student.softmax(-1), teacher.softmax(-1)
    high, low = (p * (p / q).log()).sum(-1), ((q * q / p).sum(-1) - 1) / 2
    assert 0 < (low > high).sum() < 6  # some of each
    expected = torch.autograd.grad(torch.maximum(low, high).mean(), student)[0]
    loss = AdaptiveAlphaDivergence(clip=1e9)(student, teacher)
    torch.testing.assert_close(torch.autograd.grad(loss, student)[0], expected)
    assert AdaptiveAlphaDivergence()(student.bfloat16(), teacher.bfloat16()).dtype == torch.float32
    with pytest.raises(VitnasError, match='`alpha_min` should be at most `alpha_max`, -1, but got 1'):
        AdaptiveAlphaDivergence(1, -1)
    with pytest.raises(VitnasError, match='`clip` should be above 0, but got 0'):
        AdaptiveAlphaDivergence(clip=0)


def test_a_model_without_one_tensor_of_logits_is_refused() -> None:
    model = make_model()
    model.head, model.other = None, model.head
    model.loss = lambda inputs, samples: model.other.loss(model.extract_feat(inputs), samples)
    rule = Sandwich(distill=dict(type='vitnas.KLDivergence'))
    with pytest.raises(VitnasError, match='whose head gives its logits as one tensor.*ImageClassifier does not'):
        rule.check(SandwichSampler(), model)
    with pytest.raises(VitnasError, match='whose head gives its logits as one tensor'):
        bound(Sandwich(distill=dict(type='vitnas.KLDivergence')), model).step(
            model, make_batch(), archs_of(model), wrapper(model)
        )
