"""The picture of gradient conflicts: its numbers, its order and its names."""

from __future__ import annotations

import pytest

from vitnas_core.errors import VitnasError
from vitnas_core.visualization import draw_conflicts
from vitnas_core.visualization.conflicts import block_of, layer_conflicts, ratios

STEM, HEAD = 'backbone.stem_bn', 'h.fc'
FIRST, SECOND = 'backbone.stages.0.blocks.0.fc1', 'backbone.stages.0.blocks.1.fc1'
ROWS = [
    *[(0, STEM, 0.5), (0, FIRST, -0.5), (0, HEAD, 0.25)],  # no subnet had the second block
    *[(10, STEM, -0.1), (10, FIRST, -0.3), (10, SECOND, 0.2), (10, HEAD, 0.0)],
]


def test_shares_in_the_order_of_the_network() -> None:
    assert ratios(ROWS) == {0: pytest.approx(1 / 3), 10: 0.5}
    assert [(one.layer, one.fraction) for one in layer_conflicts(ROWS)] == [
        (STEM, 0.5),
        (FIRST, 1),
        (SECOND, 0),
        (HEAD, 0),
    ]
    assert layer_conflicts(ROWS)[1].mean == pytest.approx(-0.4)


def test_picture() -> None:
    figure = draw_conflicts(ROWS)
    above, below = figure.axes
    assert list(above.get_lines()[0].get_xdata()) == [0, 10]
    assert [bar.get_height() for bar in below.patches[:4]] == [0.5, 1, 0, 0]
    assert [label.get_text() for label in below.get_xticklabels()] == ['stem', '0.0', '0.1', 'h']
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == [f'1  {FIRST}: 100%, mean cosine -0.40', f'2  {STEM}: 50%, mean cosine +0.20']
    assert '42.9% of all cosines are negative' in figure.get_suptitle()


def test_a_long_training_is_smoothed_and_names_have_room() -> None:
    layers = [f'backbone.blocks.{i}.fc' for i in range(300)]
    figure = draw_conflicts([(step, layer, 0.1) for step in range(40) for layer in layers])
    assert [line.get_label() for line in figure.axes[0].get_lines()] == ['one batch', 'mean over 3 measurements']
    assert not figure.legends
    assert 20 < len(figure.axes[1].get_xticks()) < 60


def test_names_of_blocks() -> None:
    assert block_of('backbone.stages.2.blocks.11.attn.bias.tables') == '2.11'
    assert block_of('backbone.blocks.3.norm1') == '3' and block_of('backbone.patch_embed.conv1.0') == 'patch_embed'
    assert block_of('backbone') == 'backbone' and block_of('head.fc') == 'head'


def test_nothing_to_draw() -> None:
    with pytest.raises(VitnasError, match='there are no conflict measurements to draw'):
        draw_conflicts([])
