"""Families and spaces for the generic tests, one entry each.

To cover a new family, add its :class:`Family` to ``FAMILIES``. An option that changes the layers of a family has its
own entry, in ``FAMILIES`` or in ``VARIANTS``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from vitnas_core import zoo
from vitnas_core.backbones import S3, AutoFormer, ElasticBackbone, NASViT, ViTASDeiT, ViTASTwins, ViTRes
from vitnas_core.spaces import SearchSpace

from .toy_mixer import ToyMixer


@dataclass(frozen=True)
class Family:
    """A small space of a family that runs in milliseconds.

    Args:
        cls: The backbone.
        space: The small space.
        settings: Arguments of the backbone.
        image: Side of a square test image.
        stride: Stride of the last output.
        countable: Settings under which a count of executed products equals the family's convention
            (AutoFormer's leaves out the products of relative positions).
        regularisers: Settings that each make training random.
        overlaps: Whether a neighbouring cell may respond most to a pixel, as with overlapping convolutions.
        sees: Least response of a pixel's own cell, relative to the strongest cell.
        spread: Distance in cells up to which other cells may respond strongly to a pixel.
        aligned: Image size at which cells lie where strides say. NASViT's published pooling moves them at
            odd sides, and a norm amplifies ViTAS's patches of zeros.
        misfits: Changes to the largest architecture's data that the weights cannot run, with the
            beginning of the error.
    """

    cls: type[ElasticBackbone]
    space: SearchSpace
    settings: dict[str, Any] = field(default_factory=dict)
    image: int = 32
    stride: int = 16
    countable: dict[str, Any] = field(default_factory=dict)
    regularisers: tuple[dict[str, Any], ...] = ()
    overlaps: bool = False
    sees: float = 0.5
    spread: int = 1
    aligned: tuple[int, int] = (37, 51)
    misfits: tuple[tuple[Callable[[dict[str, Any]], Any], str], ...] = ()

    def elastic(self, **settings: Any) -> ElasticBackbone:
        """The supernet."""
        return self.cls(space=self.space, **{**self.settings, **settings})


def _space(family: str, *stages: dict[str, Any], **choices: Any) -> SearchSpace:
    return SearchSpace.from_dict(dict(family=family, name=f'{family}-test', stages=list(stages), **choices))


FAMILIES: dict[str, Family] = {
    'autoformer': Family(
        AutoFormer,
        _space(
            'autoformer',
            dict(embed_dim=[48, 60, 72], depth=[2, 3], block=dict(num_heads=[1, 2, 3], mlp_ratio=[1.5, 2.0])),
        ),
        settings=dict(img_size=32, patch_size=8, reach=2),
        stride=8,
        countable=dict(reach=0),
        regularisers=(dict(drop_path_rate=0.5), dict(attn_drop_rate=0.5)),
        misfits=(
            (lambda d: d['stages'][0].update(embed_dim=144), 'stages[0].embed_dim is 144'),
            (lambda d: d['stages'][0]['blocks'][1].update(num_heads=4), 'stages[0].blocks[1].num_heads is 4'),
            (lambda d: d['stages'][0]['blocks'].extend(d['stages'][0]['blocks']), 'stages[0].blocks has 6 entries'),
            (lambda d: d['stages'][0].update(blocks=d['stages'][0]['blocks'][:1]), 'stages[0].blocks has 1 entries'),
        ),
    ),
}
FAMILIES['autoformer-conditional'] = replace(
    FAMILIES['autoformer'], settings=dict(img_size=32, patch_size=8, position='conditional', reach=2)
)
FAMILIES['s3'] = Family(
    S3,
    _space(
        's3',
        dict(embed_dim=[24, 32], depth=[1, 2], block=dict(num_heads=[1, 2], mlp_ratio=[2.0], window_size=[2, 3])),
        dict(embed_dim=[40, 48], depth=[1, 3], block=dict(num_heads=[1, 2], mlp_ratio=[1.5, 2.0], window_size=[3])),
    ),
    settings=dict(img_size=32, patch_size=4),
    stride=8,
    regularisers=(dict(drop_path_rate=0.5), dict(attn_drop_rate=0.5)),
    misfits=(
        (lambda d: d['stages'][1].update(embed_dim=64), 'stages[1].embed_dim is 64'),
        (lambda d: d['stages'][0]['blocks'][1].update(num_heads=4), 'stages[0].blocks[1].num_heads is 4'),
        (lambda d: d['stages'][0]['blocks'][0].update(mlp_ratio=3.0), 'stages[0].blocks[0].mlp_ratio is 3.0'),
        (lambda d: d['stages'][1]['blocks'][2].update(window_size=4), 'stages[1].blocks[2].window_size is 4'),
        (lambda d: d['stages'][0]['blocks'].extend(d['stages'][0]['blocks']), 'stages[0].blocks has 4 entries'),
        (lambda d: d['stages'].pop(), 'stages has 1 entries'),
    ),
)
FAMILIES['s3-per-window'] = replace(FAMILIES['s3'], settings=dict(img_size=32, patch_size=4, bias='per-window'))
FAMILIES['vit_res'] = Family(
    ViTRes,
    _space(
        'vit_res',
        dict(
            embed_dim=[16, 24], head_dim=[8], depth=3, optional=[1], block=dict(num_heads=[1, 2], hidden_dim=[24, 40])
        ),
        dict(embed_dim=[32, 40], head_dim=[12], depth=2, optional=[1], block=dict(num_heads=[1, 3], hidden_dim=[48])),
    ),
    settings=dict(img_size=56),
    image=56,
    stride=28,
    overlaps=True,
    regularisers=(dict(drop_path_rate=0.5), dict(attn_drop_rate=0.5)),
    misfits=(
        (lambda d: d['stages'][1].update(embed_dim=64), 'stages[1].embed_dim is 64'),
        (lambda d: d['stages'][0].update(head_dim=16), 'stages[0].head_dim is 16'),
        (lambda d: d['stages'][0]['blocks'][1].update(num_heads=4), 'stages[0].blocks[1].num_heads is 4'),
        (lambda d: d['stages'][0]['blocks'][0].update(hidden_dim=64), 'stages[0].blocks[0].hidden_dim is 64'),
        (lambda d: d['stages'][0]['blocks'].extend(d['stages'][0]['blocks']), 'stages[0].blocks has 6 entries'),
        (lambda d: d['stages'].pop(), 'stages has 1 entries'),
    ),
)
FAMILIES['nasvit'] = Family(
    NASViT,
    _space(
        'nasvit',
        dict(width=[8, 12]),
        dict(width=[8, 16], depth=[1, 2], kernel_size=[3, 5], expand_ratio=[1], stride=[1], se=[1]),
        dict(
            width=[16, 24],
            depth=[1, 3],
            kernel_size=[3],
            expand_ratio=[2, 3],
            stride=[2],
            se=[0],
            mlp_ratio=[1, 2],
            num_windows=[4, 1],
        ),
        dict(
            width=[24, 32],
            depth=[2],
            kernel_size=[3],
            expand_ratio=[2],
            stride=[2],
            se=[1],
            mlp_ratio=[1],
            num_windows=[1],
        ),
        dict(width=[32, 48], expand_ratio=[2]),
        resolution=[32, 48],
    ),
    settings=dict(out_indices=(-1,)),
    stride=8,
    overlaps=True,
    sees=0.2,
    aligned=(48, 64),
    regularisers=(dict(drop_path_rate=0.5),),
    misfits=(
        (lambda d: d['stages'][2].update(width=64), 'stages[2].width is 64'),
        (lambda d: d['stages'][0].update(width=16), 'stages[0].width is 16'),
        (lambda d: d['stages'][1].update(kernel_size=7), 'stages[1].kernel_size is 7'),
        (lambda d: d['stages'][2].update(expand_ratio=4), 'stages[2].expand_ratio is 4'),
        (lambda d: d['stages'][3].update(mlp_ratio=2), 'stages[3].mlp_ratio is 2'),
        (lambda d: d['stages'][1].update(se=0), 'stages[1].se is 0'),
        (lambda d: d['stages'][3].update(stride=1), 'stages[3].stride is 1'),
        (lambda d: d['stages'][2]['blocks'].append({}), 'stages[2].blocks has 4 entries'),
        (lambda d: d.update(resolution=64), 'resolution is 64'),
        (lambda d: d['stages'].pop(1), 'stages has 4 entries'),
    ),
)

FAMILIES['vitas_deit'] = Family(
    ViTASDeiT,
    _space(
        'vitas_deit',
        dict(
            embed_dim=[12, 20, 32], depth=[2, 3],
            block=dict(num_heads=[1, 2], qkv_dim=[18, 36], hidden_dim=[16, 40]),
        ),
        patch_size=[8],
    ),
    settings=dict(img_size=32),
    stride=8,
    regularisers=(dict(drop_path_rate=0.5), dict(attn_drop_rate=0.5)),
    misfits=(
        (lambda d: d['stages'][0].update(embed_dim=48), 'stages[0].embed_dim is 48'),
        (lambda d: d.update(patch_size=4), 'patch_size is 4'),
        (lambda d: d['stages'][0]['blocks'][1].update(qkv_dim=72), 'stages[0].blocks[1].qkv_dim is 72'),
        (lambda d: d['stages'][0]['blocks'][0].update(hidden_dim=64), 'stages[0].blocks[0].hidden_dim is 64'),
        (lambda d: d['stages'][0]['blocks'].extend(d['stages'][0]['blocks']), 'stages[0].blocks has 6 entries'),
    ),
)  # fmt: skip
FAMILIES['vitas_twins'] = Family(
    ViTASTwins,
    _space(
        'vitas_twins',
        dict(
            embed_dim=[12, 20], depth=[1, 2],
            block=dict(op=['local', 'global'], num_heads=[1, 2], qkv_dim=[18], hidden_dim=[16]),
        ),
        dict(
            embed_dim=[16, 32], depth=[1, 2],
            block=dict(op=['local', 'global'], num_heads=[2], qkv_dim=[24, 48], hidden_dim=[40]),
        ),
    ),
    settings=dict(window_size=3, sr_ratios=(2, 1)),
    stride=8,
    overlaps=True,
    sees=0.2,
    spread=2,
    aligned=(48, 72),
    regularisers=(dict(drop_path_rate=0.5), dict(attn_drop_rate=0.5)),
    misfits=(
        (lambda d: d['stages'][1].update(embed_dim=64), 'stages[1].embed_dim is 64'),
        (lambda d: d['stages'][0]['blocks'][1].update(qkv_dim=48), 'stages[0].blocks[1].qkv_dim is 48'),
        (lambda d: d['stages'][0]['blocks'][0].update(hidden_dim=64), 'stages[0].blocks[0].hidden_dim is 64'),
        (lambda d: d['stages'][0]['blocks'].extend(d['stages'][0]['blocks']), 'stages[0].blocks has 4 entries'),
        (lambda d: d['stages'].pop(), 'stages has 1 entries'),
    ),
)  # fmt: skip

FAMILIES['toy_mixer'] = Family(
    ToyMixer,
    _space(
        'toy_mixer',
        dict(embed_dim=[12, 20], depth=[1, 2], block=dict(token_dim=[4, 8], mlp_ratio=[1.5, 2.0])),
        dict(embed_dim=[16, 32], depth=[1, 3], block=dict(token_dim=[6, 8], mlp_ratio=[2.0])),
    ),
    stride=8,
    spread=3,
    regularisers=(dict(drop_path_rate=0.5),),
    misfits=(
        (lambda d: d['stages'][1].update(embed_dim=64), 'stages[1].embed_dim is 64'),
        (lambda d: d['stages'][0]['blocks'][1].update(token_dim=16), 'stages[0].blocks[1].token_dim is 16'),
        (lambda d: d['stages'][1]['blocks'][0].update(mlp_ratio=3.0), 'stages[1].blocks[0].mlp_ratio is 3.0'),
        (lambda d: d['stages'][0]['blocks'].extend(d['stages'][0]['blocks']), 'stages[0].blocks has 4 entries'),
        (lambda d: d['stages'].pop(), 'stages has 1 entries'),
    ),
)

# One entry per backbone, for tests that use its space but not its layers.
BACKBONES: dict[str, Family] = {name: family for name, family in FAMILIES.items() if name == family.cls.family}

# Further entries, only for the contracts of backbones: training and search do not depend on these options.
VARIANTS: dict[str, Family] = {
    **FAMILIES,
    'autoformer-scaled': replace(
        FAMILIES['autoformer'], settings=dict(img_size=32, patch_size=8, reach=2, scaling=True)
    ),
    's3-scaled': replace(FAMILIES['s3'], settings=dict(img_size=32, patch_size=4, scaling=True)),
    **{  # a bilateral pattern trains in two passes: tests/test_backbones/test_sharing.py
        f'{name}-cyclic': replace(FAMILIES[name], settings={**FAMILIES[name].settings, 'sharing': 'cyclic'})
        for name in ('autoformer', 's3')
    },
    'vitas_deit-free': replace(
        FAMILIES['vitas_deit'],
        space=_space(
            'vitas_deit',
            dict(
                embed_dim=[12, 20, 32],
                depth=3,
                optional=[0, 2],
                block=dict(num_heads=[1, 2], qkv_dim=[18, 36, 54], hidden_dim=[16, 40]),
            ),
            patch_size=[8],
        ),
        settings=dict(img_size=32, sharing='ordinal', private_token=False),
    ),
    'vitas_twins-free': replace(
        FAMILIES['vitas_twins'],
        space=_space(
            'vitas_twins',
            dict(
                embed_dim=[12, 20],
                depth=3,
                optional=[0, 1],
                block=dict(op=['local', 'global'], num_heads=[1, 2], qkv_dim=[18], hidden_dim=[16]),
            ),
            dict(
                embed_dim=[16, 32],
                depth=2,
                optional=[0, 1],
                block=dict(op=['local', 'global'], num_heads=[2], qkv_dim=[24, 48], hidden_dim=[40]),
            ),
        ),
        misfits=FAMILIES['vitas_twins'].misfits[:3],
    ),
    'nasvit-windows': replace(FAMILIES['nasvit'], settings=dict(out_indices=(-1,), window_size=3)),
    'nasvit-official': replace(FAMILIES['nasvit'], settings=dict(out_indices=(-1,), official=True)),
}

# Every space, once: options of a family share its space.
SPACES: dict[str, SearchSpace] = {name: zoo.load_space(name) for name in zoo.space_names()}
for _name, _family in FAMILIES.items():
    if _family.space not in SPACES.values():
        SPACES[f'{_name}-test'] = _family.space

# Small enough to be enumerated.
SMALL_SPACES: dict[str, SearchSpace] = {
    'last': _space('toy', dict(width=[1, 2], depth=[0, 1, 3], block=dict(op=['a', 'b'], k=[3, 5])), size=[8, 16]),
    'optional': _space('toy', dict(width=[1, 2], depth=4, optional=[1, 3], block=dict(k=[3, 5]))),
    'all-optional': _space('toy', dict(depth=3, optional=[0, 2], block=dict(k=[3, 5, 7])), dict(width=[4, 8])),
    'no-choice': _space('toy', dict(depth=[1, 2], block={}), dict(depth=2, optional=[0], block={})),
    'holes': _space('toy', dict(blocks=[dict(k=[1, 2]), None, dict(k=[3])], width=[5])),
}
