"""NASViT's Tab. 7, small: accuracy and conflicts with weak augmentation, switchable scaling and projection.

A micro space and 5,000 images of Fashion-MNIST. Each supernet adds one thing to the one before it; only the last two
differ in the gradient that they keep. The largest and the smallest architecture are tested with inherited weights and
recalibrated batch norms. The conflict ratio is measured before any projection, with the losses and images of the
training.
"""

title = 'NASViT: gradient conflicts (Fashion-MNIST)'
seeds = [0, 1, 2, 3, 4]
baseline = 'baseline'

folder = 'projects/classification/configs/nasvit/'
supernet = folder + 'nasvit-micro_supernet_6e_fashion-mnist.py'
search = folder + 'nasvit-micro_search_predictor-3m_fashion-mnist.py'

# AlphaNet's augmentation and regularisation (Tab. 5), as far as they make sense for images of 28 × 28.
strong = {
    'train_dataloader.dataset.dataset.pipeline.4.num_policies': 2,
    'train_dataloader.dataset.dataset.pipeline.4.magnitude_level': 9,
    'optim_wrapper.optimizer.weight_decay': 1e-5,
    'model.backbone.drop_path_rate': 0.2,
}
unscaled = {'model.backbone.scaling': False}
added = {'train_cfg.rule.conflict': None}
kept = {'train_cfg.rule.conflict.keep': 'supernet'}
conditions = {
    'baseline': {**strong, **unscaled, **added},
    'weak': {**unscaled, **added},
    'scaling': added,
    'subnets': {},
    'supernet': kept,
}
runs = [
    dict(
        name=name,
        steps=[
            dict(name='supernet', config=supernet, overrides=overrides),
            dict(
                name='ends',
                script='projects/studies/score.py',
                config=search,
                overrides={k: v for k, v in overrides.items() if k.startswith('model.')},
                args=['ends', '{config}', '{supernet.checkpoint}', '{supernet}/conflicts.csv', '--out', '{dir}'],
            ),
        ],
    )
    for name, overrides in conditions.items()
]
measures = {
    'ends.smallest': 'smallest, test (%)',
    'ends.largest': 'largest, test (%)',
    'ends.conflict_ratio': 'negative cosines (%)',
    'ends.smallest_raw': 'smallest, not recalibrated, test (%)',
    'ends.largest_raw': 'largest, not recalibrated, test (%)',
}
