"""The search for at most 2 M MACs with four times the children; a random forest picks which of them to score."""

_base_ = './autoformer-micro_search_evolution-2m_digits.py'

train_cfg = dict(predictor=dict(trees=100, oversample=4))
