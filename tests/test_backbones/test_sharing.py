"""AutoFormer and S3 with bilateral and cyclic sharing: passes over both sides."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mmengine.runner import load_checkpoint

from tests.families import FAMILIES, Family
from vitnas_core.backbones.pretrained import load_pretrained
from vitnas_core.checkpoints import load_weights
from vitnas_core.errors import CheckpointError, VitnasError
from vitnas_core.spaces import SearchSpace
from vitnas_core.training.hooks import InheritHook

shared_families = pytest.mark.parametrize('name', ['autoformer', 'autoformer-conditional', 's3', 's3-per-window'])


def bilateral(family: Family, **settings: object) -> torch.nn.Module:
    model = family.elastic(sharing='bilateral', **settings)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return model


@shared_families
def test_training_sums_both_sides(name: str, rng: np.random.Generator) -> None:
    family = FAMILIES[name]
    model = bilateral(family)
    x = torch.randn(2, 3, family.image, family.image)
    for arch in (family.space.smallest(), family.space.sample(rng), family.space.largest()):
        model.set_arch(arch)
        parts = [model.eval()(x)[-1] for _ in model.pattern.each_side()]
        assert torch.equal(model.eval()(x)[-1], parts[0])
        torch.testing.assert_close(model.train()(x)[-1], parts[0] + parts[1])
    assert torch.equal(parts[0], parts[1])  # the widest has one side


@shared_families
def test_each_side_can_be_extracted(name: str, rng: np.random.Generator) -> None:
    family = FAMILIES[name]
    model = bilateral(family).eval()
    x = torch.randn(2, 3, family.image, family.image)
    for arch in (family.space.smallest(), family.space.sample(rng)):
        model.set_arch(arch)
        outs = []
        for _ in model.pattern.each_side():
            (mask,) = model.out_masks(arch)
            fixed = model.extract()
            outs.append(fixed(x)[0])
            assert torch.equal(model(x)[0][:, mask], outs[-1])
            assert not model(x)[0][:, ~mask].any()
        assert not torch.equal(*outs)
    assert torch.equal(model.extract().eval()(x)[0], outs[0])


@pytest.mark.parametrize('name', ['autoformer', 's3', 'vitas_deit', 'vitas_twins'])
def test_a_fixed_network_has_one_side(name: str) -> None:
    """Trained on by itself, it runs once: features are not doubled."""
    family = FAMILIES[name]
    model = bilateral(family)
    fixed = model.extract(family.space.smallest())
    x = torch.randn(2, 3, family.image, family.image)
    assert torch.equal(fixed.train()(x)[0], fixed.eval()(x)[0])


def test_several_architectures_in_one_pass() -> None:
    """Each runs on both sides, on its own samples."""
    family = FAMILIES['s3']
    model = bilateral(family)
    archs, x = [family.space.largest(), family.space.smallest()], torch.randn(4, 3, family.image, family.image)
    expected = []
    for rows, arch in zip(x.split(2), archs):
        model.set_arch(arch)
        expected.append(model(rows)[-1])
    model.set_archs(archs)
    torch.testing.assert_close(model(x)[-1], torch.cat(expected))
    with pytest.raises(VitnasError, match="with sharing='bilateral'; use way='sliced'"):
        model.set_archs(archs, 'masked')


def test_weights_of_another_space_are_not_inherited() -> None:
    model = FAMILIES['s3'].elastic(sharing='cyclic')
    with pytest.raises(VitnasError, match="overlap with ordinal sharing only, but got sharing='cyclic'"):
        InheritHook('other.pth').before_train(SimpleNamespace(model=model, iter=0))


@pytest.mark.parametrize(('theirs', 'ours'), [('ordinal', 'cyclic'), ('bilateral', 'ordinal'), ('cyclic', 'bilateral')])
def test_nothing_loads_weights_of_another_pattern(tmp_path: Path, theirs: str, ours: str) -> None:
    """Shapes are the same, channels are not; searches and tools load by one of these."""
    family, path = FAMILIES['s3'], tmp_path / 'supernet.pth'
    source, model = (torch.nn.ModuleDict(dict(backbone=family.elastic(sharing=s))) for s in (theirs, ours))
    torch.save(dict(state_dict=source.state_dict(), meta={}), path)
    words = f"the checkpoint holds weights for sharing='{theirs}', but the backbone has '{ours}'"
    with pytest.raises(CheckpointError, match=f'supernet.pth: {words}'):
        load_weights(model, path)
    with pytest.raises(CheckpointError, match=words):
        load_checkpoint(model, str(path))
    load_weights(source, path)


def test_a_ring_of_other_widths_is_another_ring() -> None:
    """With ordinal sharing, weights fit every space that has the same largest architecture."""
    family = FAMILIES['vitas_deit']
    stage = dict(embed_dim=[20, 32], depth=[2, 3], block=dict(num_heads=[1, 2], qkv_dim=[18, 36], hidden_dim=[16, 40]))
    part = SearchSpace.from_dict(dict(family='vitas_deit', name='part', stages=[stage], patch_size=[8]))
    for sharing in ('ordinal', 'cyclic'):
        settings = {**family.settings, 'sharing': sharing}
        state = family.elastic(sharing=sharing).state_dict()
        smaller = family.cls(space=part, **settings)
        if sharing == 'ordinal':
            smaller.load_state_dict(state)
        else:
            with pytest.raises(CheckpointError, match=r'the checkpoint holds a supernet of .*embed_dim'):
                smaller.load_state_dict(state)
        fixed = family.cls(arch=family.space.largest(), **settings)
        fixed.load_state_dict(state)  # the widest has all channels
        family.elastic(sharing=sharing).load_state_dict(fixed.state_dict())


def test_a_supernet_of_another_pattern_is_refused(tmp_path: Path) -> None:
    family = FAMILIES['autoformer']
    path = tmp_path / 'supernet.pth'
    torch.save(family.elastic(sharing='cyclic').state_dict(), path)
    with pytest.raises(CheckpointError, match="for sharing='cyclic', but the backbone has 'ordinal'"):
        load_pretrained(family.elastic(), path)
    old = family.elastic().state_dict()  # a file of before there were patterns
    note = json.loads(old._metadata['']['vitnas'])
    del note['settings']['sharing']
    old._metadata['']['vitnas'] = json.dumps(note)
    torch.save(old, path)
    load_pretrained(family.elastic(), path)
    with pytest.raises(CheckpointError, match="for sharing='ordinal', but the backbone has 'cyclic'"):
        load_pretrained(family.elastic(sharing='cyclic'), path)
    # A fixed network needs no word on how the supernet shared its weights: the file knows.
    supernet = family.elastic(sharing='cyclic')
    torch.save(supernet.state_dict(), path)
    fixed = family.cls(arch=family.space.smallest(), **family.settings)
    load_pretrained(fixed, path)
    part = supernet.extract(family.space.smallest()).state_dict()
    assert all(torch.equal(part[name], tensor) for name, tensor in fixed.state_dict().items())
