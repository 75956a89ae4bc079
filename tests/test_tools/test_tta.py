"""``tools/test.py``: ``--tta`` merges several views of any task's images, ``--show-dir`` draws the predictions."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS
from PIL import Image

from tests.families import FAMILIES
from tools import test as tool
from vitnas_core.errors import CheckpointError, VitnasError
from vitnas_core.model_configs import model_config

S3 = FAMILIES['s3']
SUPERNET = dict(type='vitnas.S3', space=S3.space.to_dict(), out_indices=(0, 1), **S3.settings)
CHANNELS = list(S3.elastic(out_indices=(0, 1)).out_channels())
CLASSES = dict(classes=('dark', 'bright'))
PIXELS = dict(mean=[110.0] * 3, std=[60.0] * 3)


def loader(dataset: dict[str, Any]) -> dict[str, Any]:
    return dict(batch_size=1, num_workers=0, dataset=dataset, sampler=dict(type='DefaultSampler', shuffle=False))


def images(folder: Path) -> None:
    """Two noisy images, and their halves as labels."""
    rng = np.random.default_rng(0)
    for name in ('img', 'ann'):
        (folder / name).mkdir(parents=True)
    for i in range(2):
        labels = np.zeros((40, 64), np.uint8)
        labels[:, 20 + 10 * i :] = 1
        image = np.clip(labels[..., None] * 100 + rng.integers(0, 120, (40, 64, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(image).save(folder / 'img' / f'{i}.jpg')
        Image.fromarray(labels).save(folder / 'ann' / f'{i}.png')


def segmentor(data: Path) -> dict[str, Any]:
    pipeline = [dict(type='LoadImageFromFile'), dict(type='LoadAnnotations'), dict(type='PackSegInputs')]
    prefix = dict(img_path='img', seg_map_path='ann')
    dataset = dict(type='BaseSegDataset', data_root=str(data), data_prefix=prefix, metainfo=CLASSES, pipeline=pipeline)
    head = dict(in_channels=CHANNELS[-1], channels=8, num_convs=1, num_classes=2, in_index=1)
    return dict(
        default_scope='mmseg',
        data_preprocessor=dict(type='SegDataPreProcessor', mean=[0.0] * 3, std=[1.0] * 3),  # the model has its own
        model=dict(
            type='EncoderDecoder',
            data_preprocessor=dict(type='SegDataPreProcessor', **PIXELS),
            backbone=SUPERNET,
            decode_head=dict(head, type='FCNHead', norm_cfg=dict(type='BN')),
            test_cfg=dict(mode='whole'),
        ),
        test_dataloader=loader(dict(type='RepeatDataset', dataset=dataset, times=1)),
        test_evaluator=[dict(type='IoUMetric')],
        tta_model=dict(type='SegTTAModel'),
        tta_pipeline=seg_views([1.0], [0.0]),
    )


def seg_views(scales: list[float], flips: list[float]) -> list[dict[str, Any]]:
    views = [
        [dict(type='Resize', scale_factor=scale, keep_ratio=True) for scale in scales],
        [dict(type='RandomFlip', prob=prob, direction='horizontal') for prob in flips],
        [dict(type='LoadAnnotations')],
        [dict(type='PackSegInputs')],
    ]
    return [dict(type='LoadImageFromFile'), dict(type='TestTimeAug', transforms=views)]


def detector(data: Path) -> dict[str, Any]:
    """The stock config with narrow parts; it has neither ``tta_model`` nor ``tta_pipeline``."""
    boxes = [dict(id=i, image_id=i, category_id=2, bbox=[20, 0, 30, 40], area=1200, iscrowd=0) for i in range(2)]
    listed = [dict(id=i, file_name=f'{i}.jpg', height=40, width=64) for i in range(2)]
    categories = [dict(id=i + 1, name=name) for i, name in enumerate(CLASSES['classes'])]
    (data / 'coco.json').write_text(json.dumps(dict(images=listed, annotations=boxes, categories=categories)))
    pipeline = [
        dict(type='LoadImageFromFile'),
        dict(type='Resize', scale=(64, 40), keep_ratio=True),
        dict(type='LoadAnnotations', with_bbox=True),
        dict(type='PackDetInputs', meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor')),
    ]
    dataset = dict(ann_file=str(data / 'coco.json'), data_root='', data_prefix=dict(img=str(data / 'img')))
    dataset.update(_delete_=True, type='CocoDataset', metainfo=CLASSES, test_mode=True, pipeline=pipeline)
    return dict(
        _base_='mmdet::faster_rcnn/faster-rcnn_r50_fpn_1x_coco.py',
        custom_imports=dict(imports=['vitnas_core']),
        model=dict(
            backbone=dict(SUPERNET, _delete_=True),
            neck=dict(in_channels=CHANNELS, out_channels=8),
            rpn_head=dict(in_channels=8, feat_channels=8),
            roi_head=dict(
                bbox_roi_extractor=dict(out_channels=8), bbox_head=dict(in_channels=8, fc_out_channels=8, num_classes=2)
            ),
        ),
        test_dataloader=dict(dataset=dataset, num_workers=0, persistent_workers=False),
        test_evaluator=[dict(type='CocoMetric', ann_file=str(data / 'coco.json'), metric='bbox')],
    )


def classifier() -> dict[str, Any]:
    """Neither ``tta_model`` nor ``tta_pipeline``; two test sets, of which one has a pipeline of its own."""
    pipeline = [dict(type='PackInputs')]
    larger = [dict(type='Resize', scale=40), *pipeline]
    parts = [dict(type='vitnas.Digits', split='test', indices=20, pipeline=p) for p in (pipeline, larger)]
    return dict(
        default_scope='mmpretrain',
        model=dict(
            type='ImageClassifier',
            data_preprocessor=dict(type='ClsDataPreprocessor', **PIXELS),
            backbone=dict(SUPERNET, out_indices=(1,)),
            neck=dict(type='GlobalAveragePooling'),
            head=dict(type='LinearClsHead', num_classes=10, in_channels='auto'),
        ),
        test_dataloader=loader(dict(type='ConcatDataset', datasets=parts)),
        test_evaluator=[dict(type='Accuracy')],
    )


def write(folder: Path, name: str, cfg: dict[str, Any]) -> None:
    """Write a config that tests only and keeps every prediction."""
    dump = dict(type='DumpResults', out_file_path=str(folder / 'predictions.pkl'))
    cfg = dict(cfg, test_cfg=dict(type='TestLoop'), test_evaluator=[*cfg['test_evaluator'], dump], log_level='ERROR')
    cfg.update(val_cfg=None, val_dataloader=None, val_evaluator=None)
    (folder / name).write_text('\n'.join(f'{key} = {value!r}' for key, value in cfg.items()))


def save_weights(folder: Path, name: str) -> None:
    model = MODELS.build(model_config(Config.fromfile(folder / name)))
    for parameter in model.parameters():
        if parameter.ndim > 1:  # a norm with random weights would leave nothing of the images
            torch.nn.init.normal_(parameter, std=0.2)
    torch.save(model.state_dict(), folder / 'weights.pth')


def predict(folder: Path, name: str, *more: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What the tool returns, and every prediction."""
    arguments = [str(folder / name), str(folder / 'weights.pth'), '--work-dir', str(folder / 'work')]
    result = tool.main([*arguments, *more])
    assert json.loads((folder / 'work' / 'test.json').read_text())['tta'] == ('--tta' in more)
    return result, pickle.loads((folder / 'predictions.pkl').read_bytes())


@pytest.fixture
def data(tmp_path: Path) -> Path:
    images(tmp_path / 'data')
    return tmp_path / 'data'


def test_a_segmentor(tmp_path: Path, data: Path) -> None:
    write(tmp_path, 'one.py', segmentor(data))
    write(tmp_path, 'many.py', dict(segmentor(data), tta_pipeline=seg_views([0.75, 1.0], [0.0, 1.0])))
    save_weights(tmp_path, 'one.py')
    arch = tmp_path / 'arch.json'
    arch.write_text(S3.space.smallest().to_json())

    def maps(name: str, *more: str) -> torch.Tensor:
        result, predictions = predict(tmp_path, name, '--arch', str(arch), *more)
        assert result['arch'] == S3.space.smallest().to_dict() and 0 < result['metrics']['aAcc'] < 100
        return torch.stack([one['pred_sem_seg']['data'].squeeze() for one in predictions])

    plain = maps('one.py')
    assert 0 < plain.float().mean() < 1
    assert torch.equal(maps('one.py', '--tta'), plain)
    merged = maps('many.py', '--tta')
    assert merged.shape == plain.shape and not torch.equal(merged, plain)
    _, largest = predict(tmp_path, 'one.py', '--tta')
    assert not torch.equal(largest[0]['pred_sem_seg']['data'].squeeze(), plain[0])


def test_a_detector_has_defaults(tmp_path: Path, data: Path) -> None:
    cfg = detector(data)
    write(tmp_path, 'stock.py', cfg)
    *before, last = cfg['test_dataloader']['dataset']['pipeline']
    pack = dict(last, meta_keys=tool.FLIP_KEYS)
    views = dict(type='TestTimeAug', transforms=[[dict(type='RandomFlip', prob=0.0)], [pack]])
    write(tmp_path, 'one.py', dict(cfg, tta_pipeline=[*before, views]))
    save_weights(tmp_path, 'stock.py')

    def boxes(name: str, *more: str) -> list[list[list[float]]]:
        """Of each image; sorted, as boxes with equal scores change places when they are merged."""
        found = [one['pred_instances'] for one in predict(tmp_path, name, *more)[1]]
        return [sorted(torch.cat([p['bboxes'], p['scores'][:, None]], 1).tolist()) for p in found]

    plain = boxes('stock.py')
    assert len(plain) == 2 and all(plain)
    assert boxes('one.py', '--tta') == plain
    assert all(a != b for a, b in zip(boxes('stock.py', '--tta'), plain))


def test_a_classifier_has_defaults(tmp_path: Path) -> None:
    write(tmp_path, 'config.py', classifier())
    save_weights(tmp_path, 'config.py')
    plain, merged = ([p['pred_score'] for p in predict(tmp_path, 'config.py', *more)[1]] for more in ((), ('--tta',)))
    assert len(plain) == len(merged) == 40
    assert not any(torch.equal(a, b) for a, b in zip(plain, merged))


def test_datasets_in_wrappers_keep_their_own_pipeline() -> None:
    cfg = Config(classifier())
    tool.use_tta(cfg)
    first, second = (dataset.pipeline for dataset in cfg.test_dataloader.dataset.datasets)
    assert [step.type for step in first] == ['TestTimeAug']
    assert [step.type for step in second] == ['Resize', 'TestTimeAug']
    assert cfg.model.type == 'mmpretrain.AverageClsScoreTTA' and cfg.model.module.type == 'ImageClassifier'


def test_mistakes(tmp_path: Path, data: Path) -> None:
    write(tmp_path, 'config.py', {k: v for k, v in segmentor(data).items() if k != 'tta_pipeline'})
    save_weights(tmp_path, 'config.py')
    with pytest.raises(VitnasError, match='--tta needs `tta_pipeline`, but .*config.py has none'):
        predict(tmp_path, 'config.py', '--tta')
    write(tmp_path, 'config.py', segmentor(data))
    torch.save({'decode_head.x': torch.zeros(1)}, tmp_path / 'weights.pth')
    with pytest.raises(CheckpointError, match=r'does not fit this model: it has no backbone\.'):  # not module.backbone
        predict(tmp_path, 'config.py', '--tta')


def test_masks_are_not_merged(tmp_path: Path, data: Path) -> None:
    cfg = detector(data)
    cfg['_base_'] = 'mmdet::mask_rcnn/mask-rcnn_r50_fpn_1x_coco.py'
    mask_head = dict(in_channels=8, conv_out_channels=8, num_classes=2)
    cfg['model']['roi_head'].update(mask_roi_extractor=dict(out_channels=8), mask_head=mask_head)
    write(tmp_path, 'config.py', cfg)
    with pytest.raises(VitnasError, match='merges boxes, not masks, but MaskRCNN predicts masks'):
        predict(tmp_path, 'config.py', '--tta')


def drawn(folder: Path, name: str, *more: str) -> list[np.ndarray]:
    """The pictures that a test draws."""
    before = predict(folder, name)
    assert predict(folder, name, '--show-dir', str(folder / 'shown'), *more)[0]['metrics'] == before[0]['metrics']
    return [np.asarray(Image.open(path)) for path in sorted((folder / 'shown').rglob('*.*')) if path.suffix != '.py']


@pytest.mark.parametrize('kind', [segmentor, detector])
def test_what_is_predicted_is_drawn(kind: Callable[[Path], dict[str, Any]], tmp_path: Path, data: Path) -> None:
    write(tmp_path, 'config.py', kind(data))
    save_weights(tmp_path, 'config.py')
    pictures = drawn(tmp_path, 'config.py')
    assert len(pictures) == 2
    for i, picture in enumerate(pictures):
        plain = np.asarray(Image.open(data / 'img' / f'{i}.jpg'))
        assert picture.shape[0] >= 40 and np.abs(picture[:40, :64].astype(float) - plain).mean() > 5


def test_classes_are_drawn(tmp_path: Path) -> None:
    write(tmp_path, 'config.py', classifier())
    save_weights(tmp_path, 'config.py')
    pictures = drawn(tmp_path, 'config.py')
    assert len(pictures) == 40 and all(picture.any() for picture in pictures)


def test_nobody_draws_for_a_model_of_another_project(tmp_path: Path) -> None:
    cfg = Config(dict(model=dict(type='mmpose.TopdownPoseEstimator')))
    with pytest.raises(VitnasError, match='draws for models of mmdet, mmpretrain, mmseg, but this one is of mmpose'):
        tool.draw_into(cfg, tmp_path)
