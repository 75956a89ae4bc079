"""Numbers as people read them: costs, scores, durations and limits."""

import math

import pytest

from vitnas_core.visualization import formats


@pytest.mark.parametrize(
    ('name', 'value', 'text'),
    [
        ('params', 5_867_320, '5.87 M'),
        ('macs', 1_283_000_000, '1.283 G'),
        ('macs', 999_999, '1.00 M'),
        ('params', 12_345, '12.3 k'),
        ('params', 812, '812'),
        ('params', 0, '0'),
        ('latency', 0.0125, '12.50 ms'),
        ('latency', 1.5, '1.50 s'),
        ('latency', 4.2e-5, '42.0 µs'),
        ('macs', None, '–'),
        ('macs', math.nan, '–'),
    ],
)
def test_cost_text(name, value, text):
    assert formats.cost_text(name, value) == text


@pytest.mark.parametrize(
    ('metric', 'value', 'text'),
    [
        ('accuracy/top1', 94.7, '94.70 %'),
        ('mIoU', 41.234, '41.23 %'),
        ('coco/bbox_mAP', 0.4123, '0.4123'),
        ('score', math.inf, '–'),
        ('score', None, '–'),
    ],
)
def test_score_text(metric, value, text):
    assert formats.score_text(metric, value) == text


@pytest.mark.parametrize(
    ('seconds', 'text'), [(8.42, '8.4 s'), (303, '5 min 3 s'), (7800, '2 h 10 min'), (3599.9, '1 h 0 min')]
)
def test_duration_text(seconds, text):
    assert formats.duration_text(seconds) == text


@pytest.mark.parametrize(
    ('limits', 'text'),
    [
        ({}, 'none'),
        ({'macs': (None, 1.4e9)}, 'MACs at most 1.400 G'),
        ({'macs': (-math.inf, 1.4e9)}, 'MACs at most 1.400 G'),
        ({'params': (5e6, math.inf)}, 'Parameters at least 5.00 M'),
        ({'macs': (1e9, 2e9), 'latency': (None, 0.02)}, 'MACs from 1.000 G to 2.000 G, Latency at most 20.00 ms'),
        ({'macs': (None, None)}, 'none'),
    ],
)
def test_limits_text(limits, text):
    assert formats.limits_text(limits) == text


def test_plain_text_is_always_printable():
    text = formats.plain('a\x00b\ud800c\nd' + 'e' * 200)
    assert text.startswith('a\ufffdb\ufffdc\ufffdd') and len(text) == 120 and text.endswith('…')
    assert text.encode().decode() == text
