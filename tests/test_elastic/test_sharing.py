"""Sharing patterns of channels: ordinal, bilateral, cyclic (ViTAS, Sec. 4, A.11, Tab. 16)."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vitnas_core.elastic import (
    Axis,
    Channels,
    ElasticConv2d,
    ElasticDepthwiseConv2d,
    ElasticLayerNorm,
    ElasticLinear,
    Pattern,
    cyclic_starts,
    influence_gap,
    shares,
)
from vitnas_core.elastic.sharing import PATTERNS, ring_start
from vitnas_core.errors import VitnasError

GROUPS = range(2, 17)


@pytest.mark.parametrize('groups', GROUPS)
def test_cyclic_maps_have_the_properties_of_the_paper(groups: int) -> None:
    beta = shares('cyclic', groups)
    assert beta.sum(1).tolist() == list(range(1, groups + 1))  # Eq. 6
    times = beta.sum(0)
    assert times.max() - times.min() <= 1  # Eq. 12
    for row in beta[:-1]:  # one run on the ring: one beginning (A.11)
        assert ((row == 1) & (np.roll(row, 1) == 0)).sum() == 1
    assert groups < 4 or influence_gap('cyclic', groups) < influence_gap('bilateral', groups)
    assert influence_gap('bilateral', groups) < influence_gap('ordinal', groups)


@pytest.mark.parametrize(
    ('groups', 'gap'), [(5, 0.6000), (6, 0.3333), (7, 0.6921), (8, 0.4722), (9, 0.7925), (10, 0.5341)]
)
def test_the_influence_gap_is_that_of_the_exact_optimum(groups: int, gap: float) -> None:
    """Tab. 16's last row, by the normalisation in the family's facts."""
    assert influence_gap('cyclic', groups) / groups == pytest.approx(gap, abs=5e-5)
    harmonic = sum(1 / j for j in range(1, groups + 1))
    assert influence_gap('ordinal', groups) == pytest.approx(2 * groups * (groups - harmonic))


def test_bilateral_gaps() -> None:
    found = [round(influence_gap('bilateral', groups), 1) for groups in range(5, 11)]
    assert found == [8.0, 14.4, 23.1, 34.0, 47.3, 62.9]


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 6).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(1, n), min_size=1, max_size=5))))
def test_no_placement_is_better(case: tuple[int, set[int]]) -> None:
    """Against all of them, also where not every size is offered."""
    groups, sizes = case[0], tuple(sorted(case[1]))

    def judge(starts: tuple[int, ...]) -> tuple[int, float]:
        ring = np.arange(groups)
        beta = np.array([(ring - start) % groups < size for start, size in zip(starts, sizes)])
        times, influence = beta.sum(0), (beta / np.array(sizes)[:, None]).sum(0)
        return int(times.max() - times.min()), float(((influence - influence.mean()) ** 2).sum())

    fair = [judge(starts) for starts in itertools.product(range(groups), repeat=len(sizes))]
    best = min(gap for spread, gap in fair if spread <= 1)
    spread, gap = judge(cyclic_starts(groups, sizes))
    assert spread <= 1 and gap == pytest.approx(best, abs=1e-9)


def test_what_code_that_shares_asks_a_pattern() -> None:
    assert Pattern().is_prefix and not Pattern('bilateral').is_prefix and not Pattern('cyclic').is_prefix
    assert [Pattern(name).two_sided for name in PATTERNS] == [len(Pattern(name).sides) == 2 for name in PATTERNS]
    for name in PATTERNS:  # whether a width that is offered besides moves the channels of another
        few, many = Channels(Pattern(name), 10, (4, 10)), Channels(Pattern(name), 10, (2, 4, 6, 8, 10))
        assert (few.start(4) != many.start(4)) == Pattern(name).depends_on_widths


def test_sizes_that_no_run_can_have() -> None:
    with pytest.raises(VitnasError, match='runs on a ring of 4 groups should have 1 to 4, but got'):
        cyclic_starts(4, (2, 5))
    with pytest.raises(VitnasError, match='`sharing` should be one of ordinal, bilateral, cyclic, but got'):
        Pattern('random')


def test_groups_of_uneven_widths() -> None:
    """AutoFormer's widths are eight, nine and ten of ten groups: what the first lack, the second have."""
    widths = (192, 216, 240)
    assert [ring_start(240, widths, width) for width in widths] == [0, 24, 0]
    assert ring_start(240, widths, 200) == 0  # not offered: as the nearest
    tenths = tuple(round(i / 10 * 384) for i in range(1, 11))
    starts = [ring_start(384, tenths, width) for width in tenths]
    assert starts == [round(start * 38.4) for start in cyclic_starts(10)]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_taking_and_putting(data: st.DataObject) -> None:
    """Entries of a width, in the order of the axis; zeros elsewhere; a view wherever one run serves."""
    most = data.draw(st.integers(2, 24))
    widths = sorted({*data.draw(st.sets(st.integers(1, most), min_size=1, max_size=4)), most})
    entries, name = data.draw(st.integers(1, 3)), data.draw(st.sampled_from(['bilateral', 'cyclic']))
    pattern = Pattern(name)
    channels = Channels(pattern, most, widths).times(entries)
    pattern.side = data.draw(st.sampled_from(pattern.sides))
    tensor, axis = torch.randn(2, most * entries, 3), data.draw(st.sampled_from([1, -2]))
    for width in widths:
        part = channels.take(tensor, axis, width * entries)
        on_ring = {(channels.start(width) + i) % most for i in range(width)}
        index = [c * entries + e for c in sorted(on_ring) for e in range(entries)]
        assert torch.equal(part, tensor[:, index])
        if len(channels.parts(width * entries)) == 1:
            assert part.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()
        full = channels.put(part, axis)
        assert full.shape == tensor.shape and torch.equal(full[:, index], part)
        assert math.isclose(full.abs().sum(), part.abs().sum(), rel_tol=1e-5)
    assert channels.take(tensor, axis, most * entries) is tensor


def test_every_side_is_used() -> None:
    pattern = Pattern('bilateral')
    channels = pattern.channels(10, [4])
    assert channels is not None and channels.parts(4) == [(0, 4)]
    pattern.side = 'right'
    assert channels.parts(4) == [(6, 4)]
    assert Pattern('ordinal').channels(10, [4]) is None and Pattern('cyclic').channels(10, [10]) is None


@pytest.mark.parametrize('name', ['bilateral', 'cyclic'])
def test_layers(name: str) -> None:
    """Each layer against one that is built of the selected channels."""
    pattern = Pattern(name)
    pattern.side = pattern.sides[-1]
    inputs = Axis(10, Channels(pattern, 10, [2, 4, 7, 10]))
    outputs = Axis(12, Channels(pattern, 12, [3, 6, 9, 12]))
    linear, conv = ElasticLinear(inputs, outputs), ElasticConv2d(inputs, outputs, 3, padding=1)
    depthwise, norm = ElasticDepthwiseConv2d(inputs, 3), ElasticLayerNorm(inputs)
    torch.nn.init.normal_(norm.weight)
    for width, out in itertools.product((2, 4, 7, 10), (3, 6, 9, 12)):
        columns, rows = inputs.active(width), outputs.active(out)
        inputs.set(width)
        outputs.set(out)
        x, image = torch.randn(5, width), torch.randn(2, width, 4, 4)
        wanted = torch.nn.functional.linear(x, linear.weight[rows][:, columns], linear.bias[rows])
        torch.testing.assert_close(linear(x), wanted)
        wanted = torch.nn.functional.conv2d(image, conv.weight[rows][:, columns], conv.bias[rows], padding=1)
        torch.testing.assert_close(conv(image), wanted)
        wanted = torch.nn.functional.conv2d(
            image, depthwise.weight[columns], depthwise.bias[columns], padding=1, groups=width
        )
        torch.testing.assert_close(depthwise(image), wanted)
        wanted = torch.nn.functional.layer_norm(x, (width,), norm.weight[columns], norm.bias[columns])
        torch.testing.assert_close(norm(x), wanted)
