"""FocusFormer's Tab. 2 and Tab. 3, small: training and search with a sampler or without, and growing image sizes.

A micro space and 4,000 images of Fashion-MNIST. ``uniform`` and ``sampler`` differ in the architectures that train the
supernet. Each supernet is searched by evolution (300 evaluations for each of three budgets) and by a sampler (30). The
sampler of ``uniform`` is trained after the supernet. ``progressive`` is ``sampler`` with growing image sizes.
"""

title = 'FocusFormer: sampler and progressive learning (Fashion-MNIST)'
seeds = [0, 1, 2, 3, 4]
baseline = 'uniform'

folder = 'projects/classification/configs/focusformer/'
supernet = folder + 'focusformer-micro_supernet_12e_fashion-mnist.py'
sampler = folder + 'focusformer-micro_sampler_360i_fashion-mnist.py'
evolution = folder + 'focusformer-micro_search_evolution-3m_fashion-mnist.py'
sampled = folder + 'focusformer-micro_search_sampler-2m-3m-4.5m_fashion-mnist.py'
budgets = [2e6, 3e6, 4.5e6]

whole_size = {'custom_hooks.1.start': 28}  # no growing images
uniform = {'train_cfg.sampler': dict(_delete_=True, type='vitnas.UniformSampler'), 'custom_hooks': []}


def scored(name, config, *searches):
    """Test the results of searches under each budget."""
    args = ['budgets', '{config}', '{supernet.checkpoint}', *searches, '--out', '{dir}', '--budgets']
    return dict(name=name, script='projects/studies/score.py', config=config, args=[*args, *map(str, budgets)])


by_evolution = [
    dict(
        name=f'evolution{i}',
        config=evolution,
        overrides={'load_from': '{supernet.checkpoint}', 'train_cfg.constraint.macs': [None, budget]},
    )
    for i, budget in enumerate(budgets, 1)
] + [scored('evolved', evolution, '{evolution1}', '{evolution2}', '{evolution3}')]


def by_sampler(checkpoint):
    """Search by the sampler of a checkpoint."""
    return [
        dict(name='sampling', config=sampled, overrides={'load_from': checkpoint}),
        scored('sampled', sampled, '{sampling}'),
    ]


runs = [
    dict(
        name='uniform',
        steps=[
            dict(name='supernet', config=supernet, overrides=uniform),
            dict(name='sampler', config=sampler, overrides={'load_from': '{supernet.checkpoint}'}),
            *by_evolution,
            *by_sampler('{sampler.checkpoint}'),
        ],
    ),
    dict(
        name='sampler',
        steps=[
            dict(name='supernet', config=supernet, overrides=whole_size),
            *by_evolution,
            *by_sampler('{supernet.checkpoint}'),
        ],
    ),
    dict(name='progressive', steps=[dict(name='supernet', config=supernet), *by_sampler('{supernet.checkpoint}')]),
]

measures = {
    **{f'evolved.accuracy_{i}': f'evolution, {b / 1e6:g} M MACs, test (%)' for i, b in enumerate(budgets, 1)},
    **{f'sampled.accuracy_{i}': f'sampler, {b / 1e6:g} M MACs, test (%)' for i, b in enumerate(budgets, 1)},
    'evolved.evaluations': 'evolution: evaluations',
    'sampled.evaluations': 'sampler: evaluations',
    'evolved.search_seconds': 'evolution: seconds',
    'sampled.search_seconds': 'sampler: seconds',
    'sampler.seconds': 'training a sampler afterwards: seconds',
    'supernet.seconds': 'training the supernet: seconds',
    'supernet.iteration_seconds': 'one of its steps: seconds',
}
