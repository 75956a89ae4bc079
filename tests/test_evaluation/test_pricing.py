"""Image size and classes of a search come from model and pipeline; explicit values must agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mmdet.datasets import transforms as mmdet_transforms
from torch import nn

from tests.families import FAMILIES
from vitnas_core.errors import VitnasError
from vitnas_core.evaluation.pricing import resolve_pricing
from vitnas_core.model_configs import priced_classes

from ..test_search.common import build, config, history, noise, search

HEAD = dict(type='LinearClsHead', num_classes=10)
CLASSIFIER = dict(type='mmpretrain.ImageClassifier', backbone=dict(type='vitnas.AutoFormer', img_size=28), head=HEAD)
DETECTOR = dict(type='MaskRCNN', backbone=dict(type='vitnas.S3', space=FAMILIES['s3'].space.to_dict(), img_size=56))
RANDOM = dict(type='vitnas.RandomSearchLoop', num_candidates=3)


def images(*pipeline: dict[str, Any]) -> dict[str, Any]:
    inside = dict(type='Digits', pipeline=[dict(type='LoadImageFromFile'), *pipeline, dict(type='PackInputs')])
    return dict(dataset=dict(type='vitnas.HoldOut', part='holdout', dataset=inside))


@pytest.mark.parametrize(
    ('transforms', 'size'),
    [
        ([dict(type='Resize', scale=32)], 32),
        ([dict(type='mmcv.Resize', scale=(128, 96))], (96, 128)),  # (width, height), as mmcv has it
        ([dict(type='ResizeEdge', scale=256), dict(type='CenterCrop', crop_size=224)], 224),
        ([dict(type='Resize', scale=64), dict(type='RandomCrop', crop_size=(48, 56))], (48, 56)),
        ([dict(type='Resize', scale=(64, 48), keep_ratio=True), dict(type='Pad', size=(64, 48))], (48, 64)),
        ([dict(type='mmdet.RandomCrop', crop_size=(56, 48))], (48, 56)),  # (width, height)
        ([dict(type=mmdet_transforms.RandomCrop, crop_size=(56, 48), crop_type='absolute')], (48, 56)),
        ([dict(type='RandomGrayscale'), dict(type='vitnas.DrawDigit', size=56)], 56),
        ([], 28),  # of the size that they are read at, the backbone's config says which
    ],
)
def test_the_last_transform_that_fixes_a_size_counts(transforms: list[dict[str, Any]], size: Any) -> None:
    assert resolve_pricing(CLASSIFIER, images(*transforms)) == (size, 10)
    assert resolve_pricing(CLASSIFIER, images(*transforms), size, 10) == (size, 10)
    assert resolve_pricing(CLASSIFIER, images(*transforms), size, 0) == (size, 0)  # no head is priced


@pytest.mark.parametrize(
    'transforms',
    [
        [dict(type='Resize', scale=(128, 96), keep_ratio=True)],
        [dict(type='Resize', scale=32), dict(type='ResizeEdge', scale=64)],
        [dict(type='Resize', scale=32), dict(type='RandomApply', transforms=[dict(type='Resize', scale=48)])],
        [dict(type='mmdet.RandomCrop', crop_size=(0.3, 0.3), crop_type='relative_range')],
        [dict(type='mmdet.RandomCrop', crop_size=(0.3, 0.3), crop_type='relative')],
        [dict(type='mmdet.RandomCrop', crop_size=(384, 600), crop_type='absolute_range')],
        [],
    ],
)
def test_what_cannot_be_told_should_be_stated(transforms: list[dict[str, Any]]) -> None:
    with pytest.raises(VitnasError, match='`input_size` should be stated: the pipeline of its images'):
        resolve_pricing(DETECTOR, images(*transforms))
    assert resolve_pricing(DETECTOR, images(*transforms), (96, 128)) == ((96, 128), 0)


def test_images_as_read_have_the_size_of_the_backbone() -> None:
    words = '`input_size` is 224, but `img_size` of the backbone is 28, and the pipeline of its images does not resize'
    with pytest.raises(VitnasError, match=words):
        resolve_pricing(CLASSIFIER, images(), 224)
    assert resolve_pricing(CLASSIFIER, images(), (28, 28)) == ((28, 28), 10)
    # Nobody knows the size of images without one; the pipeline, where it says one, is right; and some images vary.
    unknown = {**CLASSIFIER, 'backbone': dict(type='vitnas.AutoFormer')}
    assert resolve_pricing(unknown, images(), 28) == (28, 10)
    assert resolve_pricing(CLASSIFIER, images(dict(type='Resize', scale=32)), 32) == (32, 10)
    assert resolve_pricing(CLASSIFIER, images(dict(type='Resize', scale=(64, 48), keep_ratio=True)), 48) == (48, 10)


@pytest.mark.parametrize('transforms', [[], [dict(type='ResizeEdge', scale=64)]])
def test_a_backbone_that_resizes_images_needs_no_size(transforms: list[dict[str, Any]]) -> None:
    backbone = dict(type='vitnas.NASViT', space=FAMILIES['nasvit'].space.to_dict())
    resizes = {**CLASSIFIER, 'backbone': backbone}
    assert resolve_pricing(resizes, images(*transforms)) == (48, 10)
    assert resolve_pricing(resizes, images(*transforms), 28) == (28, 10)  # all sizes give the same prices
    dense = {**DETECTOR, 'backbone': {**backbone, 'out_indices': (1, 2)}}
    with pytest.raises(VitnasError, match='`input_size` should be stated'):
        resolve_pricing(dense, images(*transforms))


def test_classes_of_a_head_that_is_not_priced_are_refused() -> None:
    pipeline = images(dict(type='Resize', scale=32))
    for model in (DETECTOR, {**CLASSIFIER, 'head': dict(type='VQAHead', num_answers=13)}):
        with pytest.raises(VitnasError, match='`num_classes` is 1000, but the model has no linear `head` that could'):
            resolve_pricing(model, pipeline, num_classes=1000)
        assert resolve_pricing(model, pipeline, num_classes=0) == resolve_pricing(model, pipeline) == (32, 0)


def test_one_rule_says_which_classes_are_priced() -> None:
    """Of a model as of its config, whatever the class of the model."""
    for kind in ('mmpretrain.ImageClassifier', 'Other'):
        assert priced_classes({**CLASSIFIER, 'type': kind}) == 10
    roi_head = dict(bbox_head=dict(type='Shared2FCBBoxHead', num_classes=80))
    named = dict(type='VQAHead', num_answers=13)
    for unpriced in (DETECTOR, {**DETECTOR, 'roi_head': roi_head}, {**CLASSIFIER, 'head': named}):
        assert priced_classes(unpriced) == 0
    model, head = nn.Module(), nn.Linear(8, 10)
    assert priced_classes(model) == 0
    model.head = head
    assert priced_classes(model) == 0
    head.num_classes = 10
    assert priced_classes(model) == 10


def test_images_are_padded_as_the_preprocessor_says() -> None:
    padded = {**DETECTOR, 'data_preprocessor': dict(type='DetDataPreprocessor', pad_size_divisor=32)}
    assert resolve_pricing(padded, images(dict(type='Resize', scale=(100, 70)))) == ((96, 128), 0)


def test_a_search_needs_neither_and_refuses_what_disagrees(tmp_path: Path) -> None:
    cfg = config(tmp_path / 'a', RANDOM)
    stated = history(tmp_path / 'a', search(cfg, noise))
    for name in ('input_size', 'num_classes'):
        del cfg['train_cfg'][name]
    loop = search(cfg, noise)  # its journal goes on
    assert loop.scorer.asked == [] and list(loop.history) == stated
    assert (loop.input_size, loop.num_classes) == (32, 10)
    for wrong, words in (
        (dict(input_size=224), '`input_size` is 224, but the pipeline of its images makes them 32 x 32'),
        (dict(num_classes=100), '`num_classes` is 100, but the head of the model has 10'),
    ):
        with pytest.raises(VitnasError, match=words):
            build(config(tmp_path / 'b', {**RANDOM, **wrong})).train()
