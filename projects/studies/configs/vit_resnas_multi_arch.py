"""ViT-ResNAS's Tab. 2, small: the benefit of many architectures that split the batch of a step.

A micro space and 4,000 images of Fashion-MNIST. Supernets differ in the number of architectures that split a batch of
64; all see the same number of images in the same number of steps. Each ranks 20 architectures on 1,000 held-out images.
Each is searched for at most 10.8 M MACs; the winner is tested with inherited weights and trained alone. The truth about
the 20 is their accuracy on the 10,000 test images, trained alone, averaged over two seeds.
"""

title = 'ViT-ResNAS: architectures a step (Fashion-MNIST)'
seeds = [0, 1, 2, 3, 4]
baseline = '1'

folder = 'projects/classification/configs/vit_resnas/'
supernet = folder + 'vit-resnas-micro_supernet_8e_fashion-mnist.py'
search = folder + 'vit-resnas-micro_search_evolution-10.8m_fashion-mnist.py'
retrain = folder + 'vit-resnas-micro_retrain_8e_fashion-mnist.py'
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
    dict(name='alone', config=retrain, overrides={'model.backbone.arch': '{search}/best_arch.json'}),
]
runs = [
    dict(
        name=str(count),
        steps=[
            dict(name='supernet', config=supernet, overrides={'train_cfg.sampler.sampler.num_archs': count}),
            *after,
        ],
    )
    for count in (1, 4, 8, 16)
]
# The same recipe, for one architecture from the first step to the last; the last validation is on test images.
alone = {
    'train_cfg': dict(_delete_=True, type='EpochBasedTrainLoop', max_epochs=8, val_interval=1000),
    'val_dataloader.dataset': dict(
        _delete_=True,
        type='FashionMNIST',
        data_root='data/fashion-mnist',
        split='test',
        test_mode=True,
        download=False,
        pipeline=[dict(type='Resize', scale=56), dict(type='PackInputs')],
    ),
}
shared = [
    dict(
        name='truth',
        script='projects/studies/truth.py',
        config=supernet,
        overrides=alone,
        args=['{config}', '--num', '20', '--seeds', '0', '1', '--out', '{dir}/truth.json', '--jobs', '{jobs}'],
    )
]

measures = {
    'rank.kendall': 'Kendall τ, 20 trained alone',
    'rank.spearman': 'Spearman ρ, 20 trained alone',
    'rank.macs_kendall': 'Kendall τ of the MACs alone',
    'compare.searched': 'searched, inherited weights, test (%)',
    'compare.random': 'random of the same MACs, inherited, test (%)',
    'compare.largest': 'largest, inherited, test (%)',
    'compare.smallest': 'smallest, inherited, test (%)',
    'alone.accuracy/top1': 'searched, trained alone, test (%)',
    'supernet.iteration_seconds': 'one step: seconds',
}
