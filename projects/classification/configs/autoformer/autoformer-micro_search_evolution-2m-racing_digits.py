"""The search for at most 2 M MACs with racing, which drops candidates that can no longer become parents."""

_base_ = './autoformer-micro_search_evolution-2m_digits.py'

train_cfg = dict(racing=dict(confidence=0.99))
train_dataloader = dict(batch_size=25)  # racing judges a candidate after every batch
