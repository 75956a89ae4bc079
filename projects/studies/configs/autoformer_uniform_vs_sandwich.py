"""AutoFormer: uniform single path against sandwich, on a micro space and 4,000 images of Fashion-MNIST.

A step of sandwich trains four architectures: the largest, the smallest and two random ones. A step of uniform trains
one. ``uniform`` and ``sandwich`` take the same number of steps. ``uniform-4x`` trains as many architectures as
``sandwich``.
"""

title = 'AutoFormer, uniform against sandwich (Fashion-MNIST)'
seeds = [0, 1, 2]
baseline = 'uniform'

epochs = 8
folder = 'projects/classification/configs/autoformer/'
supernet = folder + 'autoformer-micro_supernet_8e_fashion-mnist.py'
search = folder + 'autoformer-micro_search_evolution-2.8m_fashion-mnist.py'
score = 'projects/studies/score.py'

after = [
    dict(
        name='rank',
        script=score,
        config=search,
        args=['rank', '{config}', '{supernet.checkpoint}', '{truth}/truth.json', '--out', '{dir}'],
    ),
    dict(name='search', config=search, overrides={'load_from': '{supernet.checkpoint}'}),
    dict(
        name='compare',
        script=score,
        config=search,
        args=['compare', '{config}', '{supernet.checkpoint}', '{search}/best_arch.json', '--out', '{dir}']
        + ['--num-random', '5', '--seed', '{seed}'],
    ),
]
sandwich = dict(sampler=dict(type='vitnas.SandwichSampler', num_random=2), rule=dict(type='vitnas.Sandwich'))
runs = [
    dict(name='uniform', steps=[dict(name='supernet', config=supernet), *after]),
    dict(name='sandwich', steps=[dict(name='supernet', config=supernet, overrides={'train_cfg': sandwich}), *after]),
    dict(
        name='uniform-4x',
        steps=[
            dict(
                name='supernet',
                config=supernet,
                overrides={'train_cfg.max_epochs': 4 * epochs, 'param_scheduler.1.end': 4 * epochs},
            ),
            *after,
        ],
    ),
]
# The same recipe, for one architecture from the first step to the last.
alone = dict(_delete_=True, type='EpochBasedTrainLoop', max_epochs=epochs, val_interval=1000)
shared = [
    dict(
        name='truth',
        script='projects/studies/truth.py',
        config=supernet,
        overrides={'train_cfg': alone},
        args=['{config}', '--num', '20', '--out', '{dir}/truth.json', '--jobs', '{jobs}'],
    )
]

measures = {
    'rank.kendall': 'Kendall τ, 20 trained alone',
    'rank.spearman': 'Spearman ρ, 20 trained alone',
    'rank.pearson': 'Pearson r, 20 trained alone',
    'rank.macs_kendall': 'Kendall τ of the MACs alone',
    'compare.searched': 'searched, test accuracy (%)',
    'compare.random': 'random of the same MACs (%)',
    'compare.largest': 'largest (%)',
    'compare.searched_random': 'searched − random (points)',
    'compare.searched_largest': 'searched − largest (points)',
}
