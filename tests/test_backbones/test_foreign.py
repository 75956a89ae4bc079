"""Foreign checkpoints: files are read without executing them, and weights are compared, split and joined."""

import argparse
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.families import FAMILIES
from vitnas_core.backbones import S3, ViTASTwins
from vitnas_core.backbones.foreign import (
    axis_size,
    building,
    by_head,
    by_kind,
    check_shapes,
    classifier_shapes,
    count_numbered,
    digest,
    join,
    read,
    split,
)
from vitnas_core.errors import CheckpointError

STATE = {'a.0.weight': torch.arange(6.0).view(2, 3), 'a.1.bias': torch.tensor(2)}


@pytest.mark.parametrize('content', [STATE, dict(model=STATE, epoch=3), dict(state_dict=STATE), dict(model=3, **STATE)])
def test_read_finds_the_state_dict(content: dict, tmp_path: Path) -> None:
    torch.save(content, tmp_path / 'in.pth')
    if content.get('model') == 3:
        with pytest.raises(CheckpointError, match='in.pth holds no state dict'):
            read(tmp_path / 'in.pth')
    else:
        assert digest(read(tmp_path / 'in.pth')) == digest(STATE)


def test_read_prefers_the_first_key(tmp_path: Path) -> None:
    """Command lines are allowed inside: published files have them."""
    other = {name: tensor + 1 for name, tensor in STATE.items()}
    torch.save(dict(model=other, model_ema=STATE, args=argparse.Namespace(gp=True)), tmp_path / 'in.pth')
    assert digest(read(str(tmp_path / 'in.pth'), ('model_ema', 'model'))) == digest(STATE)
    assert digest(read(tmp_path / 'in.pth')) == digest(other)


def test_a_hostile_file_executes_nothing(tmp_path: Path) -> None:
    class Hostile:
        def __reduce__(self):
            return (Path.touch, (tmp_path / 'executed',))

    (tmp_path / 'in.pth').write_bytes(pickle.dumps(Hostile()))
    with pytest.raises(CheckpointError, match='cannot be read as a checkpoint'):
        read(tmp_path / 'in.pth')
    torch.save(dict(model=Hostile()), tmp_path / 'in.pth')
    with pytest.raises(CheckpointError, match='cannot be read as a checkpoint'):
        read(tmp_path / 'in.pth')
    assert not (tmp_path / 'executed').exists()


def test_damaged_files(tmp_path: Path) -> None:
    save_file(STATE, tmp_path / 'whole.safetensors')
    data = (tmp_path / 'whole.safetensors').read_bytes()
    (tmp_path / 'torn.safetensors').write_bytes(data[: len(data) // 2])
    with pytest.raises(CheckpointError, match='torn.safetensors cannot be read'):
        read(tmp_path / 'torn.safetensors')


def test_files_without_a_state_dict(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match='there is no file .*none.pth'):
        read(tmp_path / 'none.pth')
    for content in ([1, 2], {}, dict(model={}), {'weight': 3}):
        torch.save(content, tmp_path / 'in.pth')
        with pytest.raises(CheckpointError, match='in.pth holds no state dict'):
            read(tmp_path / 'in.pth')


def test_digest_sees_names_shapes_types_and_bits_but_no_order() -> None:
    same = dict(reversed(STATE.items()))
    assert digest(same) == digest(STATE)
    weight = STATE['a.0.weight']
    for other in (weight.view(3, 2), weight.double(), weight + torch.eye(2, 3) * 1e-6):
        assert digest({**STATE, 'a.0.weight': other}) != digest(STATE)
    assert digest({'b': weight}) != digest({'a': weight})


def test_sizes_by_name() -> None:
    assert count_numbered(r'a\.(\d+)\.', STATE) == 2 and count_numbered(r'b\.(\d+)\.', STATE) == 0
    assert axis_size(STATE, 'a.0.weight', -1) == 3 and axis_size(STATE, 'a.0.weight', 0) == 2
    assert axis_size(STATE, 'a.0.weight', 2) == axis_size(STATE, 'a.1.bias', -1) == axis_size(STATE, 'none', 0) == 0


def test_orders_of_qkv() -> None:
    """Two heads of two rows: q0 q0 q1 q1 k0 … → q0 q0 k0 k0 v0 v0 q1 …"""
    rows = torch.arange(12)
    assert by_head(rows, 2).tolist() == [0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11]
    assert torch.equal(by_kind(by_head(rows, 2), 2), rows)
    with pytest.raises(RuntimeError):
        by_head(rows, 5)


def test_shapes_of_a_classifier() -> None:
    with building('an S3'):
        backbone = S3(arch='s3-t')
    assert not any(name.startswith('head.') for name in classifier_shapes({}, backbone))
    for name, shape in (('weight', (7, 1)), ('bias', (7,))):
        wanted = classifier_shapes({f'head.fc.{name}': torch.zeros(shape)}, backbone)
        assert wanted['head.fc.weight'].shape == (7, 768) and wanted['head.fc.bias'].shape == (7,)
    assert 'head.other.bias' in classifier_shapes({'head.other.weight': torch.zeros(7, 1)}, backbone, ['head.other'])


def test_building_turns_a_wrong_input_into_one_sentence() -> None:
    with building('an S3'):
        assert S3(arch='s3-t').norm3.weight.is_meta
    with pytest.raises(CheckpointError, match='^not an S3: .*nope'), building('an S3'):
        S3(arch='nope')


def test_check_shapes_names_the_first_difference() -> None:
    check_shapes(STATE, STATE, 'this network')
    for given, message in (
        ({**STATE, 'b': torch.zeros(1)}, 'b is (1,); in this network it is missing'),
        ({'a.0.weight': STATE['a.0.weight']}, 'a.1.bias is missing; in this network it is ()'),
    ):
        with pytest.raises(CheckpointError) as err:
            check_shapes(given, STATE, 'this network')
        assert str(err.value) == message
    with pytest.raises(CheckpointError, match='^theirs is missing'):
        check_shapes({}, STATE, 'this network', lambda name: 'theirs')


def test_split_and_join() -> None:
    backbone = ViTASTwins(arch=FAMILIES['vitas_twins'].space.largest())
    own = {f'backbone.{name}': torch.randn_like(tensor) for name, tensor in backbone.state_dict().items()}
    pairs = [name for name in own if name.endswith('.attn.k.weight')][:1]
    pairs.append(pairs[0].replace('.k.', '.v.'))
    table = {name: (name,) for name in own if name not in pairs} | {'kv': tuple(pairs)}
    theirs = join(own, table, backbone)
    assert torch.equal(theirs['kv'], torch.cat([own[name] for name in pairs]))
    assert digest(split(theirs, table, backbone, 'it')) == digest(own)
    for change, message in (
        ({'kv': theirs['kv'][1:]}, 'kv has shape .* in this network it has .* rows'),
        ({'kv': torch.tensor(1.0)}, r'kv has shape \(\); in this network it has .* rows'),
        ({'other': theirs['kv']}, 'not it: other is not one of its tensors'),
    ):
        with pytest.raises(CheckpointError, match=message):
            split(theirs | change, table, backbone, 'it')
    with pytest.raises(CheckpointError, match=f'{pairs[0]} is missing; in this network'):
        join({name: tensor for name, tensor in own.items() if name != pairs[0]}, table, backbone)
