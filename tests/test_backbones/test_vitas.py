"""ViTAS's backbones beyond the generic contracts: patch sizes, class tokens, kinds of blocks, empty places."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.families import FAMILIES
from vitnas_core.backbones import ViTASDeiT, ViTASTwins
from vitnas_core.backbones.pretrained import load_pretrained
from vitnas_core.errors import ArchError, CheckpointError, SpaceError, VitnasError
from vitnas_core.spaces import Arch, SearchSpace

BLOCK = dict(num_heads=[1, 2], qkv_dim=[18, 36], hidden_dim=[16, 24])


def deit(**stage: object) -> SearchSpace:
    data = dict(embed_dim=[12, 20], depth=[1, 2], block=BLOCK) | stage
    return SearchSpace.from_dict(dict(family='vitas_deit', patch_size=[16, 8, 4], stages=[data]))


def test_every_patch_size_has_weights_of_its_own(rng: np.random.Generator) -> None:
    model = ViTASDeiT(space=deit(), img_size=32)
    assert {name: p.shape[1] for name, p in model.pos_embed.items()} == {'16': 5, '8': 17, '4': 65}
    for size in (16, 8, 4):
        arch = Arch.from_dict({**model.space.sample(rng).to_dict(), 'patch_size': size})
        model.set_arch(arch)
        model.zero_grad(set_to_none=True)
        (features,) = model(torch.randn(1, 3, 32, 40))
        assert model.out_strides() == (size,) and features.shape[2:] == (32 // size, -(-40 // size))
        features.sum().backward()
        for name in ('patch_embed', 'cls_token', 'pos_embed'):
            trained = {
                n.split('.')[1] for n, p in model.named_parameters() if n.startswith(name) and p.grad is not None
            }
            assert trained == {str(size)}
        assert set(model.extract().cls_token) == {str(size)}


def test_a_class_token_for_all_patch_sizes() -> None:
    model = ViTASDeiT(space=deit(), img_size=32, private_token=False, out_type='cls_token')
    assert list(model.cls_token) == ['all'] and list(model.extract().cls_token) == ['all']
    private = ViTASDeiT(space=deit(), img_size=32)
    assert sum(p.numel() for p in private.parameters()) - sum(p.numel() for p in model.parameters()) == 2 * 20


def test_networks_without_a_block() -> None:
    """Free identities may leave none."""
    model = ViTASDeiT(space=deit(depth=2, optional=[0, 1]), img_size=32).eval()
    arch = model.space.smallest()
    assert not any(arch.stages[0].blocks)
    x = torch.randn(1, 3, 32, 32)
    model.set_arch(arch)
    (mask,) = model.out_masks(arch)
    fixed = model.extract()
    assert torch.equal(fixed(x)[0], model(x)[0][:, mask])
    assert model.price(arch, 32).params == sum(p.numel() for p in fixed.parameters())
    with pytest.raises(VitnasError, match='`out_indices` should be -1, as the shallowest architecture has 0 blocks'):
        ViTASDeiT(space=model.space, out_indices=(0, -1))


def test_a_place_in_the_middle_may_be_empty() -> None:
    model = ViTASDeiT(space=deit(depth=3, optional=[0, 1, 2]), img_size=32).eval()
    data = model.space.largest().to_dict()
    data['stages'][0]['blocks'][1] = None
    model.set_arch(data)
    fixed, x = model.extract(), torch.randn(1, 3, 32, 32)
    assert torch.equal(fixed(x)[0], model(x)[0])
    with pytest.raises(ArchError, match=r'stages\[0\].blocks\[1\] is present; the weights have no such block'):
        fixed.set_arch(model.space.largest())


@pytest.mark.parametrize('cls', [ViTASDeiT, ViTASTwins])
def test_heads_that_do_not_divide_the_width(cls: type) -> None:
    block = dict(BLOCK, num_heads=[1, 4]) | (dict(op=['local']) if cls is ViTASTwins else {})
    space = dict(family=cls.family, stages=[dict(embed_dim=[12], depth=[1], block=block)])
    space |= dict(patch_size=[8]) if cls is ViTASDeiT else {}
    settings = dict(sr_ratios=(1,)) if cls is ViTASTwins else {}
    with pytest.raises(SpaceError, match=r'stages\[0\].blocks\[0\].qkv_dim is 18, which 4 heads do not divide'):
        cls(space=space, **settings)
    arch = SearchSpace.from_dict(space).largest().to_dict()
    arch['stages'][0]['blocks'][0].update(num_heads=5)
    with pytest.raises(ArchError, match=r'stages\[0\].blocks\[0\].qkv_dim is 36, which 5 heads do not divide'):
        cls(arch=arch, **settings)


def test_kinds_of_blocks(rng: np.random.Generator) -> None:
    """Each has weights of its own; those of the kind that is not active get no gradient."""
    model = FAMILIES['vitas_twins'].elastic()
    data = model.space.largest().to_dict()
    for stage in data['stages']:
        for block in stage['blocks']:
            block['op'] = 'local'
    model.set_arch(data)
    model(torch.randn(1, 3, 32, 32))[-1].sum().backward()
    for name, parameter in model.named_parameters():
        assert (parameter.grad is None) == ('.global.' in name), name
    fixed = model.extract()
    data['stages'][1]['blocks'][1]['op'] = 'global'
    with pytest.raises(ArchError, match=r'stages\[1\].blocks\[1\].op is global; the weights have local here'):
        fixed.set_arch(data)
    data['stages'][1]['blocks'][1]['op'] = 'dilated'
    with pytest.raises(ArchError, match=r'stages\[1\].blocks\[1\].op should be one of local, global, but got'):
        fixed.set_arch(data)


def test_tokens_that_fill_windows_up_take_no_part() -> None:
    """What lies beyond the map changes nothing: a map that is padded, and a window as large as the map."""
    space = FAMILIES['vitas_twins'].space
    data = space.largest().to_dict()
    for stage in data['stages']:
        for block in stage['blocks']:
            block['op'] = 'local'
    model = ViTASTwins(arch=data, window_size=7, sr_ratios=(1, 1)).eval()
    whole = ViTASTwins(arch=data, window_size=5, sr_ratios=(1, 1)).eval()
    whole.load_state_dict(dict(model.state_dict()))  # without its note: another size of windows is meant
    x = torch.randn(1, 3, 20, 20)  # a map of 5 × 5
    torch.testing.assert_close(model(x)[0], whole(x)[0])


@pytest.mark.parametrize(
    ('settings', 'words'),
    [
        (dict(sr_ratios=(2,)), '`sr_ratios` should have a whole number for each of 2 stages, but got'),
        (dict(sr_ratios=(2, 0)), '`sr_ratios` should be a whole number of at least 1, but got 0'),
        (dict(window_size=0), '`window_size` should be a whole number of at least 1'),
        (dict(patch_size='4'), '`patch_size` should be a whole number of at least 1'),
        (dict(sharing='none'), '`sharing` should be one of ordinal, bilateral, cyclic'),
    ],
)
def test_mistakes(settings: dict, words: str) -> None:
    with pytest.raises(VitnasError, match=words):
        FAMILIES['vitas_twins'].elastic(**settings)


@pytest.mark.parametrize(
    ('settings', 'words'),
    [
        (dict(superformer=20), '`superformer` should be given with `official=True` alone, but got 20 without it'),
        (dict(superformer=20, official=True, arch=None), '`superformer` should be given with `arch`, but got 20 with'),
        (dict(superformer=2, official=True), '`superformer` should be a whole number of at least 3, but got 2'),
        (dict(superformer=20.0, official=True), '`superformer` should be a whole number of at least 3, but got 20.0'),
        (dict(superformer=True, official=True), '`superformer` should be a whole number of at least 3, but got True'),
    ],
)
def test_mistakes_with_superformers(settings: dict, words: str) -> None:
    network = dict(arch=deit().largest()) | settings
    with pytest.raises(VitnasError, match=words):
        ViTASDeiT(**network, **(dict(space=deit()) if network['arch'] is None else {}), img_size=32)


def test_the_published_scale_needs_as_many_channels_as_heads() -> None:
    """That of a network that stands alone; a superformer's is a third of its own width."""
    space = deit(embed_dim=[2, 6], block=dict(BLOCK, num_heads=[1, 3]))
    model = ViTASDeiT(space=space, img_size=32, official=True)
    narrow = space.largest().to_dict()
    narrow['stages'][0]['embed_dim'] = 2
    model.set_arch(narrow)
    assert model.extract()(torch.randn(1, 3, 32, 32))[0].isfinite().all()
    message = r'stages\[0\].blocks\[0\].num_heads is 3; with `official` it should be at most embed_dim, 2'
    with pytest.raises(ArchError, match=message):
        ViTASDeiT(arch=narrow, img_size=32, official=True)
    with pytest.raises(ArchError, match=message):
        ViTASDeiT(arch=space.largest(), img_size=32, official=True).set_arch(narrow)
    with pytest.raises(SpaceError, match='a space with `official` should offer at least 3, but got 2'):
        ViTASDeiT(space=deit(embed_dim=[1, 2]), img_size=32, official=True)


def test_weights_of_another_superformer_are_refused(tmp_path: Path) -> None:
    def part(superformer: int | None) -> ViTASDeiT:
        return ViTASDeiT(arch=deit().largest(), img_size=32, official=True, superformer=superformer)

    torch.save(ViTASDeiT(space=deit(), img_size=32, official=True).extract().state_dict(), tmp_path / 'part.pth')
    load_pretrained(part(20), tmp_path / 'part.pth')
    for other in (None, 30):
        with pytest.raises(CheckpointError, match='holds weights for superformer=20, but the backbone has'):
            load_pretrained(part(other), tmp_path / 'part.pth')


@pytest.mark.parametrize('name', ['vitas_deit', 'vitas_twins'])
def test_bilateral(name: str) -> None:
    family = FAMILIES[name]
    model = family.elastic(sharing='bilateral')
    arch, x = family.space.smallest(), torch.randn(2, 3, family.image, family.image)
    model.set_arch(arch)
    parts = [model.eval()(x)[0] for _ in model.pattern.each_side()]
    torch.testing.assert_close(model.train()(x)[0], parts[0] + parts[1])
