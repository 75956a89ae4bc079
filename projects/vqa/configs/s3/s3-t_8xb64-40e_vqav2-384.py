"""VQA v2 with S3-T: the setting of its paper (arXiv 2111.14725, App. C), SOHO without its visual dictionary.

Put BERT's vocabulary and weights into ``data/bert/vocab.txt`` and ``data/bert/model.safetensors``. For weights of the
backbone: ``--cfg-options model.backbone.init_cfg.type=Pretrained model.backbone.init_cfg.checkpoint=FILE``.
"""

_base_ = [
    '../../../../configs/_base_/datasets/vqa_v2.py',
    '../../../../configs/_base_/schedules/soho_bs2048_40e.py',
    '../../../../configs/_base_/default_runtime.py',
]
custom_imports = dict(imports=['vitnas_core', 'projects.vqa.vqa'])

bert = dict(type='Pretrained', checkpoint='data/bert/model.safetensors')
model = dict(
    type='vitnas.VQAModel',
    data_preprocessor=_base_.data_preprocessor,
    backbone=dict(type='vitnas.S3', arch='s3-t'),
    neck=dict(type='vitnas.TokenNeck', in_channels='auto'),
    text=dict(type='vitnas.BertEncoder', vocab='data/bert/vocab.txt', init_cfg=bert),
    fusion=dict(type='vitnas.FusionTransformer', init_cfg=bert),
    head=dict(type='vitnas.VQAHead', answers='data/coco/annotations/vqa_answers_3129.json', num_answers=3129),
    match=dict(type='vitnas.MatchHead'),
)
