"""Token labeling: mixing against the published code's examples, the switch, the preprocessor and the head."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from mmengine.registry import MODELS
from mmpretrain.structures import DataSample

from tests.families import FAMILIES
from tests.reference import read
from vitnas_core.auto import fill_auto
from vitnas_core.errors import VitnasError
from vitnas_core.extract import extract_model
from vitnas_core.training.token_labels import TOKEN_SCORE, Box, TokenMix, cut_mix, draw_box, mix_up

DATA = read('vit_resnas', 'token_mix')
GRID = DATA['patch_len']


def smoothed(labels: list[int]) -> torch.Tensor:
    classes, smoothing = DATA['num_classes'], DATA['smoothing']
    return F.one_hot(torch.tensor(labels), classes) * (1 - smoothing) + smoothing / classes


@pytest.mark.parametrize('case', DATA['cases'], ids=range(len(DATA['cases'])))
def test_mixing_as_published(case: dict[str, Any]) -> None:
    images, scores = torch.tensor(case['images']), smoothed(case['labels'])
    box = case['box']
    cut, blend = (slice(*case[f'{kind}_rows']) for kind in ('cutmix', 'mixup'))
    parts = [
        cut_mix(images[cut], scores[cut], case['cutmix_perm'], Box(*(box[k] for k in ('y0', 'y1', 'x0', 'x1'))), GRID),
        mix_up(images[blend], scores[blend], case['mixup_perm'], case['mixup_lam'], GRID),
    ]
    for found, name in zip(zip(*parts), ('out_images', 'out_targets', 'out_token_targets')):
        torch.testing.assert_close(torch.cat(found), torch.tensor(case[name]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('grid', [int(key) for key in DATA['box_distribution']])
def test_boxes_as_published(grid: int) -> None:
    rng, wanted = np.random.default_rng(0), DATA['box_distribution'][str(grid)]
    boxes = [draw_box(rng, grid) for _ in range(wanted['draws'])]
    sizes = [f'{box.bottom - box.top}x{box.right - box.left}' for box in boxes]
    ours = {size: sizes.count(size) / len(sizes) for size in set(sizes)}
    for one, other in ((ours, wanted['size_hxw']), (wanted['size_hxw'], ours)):
        assert {size for size, share in one.items() if share * len(sizes) >= 10} <= other.keys()
    for size, share in wanted['size_hxw'].items():
        noise = (2 * share * (1 - share) / len(sizes)) ** 0.5  # of the difference of two shares
        assert ours.get(size, 0.0) == pytest.approx(share, abs=5 * noise + 1e-4)
    for box in boxes:
        assert 0 <= box.top <= box.bottom <= grid and 0 <= box.left <= box.right <= grid
        assert box.bottom < grid or (box.top, box.bottom) == (0, grid)  # of either side it is full or ends before
        assert box.right < grid or (box.left, box.right) == (0, grid)


def tokens_agree(mixed: Any) -> bool:
    """Whether every token of an image has the image's label, as with Mixup."""
    return torch.allclose(mixed.token_scores, mixed.scores[:, None].expand_as(mixed.token_scores))


def test_the_switch() -> None:
    images, scores = torch.rand(8, 3, 16, 16), F.one_hot(torch.arange(8), 8).float()
    np.random.seed(0)
    mix = TokenMix()
    cut = sum(not tokens_agree(mix(images, scores)) for _ in range(400))
    assert 140 < cut < 220  # half of them; CutMix with an empty box is none
    assert all(tokens_agree(TokenMix(cutmix_prob=0.0)(images, scores)) for _ in range(20))
    halves = TokenMix(switch='halves')
    for _ in range(20):
        mixed = halves(images, scores)
        assert torch.allclose(mixed.token_scores[4:], mixed.scores[4:, None].expand(4, 16, 8))
        first, second = mixed.scores[:4].argmax(1), mixed.scores[4:].argmax(1)
        assert first.max() < 4 <= second.min()  # each half is mixed within itself
    for mixed in (mix(images, scores), halves(images, scores)):
        for labels in (mixed.scores, mixed.token_scores):
            torch.testing.assert_close(labels.sum(-1), torch.ones(labels.shape[:-1]))
        assert mixed.images.shape == images.shape


CONFIG = dict(
    type='mmpretrain.ImageClassifier',
    data_preprocessor=dict(type='vitnas.TokenLabelPreprocessor', num_classes=5, token_mix=dict(grid=2)),
    backbone=dict(
        type='vitnas.ViTRes', space=FAMILIES['vit_res'].space.to_dict(), out_type='raw', **FAMILIES['vit_res'].settings
    ),
    head=dict(
        type='vitnas.TokenLabelHead',
        num_classes=5,
        in_channels='auto',
        loss=dict(type='mmpretrain.CrossEntropyLoss', use_soft=True),
    ),
)


def classifier() -> torch.nn.Module:
    return MODELS.build(fill_auto(copy.deepcopy(CONFIG)))


def batch(size: int = 56) -> dict[str, Any]:
    samples = [DataSample().set_gt_label(i) for i in range(4)]
    return dict(inputs=[torch.randint(256, (3, size, size), dtype=torch.uint8) for _ in samples], data_samples=samples)


def test_a_classifier_with_labels_of_tokens() -> None:
    model = classifier()
    data = model.data_preprocessor(batch(), True)
    assert data['data_samples'][0].get(TOKEN_SCORE).shape == (4, 5)
    losses = model(**data, mode='loss')
    (tokens,) = model.extract_feat(data['inputs'], stage='backbone')
    targets = [torch.stack([s.get(name) for s in data['data_samples']]) for name in ('gt_score', TOKEN_SCORE)]
    expected = [
        -(target * layer(x).log_softmax(-1)).sum(-1).mean()
        for target, layer, x in zip(targets, (model.head.fc, model.head.token_fc), (tokens[:, 0], tokens[:, 1:]))
    ]
    torch.testing.assert_close(losses, dict(loss=expected[0], loss_tokens=expected[1]))
    model.parse_losses(losses)[0].backward()
    assert all(p.grad is not None for p in model.parameters())
    plain = model.data_preprocessor(batch(), False)
    assert TOKEN_SCORE not in plain['data_samples'][0]
    assert model(**plain, mode='loss').keys() == {'loss'}
    predicted = model.eval()(**plain, mode='predict')
    torch.testing.assert_close(
        predicted[0].pred_score, model.head.fc(model.backbone(plain['inputs'])[0][0, 0]).softmax(-1)
    )


def test_a_fixed_network_keeps_both_classifiers() -> None:
    model = classifier().eval()
    fixed = extract_model(model, fill_auto(copy.deepcopy(CONFIG)), model.backbone.space.smallest())
    for name in ('fc', 'token_fc'):
        whole, part = model.head.get_submodule(name), fixed.head.get_submodule(name)
        assert torch.equal(part.weight, whole.weight[:, : part.in_features]) and part.in_features == 32


def test_refusals() -> None:
    for settings, words in (
        (dict(grid=0), '`grid` should be'),
        (dict(switch='both'), '`switch` should be one of random, halves'),
        (dict(cutmix_prob=2), '`cutmix_prob` should be from 0 to 1'),
        (dict(alpha=0), '`alpha` should be above 0'),
        (dict(smoothing=-1), '`smoothing` should be from 0 to 1'),
    ):
        with pytest.raises(VitnasError, match=words):
            TokenMix(**settings)
    with pytest.raises(VitnasError, match=r'should have 4 × 4 whole patches, but are \(18, 16\)'):
        TokenMix()(torch.rand(2, 3, 18, 16), torch.eye(2))
    with pytest.raises(VitnasError, match='`batch_augments` should be None'):
        MODELS.build(
            dict(type='vitnas.TokenLabelPreprocessor', token_mix={}, batch_augments=dict(augments=dict(type='Mixup')))
        )
    model = classifier()
    data = model.data_preprocessor(batch(112), True)
    with pytest.raises(VitnasError, match='the last stage has 16 tokens, but labels are for 4'):
        model(**data, mode='loss')
