"""The default runtime for training a supernet."""

_base_ = './default_runtime.py'

find_unused_parameters = True  # a step uses the parameters of its architectures only
default_hooks = dict(checkpoint=dict(interval=5))
