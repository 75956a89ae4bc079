"""Recipe for searching the search space of a micro S3, then in it. Configs add the supernet and limits.

Three times: train a supernet, draw architectures from it, move every dimension. Then train a supernet of the evolved
space and search it by evolution.
"""

runner_type = 'vitnas.SpaceSearch'
space_search = dict(
    iterations=3,
    evolution=dict(
        steps=dict(depth=1, embed_dim=16, num_heads=1, mlp_ratio=0.5, window_size=2),
        threshold=1.0,  # errors of small networks on few images vary more than on ImageNet
        top=0.2,  # a fraction: under a MACs limit, some choices are rare, and the best 50 would be all of them
    ),
    search=dict(
        type='vitnas.EvolutionSearchLoop',
        evaluator=dict(type='Accuracy'),
        population=20,
        parents=5,
        mutations=10,
        crossovers=10,
        mutation_prob=dict(depth=0.2, stage=0.2, block=0.4),
    ),
)
