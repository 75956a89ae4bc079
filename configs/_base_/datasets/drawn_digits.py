"""The embedded digits as in the scenes: one digit per 56 × 56 image, at a random place and size, on a texture."""

_base_ = './digits.py'

train_pipeline = [dict(type='vitnas.DrawDigit', size=56), dict(type='PackInputs')]
test_pipeline = [dict(type='vitnas.DrawDigit', size=56, seed=0), dict(type='PackInputs')]

train_dataloader = dict(num_workers=1, persistent_workers=True, dataset=dict(dataset=dict(pipeline=train_pipeline)))
val_dataloader = dict(dataset=dict(dataset=dict(pipeline=test_pipeline)))
test_dataloader = dict(dataset=dict(pipeline=test_pipeline))
