"""AutoFormer beyond the generic contracts: outputs, positions, the published bias, published architectures."""

import json

import pytest
import torch
import torch.nn.functional as F

from tests.families import FAMILIES
from vitnas_core.backbones import AutoFormer
from vitnas_core.errors import ArchError, VitnasError
from vitnas_core.utils.counting import count_macs, count_params

FAMILY = FAMILIES['autoformer']
CONDITIONAL = FAMILIES['autoformer-conditional']
X = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def test_output_types_agree() -> None:
    model = FAMILY.elastic()
    raw, featmap, mean, token = (
        _with(model, out_type=out_type)(X)[-1] for out_type in ('raw', 'featmap', 'avg_featmap', 'cls_token')
    )
    assert torch.equal(token, raw[:, 0])
    assert torch.equal(featmap.flatten(2).transpose(1, 2), raw[:, 1:])
    torch.testing.assert_close(mean, featmap.mean((2, 3)))


def test_out_indices_count_from_the_active_end() -> None:
    model = _with(FAMILY.elastic(), out_indices=(0, 1, -1), out_type='raw')
    for depth in (2, 3):
        arch = next(a for a in map(FAMILY.space.arch_at, range(10**6)) if a.stages[0].depth == depth)
        model.set_arch(arch)
        outs = model(X)
        assert len(outs) == 3
        assert torch.equal(outs[1], outs[2]) == (depth == 2)  # there 1 and -1 are one block
        width = arch.stages[0]['embed_dim']
        assert outs[-1][..., :width].mean(-1).abs().max() < 1e-5  # the final norm, gain 1 and bias 0
        assert outs[0][..., :width].mean(-1).abs().max() > 1e-4


def test_absolute_positions_are_interpolated_for_other_sizes() -> None:
    """Bicubic over the stored grid, which is not square here; the class token's stays."""
    model = FAMILY.elastic(reach=0, img_size=(24, 40))
    torch.nn.init.normal_(model.pos_embed)
    stored = model.pos_embed[0, 1:].view(3, 5, -1).permute(2, 0, 1)
    wanted = F.interpolate(stored[None], (6, 9), mode='bicubic')[0].permute(1, 2, 0).flatten(0, 1)
    with torch.no_grad():
        model.patch_embed.weight.zero_()
        model.patch_embed.bias.zero_()
    tokens, grid = model.embed(torch.randn(1, 3, 48, 72))
    assert grid == (6, 9)
    torch.testing.assert_close(tokens[0, 1:], wanted)
    torch.testing.assert_close(tokens[0, 0], model.cls_token[0, 0] + model.pos_embed[0, 0])
    torch.testing.assert_close(model.embed(torch.randn(1, 3, 24, 40))[0][0, 1:], model.pos_embed[0, 1:])


def test_a_checkpoint_of_another_image_size_is_resized() -> None:
    small, large = FAMILY.elastic(), FAMILY.elastic(img_size=64)
    torch.nn.init.normal_(small.pos_embed)
    large.load_state_dict(small.state_dict())
    wanted = F.interpolate(small.pos_embed[:, 1:].view(1, 4, 4, -1).permute(0, 3, 1, 2), (8, 8), mode='bicubic')
    torch.testing.assert_close(large.pos_embed[:, 1:], wanted.flatten(2).transpose(1, 2))
    # So both see the same positions at the larger size.
    torch.testing.assert_close(large(torch.zeros(1, 3, 64, 64))[0], small(torch.zeros(1, 3, 64, 64))[0])
    with pytest.raises(RuntimeError, match='size mismatch for pos_embed'):
        FAMILY.elastic(img_size=(64, 32)).load_state_dict(FAMILY.elastic(img_size=(32, 56)).state_dict())


def test_image_sizes_between_patches() -> None:
    model = AutoFormer(arch=FAMILY.space.smallest(), img_size=30, patch_size=8)
    assert model.grid == (4, 4)
    assert model.price(model.arch, 30).params == sum(p.numel() for p in model.parameters())
    tokens, _ = model.embed(torch.zeros(1, 3, 30, 30))
    assert torch.equal(tokens[0, 1:], model.patch_embed.bias + model.pos_embed[0, 1:])


def test_blocks_behind_the_last_output_do_not_run() -> None:
    model = FAMILY.elastic(out_indices=(0, 1))
    ran = []
    for i, block in enumerate(model.blocks):
        block.register_forward_hook(lambda *_, i=i: ran.append(i))
    model(X)
    assert ran == [0, 1]


def test_drop_path_acts_on_both_branches() -> None:
    block = FAMILY.elastic(drop_path_rate=1.0, reach=0).train().blocks[-1]
    x = torch.randn(2, 17, 72)
    assert torch.equal(block(x, None), x)
    assert not torch.equal(block.eval()(x, None), x)


@pytest.mark.parametrize(
    ('stage', 'message'),
    [
        (dict(embed_dim=[72, 48], depth=1), r'embed_dim of the AutoFormer space should list numbers, smallest first'),
        (
            dict(embed_dim=[48], depth=[0, 1]),
            r'stages\[0\].blocks is empty; a stage of AutoFormer has at least one block',
        ),
        (dict(embed_dim=[48], depth=2, optional=[0]), 'one stage in which only the last blocks are absent'),
        (dict(embed_dim=[48], depth=1, window=7), r'stages\[0\].window is unknown; AutoFormer has embed_dim here'),
    ],
)
def test_spaces_that_are_not_autoformers(stage: dict, message: str) -> None:
    block = dict(num_heads=[1, 3], mlp_ratio=[1.0, 2.0])
    with pytest.raises(VitnasError, match=message):
        AutoFormer(space=dict(family='autoformer', stages=[dict(stage, block=block)]), img_size=32)


@pytest.mark.parametrize('shape', [(1, 1, 32, 32), (1, 4, 32, 32), (3, 32, 32)])
def test_images_of_other_channels_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(VitnasError, match=r'images should have shape \(B, 3, H, W\), but got'):
        FAMILY.elastic()(torch.zeros(shape))


def test_sides_are_padded_to_the_patch_with_zeros() -> None:
    model = FAMILY.elastic().eval()
    x = torch.randn(1, 3, 27, 38)
    assert torch.equal(model(x)[0], model(F.pad(x, (0, 2, 0, 5)))[0])


def test_relative_positions_see_the_geometry_of_a_rectangle() -> None:
    """Turning image, tables and filters by 90 degrees turns the features: rows and columns are not confused."""
    model = FAMILY.elastic(position='none').double()
    turned = FAMILY.elastic(position='none').double()
    turned.load_state_dict(model.state_dict())
    with torch.no_grad():
        turned.patch_embed.weight.copy_(model.patch_embed.weight.mT)
        for block in turned.blocks:
            r = block.attn.relative
            for a, b in ((r.key_vertical, r.key_horizontal), (r.value_vertical, r.value_horizontal)):
                a.normal_()
                b.normal_()
        for ours, theirs in zip(model.blocks, turned.blocks):
            a, b = ours.attn.relative, theirs.attn.relative
            a.key_vertical.copy_(b.key_horizontal)
            a.key_horizontal.copy_(b.key_vertical)
            a.value_vertical.copy_(b.value_horizontal)
            a.value_horizontal.copy_(b.value_vertical)
    x = torch.randn(1, 3, 24, 56, dtype=torch.float64)
    torch.testing.assert_close(model(x)[0].mT, turned(x.mT)[0])


@pytest.mark.parametrize('width', [48, 72])
def test_conditional_positions_are_the_written_out_formula(width: int) -> None:
    """On a rectangle of 3 × 7 patches; what out_index 0 returns is what the second block gets."""
    model = CONDITIONAL.elastic(out_indices=(0, -1), out_type='raw').eval()
    model.set_arch(next(a for a in map(CONDITIONAL.space.arch_at, range(10**6)) if a.stages[0]['embed_dim'] == width))
    seen: list[torch.Tensor] = []
    model.blocks[0].register_forward_hook(lambda _, inputs, out: seen.append(out))
    model.blocks[1].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    features = model(torch.randn(2, 3, 24, 56))[0]
    first, second = seen
    torch.testing.assert_close(second, _written_out(first, model.peg, (3, 7)))
    assert torch.equal(features[..., :width], second) and not features[..., width:].any()
    assert model.pos_embed is None and FAMILY.elastic().peg is None


def test_conditional_positions_of_a_single_block_come_before_the_final_norm() -> None:
    data = CONDITIONAL.space.largest().to_dict()
    del data['stages'][0]['blocks'][1:]
    model = AutoFormer(arch=data, out_type='raw', **CONDITIONAL.settings)
    seen: list[torch.Tensor] = []
    model.blocks[0].register_forward_hook(lambda _, inputs, out: seen.append(out))
    torch.testing.assert_close(model(X)[0], model.norm(_written_out(seen[0], model.peg, (4, 4))))


def test_the_class_token_bypasses_conditional_positions() -> None:
    model = CONDITIONAL.elastic(out_indices=(0, 1), out_type='raw').eval()
    first, later = model(X)
    torch.nn.init.normal_(model.peg.weight)
    torch.nn.init.normal_(model.peg.bias)
    changed, changed_later = model(X)
    assert torch.equal(changed[:, 0], first[:, 0])
    assert (changed[:, 1:] != first[:, 1:]).any(-1).all()
    assert not torch.equal(changed_later[:, 0], later[:, 0])  # from the second block on it sees them


def test_conditional_positions_tell_the_border_by_its_zeros() -> None:
    """Of equal patches those differ that have other neighbours missing: corners, sides and the inside."""
    model = CONDITIONAL.elastic(reach=0, out_indices=(0,)).double()
    (features,) = model(torch.ones(1, 3, 40, 48, dtype=torch.float64))
    kinds = features[0].flatten(1).T.mul(1e6).round().unique(dim=0)
    assert features.shape[2:] == (5, 6) and len(kinds) == 9
    torch.testing.assert_close(features[..., 1:-1, 1:-1], features[..., 1:2, 1:2].expand(-1, -1, 3, 4))


@pytest.mark.parametrize(('position', 'blind'), [('none', True), ('conditional', False)])
def test_only_conditional_positions_notice_exchanged_patches(position: str, blind: bool) -> None:
    model = FAMILY.elastic(reach=0, position=position, out_type='raw').double().eval()
    patches = torch.randn(1, 3, 12, 8, 8, dtype=torch.float64)  # of a 3 × 4 grid
    order = torch.randperm(12)
    out, exchanged = (
        model(p.unflatten(2, (3, 4)).permute(0, 1, 2, 4, 3, 5).reshape(1, 3, 24, 32))[0]
        for p in (patches, patches[:, :, order])
    )
    assert torch.allclose(exchanged[:, 1:], out[:, 1:][:, order]) == blind
    assert torch.allclose(exchanged[:, 0], out[:, 0]) == blind


def test_conditional_positions_are_stored_for_no_image_size() -> None:
    small, large = CONDITIONAL.elastic().eval(), CONDITIONAL.elastic(img_size=(64, 40)).eval()
    large.load_state_dict(small.state_dict())
    assert {k: v.shape for k, v in small.state_dict().items()} == {k: v.shape for k, v in large.state_dict().items()}
    for size in ((32, 32), (64, 40), (37, 90)):
        x = torch.randn(1, 3, *size)
        assert torch.equal(small(x)[0], large(x)[0])
    arch = small.arch
    assert small.price(arch, 32) == large.price(arch, 32)


@pytest.mark.parametrize('size', [(24, 56), (27, 38), (8, 8)])
def test_cost_of_conditional_positions(size: tuple[int, int]) -> None:
    patches = -(-size[0] // 8) * -(-size[1] // 8)
    for arch in (CONDITIONAL.space.largest(), CONDITIONAL.space.smallest()):
        width = arch.stages[0]['embed_dim']
        settings = dict(img_size=32, patch_size=8, reach=0)
        with_them, without = (AutoFormer.cost(arch, size, position=p, **settings) for p in ('conditional', 'none'))
        assert with_them.params - without.params == 10 * width
        assert with_them.macs - without.macs == 9 * width * patches
        model = AutoFormer(arch=arch, position='conditional', **settings)
        assert with_them.params == count_params(model)
        assert with_them.macs == count_macs(model, torch.randn(1, 3, *size))


def test_official_bias_changes_its_role_with_the_heads() -> None:
    """In the published code entry 64 is a query bias with two heads and a key bias with one."""
    token = torch.zeros(1, 1, FAMILY.elastic().embed_dims)
    roles = {}
    for official in (False, True):
        qkv = FAMILY.elastic(official=official).blocks[0].attn.qkv
        with torch.no_grad():
            qkv.bias.copy_(torch.arange(len(qkv.bias)))
        for heads in (1, 2, 3):
            qkv.outputs.root.set(heads)
            q, k, v = qkv(token)[:, 0, :, 0]  # each (heads, 64)
            roles[official, heads] = q, k, v
            if official:
                assert torch.equal(torch.stack([q, k, v]).flatten(), qkv.bias[: 192 * heads])
    for heads in (2, 3):
        for one, more in zip(roles[False, 1], roles[False, heads]):
            assert torch.equal(more[:1], one)  # a head keeps its bias whatever the others do
    assert 64 in roles[True, 1][1] and 64 in roles[True, 2][0]


def test_a_published_architecture_beside_the_options_runs() -> None:
    """AutoFormer-T has an MLP ratio of 3.0, which the published space does not offer."""
    model = AutoFormer(space='autoformer-tiny', img_size=32)
    model.set_arch('autoformer-tiny')
    with pytest.raises(ArchError, match='mlp_ratio is 3.0; the space autoformer-tiny offers 3.5, 4.0'):
        model.space.validate(model.arch)
    x = torch.randn(1, 3, 32, 32)
    assert torch.equal(model(x)[0][:, :192], model.extract()(x)[0])


def test_drop_path_rises_over_the_supernet_depth() -> None:
    rates = [block.drop_path.rate for block in FAMILY.elastic(drop_path_rate=0.2).blocks]
    assert rates == pytest.approx([0.0, 0.1, 0.2])


def test_initialisation_is_the_published_one() -> None:
    model = AutoFormer(arch='autoformer-tiny')
    weights = torch.cat([block.fc1.weight.flatten() for block in model.blocks])
    assert weights.std().item() == pytest.approx(0.02, rel=0.02)
    assert not model.blocks[0].attn.qkv.bias.any()
    assert model.pos_embed.std().item() == pytest.approx(0.02, rel=0.05)
    bound = (3 * 16 * 16) ** -0.5
    assert model.patch_embed.weight.abs().max().item() == pytest.approx(bound, rel=0.01)
    peg = AutoFormer(arch='autoformer-tiny', position='conditional').peg  # torch's: uniform, a filter has 9 inputs
    for parameter in peg.parameters():
        assert parameter.abs().max().item() == pytest.approx(1 / 3, rel=0.03)
        assert parameter.std().item() == pytest.approx(1 / 3 / 3**0.5, rel=0.1)


@pytest.mark.parametrize(
    ('settings', 'message'),
    [
        (dict(position='sine'), '`position` should be one of absolute, conditional, none, but got'),
        (dict(out_type='mean'), '`out_type` should be one of featmap, avg_featmap'),
        (dict(out_indices=(2,)), '`out_indices` should be from -2 to 1, as the shallowest architecture has 2 blocks'),
        (dict(out_indices=()), '`out_indices` should be from'),
        (dict(out_indices=1), '`out_indices` should be from'),
        (dict(patch_size=(16, 16)), '`patch_size` should be a whole number of at least 1'),
        (dict(img_size=(224,)), '`img_size` should be a whole number above 0 or a pair of them'),
        (dict(img_size=0), '`img_size` should be a whole number above 0 or a pair of them'),
        (dict(reach=-1), '`reach` should be a whole number of at least 0'),
        (dict(rescale=(2,)), '`rescale` should be a pair'),
        (dict(drop_path_rate=1.5), '`drop_path_rate` should be from 0 to 1'),
        (dict(embed_dims=50), r'stages\[0\].embed_dim is 72; the weights have 50'),
    ],
)
def test_bad_settings(settings: dict, message: str) -> None:
    with pytest.raises(VitnasError, match=message):
        FAMILY.elastic(**settings)


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        (dict(num_heads=4), r'stages\[0\].blocks\[1\].num_heads is 4; the weights have 3'),
        (dict(mlp_ratio=9.0), r'stages\[0\].blocks\[1\].mlp_ratio is 9.0, 648 hidden units; the weights have 144'),
        (dict(num_heads='x'), r'stages\[0\].blocks\[1\].num_heads should be a whole number above 0'),
        (dict(num_heads=0), r'stages\[0\].blocks\[1\].num_heads should be a whole number above 0'),
        (dict(num_heads=2.5), r'stages\[0\].blocks\[1\].num_heads should be a whole number above 0'),
        (dict(mlp_ratio=0.001), r'stages\[0\].blocks\[1\].mlp_ratio is 0.001, which leaves no hidden unit'),
        (dict(window_size=7), r'stages\[0\].blocks\[1\].window_size is unknown; AutoFormer has num_heads, mlp_ratio'),
    ],
)
def test_architectures_that_do_not_fit(change: dict, message: str) -> None:
    data = FAMILY.space.largest().to_dict()
    data['stages'][0]['blocks'][1].update(change)
    with pytest.raises(ArchError, match=message):
        FAMILY.elastic().set_arch(data)


def test_malformed_architectures_are_refused_by_the_cost_too() -> None:
    data = FAMILY.space.largest().to_dict()
    for path, value, message in (
        ("['stages'][0]['blocks'][1]", None, r'stages\[0\].blocks\[1\] is absent; AutoFormer leaves out only the last'),
        ("['stages'][0]['embed_dim']", 7.5, r'stages\[0\].embed_dim should be a whole number above 0, but got 7.5'),
        ("['resolution']", 224, 'resolution is unknown; AutoFormer has no choice here'),
        ("['stages'][0]", dict(blocks=[]), r'stages\[0\].embed_dim is missing'),
        ("['stages']", [], 'stages has 0 entries; AutoFormer has 1'),
    ):
        changed = json.loads(json.dumps(data))
        exec(f'changed{path} = value', {'changed': changed, 'value': value})
        for refuse in (AutoFormer.cost, FAMILY.elastic().set_arch):
            with pytest.raises(ArchError, match=message):
                refuse(changed)
    with pytest.raises(VitnasError, match='`num_classes` should be a whole number of at least 0'):
        AutoFormer.cost(data, 224, -5)
    with pytest.raises(VitnasError, match='`input_size` should be a whole number above 0'):
        AutoFormer.cost(data, (224, 224, 3))
    with pytest.raises(VitnasError, match='`position` should be one of absolute, conditional, none, but got .sine'):
        AutoFormer.cost(data, position='sine')
    with pytest.raises(VitnasError, match='`embed_dims` is for a `space`; a fixed `arch` stores'):
        AutoFormer(arch=data, embed_dims=256)


def _written_out(tokens: torch.Tensor, peg: torch.nn.Conv2d, grid: tuple[int, int]) -> torch.Tensor:
    """CPVT's formula: the patches' grid plus its depth-wise convolution, behind the untouched class token."""
    width = tokens.shape[-1]
    patches = tokens[:, 1:].mT.unflatten(2, grid)
    patches = patches + F.conv2d(patches, peg.weight[:width], peg.bias[:width], padding=1, groups=width)
    return torch.cat([tokens[:, :1], patches.flatten(2).mT], 1)


def _with(model: AutoFormer, **settings: object) -> AutoFormer:
    """The same weights with other settings."""
    torch.manual_seed(0)
    other = FAMILY.elastic(**settings).eval()
    other.load_state_dict(model.state_dict())
    return other
