"""Elastic layers: an active width equals a plain layer with the cut weights, and is a view."""

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vitnas_core.elastic import (
    Axis,
    DropPath,
    ElasticBatchNorm2d,
    ElasticConv2d,
    ElasticDepthwiseConv2d,
    ElasticImageNorm,
    ElasticLayerNorm,
    ElasticLinear,
    Pattern,
    cut,
    prefix,
)
from vitnas_core.errors import VitnasError


def test_prefix_is_a_view_and_the_tensor_itself_at_full_size() -> None:
    weight = nn.Parameter(torch.randn(6, 4))
    assert prefix(weight, 6, 4) is weight
    view = prefix(weight, 3, 2)
    assert view.data_ptr() == weight.data_ptr()
    assert torch.equal(view, weight[:3, :2])


@pytest.mark.parametrize(('inputs', 'outputs'), [(8, 12), (5, 12), (8, 7), (3, 1)])
def test_linear(inputs: int, outputs: int) -> None:
    width = Axis(12)
    layer, x = ElasticLinear(8, width), torch.randn(2, 3, inputs)
    width.set(outputs)
    out = layer(x)
    assert torch.equal(out, F.linear(x, layer.weight[:outputs, :inputs], layer.bias[:outputs]))
    out.sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad[outputs:].count_nonzero() == layer.weight.grad[:, inputs:].count_nonzero() == 0
    assert layer.weight.grad[:outputs, :inputs].count_nonzero() == outputs * inputs


def test_linear_without_bias() -> None:
    layer = ElasticLinear(4, 6, bias=False)
    layer.outputs.set(2)
    assert torch.equal(layer(torch.ones(1, 3)), layer.weight[:2, :3].sum(1)[None])


def test_convolution() -> None:
    layer, x = ElasticConv2d(3, 8, 4, 4), torch.randn(2, 3, 8, 12)
    layer.outputs.set(5)
    assert torch.equal(layer(x), F.conv2d(x, layer.weight[:5], layer.bias[:5], stride=4))


@pytest.mark.parametrize('width', [8, 5, 1])
@pytest.mark.parametrize('side', [1, 3, 5])
def test_depthwise_convolution(width: int, side: int) -> None:
    layer, x = ElasticDepthwiseConv2d(8, side), torch.randn(2, width, 4, 7)
    plain = nn.Conv2d(width, width, side, padding=side // 2, groups=width)
    plain.load_state_dict({'weight': layer.weight[:width], 'bias': layer.bias[:width]})
    out = layer(x)
    assert torch.equal(out, plain(x)) and out.shape == x.shape
    out.sum().backward()
    for parameter in (layer.weight, layer.bias):
        assert parameter.grad[:width].all() and not parameter.grad[width:].any()


def test_depthwise_convolution_pads_with_zeros_and_keeps_channels_apart() -> None:
    """A pixel of ones sees as many neighbours as lie in the image."""
    layer = ElasticDepthwiseConv2d(3, 3)
    nn.init.ones_(layer.weight)
    nn.init.zeros_(layer.bias)
    x = torch.stack([torch.ones(3, 4), torch.zeros(3, 4)])[None]
    seen, nothing = layer(x)[0]
    assert seen.tolist() == [[4, 6, 6, 4], [6, 9, 9, 6], [4, 6, 6, 4]] and not nothing.any()


def test_depthwise_convolution_of_full_width_uses_the_parameters_themselves() -> None:
    layer = ElasticDepthwiseConv2d(4, 3)
    (_, _), (weight, _), (bias, _) = layer(torch.randn(1, 4, 5, 5)).grad_fn.next_functions
    assert weight.variable is layer.weight and bias.variable is layer.bias


def test_norm_uses_the_statistics_of_the_active_channels() -> None:
    layer, x = ElasticLayerNorm(8), torch.randn(2, 3, 5)
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias)
    plain = nn.LayerNorm(5)
    plain.load_state_dict({'weight': layer.weight[:5], 'bias': layer.bias[:5]})
    assert torch.equal(layer(x), plain(x))


def test_layers_follow_their_axes() -> None:
    """Layers that share an axis are set at once; an axis of several entries per channel follows its source."""
    embed, heads = Axis(8), Axis(3)
    qkv, proj, norm = (
        ElasticLinear(embed, heads.times(6)),
        ElasticLinear(heads.times(2), embed),
        ElasticLayerNorm(embed),
    )
    assert qkv.weight.shape == (18, 8) and proj.weight.shape == (8, 6) and norm.weight.shape == (8,)
    embed.set(5)
    heads.set(2)
    out = qkv(norm(torch.randn(4, 5)))
    assert out.shape == (4, 12) and proj(out[:, :4]).shape == (4, 5)
    other = copy.deepcopy(nn.ModuleList([qkv, proj]))
    embed.set(8)
    assert other[1].outputs.width == other[0].inputs.width == 5  # a copy has axes of its own, shared among its layers
    assert other[1].outputs is other[0].inputs


def test_multiples_of_multiples_follow_the_same_axis() -> None:
    axis = Axis(4)
    twice = axis.times(2).times(3)
    axis.set(1, torch.arange(4)[None] < 1)
    assert (twice.most, twice.width, twice.entries, twice.root) == (24, 6, 6, axis)
    assert twice.mask is not None and twice.mask.sum() == 6


@pytest.mark.parametrize('norm', [ElasticBatchNorm2d, ElasticImageNorm])
def test_norms_of_the_first_channels_refuse_patterns(norm: Any) -> None:
    with pytest.raises(VitnasError, match="no sharing='cyclic'"):
        norm(Axis(8, Pattern('cyclic').channels(8, [4, 8])))


def test_a_masked_axis_leaves_out_what_a_sample_lacks() -> None:
    heads, embed = Axis(3), Axis(4)
    layer, x = ElasticLinear(heads.times(2), embed), torch.randn(2, 5, 6)
    heads.set(3, torch.tensor([[True, True, False], [True, False, False]]))
    assert torch.equal(layer.inputs.mask, torch.tensor([[1, 1, 1, 1, 0, 0], [1, 1, 0, 0, 0, 0]]).bool())
    kept = x.clone()
    kept[0, :, 4:] = kept[1, :, 2:] = 0
    assert torch.equal(layer(x), F.linear(kept, layer.weight, layer.bias))
    heads.set(3)
    assert layer.inputs.mask is None and torch.equal(layer(x), F.linear(x, layer.weight, layer.bias))
    normed = ElasticLinear(heads.times(2), embed, normed=True)
    heads.set(3, torch.zeros(2, 3, dtype=torch.bool))
    assert torch.equal(normed(x), F.linear(x, normed.weight, normed.bias))  # a norm has done it


def test_pad() -> None:
    x = torch.randn(2, 3, 4, 4)
    padded = Axis(5).pad(x, 1)
    assert torch.equal(padded[:, :3], x)
    assert padded.shape == (2, 5, 4, 4)
    assert not padded[:, 3:].any()
    assert Axis(3).pad(x, 1) is x


def test_drop_path_drops_whole_samples_and_keeps_the_mean() -> None:
    layer, x = DropPath(0.25), torch.ones(4000, 2, 3)
    out = layer.train()(x)
    assert sorted(set(out.flatten().tolist())) == pytest.approx([0.0, 1 / 0.75])
    assert (out == out[:, :1, :1]).all()
    assert out.mean().item() == pytest.approx(1.0, abs=0.05)
    assert layer.eval()(x) is x
    assert not DropPath(1.0).train()(x).any()


def test_what_networks_of_different_sizes_share() -> None:
    """The first entries, but the centre of a kernel."""
    kernel = torch.arange(2 * 3 * 5 * 5.0).view(2, 3, 5, 5)
    assert torch.equal(cut(kernel, (1, 2, 3, 3)), kernel[:1, :2, 1:4, 1:4])
    assert torch.equal(cut(kernel, (2, 3, 5, 5)), kernel)
    for sizes, shape in (((4, 4, 3, 3), (4, 4, 2, 2)), ((1, 8, 14, 9), (1, 8, 7, 9)), ((1, 8, 14, 14), (1, 8, 7, 9))):
        whole = torch.randn(sizes)
        assert torch.equal(cut(whole, shape), whole[tuple(slice(0, size) for size in shape)])  # no kernels
    assert torch.equal(cut(torch.arange(6.0).view(2, 3), (1, 2)), torch.tensor([[0.0, 1.0]]))
