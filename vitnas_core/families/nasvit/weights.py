"""Conversion of NASViT's supernets between the published layout and ours.

The published network stores tensors that it never reads and that ours lacks: copies of batch-norm statistics, scaling
vectors of depths and sizes outside the space, positions of maps larger than its own, and convolutions of residuals
that keep their width. On the way back, these get their initial values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from ...backbones.foreign import building, check_shapes, classifier_shapes
from ...elastic import zigzag
from ...errors import CheckpointError
from ...spaces import SearchSpace
from .arch import HEAD_DIM, VALUE_RATIO
from .backbone import NASViT
from .layers import COLUMNS, MBConv

WINDOW = 18
"""Rows and columns of the map of every published table of positions."""
DEPTHS = 10
"""Rows of a published table of scaling vectors, one per depth of the stage."""
INITIAL_SCALE = 1e-4
"""Initial value of a published scaling vector."""
_STATISTICS = ('running_mean', 'running_var', 'num_batches_tracked')
_NORM = ('weight', 'bias', *_STATISTICS)

# Ours → official, inside a block. After each convolution of `_MBCONV` comes a batch norm.
_MBCONV = {
    'expand': 'mobile_inverted_conv.inverted_bottleneck',
    'depthwise': 'mobile_inverted_conv.depth_conv',
    'project': 'mobile_inverted_conv.point_linear',
}
_LAYER = {
    **{
        f'{ours}.{name}': f'{theirs}.{name}'
        for ours, theirs in (('norm1', 'norm1'), ('norm2', 'norm3'), ('norm3', 'norm2'))
        for name in ('weight', 'bias')
    },
    **{
        f'{ours}.{name}': f'{theirs}.linear.{name}'
        for ours, theirs in (
            ('attn.mix_scores', 'attn.proj_l'),
            ('attn.mix_weights', 'attn.proj_w'),
            ('attn.proj', 'attn.proj'),
            ('mlp1.fc1', 'mlp2.linear1'),
            ('mlp1.fc2', 'mlp2.linear2'),
            ('mlp2.fc1', 'mlp1.linear1'),
            ('mlp2.fc2', 'mlp1.linear2'),
        )
        for name in ('weight', 'bias')
    },
    'attn.value_conv.weight': 'attn.vconv.weight',
}
_SCALES = {'scale_attn': 'rescale_attn', 'scale_mlp': 'rescale_mlp'}


def to_vitnas(state: Mapping[str, Tensor], space: SearchSpace) -> dict[str, Tensor]:
    """Convert a supernet of the published layout to ours, for a backbone with ``official=True``.

    Args:
        state: The published supernet; a prefix ``module.`` of the names is ignored.
        space: Its search space.

    Raises:
        CheckpointError: The weights are no NASViT of this space.
    """
    stored = {name.removeprefix('module.'): tensor for name, tensor in state.items()}
    backbone, converted = _empty(space), dict[str, Tensor]()
    wanted = {name: tensor.shape for name, tensor in backbone.state_dict().items()}
    for ours, theirs in plain_names(backbone):
        counter = theirs.endswith('num_batches_tracked')  # never read
        converted[ours] = torch.tensor(0) if counter else _take(stored, theirs)
    for prefix, official in layers(backbone):
        converted |= _layer_to_vitnas(stored, prefix, official, wanted)
    converted = {f'backbone.{name}': tensor for name, tensor in converted.items()}
    for name in ('weight', 'bias'):
        converted[f'head.fc.{name}'] = _take(stored, f'classifier.linear.linear.{name}')
    check(converted, space)
    _refuse_others(stored, backbone)
    return converted


def _layer_to_vitnas(
    stored: Mapping[str, Tensor], prefix: str, official: str, wanted: Mapping[str, torch.Size]
) -> dict[str, Tensor]:
    """Convert what is not just renamed in a transformer layer: qkv, table of positions, scaling vectors."""
    converted = {}
    for name in ('weight', 'bias'):
        parts = [_take(stored, f'{official}attn.{part}.linear.{name}') for part in 'qkv']
        converted[f'{prefix}attn.qkv.{name}'] = _interleave(parts)
    table = _take(stored, f'{official}attn.relative_position_bias_table')
    converted[f'{prefix}attn.table'] = _cut_table(table, wanted[f'{prefix}attn.table'][1])
    for ours, theirs in _SCALES.items():
        table = _take(stored, f'{official}{theirs}')
        if table.ndim != 3 or table.shape[:2] != (DEPTHS, COLUMNS):
            raise CheckpointError(
                f'{official}{theirs} has shape {tuple(table.shape)}; a published one begins with {DEPTHS}, {COLUMNS}'
            )
        for slot in (name for name in wanted if name.startswith(f'{prefix}{ours}.')):
            depth, column = map(int, slot.rpartition('.')[2].split('-'))
            converted[slot] = table[depth, column].clone()
    return converted


def to_official(state: Mapping[str, Tensor], space: SearchSpace) -> dict[str, Tensor]:
    """Inverse of :func:`to_vitnas`; tensors that ours lacks get their initial values.

    Args:
        state: A supernet of ours with ``official=True``.
        space: Its search space.

    Raises:
        CheckpointError: The weights are no such supernet.
    """
    check(state, space)
    backbone = _empty(space)
    ours = {name.removeprefix('backbone.'): tensor for name, tensor in state.items()}
    official = {theirs: ours[name] for name, theirs in plain_names(backbone)}
    official |= {f'classifier.linear.linear.{name}': state[f'head.fc.{name}'] for name in ('weight', 'bias')}
    for prefix, theirs in layers(backbone):
        official |= _layer_to_official(ours, prefix, theirs)
    for name, shape in unread_names(backbone):
        start = torch.ones if name.endswith(('rescale', 'running_var')) else torch.zeros
        official[name] = torch.tensor(0) if name.endswith('num_batches_tracked') else start(shape)
    return official


def _layer_to_official(ours: Mapping[str, Tensor], prefix: str, theirs: str) -> dict[str, Tensor]:
    """Inverse of :func:`_layer_to_vitnas`, with the index of positions."""
    official = {}
    for name in ('weight', 'bias'):
        for part, tensor in zip('qkv', _separate(ours[f'{prefix}attn.qkv.{name}'])):
            official[f'{theirs}attn.{part}.linear.{name}'] = tensor
    official[f'{theirs}attn.relative_position_bias_table'] = _fill_table(ours[f'{prefix}attn.table'])
    official[f'{theirs}attn.relative_position_index'] = _position_index()
    width = ours[f'{prefix}norm1.weight'].shape[0]
    for mine, name in _SCALES.items():
        table = torch.full((DEPTHS, COLUMNS, width), INITIAL_SCALE)
        for slot, vector in ((n, t) for n, t in ours.items() if n.startswith(f'{prefix}{mine}.')):
            depth, column = map(int, slot.rpartition('.')[2].split('-'))
            table[depth, column] = vector
        official[f'{theirs}{name}'] = table
    return official


def plain_names(backbone: NASViT) -> Iterator[tuple[str, str]]:
    """Yield (our name, official name) of every tensor that is only renamed."""
    yield 'stem.weight', 'first_conv.conv.conv.weight'
    yield from ((f'stem_bn.{name}', f'first_conv.bn.bn.{name}') for name in _NORM)
    for ours, official, block in _blocks(backbone):
        if not isinstance(block, MBConv):
            yield from ((f'{ours}{a}', f'{official}{b}') for a, b in _LAYER.items())
            continue
        for part, name in _MBCONV.items():
            if hasattr(block, part):
                yield f'{ours}{part}.weight', f'{official}{name}.conv.conv.weight'
                yield from ((f'{ours}{part}_bn.{n}', f'{official}{name}.bn.bn.{n}') for n in _NORM)
        for name, _ in block.se.named_parameters():
            yield f'{ours}se.{name}', f'{official}mobile_inverted_conv.depth_conv.se.fc.{name}'
        if block.shortcut is not None:
            yield f'{ours}shortcut.weight', f'{official}shortcut.conv.conv.weight'
    yield 'mbpool.expand.weight', 'last_conv.final_expand_layer.conv.conv.weight'
    yield from ((f'mbpool.bn.{name}', f'last_conv.final_expand_layer.bn.bn.{name}') for name in _NORM)
    yield 'mbpool.mix.weight', 'last_conv.feature_mix_layer.conv.conv.weight'


def layers(backbone: NASViT) -> Iterator[tuple[str, str]]:
    """Yield (our prefix, official prefix) of every transformer layer, with the last dot."""
    return ((ours, official) for ours, official, block in _blocks(backbone) if not isinstance(block, MBConv))


def unread_names(backbone: NASViT) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield official names and shapes of the stored tensors that the published network never reads."""
    for ours, official in plain_names(backbone):
        if official.endswith('.bn.bn.weight'):
            shape = tuple(backbone.get_parameter(ours).shape)
            for copy in (0, 1):
                place = official.replace('.bn.bn.weight', f'.bn.bn_tracking.{copy}.')
                yield from ((place + name, () if name == 'num_batches_tracked' else shape) for name in _STATISTICS)
    for _, official, block in _blocks(backbone):
        if isinstance(block, MBConv):
            channels = block.project.out_channels
            yield f'{official}mobile_inverted_conv.rescale', (channels,)
            if block.shortcut is None:
                yield f'{official}shortcut.conv.conv.weight', (channels, channels, 1, 1)


def check(state: Mapping[str, Tensor], space: SearchSpace) -> None:
    """Check that weights in our layout are those of a classifier with a supernet of this space.

    Raises:
        CheckpointError: A tensor is missing, unexpected, or has another shape.
    """
    # The published layout always has a head; a missing one is checked as ImageNet's.
    default = {'head.fc.bias': torch.empty(1000, device='meta')}
    wanted = classifier_shapes({**default, **state}, _empty(space))
    check_shapes(state, wanted, f'a supernet of {space.name or space.family} with official=True')


def _empty(space: SearchSpace) -> NASViT:
    with building('a NASViT space'):
        return NASViT(space=space, official=True)


def _blocks(backbone: NASViT) -> Iterator[tuple[str, str, torch.nn.Module]]:
    """Yield (our prefix, official prefix, module) of every block; official numbers run through all stages."""
    number = 0
    for s, stage in enumerate(backbone.stage_blocks()[1:-1]):
        for b, block in enumerate(stage):
            yield f'stages.{s}.blocks.{b}.', f'blocks.{number}.', block
            number += 1


def _take(state: Mapping[str, Tensor], name: str) -> Tensor:
    if name not in state:
        raise CheckpointError(f'not a NASViT supernet of the published layout: it lacks {name}')
    return state[name]


def _refuse_others(state: Mapping[str, Tensor], backbone: NASViT) -> None:
    """Refuse tensors that a published supernet of this space lacks, such as those of further layers."""
    known = {official for _, official in plain_names(backbone)} | {name for name, _ in unread_names(backbone)}
    known |= {f'classifier.linear.linear.{name}' for name in ('weight', 'bias')}
    for _, official in layers(backbone):
        known |= {f'{official}attn.{part}.linear.{name}' for part in 'qkv' for name in ('weight', 'bias')}
        known |= {f'{official}attn.relative_position_{name}' for name in ('bias_table', 'index')}
        known |= {f'{official}rescale_{name}' for name in ('attn', 'mlp')}
    other = next((name for name in state if name not in known), None)
    if other is not None:
        raise CheckpointError(f'{other} is no tensor of a published NASViT of this space')


def _interleave(parts: list[Tensor]) -> Tensor:
    """Join queries, keys and values to one tensor, sorted by head."""
    dims = (HEAD_DIM, HEAD_DIM, VALUE_RATIO * HEAD_DIM)
    try:
        return torch.cat([part.unflatten(0, (-1, dim)) for part, dim in zip(parts, dims)], 1).flatten(0, 1)
    except (RuntimeError, IndexError):
        shapes = [tuple(part.shape) for part in parts]
        raise CheckpointError(f'queries, keys and values have shapes {shapes}, which no layer of NASViT has') from None


def _separate(tensor: Tensor) -> list[Tensor]:
    """Inverse of :func:`_interleave`."""
    dims = (HEAD_DIM, HEAD_DIM, VALUE_RATIO * HEAD_DIM)
    return [part.flatten(0, 1).contiguous() for part in tensor.unflatten(0, (-1, sum(dims))).split(dims, 1)]


def _cut_table(table: Tensor, side: int) -> Tensor:
    """Cut a published table (35 · 35, heads) to ours (heads, side, side), with the nearest offsets first."""
    whole = 2 * WINDOW - 1
    if table.ndim != 2 or len(table) != whole**2:
        raise CheckpointError(
            f'a table of positions has shape {tuple(table.shape)}; a published one has {whole**2} rows'
        )
    order = zigzag(WINDOW)[:side]
    return table.T.unflatten(1, (whole, whole))[:, order][:, :, order].contiguous()


def _fill_table(table: Tensor) -> Tensor:
    """Inverse of :func:`_cut_table`, with zeros for larger maps."""
    whole, order = 2 * WINDOW - 1, zigzag(WINDOW)[: table.shape[1]]
    filled = table.new_zeros(table.shape[0], whole, whole)
    filled[:, order[:, None], order[None]] = table
    return filled.flatten(1).T.contiguous()


def _position_index() -> Tensor:
    """Return the row of a published table for each query and key of the largest map."""
    rows, columns = (grid.flatten() for grid in torch.meshgrid(*(torch.arange(WINDOW),) * 2, indexing='ij'))
    offsets = [axis[:, None] - axis[None] + WINDOW - 1 for axis in (rows, columns)]
    return offsets[0] * (2 * WINDOW - 1) + offsets[1]
