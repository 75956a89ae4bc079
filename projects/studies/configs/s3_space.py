"""S3's Fig. 6 and Tab. 5, small: the quality of the space step by step, and the winners of the first and last space.

A micro space and 4,000 images of Fashion-MNIST. Four supernets are trained, and 300 architectures are drawn from each.
The first and the last space are searched under the same limit of MACs, and both winners are trained alone.
"""

title = 'S3: search of the search space (Fashion-MNIST)'
seeds = [0, 1, 2]
baseline = 'floor'

folder = 'projects/classification/configs/s3/'
space = folder + 's3-micro_space_8e_fashion-mnist.py'
search = folder + 's3-micro_search_evolution-1.2m_fashion-mnist.py'
retrain = folder + 's3-micro_retrain_8e_fashion-mnist.py'


first = {
    'model.backbone.space': '{space}/step_0/space.json',
    'load_from': '{space}/step_0/supernet/epoch_8.pth',
}
last = {'model.backbone.space': '{space}/step_3/space.json', 'load_from': None}


def inherited(name, overrides, checkpoint, searched):
    """Test the winner of a space with the weights of its supernet."""
    args = ['budgets', '{config}', checkpoint, searched, '--out', '{dir}', '--budgets', '1.2e6']
    return dict(name=name, script='projects/studies/score.py', config=search, overrides=overrides, args=args)


runs = [
    dict(
        name='floor',
        steps=[
            dict(name='space', config=space, overrides={'space_search.evolution.rounding': 'floor'}),
            dict(name='quality', script='projects/studies/score.py', args=['space', '{space}', '--out', '{dir}']),
            dict(name='first', config=search, overrides=first),
            inherited('inherited_first', first, first['load_from'], '{first}'),
            inherited('inherited_last', last, '{space}/step_3/supernet/epoch_8.pth', '{space}/step_3/search'),
            dict(name='alone_first', config=retrain, overrides={'model.backbone.arch': '{first}/best_arch.json'}),
            dict(
                name='alone_last',
                config=retrain,
                overrides={'model.backbone.arch': '{space}/step_3/search/best_arch.json'},
            ),
        ],
    )
]

measures = {
    **{f'quality.et_error_{i}': f'E-T error, step {i} (%)' for i in range(4)},
    **{f'quality.expected_{i}': f'mean error, step {i} (%)' for i in range(4)},
    **{f'quality.top_{i}': f'top-tier error, step {i} (%)' for i in range(4)},
    'inherited_first.accuracy_1': 'found in the first space, inherited weights, test (%)',
    'inherited_last.accuracy_1': 'found in the last space, inherited weights, test (%)',
    'alone_first.accuracy/top1': 'found in the first space, trained alone, test (%)',
    'alone_last.accuracy/top1': 'found in the last space, trained alone, test (%)',
    'space.seconds': 'search of the space: seconds',
}
