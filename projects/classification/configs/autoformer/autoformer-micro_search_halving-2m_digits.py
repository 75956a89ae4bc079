"""Search by successive halving for at most 2 M MACs: 709 architectures for as many images as evolution's 240.

For another supernet: ``--cfg-options load_from=FILE``. For another limit: ``train_cfg.constraint.macs=None,3e6``.
"""

_base_ = './autoformer-micro_search_evolution-2m_digits.py'

train_cfg = dict(
    _delete_=True,
    type='vitnas.SuccessiveHalvingLoop',
    evaluator=dict(type='Accuracy'),
    constraint=dict(macs=(None, 2e6)),
    num_candidates=709,
    factor=3,
)
train_dataloader = dict(batch_size=34)  # nine batches, of which the rounds use one, three and all
