"""Learning rates by depth, in every family and kind of model: each weight once, with its rate and decay."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, DefaultScope
from torch import nn

from tests.families import FAMILIES, Family
from tests.stock import backbone_cfg, fpn, fpn_segmentor, mask_rcnn
from tests.test_models import classifier
from vitnas_core.backbones import NASViT, elastic_backbone
from vitnas_core.backbones.depths import layer_depths, position_weights
from vitnas_core.errors import VitnasError

every_family = pytest.mark.parametrize('family', FAMILIES.values(), ids=FAMILIES.keys())
LR, DECAY, WEIGHT_DECAY = 1e-3, 0.7, 0.05
Groups = dict[str, dict[str, Any]]

MODELS_OF = {
    'classifier': lambda family: dict(classifier(family, out_indices=(0, -1)), _scope_='mmpretrain'),
    'detector': lambda family: dict(mask_rcnn(family, fpn(), (0, -1)), _scope_='mmdet'),
    'segmentor': lambda family: dict(fpn_segmentor(family), _scope_='mmseg'),
}


def build(family: Family, kind: str = 'classifier') -> nn.Module:
    cfg = MODELS_OF[kind](family)
    with DefaultScope.overwrite_default_scope(cfg['_scope_']):
        return MODELS.build(cfg)


def groups_of(model: nn.Module, optimizer: dict[str, Any] | None = None, **paramwise: Any) -> Groups:
    """The group of each weight, by its name; each is in exactly one."""
    wrapper = build_optim_wrapper(
        model,
        dict(
            type='OptimWrapper',
            optimizer=optimizer or dict(type='AdamW', lr=LR, weight_decay=WEIGHT_DECAY),
            constructor='vitnas.LayerDecayOptimWrapperConstructor',
            paramwise_cfg={'layer_decay': DECAY, **paramwise},
        ),
    )
    groups = wrapper.optimizer.param_groups
    names = {id(parameter): name for name, parameter in getattr(model, 'module', model).named_parameters()}
    seen = [names[id(parameter)] for group in groups for parameter in group['params']]
    assert len(seen) == len(set(seen))
    return {names[id(parameter)]: group for group in groups for parameter in group['params']}


# depths


@every_family
def test_depths(family: Family) -> None:
    backbone = family.elastic(out_indices=(0, -1))
    depths = layer_depths(backbone)[0]
    assert depths.keys() == dict(backbone.named_parameters()).keys()
    names = {id(module): name for name, module in backbone.named_modules()}
    blocks = [names[id(block)] for stage in backbone.stage_blocks() for block in stage]
    for i, block in enumerate(blocks, 1):
        assert {depth for name, depth in depths.items() if name.startswith(f'{block}.')} == {i}
    outside = {name: depth for name, depth in depths.items() if not name.startswith(tuple(f'{b}.' for b in blocks))}
    first = ('patch_embed', 'cls_token', 'pos_embed', 'stem', 'stages.0.')
    stem = {name for name in outside if name.startswith(first)}
    assert stem and {outside[name] for name in stem} == {0}
    last = {name for name in outside if name.startswith('norm')}
    assert {outside[name] for name in last} == ({len(blocks) + 1} if last else set())
    assert bool(last) == (family.cls is not NASViT)  # whose maps come as they are
    assert (
        set(depths.values()) == set(range(len(blocks) + 1 + bool(last)))
        and layer_depths(backbone)[1] == len(blocks) + 2
    )


def test_a_merging_counts_to_the_block_behind_it() -> None:
    depths = layer_depths(FAMILIES['s3'].elastic())[0]
    merging = {depth for name, depth in depths.items() if name.startswith('stages.1.merging.')}
    assert merging == {depths['stages.1.blocks.0.fc1.weight']} == {3}
    assert depths['stages.0.blocks.1.fc1.weight'] == 2 and depths['norm1.weight'] == 6


def test_positions() -> None:
    assert {n for n in position_weights(FAMILIES['autoformer'].elastic()) if 'blocks' not in n} == {
        'cls_token',
        'pos_embed',
    }
    assert {
        name.rpartition('relative.')[2]
        for name in position_weights(FAMILIES['autoformer'].elastic())
        if 'blocks' in name
    } == {'key_vertical', 'key_horizontal', 'value_vertical', 'value_horizontal'}
    for name, tables in (('s3', {'shared'}), ('s3-per-window', {'2', '3'})):
        positions = position_weights(FAMILIES[name].elastic())
        assert {position.rpartition('bias.tables.')[2] for position in positions} == tables


@every_family
def test_positions_are_just_what_is_no_layer(family: Family) -> None:
    backbone = family.elastic(out_indices=(0, -1))
    for name, parameter in backbone.named_parameters():
        owner = backbone.get_submodule(name.rpartition('.')[0])
        layer = isinstance(owner, (nn.Linear, nn.Conv2d, nn.LayerNorm, nn.BatchNorm2d)) and owner is not backbone
        assert (name in position_weights(backbone)) != layer, name
        assert parameter.ndim > 0


# the groups


@every_family
@pytest.mark.parametrize('kind', MODELS_OF)
def test_rates_and_decays(family: Family, kind: str) -> None:
    model = build(family, kind)
    groups, backbone = groups_of(model), elastic_backbone(model)
    assert groups.keys() == {name for name, p in model.named_parameters() if p.requires_grad}
    depths, positions = layer_depths(backbone)[0], position_weights(backbone)
    last = layer_depths(backbone)[1] - 1
    norms = {
        f'{name}.{leaf}'
        for name, module in model.named_modules()
        if isinstance(module, (nn.LayerNorm, nn.modules.batchnorm._BatchNorm))
        for leaf in ('weight', 'bias')
    }
    for name, group in groups.items():
        inner = name.removeprefix('backbone.')
        assert group['lr'] == pytest.approx(LR * (DECAY ** (last - depths[inner]) if inner != name else 1)), name
        free = name in norms or (inner != name and inner in positions)
        assert group['weight_decay'] == (0 if free else WEIGHT_DECAY), name
    assert any(name in norms for name in groups) and any(not name.startswith('backbone.') for name in groups)
    assert len({id(group) for group in groups.values()}) <= 2 * (last + 1) + 2


@every_family
def test_the_same_rate_for_all_by_default(family: Family) -> None:
    groups = groups_of(build(family), layer_decay=1.0)
    assert {group['lr'] for group in groups.values()} == {LR}
    assert len({id(group) for group in groups.values()}) <= 4


@every_family
def test_agrees_with_mmpretrains_own(family: Family) -> None:
    """Its constructor asks ``get_layer_depth`` of the classifier, which asks the backbone."""
    model = build(family)
    ours = groups_of(model)
    optimizer = dict(type='AdamW', lr=LR, weight_decay=WEIGHT_DECAY)
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        wrapper = build_optim_wrapper(
            model,
            dict(
                optimizer=optimizer,
                constructor='LearningRateDecayOptimWrapperConstructor',
                paramwise_cfg=dict(layer_decay_rate=DECAY, norm_decay_mult=0.0),
            ),
        )
    theirs = {group['param_name']: group for group in wrapper.optimizer.param_groups}
    assert theirs.keys() == ours.keys()
    for name, group in theirs.items():
        assert ours[name]['lr'] == pytest.approx(group['lr']), name
        if name.removeprefix('backbone.') not in position_weights(model.backbone):
            assert ours[name]['weight_decay'] == group['weight_decay'], name
    assert model.get_layer_depth('head.fc.weight') == (max(g['layer_id'] for g in theirs.values()),) * 1 + (
        max(g['layer_id'] for g in theirs.values()) + 1,
    )


def test_a_backbone_alone_and_inside_a_wrapper() -> None:
    family = FAMILIES['s3']
    plain = groups_of(build(family))
    wrapped = nn.Module()
    wrapped.module = build(family)
    assert {n: (g['lr'], g['weight_decay']) for n, g in groups_of(wrapped).items()} == {
        n: (g['lr'], g['weight_decay']) for n, g in plain.items()
    }
    alone = groups_of(family.elastic(out_indices=(0, -1)))
    assert all(group['lr'] == plain[f'backbone.{name}']['lr'] for name, group in alone.items())


def test_keys_of_ones_own_win() -> None:
    model, family = build(FAMILIES['autoformer']), FAMILIES['autoformer']
    plain = groups_of(model)
    keys = {
        'pos_embed': dict(decay_mult=0.5),
        'blocks.1.fc1': dict(lr_mult=0.1, decay_mult=0.0),
        'head': dict(lr_mult=2.0, betas=[0.8, 0.9]),
    }
    groups = groups_of(model, custom_keys=copy.deepcopy(keys), norm_decay_mult=1.0, position_decay_mult=0.2)
    assert groups['backbone.pos_embed']['weight_decay'] == WEIGHT_DECAY * 0.5
    assert groups['backbone.pos_embed']['lr'] == plain['backbone.pos_embed']['lr']
    assert groups['backbone.cls_token']['weight_decay'] == pytest.approx(WEIGHT_DECAY * 0.2)
    assert groups['backbone.norm.weight']['weight_decay'] == WEIGHT_DECAY
    name = 'backbone.blocks.1.fc1.weight'
    assert groups[name]['lr'] == pytest.approx(0.1 * plain[name]['lr']) and groups[name]['weight_decay'] == 0
    assert groups['head.fc.weight']['lr'] == 2 * LR and groups['head.fc.weight']['betas'] == [0.8, 0.9]
    assert family.space.size() > 1
    # mmengine's own settings, too.
    groups = groups_of(model, bias_decay_mult=0.0, bias_lr_mult=2.0)
    name = 'backbone.blocks.1.fc1.bias'
    assert groups[name]['lr'] == pytest.approx(2 * plain[name]['lr']) and groups[name]['weight_decay'] == 0


def test_frozen_and_shared_weights() -> None:
    model = build(FAMILIES['autoformer'])
    model.backbone.patch_embed.requires_grad_(False)
    model.head.again = model.head.fc
    model.head.tied = nn.Linear(*model.head.fc.weight.shape[::-1], bias=False)
    model.head.tied.weight = model.head.fc.weight
    groups = groups_of(model)  # says itself that none is there twice
    assert 'backbone.patch_embed.weight' not in groups and 'head.fc.weight' in groups


def test_a_step_moves_deep_weights_more() -> None:
    """SGD with the same gradient everywhere moves each weight by its rate."""
    model = build(FAMILIES['s3'])
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    wrapper = build_optim_wrapper(
        model,
        dict(
            optimizer=dict(type='SGD', lr=LR, weight_decay=0.0),
            constructor='vitnas.LayerDecayOptimWrapperConstructor',
            paramwise_cfg=dict(layer_decay=0.5),
        ),
    )
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    wrapper.step()
    depths = layer_depths(model.backbone)[0]
    for name, parameter in model.named_parameters():
        depth = depths.get(name.removeprefix('backbone.'), max(depths.values()))
        moved = (before[name] - parameter).mean()
        assert float(moved) == pytest.approx(LR * 0.5 ** (max(depths.values()) - depth), rel=1e-2), name


@pytest.mark.parametrize(
    ('settings', 'message'),
    [
        *(
            (dict(layer_decay=value), r'`layer_decay` should be above 0 and at most 1, but got ')
            for value in (0, -0.5, 1.5, float('nan'), '0.9', None)
        ),
        *(
            (dict(position_decay_mult=value), '`position_decay_mult` should be a number of at least 0, but got ')
            for value in (-1, float('nan'), '0', None)
        ),
        (dict(layer_decay_rate=0.9), '`layer_decay_rate` of LayerDecay.* is called `layer_decay`'),
        (dict(decay_rate=0.9), '`decay_rate` of LayerDecay.* is called `layer_decay`'),
        (dict(optimizer=dict(type='AdamW', weight_decay=0.1)), 'should give `lr`, but got none'),
        (dict(optimizer=dict(type='AdamW', lr=0.1)), 'should give `weight_decay`, but got none'),
    ],
)
def test_mistakes_are_answered(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(VitnasError, match=message):
        groups_of(FAMILIES['autoformer'].elastic(), **settings)


def test_a_model_without_a_backbone_of_ours() -> None:
    with pytest.raises(VitnasError, match='the model should hold one elastic backbone'):
        groups_of(nn.Linear(2, 2))
    two = nn.ModuleList([MODELS.build(backbone_cfg()) for _ in range(2)])
    with pytest.raises(VitnasError, match='holds 2'):
        groups_of(two)
