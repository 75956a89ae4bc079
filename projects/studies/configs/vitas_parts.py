"""ViTAS's Fig. 4 (b) and Tab. 10, small: identity shifting and private class tokens, each switched off by itself.

A micro DeiT space and 4,000 images of Fashion-MNIST. Each superformer is searched by NSGA-II for at most 0.7 M MACs;
the winner is tested with inherited weights and trained alone.
"""

title = 'ViTAS: identity shifting, private class tokens (Fashion-MNIST)'
seeds = [0, 1, 2]
baseline = 'both'

folder = 'projects/classification/configs/vitas/'
supernet = folder + 'vitas-deit-micro_supernet_40e_fashion-mnist.py'
search = folder + 'vitas-deit-micro_search_nsga2-0.7m_fashion-mnist.py'
retrain = folder + 'vitas-deit-micro_retrain_8e_fashion-mnist.py'

# Identities at any of the four places, instead of the last ones.
free = {'model.backbone.space.stages.0.depth': 4, 'model.backbone.space.stages.0.optional': [0, 1, 2, 3]}
shared_token = {'model.backbone.private_token': False}
conditions = {'both': {}, 'free': free, 'one': shared_token}
runs = [
    dict(
        name=name,
        steps=[
            dict(name='supernet', config=supernet, overrides=overrides),
            dict(name='search', config=search, overrides={**overrides, 'load_from': '{supernet.checkpoint}'}),
            dict(
                name='compare',
                script='projects/studies/score.py',
                config=search,
                overrides=overrides,
                args=['compare', '{config}', '{supernet.checkpoint}', '{search}/best_arch.json', '--out', '{dir}']
                + ['--num-random', '5', '--seed', '{seed}'],
            ),
            dict(name='alone', config=retrain, overrides={'model.backbone.arch': '{search}/best_arch.json'}),
        ],
    )
    for name, overrides in conditions.items()
]
measures = {
    'supernet.train_loss': 'training loss, last quarter',
    'compare.searched': 'searched, inherited weights, test (%)',
    'compare.random': 'random of the same MACs, inherited, test (%)',
    'compare.largest': 'largest, inherited, test (%)',
    'compare.smallest': 'smallest, inherited, test (%)',
    'alone.accuracy/top1': 'searched, trained alone, test (%)',
}
