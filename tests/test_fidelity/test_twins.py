"""ViTAS's Twins space against mmpretrain's Twins-SVT with the same weights, and against published facts."""

from typing import Any

import pytest
import torch
from mmpretrain.models import SVT

from tests.reference import read
from vitnas_core import zoo
from vitnas_core.backbones import ViTASTwins
from vitnas_core.families.vitas.weights import twins_to_mmpretrain, twins_to_vitnas
from vitnas_core.spaces import Arch
from vitnas_core.utils.counting import count_macs, count_params

SPACES = read('vitas', 'spaces')
TOLERANCE = 1e-5
SIZES = {'s': 'small', 'b': 'base', 'l': 'large'}


def small(size: str) -> dict[str, Any]:
    """mmpretrain's settings of a Twins-SVT, an eighth as wide: 99 million weights show no more than two."""
    settings = {**SVT.arch_zoo[SIZES[size]]}
    divisor = {'s': 4, 'b': 6, 'l': 8}[size]
    settings['embed_dims'] = [width // divisor for width in settings['embed_dims']]
    settings['num_heads'] = [max(1, heads // 2) for heads in settings['num_heads']]
    settings['num_heads'] = [
        heads if width % heads == 0 else 1 for heads, width in zip(settings['num_heads'], settings['embed_dims'])
    ]
    return settings


def as_arch(settings: dict[str, Any]) -> Arch:
    """A Twins-SVT of mmpretrain: local and global blocks in turn."""
    stages = [
        dict(
            embed_dim=width,
            blocks=[
                dict(op=('local', 'global')[b % 2], num_heads=heads, qkv_dim=3 * width, hidden_dim=ratio * width)
                for b in range(depth)
            ],
        )
        for width, depth, heads, ratio in zip(
            *(settings[name] for name in ('embed_dims', 'depths', 'num_heads', 'mlp_ratios'))
        )
    ]
    return Arch.from_dict(dict(family='vitas_twins', stages=stages))


def pair(settings: dict[str, Any], outputs: tuple[int, ...]) -> tuple[SVT, ViTASTwins]:
    """mmpretrain's classifier with random weights, and ours with the same; other outputs have norms of ours alone."""
    theirs = SVT(settings, qkv_bias=True, out_indices=outputs, norm_after_stage=[False, False, False, True])
    ours = ViTASTwins(arch=as_arch(settings), out_indices=outputs)
    for parameter in (*theirs.parameters(), *ours.parameters()):
        torch.nn.init.normal_(parameter, std=0.3 if parameter.ndim > 1 else 0.5)
    classifier = ViTASTwins(arch=as_arch(settings))
    weights = twins_to_vitnas({f'backbone.{name}': w for name, w in theirs.state_dict().items()}, classifier)
    ours.load_state_dict({name.removeprefix('backbone.'): w for name, w in weights.items()}, strict=False)
    return theirs.eval(), ours.eval()


@pytest.mark.parametrize('size', SIZES)
@pytest.mark.parametrize('side', [(224, 224), (120, 148)], ids=str)
@torch.no_grad()
def test_features_equal_mmpretrains(size: str, side: tuple[int, int]) -> None:
    """Whole windows, and maps that are padded on both sides; where one side alone is, mmpretrain attends to padding.

    Outputs before the last have a norm here, which the next stage does not see; mmpretrain hands its norm on.
    """
    theirs, ours = pair(small(size), (0, 1, 2, 3))
    x = torch.randn(1, 3, *side)
    for s, (mine, expected) in enumerate(zip(ours(x), theirs(x))):
        if s < 3:
            expected = ours.get_submodule(f'norm{s}')(expected.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        torch.testing.assert_close(mine, expected, rtol=0, atol=TOLERANCE * float(expected.abs().max()))


def test_gradients_equal_mmpretrains() -> None:
    theirs, ours = pair(small('s'), (3,))
    x = torch.randn(2, 3, 64, 64)
    target = torch.randn(2, ours.embed_dims[-1], 2, 2)
    for model in (theirs, ours):
        (model(x)[-1] * target).sum().backward()
    mine = twins_to_mmpretrain({f'backbone.{name}': p.grad for name, p in ours.named_parameters()}, ours)
    expected = {f'backbone.{name}': p.grad for name, p in theirs.named_parameters()}
    assert mine.keys() == expected.keys()
    for name, grad in expected.items():
        torch.testing.assert_close(mine[name], grad, rtol=0, atol=1e-4 * float(grad.abs().max()) + 1e-6)


@pytest.mark.parametrize('size', SIZES)
def test_the_zoo_holds_mmpretrains_networks(size: str) -> None:
    entry = zoo.entry(f'twins-svt-{size}')
    assert entry.arch == as_arch(SVT.arch_zoo[SIZES[size]])
    theirs = SVT(SIZES[size], qkv_bias=True, norm_after_stage=[False, False, False, True])
    width = theirs.embed_dims[-1]
    assert entry.params == count_params(theirs) + 1000 * (width + 1)


def test_figures_of_the_facts() -> None:
    given = SPACES['twins_svt_s_check']
    cost = ViTASTwins.cost('twins-svt-s', num_classes=1000)
    assert (cost.params, cost.macs) == (given['params'], given['macs'])
    zoo.load_space('vitas-twins-small').validate(zoo.load_arch('twins-svt-s'))  # it holds Twins-SVT-S


@pytest.mark.parametrize(
    ('name', 'space'), [('twins_small', 'small'), ('twins_base', 'base'), ('twins_large', 'large')]
)
def test_ranges_of_spaces(name: str, space: str) -> None:
    """The largest network with local or global blocks alone, and the smallest with one local block a stage."""
    given, of = SPACES['ranges'][name], zoo.load_space(f'vitas-twins-{space}')
    for op, row in (('local', 'max_all_L'), ('global', 'max_all_G')):
        data = of.largest().to_dict()
        for stage in data['stages']:
            for block in stage['blocks']:
                block['op'] = op
        cost = ViTASTwins.cost(data, num_classes=1000)
        assert (cost.params, cost.macs) == (given[row]['params'], given[row]['macs'])
    cost = ViTASTwins.cost(of.smallest(), num_classes=1000)
    row = given['min_one_local_block_per_stage']
    assert (cost.params, cost.macs) == (row['params'], row['macs'])


def test_sizes_of_spaces() -> None:
    """Every choice counted, with identity shifting and without; the paper's figures count one ratio a block."""
    for name, key in (
        ('vitas-twins-small', 'twins_small_every_choice_counted'),
        ('vitas-deit-tiny', 'deit_table2_every_choice_counted'),
    ):
        row = SPACES['sizes'][key]
        assert f'{zoo.load_space(name).size():.3e}' == row['identity_shifting']
        assert f'{zoo.load_space(f"{name}-free").size():.3e}' == row['free_identity']
    assert f'{(3 * 4 * 10) ** 26:.4e}' == SPACES['sizes']['paper_twins_small_1.1e54']['value']
    assert f'{3 * (2 * 4 * 10) ** 18:.4e}' == SPACES['sizes']['paper_deit_5.4e34']['value']


@torch.no_grad()
def test_macs_of_small_maps() -> None:
    """A map smaller than a window or a cell; counted as computed."""
    settings = small('s')
    ours = ViTASTwins(arch=as_arch(settings)).eval()
    for side in ((32, 32), (40, 96)):
        counted = count_macs(ours, torch.zeros(1, 3, *side))
        assert ours.price(ours.arch, side).macs == counted
