"""Search the search space of a micro S3 on 4,000 images of Fashion-MNIST, then in it; used by the study."""

_base_ = './s3-micro_supernet_8e_fashion-mnist.py'

runner_type = 'vitnas.SpaceSearch'
space_search = dict(
    iterations=3,
    num_samples=300,
    evolution=dict(
        steps=dict(depth=1, embed_dim=16, num_heads=1, mlp_ratio=0.5, window_size=2),
        threshold=1.0,  # errors of small networks on few images vary more than on ImageNet
        top=0.2,  # a fraction: under a MACs limit, some choices are rare, and the best 50 would be all of them
    ),
    search=dict(
        type='vitnas.EvolutionSearchLoop',
        evaluator=dict(type='Accuracy'),
        constraint=dict(macs=(None, 1.2e6)),
        population=20,
        parents=5,
        generations=6,
        mutations=10,
        crossovers=10,
        mutation_prob=dict(depth=0.2, stage=0.2, block=0.4),
    ),
)
