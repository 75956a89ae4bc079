"""Questions about scenes of digits in VQA v2's format; make them with ``projects/vqa/tools/make_scenes_vqa.py``."""

data_root = 'data/scenes_vqa/vqa/'
# Statistics of the digits that the backbone was trained on.
data_preprocessor = dict(type='MultiModalDataPreprocessor', mean=[77.6] * 3, std=[95.9] * 3, to_rgb=True)

keys = ['question', 'gt_answer', 'gt_answer_weight', 'answer_type']
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='PackInputs', algorithm_keys=keys, meta_keys=['question_id', 'img_path']),
]
test_pipeline = train_pipeline

train_set = dict(
    type='vitnas.VQADataset',
    data_root=data_root,
    data_prefix='train',
    question_file='v2_OpenEnded_scenes_train_questions.json',
    ann_file='v2_scenes_train_annotations.json',
)
val_set = dict(
    train_set,
    data_prefix='val',
    question_file='v2_OpenEnded_scenes_val_questions.json',
    ann_file='v2_scenes_val_annotations.json',
)

train_dataloader = dict(
    batch_size=8,
    num_workers=1,
    persistent_workers=True,
    collate_fn=dict(type='default_collate'),
    sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(**train_set, questions_per_image=10, pipeline=train_pipeline),
)
val_dataloader = dict(
    train_dataloader,
    batch_size=64,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(**val_set, pipeline=test_pipeline),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='vitnas.VQAAccuracy')
test_evaluator = val_evaluator
