"""Search S3-B with at most 13.6 G MACs in the evolved space.

For another supernet: ``--cfg-options load_from=FILE``.
"""

_base_ = './s3-t_search_evolution-4.7g_imagenet.py'

train_cfg = dict(constraint=dict(macs=(None, 13.6e9)))
