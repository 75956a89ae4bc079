"""ViTAS's Fig. 5 and Tab. 9, small: ordinal, bilateral and cyclic sharing on the same space, images and steps.

A micro DeiT space, widths in fifths of the largest, and 4,000 images of Fashion-MNIST. Each superformer ranks 30
architectures on 1,000 held-out images. Each is searched by NSGA-II for at most 0.7 M MACs; the winner is tested with
inherited weights and trained alone. The truth about the 30 is their accuracy on the 10,000 test images, trained alone,
averaged over two seeds. A bilateral step has two passes.
"""

title = 'ViTAS: sharing of channels (Fashion-MNIST)'
seeds = [0, 1, 2, 3, 4]
baseline = 'ordinal'

folder = 'projects/classification/configs/vitas/'
supernet = folder + 'vitas-deit-micro_supernet_40e_fashion-mnist.py'
search = folder + 'vitas-deit-micro_search_nsga2-0.7m_fashion-mnist.py'
retrain = folder + 'vitas-deit-micro_retrain_8e_fashion-mnist.py'
score = 'projects/studies/score.py'


def steps(shared: dict) -> list:
    """Steps for one superformer."""
    return [
        dict(name='supernet', config=supernet, overrides=shared),
        dict(
            name='rank',
            script=score,
            config=search,
            overrides=shared,
            args=['rank', '{config}', '{supernet.checkpoint}', '{truth}/truth.json', '--out', '{dir}'],
        ),
        dict(name='search', config=search, overrides={**shared, 'load_from': '{supernet.checkpoint}'}),
        dict(
            name='compare',
            script=score,
            config=search,
            overrides=shared,
            args=['compare', '{config}', '{supernet.checkpoint}', '{search}/best_arch.json', '--out', '{dir}']
            + ['--num-random', '5', '--seed', '{seed}'],
        ),
        dict(name='alone', config=retrain, overrides={'model.backbone.arch': '{search}/best_arch.json'}),
    ]


runs = [
    dict(name=pattern, steps=steps({'model.backbone.sharing': pattern}))
    for pattern in ('ordinal', 'bilateral', 'cyclic')
]
# The same recipe, for one architecture from the first step to the last; the last validation is on test images.
alone = {
    'train_cfg': dict(_delete_=True, type='EpochBasedTrainLoop', max_epochs=8, val_interval=1000),
    'param_scheduler': [
        dict(type='LinearLR', start_factor=0.01, by_epoch=True, end=1, convert_to_iter_based=True),
        dict(type='CosineAnnealingLR', eta_min=0.0, by_epoch=True, begin=1, end=8, convert_to_iter_based=True),
    ],
    'val_dataloader.dataset': dict(
        _delete_=True,
        type='FashionMNIST',
        data_root='data/fashion-mnist',
        split='test',
        test_mode=True,
        download=False,
        pipeline=[dict(type='PackInputs')],
    ),
}
shared = [
    dict(
        name='truth',
        script='projects/studies/truth.py',
        config=supernet,
        overrides=alone,
        args=['{config}', '--num', '30', '--seeds', '0', '1', '--out', '{dir}/truth.json', '--jobs', '{jobs}'],
    )
]

measures = {
    'rank.pearson': 'Pearson r, 30 trained alone',
    'rank.spearman': 'Spearman ρ, 30 trained alone',
    'rank.kendall': 'Kendall τ, 30 trained alone',
    'rank.macs_kendall': 'Kendall τ of the MACs alone',
    'supernet.train_loss': 'training loss, last quarter',
    'compare.searched': 'searched, inherited weights, test (%)',
    'compare.random': 'random of the same MACs, inherited, test (%)',
    'compare.largest': 'largest, inherited, test (%)',
    'compare.smallest': 'smallest, inherited, test (%)',
    'alone.accuracy/top1': 'searched, trained alone, test (%)',
    'supernet.iteration_seconds': 'one step: seconds',
}
