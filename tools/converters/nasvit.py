"""Convert supernets of NASViT to vitnas and back.

python tools/converters/nasvit.py nasvit_supernet.pth nasvit.pth
python tools/converters/nasvit.py nasvit.pth nasvit_supernet.pth --to-official

The result is a checkpoint of an ``ImageClassifier`` whose backbone is
``dict(type='vitnas.NASViT', space='nasvit', official=True)``; of a published file, the averaged weights are taken. What
the published network never reads has no place in ours: copies of batch-norm statistics, scaling vectors of depths and
sizes that the space does not have, positions of maps that are larger than its own, convolutions of residuals that keep
their width. On the way back these get the values that they begin with.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # run as a script, it finds the repository's packages

from tools.converters.common import check_shapes, config_line, digest, make_parser, parse, read, refusing, write
from vitnas_core import zoo
from vitnas_core.backbones import NASViT
from vitnas_core.elastic import zigzag
from vitnas_core.errors import CheckpointError, VitnasError
from vitnas_core.families.nasvit.arch import HEAD_DIM, VALUE_RATIO
from vitnas_core.families.nasvit.layers import COLUMNS, MBConv
from vitnas_core.spaces import SearchSpace

WINDOW = 18
"""Rows and columns for which every published table of positions is."""
DEPTHS = 10
"""Rows of a published table of scaling vectors, by the depth of the stage."""
_STATISTICS = ('running_mean', 'running_var', 'num_batches_tracked')
_NORM = ('weight', 'bias', *_STATISTICS)

# Ours → official, inside of a block; a batch norm's tensors follow behind.
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


def to_vitnas(state: Mapping[str, Tensor], space: SearchSpace) -> dict[str, Tensor]:
    """The tensors of the published layout in ours.

    Args:
        state: The published supernet.
        space: Its search space.

    Raises:
        CheckpointError: It is no NASViT of this space.
    """
    stored = {name.removeprefix('module.'): tensor for name, tensor in state.items()}
    backbone, converted = _empty(space), {}
    wanted = {name: tensor.shape for name, tensor in backbone.state_dict().items()}
    plain = dict(plain_names(backbone))
    for ours, theirs in plain.items():
        if theirs.endswith('num_batches_tracked'):
            converted[ours] = torch.tensor(0)
        else:
            converted[ours] = _take(stored, theirs)
    for prefix, official in layers(backbone):
        for name in ('weight', 'bias'):
            parts = [_take(stored, f'{official}attn.{part}.linear.{name}') for part in 'qkv']
            converted[f'{prefix}attn.qkv.{name}'] = _interleave(parts)
        table = _take(stored, f'{official}attn.relative_position_bias_table')
        converted[f'{prefix}attn.table'] = _cut_table(table, wanted[f'{prefix}attn.table'][1])
        for ours, theirs in (('scale_attn', 'rescale_attn'), ('scale_mlp', 'rescale_mlp')):
            for slot in (name for name in wanted if name.startswith(f'{prefix}{ours}.')):
                depth, column = map(int, slot.rpartition('.')[2].split('-'))
                converted[slot] = _take(stored, f'{official}{theirs}')[depth, column].clone()
    converted = {f'backbone.{name}': tensor for name, tensor in converted.items()}
    for name in ('weight', 'bias'):
        converted[f'head.fc.{name}'] = _take(stored, f'classifier.linear.linear.{name}')
    check(converted, space)
    _refuse_others(stored, backbone)
    return converted


def to_official(state: Mapping[str, Tensor], space: SearchSpace) -> dict[str, Tensor]:
    """The inverse of :func:`to_vitnas`; what ours lacks gets the values that it begins with.

    Args:
        state: A supernet of ours with ``official=True``.
        space: Its search space.

    Raises:
        CheckpointError: It is no such supernet.
    """
    check(state, space)
    backbone = _empty(space)
    ours = {name.removeprefix('backbone.'): tensor for name, tensor in state.items()}
    official = {theirs: ours[name] for name, theirs in plain_names(backbone)}
    official |= {f'classifier.linear.linear.{name}': state[f'head.fc.{name}'] for name in ('weight', 'bias')}
    for prefix, theirs in layers(backbone):
        width = ours[f'{prefix}norm1.weight'].shape[0]
        for name in ('weight', 'bias'):
            for part, tensor in zip('qkv', _separate(ours[f'{prefix}attn.qkv.{name}'])):
                official[f'{theirs}attn.{part}.linear.{name}'] = tensor
        official[f'{theirs}attn.relative_position_bias_table'] = _fill_table(ours[f'{prefix}attn.table'])
        official[f'{theirs}attn.relative_position_index'] = _position_index()
        for mine, name in (('scale_attn', 'rescale_attn'), ('scale_mlp', 'rescale_mlp')):
            table = torch.full((DEPTHS, COLUMNS, width), 1e-4)
            for slot, vector in ((n, t) for n, t in ours.items() if n.startswith(f'{prefix}{mine}.')):
                depth, column = map(int, slot.rpartition('.')[2].split('-'))
                table[depth, column] = vector
            official[f'{theirs}{name}'] = table
    for name, shape in unread_names(backbone):
        start = torch.ones if name.endswith(('rescale', 'running_var')) else torch.zeros
        official[name] = torch.tensor(0) if name.endswith('num_batches_tracked') else start(shape)
    return official


def plain_names(backbone: NASViT) -> Iterator[tuple[str, str]]:
    """(ours, official) for every tensor that is only renamed."""
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
    """(ours, official) names of the transformer layers, up to the last dot."""
    return ((ours, official) for ours, official, block in _blocks(backbone) if not isinstance(block, MBConv))


def unread_names(backbone: NASViT) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of what the published layout has and its network never reads."""
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
    """Check that a state dict is just that of a classifier with a supernet of ours.

    Raises:
        CheckpointError: It is not.
    """
    backbone = _empty(space)
    wanted = {f'backbone.{name}': tensor for name, tensor in backbone.state_dict().items()}
    classes = state['head.fc.bias'].shape[0] if 'head.fc.bias' in state else 1000
    wanted['head.fc.weight'] = torch.empty(classes, backbone.out_channels()[0], device='meta')
    wanted['head.fc.bias'] = torch.empty(classes, device='meta')
    check_shapes(state, wanted, f'a supernet of {space.name or space.family} with official=True')


def main(args: list[str] | None = None) -> None:
    """Convert one file."""
    parser = make_parser(__doc__)
    parser.add_argument('--to-official', action='store_true', help='from vitnas to the published layout')
    parser.add_argument('--space', default='nasvit', help='name or file of the search space')
    options = parse(parser, args)
    with refusing(options.source):
        space = zoo.load_space(options.space)
        state = read(options.source, ('model_ema', 'model', 'state_dict'))
        target = (to_official if options.to_official else to_vitnas)(state, space)
    write(
        options.target,
        'model' if options.to_official else 'state_dict',
        target,
        None if options.to_official else _empty(space).note(),
    )
    print(f'{len(target)} tensors, digest {digest(target)[:16]}: {options.target}')
    if not options.to_official:
        print(config_line('NASViT', dict(space=options.space, official=True)))


def _empty(space: SearchSpace) -> NASViT:
    try:
        with torch.device('meta'):
            return NASViT(space=space, official=True)
    except VitnasError as err:
        raise CheckpointError(f'not a NASViT space: {err}') from None


def _blocks(backbone: NASViT) -> Iterator[tuple[str, str, torch.nn.Module]]:
    """Our name, the official one and the module of every layer; theirs are numbered through all stages."""
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
    """Refuse tensors that a published supernet of this space does not have, such as further layers."""
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
    """Queries, keys and values → those of a head together."""
    dims = (HEAD_DIM, HEAD_DIM, VALUE_RATIO * HEAD_DIM)
    try:
        return torch.cat([part.unflatten(0, (-1, dim)) for part, dim in zip(parts, dims)], 1).flatten(0, 1)
    except RuntimeError:
        shapes = [tuple(part.shape) for part in parts]
        raise CheckpointError(f'queries, keys and values have shapes {shapes}, which no layer of NASViT has') from None


def _separate(tensor: Tensor) -> list[Tensor]:
    """The inverse of :func:`_interleave`."""
    dims = (HEAD_DIM, HEAD_DIM, VALUE_RATIO * HEAD_DIM)
    return [part.flatten(0, 1).contiguous() for part in tensor.unflatten(0, (-1, sum(dims))).split(dims, 1)]


def _cut_table(table: Tensor, side: int) -> Tensor:
    """A published table, (35 · 35, heads), as ours: by heads, nearest offsets first, those of smaller maps only."""
    whole = 2 * WINDOW - 1
    if table.ndim != 2 or len(table) != whole**2:
        raise CheckpointError(
            f'a table of positions has shape {tuple(table.shape)}; a published one has {whole**2} rows'
        )
    order = zigzag(WINDOW)[:side]
    return table.T.unflatten(1, (whole, whole))[:, order][:, :, order].contiguous()


def _fill_table(table: Tensor) -> Tensor:
    """The inverse of :func:`_cut_table`, with zeros for larger maps."""
    whole, order = 2 * WINDOW - 1, zigzag(WINDOW)[: table.shape[1]]
    filled = table.new_zeros(table.shape[0], whole, whole)
    filled[:, order[:, None], order[None]] = table
    return filled.flatten(1).T.contiguous()


def _position_index() -> Tensor:
    """The row of a published table for each query and key of the largest map."""
    rows, columns = (grid.flatten() for grid in torch.meshgrid(*(torch.arange(WINDOW),) * 2, indexing='ij'))
    offsets = [axis[:, None] - axis[None] + WINDOW - 1 for axis in (rows, columns)]
    return offsets[0] * (2 * WINDOW - 1) + offsets[1]


if __name__ == '__main__':
    main()
