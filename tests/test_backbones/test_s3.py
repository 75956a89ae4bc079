"""S3 beyond the generic contracts: outputs of stages, windows and their tables, merging, published architectures."""

import json
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vitnas_core.backbones import S3
from vitnas_core.elastic import Windows, WindowTables
from vitnas_core.errors import ArchError, VitnasError
from vitnas_core.spaces import Arch, SearchSpace
from vitnas_core.utils.counting import count_macs, count_params


def space(*windows: list[int], dims: tuple[list[int], ...] = ([16, 24], [32, 40], [40, 48])) -> SearchSpace:
    """Three stages of one to three blocks, with windows of their own."""
    windows = windows or ([2, 3, 5],) * 3
    stages = [
        dict(embed_dim=d, depth=[1, 2, 3], block=dict(num_heads=[1, 2, 3], mlp_ratio=[1.0, 2.5], window_size=w))
        for d, w in zip(dims, windows)
    ]
    return SearchSpace.from_dict(dict(family='s3', stages=stages))


def randomised(model: S3) -> S3:
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model.eval()


def chosen(model: S3, *stages: tuple[int, list[tuple[int, float, int]]]) -> Arch:
    """An architecture by (width, [(heads, ratio, window), …]) of its stages, activated."""
    names = ('num_heads', 'mlp_ratio', 'window_size')
    data = [dict(embed_dim=width, blocks=[dict(zip(names, block)) for block in blocks]) for width, blocks in stages]
    arch = Arch.from_dict(dict(family='s3', stages=data))
    model.set_arch(arch)
    return arch


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[Windows]:
    """The windows of the blocks that ran, in order."""
    seen: list[Windows] = []
    enter = Windows.enter
    monkeypatch.setattr(Windows, 'enter', lambda self, x: seen.append(self) or enter(self, x))
    return seen


# Outputs.


@torch.no_grad()
def test_each_output_has_a_norm_of_its_own() -> None:
    model = randomised(S3(space=space(), out_indices=(0, 1, 2)))
    found: list[torch.Tensor] = []
    for stage in model.stages:
        stage.blocks[-1].register_forward_hook(lambda _, __, out: found.append(out))
    outs = model(torch.randn(2, 3, 48, 80))
    assert [tuple(out.shape) for out in outs] == [(2, 24, 12, 20), (2, 40, 6, 10), (2, 48, 3, 5)]
    for s, (out, tokens) in enumerate(zip(outs, found, strict=True)):
        norm = model.get_submodule(f'norm{s}')
        expected = F.layer_norm(tokens, tokens.shape[-1:], norm.weight, norm.bias)
        torch.testing.assert_close(out, expected.permute(0, 3, 1, 2))
        assert out.is_contiguous()
    assert model.out_channels() == (24, 40, 48)
    assert [name for name, _ in model.named_children() if name.startswith('norm')] == ['norm0', 'norm1', 'norm2']


@torch.no_grad()
def test_outputs_can_be_named_from_the_end_in_any_order() -> None:
    model = randomised(S3(space=space(), out_indices=(-1, 0, 2)))
    assert {name for name, _ in model.named_children()} == {'patch_embed', 'stages', 'norm0', 'norm2'}
    last, first, again = model(torch.randn(1, 3, 32, 32))
    assert torch.equal(last, again) and last.shape[1] == 48 and first.shape[1] == 24
    assert model.out_channels() == (48, 24, 48)
    smallest = model.space.smallest()
    assert model.out_channels(smallest) == (40, 16, 40)
    model.set_arch(smallest)
    last, first, _ = model(torch.randn(1, 3, 32, 32))
    assert (last.shape[1], first.shape[1]) == (48, 24)
    assert not last[:, 40:].any() and not first[:, 16:].any() and last[:, :40].all()
    assert [tuple(out.shape[1:]) for out in model.extract()(torch.randn(1, 3, 32, 32))] == [
        (40, 2, 2),
        (16, 8, 8),
        (40, 2, 2),
    ]


def test_stages_behind_the_last_output_do_not_run_and_cost_nothing() -> None:
    whole, part = S3(space=space()), S3(space=space(), out_indices=(0, 1))
    ran = []
    for s, stage in enumerate(part.stages):
        for block in stage.blocks:
            block.register_forward_hook(lambda *_, s=s: ran.append(s))
    x = torch.randn(1, 3, 32, 32)
    outs = part(x)
    sum(out.sum() for out in outs).backward()
    assert ran == [0, 0, 0, 1, 1, 1]
    assert all(parameter.grad is None for parameter in part.stages[2].parameters())
    arch = part.space.smallest()
    fixed = part.extract(arch)
    assert part.price(arch, 32).macs == count_macs(fixed, x) < whole.price(arch, 32).macs
    assert part.price(arch, 32).params == count_params(fixed)


def test_features_at_every_stage_are_those_of_one_network() -> None:
    x = torch.randn(1, 3, 32, 32)
    model = randomised(S3(space=space(), out_indices=(0, 1, 2)))
    state = model.state_dict()
    for s, out in enumerate(model(x)):
        single = S3(space=space(), out_indices=(s,)).eval()
        single.load_state_dict({name: state[name] for name in single.state_dict()})
        assert torch.equal(single(x)[0], out)


# Windows.


@torch.no_grad()
def test_shift_parity_restarts_in_each_stage(used: list[Windows]) -> None:
    model = S3(space=space())
    chosen(
        model,
        (16, [(1, 1.0, 2)] * 3),
        (32, [(1, 1.0, 3)] * 1),
        (40, [(1, 1.0, 2)] * 2),
    )
    model(torch.randn(1, 3, 64, 64))
    assert [(windows.size, windows.shift) for windows in used] == [(2, 0), (2, 1), (2, 0), (3, 0), (2, 0), (2, 1)]


@torch.no_grad()
def test_windows_larger_than_the_map_are_clamped_to_it(used: list[Windows]) -> None:
    """Without a shift, also where both are equal; by its shorter side where a map is not square."""
    model = randomised(S3(space=space([7], [7], [7]), img_size=224))
    chosen(model, (16, [(1, 1.0, 7)] * 2), (32, [(1, 1.0, 7)] * 2), (40, [(1, 1.0, 7)] * 2))
    model(torch.randn(1, 3, 56, 64))
    assert [(windows.height, windows.width, windows.size, windows.shift) for windows in used] == [
        (14, 16, 7, 0),
        (14, 16, 7, 3),
        (7, 8, 7, 0),
        (7, 8, 7, 0),
        (4, 4, 4, 0),
        (4, 4, 4, 0),
    ]


def test_tables_are_stored_for_the_windows_of_an_image_size(used: list[Windows]) -> None:
    """S3-S asks for 14 in its last stage, where its map is 7 × 7: for good, also at larger images."""
    with torch.device('meta'):
        model = S3(arch='s3-s')
        larger = S3(arch='s3-s', img_size=448)
    shapes = [tuple(stage.blocks[0].attn.bias.tables['shared'].shape) for stage in model.stages]
    assert shapes == [(3, 27, 27), (6, 27, 27), (12, 27, 27), (24, 13, 13)]
    assert larger.stages[3].blocks[0].attn.bias.tables['shared'].shape == (24, 27, 27)
    assert count_params(model) == S3.cost('s3-s').params == model.price('s3-s', 448).params
    assert count_params(larger) == S3.cost('s3-s', img_size=448).params > count_params(model)
    model = S3(space=space([14], [14], [14]), img_size=(112, 56))
    assert [stage.blocks[0].attn.bias.offers for stage in model.stages] == ['up to 14', 'up to 7', 'up to 4']
    model.set_arch(model.space.smallest())
    model(torch.randn(1, 3, 160, 160))
    assert [windows.size for windows in used] == [14, 7, 4]


def test_a_checkpoint_of_a_smaller_image_is_interpolated() -> None:
    """The windows follow the image size, as in published fine-tuning at 384 pixels."""
    small, large = S3(space=space([7], [7], [7]), img_size=56), S3(space=space([7], [7], [7]), img_size=112)
    randomised(small)
    large.load_state_dict(small.state_dict())
    tables = [[stage.blocks[0].attn.bias.tables['shared'] for stage in model.stages] for model in (small, large)]
    assert [table.shape[-1] for table in tables[0]] == [13, 13, 7]
    assert [table.shape[-1] for table in tables[1]] == [13, 13, 13]
    assert torch.equal(tables[0][1], tables[1][1]) and tables[1][2].isfinite().all()
    torch.testing.assert_close(tables[0][2][:, 0, 0], tables[1][2][:, 0, 0])  # the same token


def test_windows_matter() -> None:
    model, x = randomised(S3(space=space())), torch.randn(1, 3, 64, 64)
    outs = []
    for window in (2, 3, 5):
        chosen(model, *((width, [(1, 1.0, window)] * 2) for width in (16, 32, 40)))
        outs.append(model(x)[0])
    assert not torch.equal(outs[0], outs[1]) and not torch.equal(outs[1], outs[2])


# Tables by window.


def test_a_table_a_window() -> None:
    model = randomised(S3(space=space([2, 3, 7], [2, 7], [7]), img_size=48, bias='per-window'))
    names = [list(stage.blocks[0].attn.bias.tables) for stage in model.stages]
    assert names == [['2', '3', '7'], ['2', '6'], ['3']]  # maps of 12, 6 and 3
    model.zero_grad()
    chosen(model, (24, [(2, 1.0, 3), (3, 1.0, 7)]), (32, [(1, 1.0, 7)]), (40, [(2, 1.0, 7)]))
    model(torch.randn(1, 3, 48, 48))[0].square().sum().backward()
    got = {name for name, parameter in model.named_parameters() if '.tables.' in name and parameter.grad is not None}
    expected = {(0, 0, 3), (0, 1, 7), (1, 0, 6), (2, 0, 3)}
    assert got == {f'stages.{s}.blocks.{b}.attn.bias.tables.{window}' for s, b, window in expected}
    assert not model.stages[0].blocks[0].attn.bias.tables['3'].grad[2:].any()  # heads that are not there


@pytest.mark.parametrize('bias', ['shared', 'per-window'])
@pytest.mark.parametrize('size', [(32, 32), (36, 84), (61, 43)])
@torch.no_grad()
def test_extracted_is_equal_bit_for_bit(bias: str, size: tuple[int, int]) -> None:
    """Windows, heads and depths that differ; images that are neither square nor whole patches or windows."""
    model = randomised(S3(space=space(), img_size=48, bias=bias, out_indices=(0, 1, 2)))
    arch = chosen(
        model,
        (16, [(3, 2.5, 5), (1, 1.0, 2), (2, 2.5, 3)]),
        (40, [(1, 1.0, 3)]),
        (40, [(2, 2.5, 5), (3, 1.0, 2)]),
    )
    fixed, x = model.extract(), torch.randn(2, 3, *size)
    assert fixed.arch == arch and [len(stage.blocks) for stage in fixed.stages] == [3, 1, 2]
    assert fixed.stages[0].blocks[0].attn.proj.weight.shape == (16, 96)  # heads are 32 wide whatever the tokens are
    for ours, theirs in zip(model(x), fixed(x), strict=True):
        assert torch.equal(ours[:, : theirs.shape[1]], theirs) and not ours[:, theirs.shape[1] :].any()


def test_windows_without_a_table_are_refused() -> None:
    data = space().largest().to_dict()
    for bias, window, offers in (('shared', 6, 'up to 5'), ('per-window', 4, '2, 3, 5')):
        model = S3(space=space(), bias=bias)
        data['stages'][1]['blocks'][2]['window_size'] = window
        with pytest.raises(ArchError, match=rf'stages\[1\]\.blocks\[2\]\.window_size is {window}; .* have {offers}$'):
            model.set_arch(data)
    data['stages'][1]['blocks'][2]['window_size'] = 4
    S3(space=space()).set_arch(data)  # the centre of 5's table
    S3(space=space(), bias='per-window', img_size=24).set_arch(data)  # a map of 3 × 3: clamped, like 5


# Merging and patches.


@torch.no_grad()
def test_merging_is_the_written_out_formula() -> None:
    """The four tokens of a cell, side by side; a norm over all of them; a linear layer without bias."""
    merging = randomised(S3(space=space())).stages[1].merging
    x = torch.randn(2, 4, 6, 24)
    out = merging(x)
    for i in range(2):
        for j in range(3):
            cell = torch.stack([x[:, 2 * i + r, 2 * j + c] for r in (0, 1) for c in (0, 1)], -1).flatten(1)
            expected = F.layer_norm(cell, (96,), merging.norm.weight, merging.norm.bias) @ merging.reduction.weight.T
            torch.testing.assert_close(out[:, i, j], expected, rtol=1e-4, atol=1e-5)
    assert merging.reduction.bias is None and S3(space=space()).stages[0].merging is None


@torch.no_grad()
def test_a_narrower_merging_takes_the_first_channels_of_all_four_tokens() -> None:
    """In the published order of four groups: of each of them the first, as a network of that width has them."""
    model = randomised(S3(space=space()))
    chosen(model, (16, [(1, 1.0, 2)]), (32, [(1, 1.0, 2)]), (40, [(1, 1.0, 2)]))
    merging = model.stages[1].merging
    x = torch.randn(1, 4, 4, 16)
    weight, gain, shift = (
        p.unflatten(-1, (24, 4)) for p in (merging.reduction.weight, merging.norm.weight, merging.norm.bias)
    )
    cells = torch.stack([x[:, r::2, c::2] for r in (0, 1) for c in (0, 1)], 3).flatten(3)  # group by group
    gain, shift = (p[:16].T.flatten() for p in (gain, shift))
    expected = F.layer_norm(cells, (64,), gain, shift) @ weight[:32, :16].transpose(1, 2).flatten(1).T
    torch.testing.assert_close(merging(x), expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_sides_are_padded_with_zeros_to_patches_and_to_cells() -> None:
    model = randomised(S3(space=space()))
    x = torch.randn(1, 3, 33, 50)
    assert torch.equal(model(x)[0], model(F.pad(x, (0, 2, 0, 3)))[0])
    assert model(x)[0].shape == (1, 48, 3, 4)  # 9 × 13, 5 × 7, 3 × 4
    merging, tokens = model.stages[1].merging, torch.randn(1, 5, 7, 24)
    assert torch.equal(merging(tokens), merging(F.pad(tokens, (0, 0, 0, 1, 0, 1))))


@pytest.mark.parametrize('shape', [(1, 1, 32, 32), (1, 4, 32, 32), (3, 32, 32)])
def test_images_of_other_channels_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(VitnasError, match=r'images should have shape \(B, 3, H, W\), but got'):
        S3(space=space())(torch.zeros(shape))


@torch.no_grad()
def test_a_turned_image_turns_the_features() -> None:
    """With filters, tables and merging turned too: rows and columns are not confused, in a rectangle with padding."""
    model = randomised(S3(space=space())).double()
    turned = S3(space=space()).double().eval()
    turned.load_state_dict(model.state_dict())
    turned.patch_embed.proj.weight.copy_(model.patch_embed.proj.weight.mT)
    for ours, theirs in zip(model.stages, turned.stages):
        for a, b in zip(ours.blocks, theirs.blocks):
            b.attn.bias.tables['shared'].copy_(a.attn.bias.tables['shared'].mT)
        if ours.merging is not None:
            for a, b in zip(ours.merging.parameters(), theirs.merging.parameters()):
                b.copy_(a.unflatten(-1, (-1, 2, 2)).mT.flatten(-3))
    x = torch.randn(1, 3, 44, 76, dtype=torch.float64)
    torch.testing.assert_close(model(x)[0].mT, turned(x.mT)[0])


# Types, regularisation, initialisation.


@pytest.mark.parametrize('bias', ['shared', 'per-window'])
def test_low_and_high_precision(bias: str) -> None:
    """With shifts, padding and clamping on the way."""
    model, x = S3(space=space(), bias=bias), torch.randn(2, 3, 44, 76)
    expected = model(x)[0]
    with torch.autocast('cpu', torch.bfloat16):
        out = model(x)[0]
    out.float().sum().backward()
    torch.testing.assert_close(out.float(), expected, rtol=0.1, atol=0.15)
    high = model.double()(x.double())[0]
    assert high.dtype == torch.float64
    torch.testing.assert_close(high.float(), expected, rtol=1e-4, atol=1e-4)
    low = model.bfloat16()(x.bfloat16())[0]
    assert low.dtype == torch.bfloat16
    torch.testing.assert_close(low.float(), expected, rtol=0.1, atol=0.25)


def test_export_with_masks_and_padding() -> None:
    fixed = randomised(S3(space=space())).extract()
    x = torch.randn(1, 3, 40, 76)
    program = torch.export.export(fixed, (x,)).module()
    traced = torch.jit.trace(fixed, x)
    for module in (program, traced):
        torch.testing.assert_close(module(x)[0], fixed(x)[0])


def test_drop_path_rises_over_the_blocks_of_all_stages() -> None:
    model = S3(space=space(), drop_path_rate=0.2)
    rates = [block.drop_path.rate for stage in model.stages for block in stage.blocks]
    assert rates == pytest.approx([0.2 * i / 8 for i in range(9)])
    published = S3(arch='s3-t', drop_path_rate=0.2)  # FACTS, section 3: 0, .0182, …, .2
    rates = [block.drop_path.rate for stage in published.stages for block in stage.blocks]
    assert rates == pytest.approx(torch.linspace(0, 0.2, 12).tolist(), abs=1e-6)
    assert rates[1] == pytest.approx(0.0182, abs=1e-4)
    one = Arch.from_dict(dict(family='s3', stages=[space().smallest().to_dict()['stages'][0]]))
    assert S3(arch=one, drop_path_rate=0.2).stages[0].blocks[0].drop_path.rate == 0


def test_drop_path_acts_on_both_branches() -> None:
    block = S3(space=space(), drop_path_rate=1.0).train().stages[-1].blocks[-1]
    x = torch.randn(2, 4, 4, 48)
    assert torch.equal(block(x, 2, WindowTables(x.device)), x)
    assert not torch.equal(block.eval()(x, 2, WindowTables(x.device)), x)


def test_initialisation_is_the_published_one() -> None:
    model = S3(arch='s3-t')
    for name in ('fc1', 'fc2'):
        weights = torch.cat([getattr(block, name).weight.flatten() for stage in model.stages for block in stage.blocks])
        assert weights.std().item() == pytest.approx(0.02, rel=0.02)
    block = model.stages[2].blocks[3]
    assert block.attn.bias.tables['shared'].std().item() == pytest.approx(0.02, rel=0.05)
    assert model.stages[1].merging.reduction.weight.std().item() == pytest.approx(0.02, rel=0.02)
    for layer in (block.attn.qkv, block.attn.proj, block.fc1, block.fc2, block.norm1, model.norm3):
        assert not layer.bias.any()
    for norm in (block.norm1, block.norm2, model.patch_embed.norm, model.stages[1].merging.norm, model.norm3):
        assert (norm.weight == 1).all() and norm.eps == 1e-5
    bound = (3 * 4 * 4) ** -0.5  # torch's: uniform, a filter has 48 inputs
    assert model.patch_embed.proj.weight.abs().max().item() == pytest.approx(bound, rel=0.01)
    assert model.patch_embed.proj.bias.any()


# Mistakes.


@pytest.mark.parametrize(
    ('settings', 'message'),
    [
        (dict(bias='both'), "`bias` should be one of shared, per-window, but got 'both'"),
        (dict(patch_size=0), '`patch_size` should be a whole number of at least 1, but got 0'),
        (dict(patch_size=(4, 4)), '`patch_size` should be a whole number of at least 1'),
        (dict(img_size=(224,)), '`img_size` should be a whole number above 0 or a pair of them'),
        (dict(img_size=0), '`img_size` should be a whole number above 0 or a pair of them'),
        (dict(drop_path_rate=1.5), '`drop_path_rate` should be from 0 to 1, but got 1.5'),
        (dict(attn_drop_rate=-0.1), '`attn_drop_rate` should be from 0 to 1'),
        (dict(attn_drop_rate='0.1'), '`attn_drop_rate` should be from 0 to 1'),
        (dict(out_indices=(3,)), '`out_indices` should be from -3 to 2, as there are 3 stages, but got'),
        (dict(out_indices=(-4,)), '`out_indices` should be from -3 to 2'),
        (dict(out_indices=()), '`out_indices` should be from -3 to 2'),
        (dict(out_indices=1), '`out_indices` should be from -3 to 2'),
    ],
)
def test_bad_settings(settings: dict, message: str) -> None:
    with pytest.raises(VitnasError, match=message):
        S3(space=space(), **settings)


@pytest.mark.parametrize(
    ('stage', 'message'),
    [
        (dict(embed_dim=[48, 32], depth=1), r'embed_dim of the S3 space should list numbers, smallest first'),
        (dict(embed_dim=[48], depth=[0, 1]), r'stages\[0\].blocks is empty; a stage of S3 has at least one block'),
        (dict(embed_dim=[48], depth=2, optional=[0]), 'stages in which only the last blocks are absent'),
        (dict(embed_dim=[48], depth=1, resolution=7), r'stages\[0\].resolution is unknown; S3 has embed_dim here'),
        (dict(depth=1), r'stages\[0\].embed_dim is missing; S3 has embed_dim here'),
    ],
)
def test_spaces_that_are_not_of_s3(stage: dict, message: str) -> None:
    block = dict(num_heads=[1, 2], mlp_ratio=[1.0, 2.0], window_size=[2, 4])
    with pytest.raises(VitnasError, match=message):
        S3(space=dict(family='s3', stages=[dict(stage, block=block)]), img_size=32)


@pytest.mark.parametrize(
    ('path', 'value', 'message'),
    [
        ("['stages'][1]['embed_dim']", 7.5, r'stages\[1\].embed_dim should be a whole number above 0, but got 7.5'),
        ("['stages'][1]['blocks'][1]", None, r'stages\[1\].blocks\[1\] is absent; S3 leaves out only the last blocks'),
        ("['stages'][0]['blocks']", [], r'stages\[0\].blocks is empty'),
        ("['stages'][0]['blocks'][0]['num_heads']", 0, r'stages\[0\].blocks\[0\].num_heads should be a whole number'),
        ("['stages'][0]['blocks'][0]['window_size']", 2.5, r'blocks\[0\].window_size should be a whole number above 0'),
        ("['stages'][0]['blocks'][0]['window_size']", 'x', r'blocks\[0\].window_size should be a whole number above 0'),
        ("['stages'][0]['blocks'][0]['mlp_ratio']", -1.0, r'blocks\[0\].mlp_ratio should be a number above 0'),
        ("['stages'][0]['blocks'][0]['mlp_ratio']", 0.01, r'mlp_ratio is 0.01, which leaves no hidden unit of 24'),
        ("['stages'][0]['blocks'][0]['shift']", 1, r'shift is unknown; S3 has num_heads, mlp_ratio, window_size here'),
        ("['stages'][0]['blocks'][0]", dict(num_heads=1), r'mlp_ratio is missing; S3 has num_heads, mlp_ratio'),
        ("['resolution']", 224, 'resolution is unknown; S3 has no choice here'),
    ],
)
def test_malformed_architectures_are_refused_by_the_cost_too(path: str, value: Any, message: str) -> None:
    data = json.loads(space().largest().to_json())
    exec(f'data{path} = value', {'data': data, 'value': value})
    for refuse in (S3.cost, S3(space=space()).set_arch):
        with pytest.raises(ArchError, match=message):
            refuse(data)


def test_sizes_and_classes_of_the_cost() -> None:
    with pytest.raises(VitnasError, match='`num_classes` should be a whole number of at least 0'):
        S3.cost('s3-t', 224, -5)
    with pytest.raises(VitnasError, match='`input_size` should be a whole number above 0'):
        S3.cost('s3-t', (224, 224, 3))
    with pytest.raises(VitnasError, match='`img_size` should be a whole number above 0'):
        S3.cost('s3-t', img_size=0)
