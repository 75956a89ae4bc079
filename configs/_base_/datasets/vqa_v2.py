"""VQA v2 in its usual files, images at 384 × 384.

Put ``train2014/``, ``val2014/``, ``test2015/`` and VQA's files in ``annotations/`` into ``data/coco``. Make the list of
answers with ``python projects/vqa/tools/vqa_answers.py
data/coco/annotations/v2_mscoco_{train,val}2014_annotations.json --out data/coco/annotations/vqa_answers_3129.json``.
"""

data_root = 'data/coco'
data_preprocessor = dict(
    type='MultiModalDataPreprocessor', mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375], to_rgb=True
)

keys = ['question', 'gt_answer', 'gt_answer_weight', 'answer_type']
# Images are not mirrored: questions ask for left and right.
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(384, 384), interpolation='bicubic', backend='pillow'),
    dict(type='PackInputs', algorithm_keys=keys, meta_keys=['question_id', 'img_path']),
]
test_pipeline = train_pipeline

train_set = dict(
    type='vitnas.VQADataset',
    data_root=data_root,
    data_prefix='train2014',
    question_file='annotations/v2_OpenEnded_mscoco_train2014_questions.json',
    ann_file='annotations/v2_mscoco_train2014_annotations.json',
)
val_set = dict(
    train_set,
    data_prefix='val2014',
    question_file='annotations/v2_OpenEnded_mscoco_val2014_questions.json',
    ann_file='annotations/v2_mscoco_val2014_annotations.json',
)
test_set = dict(
    type='vitnas.VQADataset',
    data_root=data_root,
    data_prefix='test2015',
    question_file='annotations/v2_OpenEnded_mscoco_test2015_questions.json',
)

# Two questions per image; with a second head each question meets another image too: four pairs.
train_dataloader = dict(
    batch_size=64,
    num_workers=8,
    persistent_workers=True,
    collate_fn=dict(type='default_collate'),
    sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(**train_set, questions_per_image=2, pipeline=train_pipeline),
)
val_dataloader = dict(
    train_dataloader,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(**val_set, pipeline=test_pipeline),
)
val_evaluator = dict(type='vitnas.VQAAccuracy')
# Writes the file to submit to the server for test-dev and test-std.
test_dataloader = dict(val_dataloader, dataset=dict(**test_set, pipeline=test_pipeline))
test_evaluator = dict(type='ReportVQA', file_path='vqa_test2015.json')
