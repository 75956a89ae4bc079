"""Search the search space of a micro S3 on the embedded digits, then in it; a few minutes on two cores.

A small version of the whole paper. Three times: train a supernet, draw 200 architectures from it, move every dimension.
Then train a supernet of the evolved space and search it by evolution.
"""

_base_ = ['./s3-micro_supernet_12e_digits.py', '../../../../configs/recipes/s3_micro_space_search.py']

space_search = dict(num_samples=200, search=dict(constraint=dict(macs=(None, 1.6e6)), generations=5))
