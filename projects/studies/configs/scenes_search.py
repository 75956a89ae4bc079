"""Search the backbone of a Mask R-CNN on the task itself: elastic training on scenes, evolution by held-out mask mAP.

The winner is compared with random architectures of the same MACs, all with the supernet's weights. The study needs the
scenes and an initial supernet: ``tools/dataset_converters/make_scenes.py``, then ``tools/train.py`` with
``s3-micro_supernet_120e_drawn-digits.py``.
"""

title = 'Mask R-CNN searched on scenes of digits, 25 M MACs'
seeds = [0, 1, 2]
baseline = 'evolution'

folder = 'projects/detection/configs/digits/'
supernet = folder + 'mask-rcnn_s3-micro_supernet_8e_scenes.py'
search = folder + 'mask-rcnn_s3-micro_search_evolution-25m_scenes.py'
compare = [
    'compare',
    '{config}',
    '{supernet.checkpoint}',
    '{search}/best_arch.json',
    '--seed',
    '{seed}',
    '--out',
    '{dir}',
]

runs = [
    dict(
        name='evolution',
        steps=[
            dict(name='supernet', config=supernet),
            dict(name='search', config=search, overrides={'load_from': '{supernet.checkpoint}'}),
            dict(name='compare', script='projects/studies/score.py', config=search, args=compare),
        ],
    )
]
measures = {
    'compare.searched': 'searched, mask mAP of test scenes',
    'compare.random': 'ten random ones of the same MACs',
    'compare.searched_random': 'searched − random',
    'compare.largest': 'largest',
    'compare.smallest': 'smallest',
    'compare.searched_macs': 'searched, MACs',
    'compare.largest_macs': 'largest, MACs',
    'supernet.seconds': 'supernet: seconds',
    'search.seconds': 'search: seconds',
}
