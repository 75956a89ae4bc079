"""Strides such as ViT-Res's 14, 28, 56: anchors, RoIs and boxes lie at the right place in the image."""

from __future__ import annotations

import json
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from mmdet.evaluation import eval_map
from mmdet.registry import MODELS
from mmdet.structures import DetDataSample
from mmengine.config import ConfigDict
from mmengine.registry import DefaultScope
from mmengine.structures import InstanceData
from torch import Tensor, nn

from tests.families import FAMILIES, Family
from vitnas_core.auto import fill_auto
from vitnas_core.backbones import S3
from vitnas_core.datasets import write_scenes

every_family = pytest.mark.parametrize('family', FAMILIES.values(), ids=FAMILIES.keys())
STRIDES = [14, 28, 56]
WIDTHS = ((16, 1), (32, 1), (48, 2), (64, 1))  # of a stage, and its blocks
ARCH = dict(
    family='s3',
    stages=[
        dict(embed_dim=width, blocks=[dict(num_heads=1 + (s > 1), mlp_ratio=2.0, window_size=4)] * depth)
        for s, (width, depth) in enumerate(WIDTHS)
    ],
)
BACKBONE = dict(arch=ARCH, patch_size=7, img_size=112, out_indices=(1, 2, 3))


def detector(strides: Any) -> ConfigDict:
    """A small RetinaNet for one class."""
    anchors = dict(type='AnchorGenerator', octave_base_scale=2, scales_per_octave=2, ratios=[0.5, 1.0, 2.0])
    return ConfigDict(
        type='RetinaNet',
        data_preprocessor=dict(type='DetDataPreprocessor', mean=[60.0] * 3, std=[60.0] * 3),
        backbone=dict(type='vitnas.S3', **BACKBONE),
        neck=dict(type='FPN', in_channels='auto', out_channels=32, num_outs=3),
        bbox_head=dict(
            type='RetinaHead', num_classes=1, in_channels='auto', stacked_convs=1, feat_channels=32,
            anchor_generator=dict(anchors, strides=strides), loss_bbox=dict(type='L1Loss', loss_weight=1.0),
        ),
        train_cfg=dict(
            assigner=dict(type='MaxIoUAssigner', pos_iou_thr=0.5, neg_iou_thr=0.4, min_pos_iou=0, ignore_iof_thr=-1),
            sampler=dict(type='PseudoSampler'), allowed_border=-1, pos_weight=-1, debug=False,
        ),
        test_cfg=dict(
            nms_pre=200, min_bbox_size=0, score_thr=0.05, nms=dict(type='nms', iou_threshold=0.5), max_per_img=20
        ),
    )  # fmt: skip


def build(strides: Any) -> nn.Module:
    with DefaultScope.overwrite_default_scope('mmdet'):
        return MODELS.build(detector(strides))


def test_the_strides() -> None:
    model = build('auto')
    assert model.backbone.out_strides() == (14, 28, 56)
    assert model.bbox_head.prior_generator.strides == [(s, s) for s in STRIDES]


# where a cell looks


def reactions(backbone: nn.Module, size: tuple[int, int], pixel: tuple[int, int]) -> list[Tensor]:
    """How much each cell of each map changes with one pixel."""
    image = torch.randn(1, 3, *size)
    other = image.clone()
    other[..., pixel[0], pixel[1]] += 3
    with torch.no_grad():
        return [(a - b).abs().amax((0, 1)) for a, b in zip(backbone(image), backbone(other))]


def centres(strides: Any, maps: list[Tensor]) -> list[Tensor]:
    """The centres (y, x) of the anchors of each cell, (H, W, 2), as mmdet has them."""
    with DefaultScope.overwrite_default_scope('mmdet'):
        head = MODELS.build(detector(strides).bbox_head | dict(in_channels=8))
    found = []
    for boxes, cells in zip(head.prior_generator.grid_priors([m.shape for m in maps], device='cpu'), maps):
        middle = (boxes[:, :2] + boxes[:, 2:]) / 2
        found.append(middle.view(*cells.shape, -1, 2)[:, :, 0].flip(-1))
    return found


@pytest.mark.parametrize('size', [(112, 168), (97, 151)])  # a multiple of the strides, and not
def test_a_cell_that_sees_a_pixel_has_its_anchors_there(size: tuple[int, int]) -> None:
    backbone = S3(**BACKBONE).eval()
    for stage in backbone.stages:
        for parameter in stage.blocks.parameters():  # nothing but the way of patches, which is local
            nn.init.zeros_(parameter)
    for pixel in ((0, 0), (13, 14), (57, 83), (55, 56), (size[0] - 1, size[1] - 1)):
        maps = reactions(backbone, size, pixel)
        for stride, cells, middle in zip(STRIDES, maps, centres(STRIDES, maps)):
            assert cells.shape == (-(-size[0] // stride), -(-size[1] // stride))
            (cell,) = (cells > 0).nonzero()
            behind = torch.tensor(pixel) - middle[tuple(cell)]
            assert (behind >= 0).all() and (behind < stride).all()  # mmdet's centres are a cell's first pixel


@every_family
def test_the_cell_of_a_pixel_sees_it(family: Family) -> None:
    """Best, or half as well as a neighbour: convolutions that overlap see a pixel between two cells from both."""
    torch.manual_seed(0)
    backbone = family.elastic(out_indices=(0, -1)).eval()
    for pixel in ((0, 0), (9, 38), (36, 50), (23, 24)):
        for stride, cells in zip(backbone.out_strides(), reactions(backbone, family.aligned, pixel)):
            row, column = pixel[0] // stride, pixel[1] // stride
            assert cells[row, column] >= cells.max() * family.sees > 0
            assert family.overlaps or divmod(int(cells.argmax()), cells.shape[1]) == (row, column)
            near = family.spread
            cells[max(0, row - near) : row + near + 1, max(0, column - near) : column + near + 1] = 0
            assert cells.max() < 0.1  # features have a deviation of 1


def test_an_extractor_cuts_out_what_is_in_the_box() -> None:
    """Maps that hold their own image coordinates: the mean of what is cut out of a box is its centre."""
    extractor = dict(
        type='mmdet.SingleRoIExtractor', roi_layer=dict(type='RoIAlign', output_size=7, sampling_ratio=2),
        out_channels=2, featmap_strides='auto',
    )  # fmt: skip
    cfg = fill_auto(dict(detector('auto'), roi_head=dict(bbox_roi_extractor=extractor)))
    assert cfg['roi_head']['bbox_roi_extractor']['featmap_strides'] == STRIDES
    layer = MODELS.build(cfg['roi_head']['bbox_roi_extractor'])
    height, width = 611, 1003
    maps = []
    for stride in STRIDES:
        y, x = ((torch.arange(-(-side // stride)) + 0.5) * stride for side in (height, width))
        maps.append(torch.stack(torch.meshgrid(y, x, indexing='ij'))[None])
    boxes = torch.tensor([[30.0, 40, 95, 90], [500, 300, 590, 401], [200, 90, 400, 260], [130, 60, 900, 580]])
    assert layer.map_roi_levels(nn.functional.pad(boxes, (1, 0)), 3).tolist() == [0, 0, 1, 2]
    found = layer(maps, nn.functional.pad(boxes, (1, 0))).mean((2, 3))
    torch.testing.assert_close(found, ((boxes[:, :2] + boxes[:, 2:]) / 2).flip(1), rtol=0, atol=0.5)


# end to end


@pytest.fixture(scope='module')
def scenes(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Tensor, Tensor]]:
    """Images (3, H, W) of two sizes, one of them no multiple of anything, and boxes."""
    found = []
    for size in ((112, 168), (97, 151)):
        folder = tmp_path_factory.mktemp('strides') / 'scenes'
        write_scenes(folder, 4, 1, size=size)
        content = json.loads((folder / 'annotations/instances_train.json').read_text())
        for info in content['images']:
            notes = [note['bbox'] for note in content['annotations'] if note['image_id'] == info['id']]
            image = torch.from_numpy(cv2.imread(str(folder / 'train' / info['file_name']))).permute(2, 0, 1)
            boxes = torch.tensor(notes, dtype=torch.float)
            found.append((image.contiguous(), torch.cat([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], 1)))
    return found


def as_batch(model: nn.Module, scenes: list[tuple[Tensor, Tensor]], training: bool) -> Any:
    samples = []
    for image, boxes in scenes:
        shape = tuple(image.shape[1:])
        sample = DetDataSample(metainfo=dict(img_shape=shape, ori_shape=shape, scale_factor=(1.0, 1.0)))
        sample.gt_instances = InstanceData(bboxes=boxes, labels=torch.zeros(len(boxes), dtype=torch.long))
        samples.append(sample)
    return model.data_preprocessor(dict(inputs=[image for image, _ in scenes], data_samples=samples), training)


def train(model: nn.Module, scenes: list[tuple[Tensor, Tensor]], steps: int = 100, rate: float = 4e-3) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    for _ in range(steps):
        batch = as_batch(model, scenes, training=True)
        loss, _ = model.parse_losses(model.loss(batch['inputs'], batch['data_samples']))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        schedule.step()


@torch.no_grad()
def average_precision(model: nn.Module, scenes: list[tuple[Tensor, Tensor]]) -> float:
    """AP at an IoU of 0.5, on one image after another: none is padded for others."""
    found = []
    for scene in scenes:
        batch = as_batch(model.eval(), [scene], training=False)
        instances = model.predict(batch['inputs'], batch['data_samples'])[0].pred_instances
        found.append([torch.cat([instances.bboxes, instances.scores[:, None]], 1).numpy()])
    truth = [dict(bboxes=boxes.numpy(), labels=np.zeros(len(boxes), int)) for _, boxes in scenes]
    return float(eval_map(found, truth, iou_thr=0.5, logger='silent')[0])


@pytest.mark.parametrize(
    ('strides', 'low', 'high'), [('auto', 0.8, 1.0), ([4, 8, 16], 0.0, 0.3)], ids=['auto', 'copied']
)
def test_a_detector_learns_where_things_are(
    scenes: list[tuple[Tensor, Tensor]], strides: Any, low: float, high: float
) -> None:
    """With the strides of a stock config, anchors lie in a corner of the image, and the same training finds little."""
    model = build(strides)
    model.init_weights()
    train(model, scenes)
    assert low <= average_precision(model, scenes) <= high
