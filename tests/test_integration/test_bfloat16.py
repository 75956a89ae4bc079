"""Detectors train in bfloat16: operators that mmcv and mmdet lack in it run in float32."""

import sys
from typing import NamedTuple

import pytest
import torch
from mmengine.config import ConfigDict

from tests.processes import run
from vitnas_core.integration import bfloat16


@pytest.fixture
def mended():
    """mmcv and mmdet are imported and mended, as by the first step of a training in bfloat16."""
    import mmdet.models  # noqa: F401  (all that is mended)

    from vitnas_core.training import BFloat16OptimWrapper

    layer = torch.nn.Linear(1, 1)
    wrapper = BFloat16OptimWrapper(torch.optim.SGD(layer.parameters(), lr=0.1))
    with wrapper.optim_context(layer):
        pass


def mended_methods():
    for module, owner, name in bfloat16._NO_BFLOAT16:
        yield getattr(getattr(sys.modules[module], owner), name)


def boxes(*corners):
    """Boxes of one image, that bfloat16 would round."""
    return torch.tensor([[0.0, *box] for box in corners])


def pool(features, rois):
    from mmcv.ops import roi_align

    output = roi_align(features, rois, 7, 0.25, 0, 'avg', True)
    return output, torch.autograd.grad(output.square().sum(), features)[0]


def test_bfloat16_is_pooled_in_float32(mended):
    features = torch.randn(1, 3, 40, 40, dtype=torch.bfloat16, requires_grad=True)
    rois = boxes((1.3, 2.7, 90.1, 100.9), (30.3, 8.8, 155.5, 60.2))
    output, gradient = pool(features, rois)
    expected, wanted = pool(features.detach().float().requires_grad_(), rois)
    assert (output.dtype, gradient.dtype) == (torch.float32, torch.bfloat16)
    assert torch.equal(output, expected) and torch.equal(gradient, wanted.bfloat16())


class Pair(NamedTuple):
    """A named tuple, as models of other projects return."""

    maps: torch.Tensor
    names: tuple[str, ...]


def test_containers_keep_their_type():
    value = torch.ones(2, dtype=torch.bfloat16)
    seen = bfloat16._without_bfloat16(lambda *args, **kwargs: (args, kwargs))
    (pair, pairs), others = seen(Pair(value, ('a',)), [value, 3], size=torch.Size((2, 3)))
    assert type(pair) is Pair and pair.maps.dtype == pairs[0].dtype == torch.float32
    assert pair.names == ('a',) and pairs[1] == 3
    assert type(pairs) is list and type(others['size']) is torch.Size and others['size'] == (2, 3)


@pytest.mark.parametrize('kind', [torch.float16, torch.float32, torch.float64])
def test_other_types_are_pooled_as_before(mended, kind):
    from mmcv.ops.roi_align import RoIAlignFunction

    class Before(RoIAlignFunction):
        forward = staticmethod(RoIAlignFunction.forward.__wrapped__)

    features, rois = torch.randn(1, 3, 20, 20, dtype=kind), boxes((1.3, 2.7, 40.1, 60.9)).to(kind)
    output, expected = (f.apply(features, rois, 7, 0.25, 0, 'avg', True) for f in (RoIAlignFunction, Before))
    assert output.dtype == kind and torch.equal(output, expected)


def test_boxes_of_bfloat16_features_are_not_rounded(mended):
    from mmdet.models import RPNHead, SingleRoIExtractor

    rois = boxes((517.3, 514.6, 611.8, 639.1), (515.1, 520.9, 530.2, 540.4))
    assert not torch.equal(rois, rois.bfloat16().float())
    extractor = SingleRoIExtractor(dict(type='RoIAlign', output_size=7, sampling_ratio=0), 3, [4, 8])
    features = [torch.randn(1, 3, side, side, dtype=torch.bfloat16) for side in (160, 80)]
    pooled = extractor(features, rois)
    assert torch.equal(pooled, extractor([level.float() for level in features], rois))

    anchors = dict(type='AnchorGenerator', scales=[8], ratios=[1.0], strides=[4])
    suppression = ConfigDict(nms_pre=50, max_per_img=20, min_bbox_size=0, nms=dict(type='nms', iou_threshold=0.7))
    head = RPNHead(3, anchor_generator=anchors, test_cfg=suppression)
    scores, deltas = torch.randn(1, 1, 160, 160).bfloat16(), torch.randn(1, 4, 160, 160).bfloat16() / 10
    metas = [dict(img_shape=(640, 640))]
    found, expected = (
        head.predict_by_feat([s], [d], batch_img_metas=metas)[0]
        for s, d in ((scores, deltas), (scores.float(), deltas.float()))
    )
    assert found.bboxes.dtype == torch.float32 and torch.equal(found.bboxes, expected.bboxes)


def test_focal_loss_gets_float32(mended, monkeypatch):
    """Its kernels are for GPUs only: what they are given is looked at."""
    from mmcv.ops import focal_loss

    given = []
    kernels = {
        'sigmoid_focal_loss_forward': lambda x, target, weight, out, **_: given.append(x.dtype) or out.copy_(2 * x),
        'sigmoid_focal_loss_backward': lambda x, target, weight, out, **_: given.append(x.dtype) or out.fill_(2),
    }
    monkeypatch.setattr(focal_loss, 'ext_module', type('Kernels', (), {k: staticmethod(v) for k, v in kernels.items()}))
    logits = torch.randn(3, 4).bfloat16().requires_grad_()
    loss = focal_loss.sigmoid_focal_loss(logits, torch.tensor([0, 1, 2]), 2.0, 0.25, None, 'none')
    loss.sum().backward()
    assert given == [torch.float32, torch.float32] and loss.dtype == torch.float32
    assert torch.equal(logits.grad, torch.full((3, 4), 2.0, dtype=torch.bfloat16))


def test_mending_bfloat16_is_idempotent(mended):
    before = list(mended_methods())
    bfloat16.bfloat16_in_float32()
    assert list(mended_methods()) == before and not any(hasattr(m.__wrapped__, 'no_bfloat16') for m in before)


def test_mending_bfloat16_imports_nothing():
    run("""
import sys
from vitnas_core.integration.bfloat16 import bfloat16_in_float32
bfloat16_in_float32()
assert not any(name.split('.')[0] in ('mmcv', 'mmdet') for name in sys.modules)
""")
