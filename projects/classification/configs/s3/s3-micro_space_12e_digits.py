"""Search the search space of a micro S3 on the embedded digits, then in it; a few minutes on two cores.

Everything that the paper does, small: three times a supernet, 200 architectures drawn from it, and a step of every
dimension; then a supernet of the evolved space, and an evolution search in it.
"""

_base_ = './s3-micro_supernet_12e_digits.py'

runner_type = 'vitnas.SpaceSearch'
space_search = dict(
    iterations=3,
    num_samples=200,
    evolution=dict(
        steps=dict(depth=1, embed_dim=16, num_heads=1, mlp_ratio=0.5, window_size=2),
        threshold=1.0,  # errors of small networks on few images differ more than on ImageNet
        top=0.2,  # a share: under a limit of MACs some choices are rare, and 50 of them would be all
    ),
    search=dict(
        type='vitnas.EvolutionSearchLoop',
        evaluator=dict(type='Accuracy'),
        constraint=dict(macs=(None, 1.6e6)),
        population=20,
        parents=5,
        generations=5,
        mutations=10,
        crossovers=10,
        mutation_prob=dict(depth=0.2, stage=0.2, block=0.4),
    ),
)
