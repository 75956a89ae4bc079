"""Transfer from single digits to scenes of digits: five models around a searched backbone, two starts.

The same searched architecture starts from the weights of its supernet or from random ones, with the same 600
iterations. The study needs the scenes and the search: ``tools/dataset_converters/make_scenes.py``, then
``tools/train.py`` with ``s3-micro_supernet_120e_drawn-digits.py`` and with
``s3-micro_search_evolution-7m_drawn-digits.py``.
"""

title = 'From digits to scenes of digits'
seeds = [0, 1, 2]
baseline = 'random'

configs = dict(
    mask_rcnn='projects/detection/configs/digits/mask-rcnn_s3-micro_fpn_4e_scenes.py',
    cascade='projects/detection/configs/digits/cascade-mask-rcnn_s3-micro_fpn_4e_scenes.py',
    retinanet='projects/detection/configs/digits/retinanet_s3-micro_fpn_4e_scenes.py',
    upernet='projects/segmentation/configs/digits/s3-micro_upernet_4e_scenes-96x128.py',
    fpn='projects/segmentation/configs/digits/s3-micro_fpn_4e_scenes-96x128.py',
)


def train(overrides):
    """Train all five models; only the overrides differ."""
    return [dict(name=name, config=config, overrides=overrides) for name, config in configs.items()]


runs = [
    dict(name='random', steps=train({'model.backbone.init_cfg': None})),
    dict(name='searched', steps=train({})),
]
measures = {
    'mask_rcnn.coco/bbox_mAP': 'Mask R-CNN, box mAP',
    'mask_rcnn.coco/segm_mAP': 'Mask R-CNN, mask mAP',
    'cascade.coco/bbox_mAP': 'Cascade Mask R-CNN, box mAP',
    'cascade.coco/segm_mAP': 'Cascade Mask R-CNN, mask mAP',
    'retinanet.coco/bbox_mAP': 'RetinaNet, box mAP',
    'upernet.mIoU': 'UperNet, mIoU (%)',
    'fpn.mIoU': 'Semantic FPN, mIoU (%)',
    **{f'{name}.seconds': f'{name}: seconds' for name in configs},
}
