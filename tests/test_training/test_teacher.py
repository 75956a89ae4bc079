"""An external teacher: distillation into the largest architecture, and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from mmengine.hooks import Hook
from mmengine.hub import get_config
from mmengine.registry import MODELS as MM_MODELS
from mmengine.runner import Runner
from torch import Tensor, nn

from tests.config_files import parsed
from tests.families import FAMILIES
from tests.supernets import SANDWICH, losses, model_config, supernet_config
from tests.test_training.test_loop import assert_equal_states
from tests.test_training.test_rules import (
    _double_inputs,  # noqa: F401  (a fixture that every test here uses)
    archs_of,
    bound,
    make_batch,
    make_model,
    wrapper,
)
from vitnas_core.backbones import elastic_backbone
from vitnas_core.errors import CheckpointError, VitnasError
from vitnas_core.training import AdaptiveAlphaDivergence, Teacher
from vitnas_core.training.rules import Sandwich
from vitnas_core.training.samplers import SandwichSampler, UniformSampler

RESNET = dict(
    type='mmpretrain.ImageClassifier',
    backbone=dict(type='mmpretrain.ResNet_CIFAR', depth=18, base_channels=8, stem_channels=8),
    neck=dict(type='mmpretrain.GlobalAveragePooling'),
    head=dict(type='mmpretrain.LinearClsHead', num_classes=10, in_channels=64, init_cfg=None),
)
TIMM = dict(type='mmpretrain.TimmClassifier', model_name='resnet10t', num_classes=10, in_chans=3)

VIT = dict(TIMM, model_name='vit_tiny_patch16_224', img_size=48, depth=1)
STUDENT = dict(mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375], to_rgb=True, num_classes=10)


def tiny(classes: int = 10) -> dict[str, Any]:
    """A teacher that is built in no time."""
    head = dict(type='mmpretrain.LinearClsHead', num_classes=classes, in_channels=48)
    backbone = {**model_config(FAMILIES['s3'])['backbone'], 'drop_path_rate': 0.5}
    return dict(
        type='mmpretrain.ImageClassifier', backbone=backbone, neck=dict(type='mmpretrain.GlobalAveragePooling'),
        head=head,
    )  # fmt: skip


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Weights of two teachers."""
    paths = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        model = MM_MODELS.build(tiny())
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.3)
        paths.append(tmp_path / f'{seed}.pth')
        torch.save(dict(state_dict=model.state_dict(), meta={}), paths[-1])
    return paths


def configs(files: list[Path]) -> list[dict]:
    return [dict(**tiny(), checkpoint=str(path)) for path in files]


def logits_of(path: Path, images: Tensor) -> Tensor:
    model = MM_MODELS.build(tiny()).eval()
    model.load_state_dict(torch.load(path, weights_only=True)['state_dict'])
    return model(images, mode='tensor').detach()


def test_target_is_the_mean_of_sharpened_probabilities(files: list[Path]) -> None:
    images = torch.randn(3, 3, 32, 32)
    teacher = Teacher(configs(files), sharpness=5.0)
    assert not any(p.requires_grad for p in teacher.parameters()) and not teacher.training
    found = teacher(images)
    torch.testing.assert_close(found, sum((5 * logits_of(path, images)).softmax(-1) for path in files) / 2)
    assert not found.requires_grad and torch.equal(found, teacher(images))
    torch.testing.assert_close(Teacher(configs(files)[0])(images), logits_of(files[0], images).softmax(-1))
    with torch.autocast('cpu', torch.bfloat16):
        assert teacher(images).dtype == torch.float32


@pytest.mark.parametrize('distilled', [True, False])
def test_the_largest_learns_from_the_teacher_alone(files: list[Path], distilled: bool) -> None:
    model, batch = make_model(), make_batch()
    archs = archs_of(model)
    distill = dict(type='vitnas.AdaptiveAlphaDivergence') if distilled else None
    rule = Sandwich(distill, teacher=dict(type='vitnas.Teacher', models=configs(files), sharpness=5.0))
    rule.teacher.double()
    data = model.data_preprocessor(batch, True)
    logits = []
    for arch in archs:
        elastic_backbone(model).set_arch(arch)
        logits.append(model(**data, mode='tensor'))
    target = rule.teacher(data['inputs'])
    expected = [-(target * logits[0].log_softmax(-1)).sum(-1).mean()]
    labels = torch.tensor([0, 1, 2, 3])
    for student in logits[1:]:
        loss = AdaptiveAlphaDivergence()(student, logits[0].detach()) if distilled else F.cross_entropy(student, labels)
        expected.append(loss)
    gradients = torch.autograd.grad(sum(expected), list(model.parameters()), allow_unused=True)
    logs = bound(rule, model).step(model, batch, archs, wrapper(model))
    for i, loss in enumerate(expected):
        assert logs[f'loss_arch{i}'].item() == pytest.approx(loss.item(), rel=1e-9)
    for parameter, gradient in zip(model.parameters(), gradients):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-8, atol=1e-12)


class Initial(Hook):
    """The weights that a training begins with."""

    def before_train(self, runner: Runner) -> None:
        self.weights = {name: tensor.clone() for name, tensor in runner.model.state_dict().items()}


def test_a_training_with_a_teacher(files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The teacher is in no checkpoint, changes no initial weight of the model, and is not trained."""
    monkeypatch.undo()  # images in float32 as ever
    runners, initial, saved = [], [], []
    for name, teacher in (('without', None), ('with', dict(type='vitnas.Teacher', models=configs(files)))):
        rule = dict(type='vitnas.Sandwich', distill=dict(type='vitnas.KLDivergence'), teacher=teacher)
        runners.append(Runner.from_cfg(supernet_config(tmp_path / name, SANDWICH, rule, max_epochs=1)))
        initial.append(Initial())
        runners[-1].register_hook(initial[-1])
        runners[-1].train()
        saved.append(torch.load(tmp_path / name / 'epoch_1.pth', weights_only=True))
    assert_equal_states(initial[1].weights, initial[0].weights)
    assert saved[0].keys() == saved[1].keys() and saved[0]['state_dict'].keys() == saved[1]['state_dict'].keys()
    assert losses(runners[0]) != losses(runners[1]) and np.isfinite(losses(runners[1])).all()
    held = runners[1].train_loop.rule.teacher.models[0].state_dict()
    assert_equal_states(dict(held), dict(torch.load(files[0], weights_only=True)['state_dict']))


def test_classifiers_of_other_toolboxes(tmp_path: Path) -> None:
    """Weights that timm or an init_cfg gave stay."""
    state = MM_MODELS.build(RESNET).state_dict()
    state = {name: torch.randn_like(tensor) if tensor.is_floating_point() else tensor for name, tensor in state.items()}
    torch.save(dict(state_dict=state), tmp_path / 'resnet.pth')
    pretrained = dict(type='Pretrained', checkpoint=str(tmp_path / 'resnet.pth'))
    teacher = Teacher([dict(**RESNET, init_cfg=pretrained), TIMM])
    loaded = teacher.models[0].state_dict()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in state.items())
    assert teacher(torch.randn(2, 3, 32, 32)).shape == (2, 10)


def test_weights_that_timm_gave_are_not_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from mmpretrain.models import TimmClassifier

    called: list[object] = []
    monkeypatch.setattr(TimmClassifier, 'init_weights', called.append)
    assert isinstance(Teacher(TIMM).models[0], TimmClassifier) and not called


def test_images_have_the_size_that_the_teacher_is_for(files: list[Path]) -> None:
    images = torch.randn(2, 3, 32, 32)
    found = Teacher(configs(files)[0], input_size=48)(images)
    larger = F.interpolate(images, (48, 48), mode='bicubic', antialias=True)
    torch.testing.assert_close(found, logits_of(files[0], larger).softmax(-1))
    assert not torch.allclose(found, Teacher(configs(files)[0])(images), atol=1e-3)
    assert torch.equal(Teacher(configs(files)[0], input_size=32)(images), Teacher(configs(files)[0])(images))
    assert Teacher(VIT, input_size=48)(images).shape == (2, 10)
    with pytest.raises(VitnasError, match=r'TimmClassifier refuses the images: .*48.*`input_size` of vitnas.Teacher'):
        Teacher(VIT)(images)


@pytest.mark.parametrize('model', [tiny(), TIMM], ids=['mm', 'timm'])
@pytest.mark.parametrize(
    ('own', 'other'),
    [
        (dict(mean=[127.5] * 3, std=[127.5, 120.0, 100.0], to_rgb=True), True),
        (dict(mean=[10.0, 20.0, 30.0], std=[40.0, 50.0, 60.0]), True),
        (dict(mean=STUDENT['mean'][::-1], std=STUDENT['std'][::-1], to_rgb=False), True),
        (dict(to_rgb=True), True),
        (dict(mean=STUDENT['mean'], std=STUDENT['std'], to_rgb=True, num_classes=10), False),
    ],
)
def test_each_teacher_has_its_own_normalisation(model: dict, own: dict, other: bool) -> None:
    """It sees what its own data preprocessor makes of the same pixels, and beside others."""
    from mmpretrain.models import ClsDataPreprocessor

    pixels = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    seen = ClsDataPreprocessor(**STUDENT)(dict(inputs=pixels))['inputs']
    teacher = Teacher([dict(**model, data_preprocessor=own), model], data_preprocessor=STUDENT).double()
    views: list[Tensor] = []
    for one in teacher.models:
        one.register_forward_pre_hook(lambda module, args: views.append(args[0]))
    teacher(seen)
    expected = teacher.models[0].data_preprocessor(dict(inputs=pixels))['inputs']
    torch.testing.assert_close(views[0], expected, rtol=1e-5, atol=1e-5)  # the student's pixels are float32's
    assert torch.equal(views[1], seen) and torch.equal(views[0], seen) != other


def test_the_papers_teacher_sees_what_it_was_trained_for() -> None:
    cfg = parsed('nasvit_supernet_8xb64-360e_imagenet')
    published = get_config('mmpretrain::efficientnet/efficientnet-b5_8xb32_in1k.py')
    assert cfg.train_cfg.rule.teacher.input_size == published.test_pipeline[1].crop_size
    assert cfg.data_preprocessor == published.data_preprocessor


def test_normalisations_that_cannot_be_undone_or_done() -> None:
    model = dict(**tiny(), data_preprocessor=dict(mean=[127.5] * 3, std=[127.5] * 3))
    with pytest.raises(VitnasError, match=r'models\[1\] of vitnas.Teacher has a data_preprocessor of its own.*_base_'):
        Teacher([tiny(), model])
    for own, student, words in (
        (dict(mean=[127.5] * 3), STUDENT, r'^data_preprocessor of models\[0\] .* with three numbers as mean'),
        (STUDENT, dict(mean=[1, 2, 3], std=[1, 0, 1]), '^data_preprocessor of vitnas.Teacher should be .* above 0'),
        (STUDENT, dict(mean=[127.5], std=[127.5]), r'but got \{.mean.: \[127.5\]'),
        (nn.Identity(), STUDENT, r'should be a config .*, but got Identity\(\)'),
        (dict(pad_size_divisor=32), STUDENT, 'may say mean, std and to_rgb, but it has pad_size_divisor'),
    ):
        with pytest.raises(VitnasError, match=words):
            Teacher(dict(**tiny(), data_preprocessor=own), data_preprocessor=student)
    for size in (0, 22.4, '224'):
        with pytest.raises(VitnasError, match=f'`input_size` should be a whole number of at least 1, but got {size!r}'):
            Teacher(tiny(), input_size=size)


def test_what_does_not_do(files: list[Path], tmp_path: Path) -> None:
    model = make_model().float()
    data = model.data_preprocessor(make_batch(), True)
    data['inputs'] = data['inputs'].float()
    rule = Sandwich(teacher=dict(type='vitnas.Teacher', models=tiny(7)))
    rule.check(SandwichSampler(), model)
    with pytest.raises(VitnasError, match='it has 7 and the head of the model has 10'):
        bound(rule, model).objective(model, data)(archs_of(model)[0])
    with pytest.raises(VitnasError, match='`teacher` of vitnas.Sandwich teaches the largest.*UniformSampler does not'):
        rule.check(UniformSampler(), model)
    model.head = None
    with pytest.raises(VitnasError, match='`teacher` of vitnas.Sandwich needs a model whose head gives its logits'):
        rule.check(SandwichSampler(), model)
    with pytest.raises(VitnasError, match=r'should have the same classes, but have \[10, 7\]'):
        Teacher([tiny(), tiny(7)])(torch.zeros(1, 3, 32, 32))
    with pytest.raises(VitnasError, match='should give logits of .*ImageClassifier does not'):
        Teacher({**tiny(), 'neck': None, 'head': None})(torch.zeros(1, 3, 32, 32))
    with pytest.raises(VitnasError, match='`sharpness` should be above 0, but got 0'):
        Teacher(tiny(), sharpness=0)
    with pytest.raises(VitnasError, match='should hold a classifier, but it is empty'):
        Teacher([])
    with pytest.raises(CheckpointError, match='there is no checkpoint file'):
        Teacher(dict(**tiny(), checkpoint=str(tmp_path / 'none.pth')))
    with pytest.raises(CheckpointError, match='does not fit this model: it has head.fc.weight of shape'):
        Teacher(dict(**tiny(7), checkpoint=str(files[0])))
