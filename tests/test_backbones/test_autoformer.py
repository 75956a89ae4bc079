"""What is AutoFormer's own: outputs, positions, the published bias, published architectures."""

import pytest
import torch
import torch.nn.functional as F

from tests.families import FAMILIES
from vitnas_core.backbones import AutoFormer
from vitnas_core.errors import ArchError, VitnasError

FAMILY = FAMILIES['autoformer']
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
    model = FAMILY.elastic(reach=0)
    torch.nn.init.normal_(model.pos_embed)
    # A table that is constant over the grid is constant at any size; sizes agree where content does.
    with torch.no_grad():
        model.pos_embed[:, 1:] = model.pos_embed[:, 1:2]
    tokens, grid = model.embed(torch.zeros(1, 3, 48, 72))
    assert grid == (6, 9)
    torch.testing.assert_close(tokens[0, 1:], tokens[:, 1].expand(54, -1))
    torch.testing.assert_close(tokens[0, 1], model.embed(torch.zeros(1, 3, 32, 32))[0][0, 1])


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


def test_official_bias_changes_its_role_with_the_heads() -> None:
    """In the published code entry 64 is a query bias with two heads and a key bias with one."""
    token = torch.zeros(1, 1, FAMILY.elastic().embed_dims)
    roles = {}
    for official in (False, True):
        qkv = FAMILY.elastic(official=official).blocks[0].attn.qkv
        with torch.no_grad():
            qkv.bias.copy_(torch.arange(len(qkv.bias)))
        for heads in (1, 2, 3):
            qkv.width = 192 * heads
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


@pytest.mark.parametrize(
    ('settings', 'message'),
    [
        (dict(position='sine'), '`position` should be one of absolute, none, but got'),
        (dict(out_type='mean'), '`out_type` should be one of featmap, avg_featmap'),
        (dict(out_indices=(2,)), 'out_indices should be from -2 to 1, as the shallowest architecture has 2 blocks'),
        (dict(out_indices=()), 'out_indices should be from'),
        (dict(embed_dims=50), r'stages\[0\].embed_dim is 72; the weights are 50 wide'),
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
        (dict(num_heads='x'), r'stages\[0\].blocks\[1\].num_heads should be a number above 0'),
        (dict(num_heads=0), r'stages\[0\].blocks\[1\].num_heads should be a number above 0'),
    ],
)
def test_architectures_that_do_not_fit(change: dict, message: str) -> None:
    data = FAMILY.space.largest().to_dict()
    data['stages'][0]['blocks'][1].update(change)
    with pytest.raises(ArchError, match=message):
        FAMILY.elastic().set_arch(data)
    data['stages'][0]['blocks'][1] = None
    with pytest.raises(ArchError, match=r'stages\[0\].blocks\[1\] is absent; AutoFormer leaves out only last blocks'):
        FAMILY.elastic().set_arch(data)


def _with(model: AutoFormer, **settings: object) -> AutoFormer:
    """The same weights with other settings."""
    torch.manual_seed(0)
    other = FAMILY.elastic(**settings).eval()
    other.load_state_dict(model.state_dict())
    return other
