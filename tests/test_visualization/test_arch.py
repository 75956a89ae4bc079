"""Pictures of architectures: every family is complete, texts do not overlap, and bars are in proportion."""

import numpy as np
import pytest

from tests.families import SMALL_SPACES, SPACES
from vitnas_core import zoo
from vitnas_core.spaces import Arch
from vitnas_core.visualization import draw_arch
from vitnas_core.visualization.formats import choice_text

ALL = {**SPACES, **SMALL_SPACES}


def texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def labels(figure):
    """What the bands are called, from top to bottom."""
    return [text for text in texts(figure) if text in ('Stem', 'Head') or text.startswith('Stage ')]


def patches(figure, gid):
    return [patch for patch in figure.axes[0].patches if patch.get_gid() == gid]


def touching(boxes):
    """Pairs that share a place."""
    return [
        (a, b)
        for i, a in enumerate(boxes)
        for b in boxes[:i]
        if a.x0 < b.x1 and b.x0 < a.x1 and a.y0 < b.y1 and b.y0 < a.y1
    ]


@pytest.mark.parametrize('name', ALL)
def test_every_family_is_drawn_whole(name, rng):
    for arch in (ALL[name].largest(), ALL[name].smallest(), ALL[name].sample(rng)):
        figure = draw_arch(arch)
        places = [block for stage in arch.stages for block in stage.blocks]
        assert len(patches(figure, 'block')) == sum(block is not None for block in places)
        assert len(patches(figure, 'absent')) == places.count(None)
        shown = texts(figure)
        assert len(labels(figure)) == len(arch.stages) and 'Stage 1' in shown
        for choices in [*(stage.choices for stage in arch.stages), *filter(None, places)]:
            for choice, value in choices.items():
                assert choice in shown and choice_text(value) in shown
        for choice, value in arch.choices.items():
            assert f'{choice} {choice_text(value)}' in shown[0]


@pytest.mark.parametrize('name', ALL)
def test_nothing_leaves_the_picture_or_covers_another_block(name):
    figure = draw_arch(ALL[name].largest(), 'title')
    figure.draw_without_rendering()
    width, height = figure.get_size_inches()
    boxes = [patch.get_bbox() for patch in patches(figure, 'block')]
    for box in boxes:
        assert box.x0 >= 0 and box.x1 <= width and box.y0 >= 0 and box.y1 <= height
    assert not touching(boxes)
    edge = figure.bbox
    for text in figure.axes[0].texts:
        place = text.get_window_extent()
        assert place.x0 >= edge.x0 and place.x1 <= edge.x1 and place.y0 >= edge.y0 and place.y1 <= edge.y1, text


def test_texts_of_a_block_do_not_touch():
    figure = draw_arch(SPACES['vitas-twins-small'].largest())
    figure.draw_without_rendering()
    places = [text.get_window_extent() for text in figure.axes[0].texts]
    assert not touching(places)


def test_bars_are_in_proportion():
    blocks = [{'num_heads': 2, 'op': 'local'}, {'num_heads': 8, 'op': 'global'}]
    arch = Arch.from_dict(dict(family='x', stages=[dict(embed_dim=64, blocks=blocks), dict(embed_dim=256, blocks=[])]))
    figure = draw_arch(arch)
    for name, part in (('num_heads', 4), ('embed_dim', 4)):
        small, large = (bar.get_width() for bar in patches(figure, f'bar {name}'))
        np.testing.assert_allclose(large / small, part)
    assert not patches(figure, 'bar op')


def test_a_stem_and_a_head_are_no_stages():
    """NASViT's: their widths are of another kind, and would dwarf those of stages."""
    arch = zoo.load_arch('nasvit-a1')
    figure = draw_arch(arch)
    assert labels(figure) == ['Stem', *(f'Stage {i}' for i in range(1, 8)), 'Head']
    assert '   7 stages   ' in texts(figure)[0] and '1792' in texts(figure)
    widths = [stage.choices['width'] for stage in arch.stages[1:-1]]
    bars = [bar.get_width() for bar in patches(figure, 'bar width')]
    np.testing.assert_allclose(np.divide(bars, bars[-1]), np.divide(widths, widths[-1]))


@pytest.mark.parametrize('empty', [(0,), (1,), (2,), (0, 1, 2)])
def test_a_stage_whose_blocks_are_all_absent_stays_one(empty):
    stages = [dict(embed_dim=8, blocks=[] if s in empty else [{'num_heads': 1}]) for s in range(3)]
    figure = draw_arch(Arch.from_dict(dict(family='x', stages=stages)))
    assert labels(figure) == ['Stage 1', 'Stage 2', 'Stage 3'] and len(patches(figure, 'bar embed_dim')) == 3


def test_odd_values_do_no_harm():
    odd = 'x' * 300
    stages = [dict(a=0, b=-3, blocks=[{odd: odd, '$x$': '$\\bad{'}, None, {'n': 0.0}])]
    figure = draw_arch(Arch.from_dict(dict(family=odd, stages=stages, note='\x00')), '$\\frac')
    figure.draw_without_rendering()
    assert texts(figure)[0] == '$\\frac' and '$\\bad{' in texts(figure)
    assert max(map(len, texts(figure))) < 150
    draw_arch(Arch('empty', ())).draw_without_rendering()
