"""Search the elastic Mask R-CNN by the mask mAP of held-out scenes, for a backbone with at most 25 M MACs at 96 x 128.

For another limit: ``--cfg-options train_cfg.constraint.macs=None,18e6``. Then ``tools/extract_subnet.py`` cuts the
winner's whole detector out of the supernet.
"""

_base_ = './mask-rcnn_s3-micro_supernet_8e_scenes.py'

train_cfg = dict(
    _delete_=True,
    type='vitnas.EvolutionSearchLoop',
    evaluator=dict(type='CocoMetric', metric='segm'),
    metric='coco/segm_mAP',
    constraint=dict(macs=(None, 25e6)),
    input_size=(96, 128),
    population=16,
    parents=6,
    generations=3,
    mutations=8,
    crossovers=8,
    mutation_prob=dict(depth=0.4, stage=0.4, block=0.2),
)
train_dataloader = dict(_delete_=True, **_base_.holdout_dataloader)
load_from = 'work_dirs/mask-rcnn_s3-micro_supernet_8e_scenes/epoch_8.pth'
model = dict(backbone=dict(init_cfg=None))  # the supernet has its weights
