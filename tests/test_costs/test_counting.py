"""The reference count for closed forms is right on layers with known counts."""

import timm
import torch
from torch import nn

from vitnas_core.costs import Cost
from vitnas_core.utils.counting import count_macs, count_params


def test_known_layers() -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.Flatten(), nn.Linear(8 * 16, 10))
    assert count_params(net) == 8 * 27 + 8 + 128 * 10 + 10
    assert count_macs(net, torch.randn(1, 3, 4, 4)) == 16 * 8 * 27 + 128 * 10


def test_attention_is_counted() -> None:
    """ViT-Ti/16 at 224, 10 classes: 2.507 GFLOPs by formula; the fused kernel alone would give 2.149."""
    model = timm.create_model('vit_tiny_patch16_224', num_classes=10).eval()
    tokens, width = 197, 192
    block = 12 * tokens * width**2 + 2 * tokens**2 * width
    assert count_macs(model, torch.randn(1, 3, 224, 224)) == 12 * block + 196 * 768 * width + width * 10


def test_costs_read_well() -> None:
    assert str(Cost(5_867_944, 1_283_236_352)) == '5.87M params, 1.283G MACs'
    assert str(Cost(40_000, 1_283_236)) == '0.04M params, 1.283M MACs'
