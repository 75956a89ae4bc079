"""Conversion of ViTAS's weights, bit for bit: the DeiT space from the published layout, Twins-SVT from mmpretrain's."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from ...backbones.foreign import join, split
from ...errors import CheckpointError
from .deit import ViTASDeiT
from .layers import OfficialAttention, ViTASBlock
from .twins import ViTASTwins

_NAMES = ('weight', 'bias')
# Theirs → ours, of the layers of a block except queries, keys and values.
_DEIT_BLOCK = {
    'norm1': 'norm1',
    'attn.proj': 'attn.proj',
    'norm2': 'norm2',
    'mlp.fc1': 'fc1',
    'mlp.fc2': 'fc2',
}
_TWINS_BLOCK = {
    'norm1': ('norm1',),
    'attn.proj': ('attn.proj',),
    'norm2': ('norm2',),
    'ffn.layers.0.0': ('fc1',),
    'ffn.layers.1': ('fc2',),
}
_LOCAL = {'attn.qkv': ('attn.q', 'attn.k', 'attn.v')}
_GLOBAL = {'attn.q': ('attn.q',), 'attn.kv': ('attn.k', 'attn.v'), 'attn.sr': ('attn.sr',), 'attn.norm': ('attn.norm',)}


def deit_to_vitnas(state: Mapping[str, Tensor], backbone: ViTASDeiT) -> dict[str, Tensor]:
    """Convert the published layout of the DeiT space to ours: rename tensors, split values from queries and keys.

    Args:
        state: Weights of a published superformer or fixed network.
        backbone: The network for the weights, with ``official=True``. The weights do not show its numbers of heads.

    Raises:
        CheckpointError: The weights are not of this network.
    """
    return split(state, deit_names(backbone), backbone, 'a ViTAS checkpoint of this network')


def deit_to_official(state: Mapping[str, Tensor], backbone: ViTASDeiT) -> dict[str, Tensor]:
    """Inverse of :func:`deit_to_vitnas`.

    Raises:
        CheckpointError: The weights are not of this network.
    """
    return join(state, deit_names(backbone), backbone)


def twins_to_vitnas(state: Mapping[str, Tensor], backbone: ViTASTwins) -> dict[str, Tensor]:
    """Convert mmpretrain's layout of Twins-SVT to ours: rename tensors, split queries, keys and values.

    Args:
        state: Weights of mmpretrain's network with ``qkv_bias=True``, as its published ones have.
        backbone: The network for the weights, a fixed one.

    Raises:
        CheckpointError: The weights are not of this network.
    """
    return split(state, twins_names(backbone), backbone, 'a Twins-SVT of this architecture')


def twins_to_mmpretrain(state: Mapping[str, Tensor], backbone: ViTASTwins) -> dict[str, Tensor]:
    """Inverse of :func:`twins_to_vitnas`.

    Raises:
        CheckpointError: The weights are not of this network.
    """
    return join(state, twins_names(backbone), backbone)


def deit_names(backbone: ViTASDeiT) -> dict[str, tuple[str, ...]]:
    """Map official names to ours, for :func:`~vitnas_core.backbones.foreign.split`.

    Args:
        backbone: The network that the weights are for, with ``official=True``.

    Raises:
        CheckpointError: It has no ``official=True``.
    """
    table: dict[str, tuple[str, ...]] = {}
    for i, size in enumerate(sorted(backbone.grids)):  # a fixed network has one size, numbered 0
        stem = f'net.backbone_init_stem_Patch_init_0.{i}'
        table |= {f'{stem}.{name}': (f'backbone.{name}.{size}',) for name in ('cls_token', 'pos_embed')}
        table |= {f'{stem}.patch_embed.proj.{name}': (f'backbone.patch_embed.{size}.{name}',) for name in _NAMES}
    supernet = backbone.space.size() > 1
    for b, block in enumerate(backbone.blocks):
        if not isinstance(block, ViTASBlock):  # absent
            continue
        theirs, ours = f'net.backbone_Block_{"id" if supernet else "Block"}_{b}.0', f'backbone.blocks.{b}'
        table |= {f'{theirs}.{a}.{name}': (f'{ours}.{o}.{name}',) for a, o in _DEIT_BLOCK.items() for name in _NAMES}
        table |= {
            f'{theirs}.{layer}.{name}': tuple(f'{ours}.{part}.{name}' for part in parts)
            for name in _NAMES
            for layer, parts in _deit_attention(block, supernet).items()
        }
    for name in _NAMES:
        table[f'net.backbone_Norm_Norm_0.0.{name}'] = (f'backbone.norm.{name}',)
        table[f'net.backbone_FC_FC_0.0.module.0.{name}'] = (f'head.fc.{name}',)
    return table


def _deit_attention(block: ViTASBlock, supernet: bool) -> dict[str, tuple[str, ...]]:
    """Map official names to ours, of queries, keys and values; those of a fixed network are one layer there.

    Raises:
        CheckpointError: The network has no ``official=True``.
    """
    if not isinstance(block.attn, OfficialAttention):
        raise CheckpointError('the published layout of ViTAS is for networks with official=True')
    heads = list(block.attn.qk)
    if not supernet:
        return {'attn.qkv': (f'attn.qk.{heads[0]}', 'attn.v')}
    return {**{f'attn.qk{i}': (f'attn.qk.{h}',) for i, h in enumerate(heads)}, 'attn.v': ('attn.v',)}


def twins_names(backbone: ViTASTwins) -> dict[str, tuple[str, ...]]:
    """Map mmpretrain's names to ours, for :func:`~vitnas_core.backbones.foreign.split`.

    Args:
        backbone: The network that the weights are for, a fixed one.

    Raises:
        CheckpointError: A block is absent, for which mmpretrain has no place.
    """
    layers: dict[str, tuple[str, ...]] = {}
    for s, stage in enumerate(backbone.arch.stages):
        layers[f'patch_embeds.{s}.projection'] = (f'stages.{s}.proj',)
        layers[f'patch_embeds.{s}.norm'] = (f'stages.{s}.norm',)
        layers[f'position_encodings.{s}.proj'] = (f'stages.{s}.peg',)
        layers[f'norm_after_stage{s}'] = (f'norm{s}',)
        for b, block in enumerate(stage.blocks):
            if block is None:
                raise CheckpointError(f'stages[{s}].blocks[{b}] is absent, which mmpretrain has no place for')
            kind = _LOCAL if block['op'] == 'local' else _GLOBAL
            for theirs, ours in {**_TWINS_BLOCK, **kind}.items():
                layers[f'stages.{s}.{b}.{theirs}'] = tuple(f'stages.{s}.blocks.{b}.{block["op"]}.{o}' for o in ours)
    table = {
        f'backbone.{theirs}.{name}': tuple(f'backbone.{layer}.{name}' for layer in ours)
        for theirs, ours in layers.items()
        for name in _NAMES
    }
    table |= {f'head.fc.{name}': (f'head.fc.{name}',) for name in _NAMES}
    known = {f'backbone.{name}' for name in backbone.state_dict()}
    return {theirs: ours for theirs, ours in table.items() if ours[0] in known or theirs.startswith('head.')}
