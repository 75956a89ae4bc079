"""Search the search space of a micro S3 on 4,000 images of Fashion-MNIST, then in it; used by the study."""

_base_ = ['./s3-micro_supernet_8e_fashion-mnist.py', '../../../../configs/recipes/s3_micro_space_search.py']

space_search = dict(num_samples=300, search=dict(constraint=dict(macs=(None, 1.2e6)), generations=6))
