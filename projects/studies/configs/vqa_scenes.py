"""VQA with a searched backbone: questions about scenes of digits, four models, the same number of steps.

The models: the searched backbone, a random one of the same MACs (a new one per seed) and the largest, each with its
part of one supernet's weights; and a model without images. The study needs the questions and the search:
``projects/vqa/tools/make_scenes_vqa.py``, then ``tools/train.py`` with ``s3-micro_supernet_120e_drawn-digits.py`` and
with ``s3-micro_search_evolution-7m_drawn-digits.py``.
"""

title = 'Questions about scenes of digits'
seeds = [0, 1, 2]
baseline = 'random'

folder = 'projects/vqa/configs/digits/'
search = 'projects/classification/configs/s3/s3-micro_search_evolution-7m_drawn-digits.py'
weights = 'work_dirs/s3-micro_supernet_120e_drawn-digits/epoch_120.pth'
found = 'work_dirs/s3-micro_search_evolution-7m_drawn-digits/best_arch.json'
draw = dict(
    name='draw',
    script='projects/studies/score.py',
    config=search,
    args=['draw', '{config}', weights, found, '--out', '{dir}', '--seed', '{seed}'],
)


def train(arch: str) -> dict:
    """Train the model with one backbone."""
    return dict(name='train', config=folder + 's3-micro_8e_scenes.py', overrides={'model.backbone.arch': arch})


runs = [
    dict(name='random', steps=[draw, train('{draw}/random.json')]),
    dict(name='searched', steps=[draw, train(found)]),
    dict(name='largest', steps=[draw, train('{draw}/largest.json')]),
    dict(name='questions', steps=[dict(name='train', config=folder + 'question-only_8e_scenes.py')]),
]
measures = {
    'train.VQA/acc': 'VQA accuracy (%)',
    'train.VQA/acc_yes/no': 'yes or no (%)',
    'train.VQA/acc_number': 'number (%)',
    'train.VQA/acc_other': 'nothing (%)',
    'draw.searched_macs': 'searched, MACs at 56 × 56',
    'draw.random_macs': 'random, MACs at 56 × 56',
    'draw.largest_macs': 'largest, MACs at 56 × 56',
    'train.seconds': 'seconds',
}
