"""NASViT's remedies in other families: conflicts and both ends of micro AutoFormer and S3 supernets, on the digits.

Each family is trained by its own config, then with distillation, and then also with scaling and projection. The meter
runs in all of them.
"""

title = "NASViT's remedies on AutoFormer and S3 (digits)"
seeds = [0, 1, 2]
baseline = 'plain'

folder = 'projects/classification/configs/nasvit/'
families = {
    'autoformer': folder + 'nasvit-autoformer-micro_supernet_40e_digits.py',
    's3': folder + 'nasvit-s3-micro_supernet_12e_digits.py',
}
added = {'model.backbone.scaling': False, 'train_cfg.rule.conflict': None}
conditions = {'plain': {**added, 'train_cfg.rule.distill': None}, 'distilled': added, 'remedies': {}}


def steps(family: str, overrides: dict) -> list[dict]:
    """Train a supernet of a family and test both its ends."""
    args = ['ends', '{config}', f'{{{family}.checkpoint}}', f'{{{family}}}/conflicts.csv', '--out', '{dir}']
    return [
        dict(name=family, config=families[family], overrides=overrides),
        dict(
            name=f'{family}_ends',
            script='projects/studies/score.py',
            config=families[family],
            overrides={**overrides, 'train_cfg.evaluator': dict(type='Accuracy')},
            args=args,
        ),
    ]


runs = [
    dict(name=name, steps=[step for family in families for step in steps(family, overrides)])
    for name, overrides in conditions.items()
]
measures = {
    f'{family}_ends.{key}': f'{family}, {words}'
    for family in families
    for key, words in (
        ('smallest', 'smallest, test (%)'),
        ('largest', 'largest, test (%)'),
        ('conflict_ratio', 'negative cosines (%)'),
    )
}
