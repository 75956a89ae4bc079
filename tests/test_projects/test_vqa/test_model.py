"""The VQA model: it works with every backbone and several questions per image; the second head detects wrong pairs."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from mmpretrain.structures import DataSample

from projects.vqa.vqa import VQAModel
from projects.vqa.vqa.tokenizer import SPECIAL
from tests.families import BACKBONES
from vitnas_core.errors import VitnasError
from vitnas_core.extract import check_extracted, extract_model
from vitnas_core.registry import MODELS

WORDS = [*SPECIAL, *['what', 'is', 'left', 'of', 'the', 'how', 'many', 'digits', 'are', 'there', 'a', '4', '7', '?']]
QUESTIONS = ['What is left of the 4?', 'How many digits are there?', 'Is there a 7?', 'Is the 7 left of the 4?']
ANSWERS = ['7', '2', 'yes', 'no']


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / 'vocab.txt').write_text('\n'.join(WORDS))
    (tmp_path / 'answers.json').write_text(json.dumps(ANSWERS))
    return tmp_path


def config(files: Path, name: str = 's3', **more: Any) -> dict[str, Any]:
    family = BACKBONES[name]
    return dict(
        type='vitnas.VQAModel',
        backbone=dict(
            type=f'vitnas.{family.cls.__name__}',
            **{**family.settings, 'arch': family.space.largest(), 'out_indices': (-1,)},
        ),
        neck=dict(type='vitnas.TokenNeck', in_channels='auto', out_channels=16, drop_rate=0.0),
        text=dict(
            type='vitnas.BertEncoder',
            vocab=str(files / 'vocab.txt'),
            vocab_size=len(WORDS),
            width=16,
            num_heads=2,
            positions=12,
            max_length=12,
            drop_rate=0.0,
        ),
        fusion=dict(type='vitnas.FusionTransformer', width=16, depth=2, num_heads=2, drop_rate=0.0, init_std=0.3),
        head=dict(type='vitnas.VQAHead', answers=str(files / 'answers.json'), num_answers=4, width=16),
        data_preprocessor=dict(mean=[0.0] * 3, std=[1.0] * 3),
        **more,
    )


def build(*args: Any, **more: Any) -> VQAModel:
    torch.manual_seed(0)
    return MODELS.build(config(*args, **more))


def sample(question: Any, answer: Any = None, weight: Any = None) -> DataSample:
    fields = dict(question=question, gt_answer=answer, gt_answer_weight=weight)
    made = DataSample()
    for name, value in fields.items():
        if value is not None:
            made.set_field(value, name)
    return made


def asked(index: int) -> DataSample:
    return sample(QUESTIONS[index], [ANSWERS[index], 'other'], [0.8, 0.2])


def images(count: int, side: int = 32) -> torch.Tensor:
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize('name', BACKBONES)
def test_any_backbone_answers(files: Path, name: str) -> None:
    model, data = build(files, name), images(2, BACKBONES[name].image)
    losses = model(data, [asked(0), asked(1)], mode='loss')
    losses['loss_answer'].backward()
    missing = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all()]
    assert missing == []
    with torch.no_grad():
        scores = model.eval()(data, [asked(0), asked(1)])
        answered = model(data, [asked(0), asked(1)], mode='predict')
        assert scores.shape == (2, 4)
        assert [one.pred_answer for one in answered] == [ANSWERS[i] for i in scores.argmax(1)]
        assert [one.pred_score for one in answered] == pytest.approx(scores.sigmoid().max(1).values.tolist())
        tall = model(images(1, 48)[..., :40], [asked(0)])  # another size
    assert tall.shape == (1, 4)


def test_questions_of_an_image_share_it(files: Path) -> None:
    """Two images with two questions each: the loss of four pairs, and the backbone runs for two images."""
    model, data = build(files), images(2)
    ran: list[int] = []
    model.backbone.register_forward_pre_hook(lambda _, inputs: ran.append(len(inputs[0])))
    alone = [asked(i) for i in range(4)]
    grouped = [
        sample([one.question for one in pair], [one.gt_answer for one in pair], [one.gt_answer_weight for one in pair])
        for pair in (alone[:2], alone[2:])
    ]
    together = model(data, grouped, mode='loss')['loss_answer']
    single = model(data[[0, 0, 1, 1]], alone, mode='loss')['loss_answer']
    assert ran == [2, 4]
    torch.testing.assert_close(together, single)


def test_loss_is_that_of_soft_targets(files: Path) -> None:
    model, data = build(files), images(1)
    one = sample('Is there a 7?', ['yes', 'No', 'other'], [0.2, 0.1, 0.7])
    scores = model(data, [one])
    expected = torch.nn.functional.binary_cross_entropy_with_logits(
        scores, torch.tensor([[0.0, 0.0, 0.6, 0.3]]), reduction='sum'
    )
    torch.testing.assert_close(model(data, [one], mode='loss')['loss_answer'], expected)


def test_second_head_sees_each_question_with_another_image(files: Path) -> None:
    model, data = build(files, match=dict(type='vitnas.MatchHead', width=16, loss_weight=2.0)), images(3)
    pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
    model.fusion.register_forward_pre_hook(lambda _, inputs: pairs.append((inputs[0], inputs[2])))
    losses = model(data, [asked(i) for i in range(3)], mode='loss')
    text, shown = pairs[0]
    own = model.extract_feat(data)
    assert torch.equal(text[:3], text[3:]) and torch.equal(shown[:3], own)
    assert not any(torch.equal(a, b) for a, b in zip(shown[3:], own))
    assert {int((shown[3:] == one).flatten(1).all(1).sum()) for one in own} == {1}  # each once
    mask = model.text(QUESTIONS[:3])[1].repeat(2, 1)
    logits = model.match.fc(model.fusion(text, mask, shown)[:, 0])[:, 0]
    plain = torch.nn.functional.binary_cross_entropy_with_logits(logits, torch.tensor([1.0, 1, 1, 0, 0, 0]))
    torch.testing.assert_close(losses['loss_match'], 2 * plain)
    without = build(files)(data, [asked(i) for i in range(3)], mode='loss')
    torch.testing.assert_close(losses['loss_answer'], without['loss_answer'])
    assert set(model(data[:1], [asked(0)], mode='loss')) == {'loss_answer', 'loss_match'}  # there is no other image


def test_the_same_image_twice_is_no_other_image(files: Path) -> None:
    """An image with many questions comes as several samples, which may meet in a batch."""
    model, data = build(files, match=dict(type='vitnas.MatchHead', width=16)), images(2)[[0, 0, 1]]
    samples = [asked(i) for i in range(3)]
    for one, name in zip(samples, 'aab'):
        one.set_metainfo(dict(img_path=name))
    pairs: list[int] = []
    model.fusion.register_forward_pre_hook(lambda _, inputs: pairs.append(len(inputs[0])))
    for seed in range(4):
        torch.manual_seed(seed)
        model(data, samples, mode='loss')
    assert set(pairs) == {5}  # of two shifts either leaves one question with its own image, and it is left out


def test_a_supernet_answers_and_is_cut(files: Path) -> None:
    """Questions can be searched on, too: the supernet's answers are those of the model that is cut from it."""
    family = BACKBONES['s3']
    cfg = config(files)
    cfg['backbone'] = dict(type='vitnas.S3', **family.settings, space=family.space, out_indices=(-1,))
    torch.manual_seed(0)
    supernet: VQAModel = MODELS.build(cfg).eval()
    arch = family.space.smallest()
    fixed = extract_model(supernet, cfg, arch)
    assert fixed.neck.proj.in_features < supernet.neck.proj.in_features
    assert check_extracted(supernet, fixed, arch, images(2)) < 1e-5
    supernet.backbone.set_arch(arch)
    samples = [asked(0), asked(1)]
    torch.testing.assert_close(supernet(images(2), samples), fixed(images(2), samples))
    assert torch.equal(fixed(images(2)), fixed.extract_feat(images(2)))


def test_questions_alone_see_no_image(files: Path) -> None:
    cfg = config(files)
    cfg.update(backbone=None, neck=None)
    model: VQAModel = MODELS.build(cfg).eval()
    samples = [asked(0), asked(1)]
    assert torch.equal(model(images(2), samples), model(torch.zeros(2, 3, 8, 8), samples))
    assert not torch.equal(model(images(2), samples)[0], model(images(2), samples)[1])


@torch.no_grad()
def test_places_matter(files: Path) -> None:
    """Mirrored, a map has the same cells at other places, which a transformer alone would not see."""
    model = build(files).eval()
    maps = torch.randn(1, model.neck.proj.in_features, 2, 3)
    plain, mirrored = (model.fusion(*model.text(QUESTIONS[:1]), model.neck([m]))[:, 0] for m in (maps, maps.flip(-1)))
    assert not torch.allclose(plain, mirrored, atol=1e-3)


def test_bad_input(files: Path) -> None:
    neck, match = dict(type='vitnas.TokenNeck', in_channels=8), dict(type='vitnas.MatchHead', width=16)
    for parts in (dict(neck=None), dict(backbone=None, neck=neck), dict(backbone=None, neck=None, match=match)):
        with pytest.raises(VitnasError, match='should have a backbone with a neck, or neither of them and no match'):
            MODELS.build({**config(files), **parts})
    model = build(files)
    with pytest.raises(VitnasError, match='is ann_file of the dataset given'):
        model(images(1), [sample('Is there a 7?')], mode='loss')
    with pytest.raises(VitnasError, match='several questions per image are for training'):
        model(images(1), [sample(QUESTIONS[:2])], mode='predict')
    with pytest.raises(VitnasError, match='should be given data_samples'):
        model(images(1), mode='predict')
    with pytest.raises(VitnasError, match=r'should be given maps \(B, C, H, W\), but got \(2, 8\)'):
        model.neck([torch.zeros(2, 8)])
    with pytest.raises(VitnasError, match='a multiple of 4, but got 6'):
        MODELS.build(dict(type='vitnas.TokenNeck', in_channels=8, out_channels=6))
