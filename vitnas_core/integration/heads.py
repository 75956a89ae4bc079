"""Private parts of heads: how mmpretrain's classifiers predict, and the stages of mmdet's RoI heads."""

from __future__ import annotations

from typing import Any

from torch import Tensor


def predicts_softmax(head: Any) -> bool:
    """Return whether a head predicts the softmax of its logits, as mmpretrain's ``ClsHead`` does.

    ``ClsHead.predict`` leaves the work to ``_get_predictions``, and a subclass may override either. Returns False for
    other heads, and for all heads of an mmpretrain without that method.
    """
    from mmpretrain.models import ClsHead

    own = getattr(ClsHead, '_get_predictions', None)
    return (
        isinstance(head, ClsHead)
        and type(head).predict is ClsHead.predict
        and own is not None
        and type(head)._get_predictions is own
    )


def run_roi_head(head: Any, features: Any, boxes: Tensor, mask_boxes: Tensor) -> None:
    """Run every stage of an RoI head on given boxes.

    The public ``forward`` takes the boxes that the stage before has found, whose number depends on the image.

    Args:
        head: mmdet's ``StandardRoIHead`` or ``CascadeRoIHead``; a subclass may need other arguments.
        features: Feature maps, as the neck gives them.
        boxes: Boxes (N, 5) for the box branch, with the index of the image first.
        mask_boxes: The same for the mask branch.
    """
    from mmdet.models.roi_heads import CascadeRoIHead

    stages = [(i,) for i in range(head.num_stages)] if isinstance(head, CascadeRoIHead) else [()]
    for stage in stages:
        if head.with_bbox:
            head._bbox_forward(*stage, features, boxes)
        if head.with_mask:
            head._mask_forward(*stage, features, mask_boxes)
