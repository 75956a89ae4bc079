"""Writes are atomic, and only a kill leaves temporary files."""

import errno
import os
import stat

import pytest
from mmengine.fileio import LocalBackend, get_file_backend

from vitnas_core.utils.fileio import AtomicBackend, atomic_write, remove_leftovers


def test_writes_text_and_bytes_and_makes_folders(tmp_path):
    path = tmp_path / 'new' / 'deeper' / 'arch.json'
    atomic_write(path, 'größer\n')
    assert path.read_bytes() == 'größer\n'.encode()
    atomic_write(path, b'\x00\xff')
    assert path.read_bytes() == b'\x00\xff'
    atomic_write(path, 'ö', encoding='latin-1')
    assert path.read_bytes() == b'\xf6'
    assert os.listdir(path.parent) == ['arch.json']


def test_relative_name_without_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    atomic_write('plain.txt', 'x')
    assert (tmp_path / 'plain.txt').read_text() == 'x'


@pytest.mark.parametrize('step', ['fsync', 'replace'])
def test_failure_keeps_the_old_file_and_leaves_nothing(tmp_path, monkeypatch, step):
    path = tmp_path / 'file'
    atomic_write(path, 'old')

    def full(*_):
        raise OSError(errno.ENOSPC, 'no space left')

    monkeypatch.setattr(os, step, full)
    with pytest.raises(OSError, match='no space'):
        atomic_write(path, 'new')
    assert path.read_text() == 'old'
    assert os.listdir(tmp_path) == ['file']


def test_data_is_on_disk_before_the_name_changes(tmp_path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, 'fsync', lambda fd: (calls.append('fsync'), fsync(fd)))
    monkeypatch.setattr(os, 'replace', lambda *a: (calls.append('replace'), replace(*a)))
    atomic_write(tmp_path / 'file', 'x')
    assert calls == ['fsync', 'replace', 'fsync']  # the file, the rename, the folder


def test_permissions_are_those_of_an_ordinary_file(tmp_path):
    (tmp_path / 'ordinary').write_text('x')
    atomic_write(tmp_path / 'atomic', 'x')
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ('ordinary', 'atomic')}
    assert len(modes) == 1


def test_link_stays_a_link(tmp_path):
    target, link = tmp_path / 'disk' / 'file', tmp_path / 'link'
    atomic_write(target, 'old')
    link.symlink_to(target)
    atomic_write(link, 'new')
    assert link.is_symlink() and target.read_text() == 'new'


def test_remove_leftovers_takes_only_its_own(tmp_path):
    names = ['.epoch_1.pth.0123abcd.tmp', '.last_checkpoint.0123abcd.tmp', 'epoch_1.pth', 'notes.tmp', '.hidden.tmp']
    for name in names:
        (tmp_path / name).touch()
    assert remove_leftovers(tmp_path, '*.pth') == ['.epoch_1.pth.0123abcd.tmp']
    assert remove_leftovers(tmp_path) == ['.last_checkpoint.0123abcd.tmp']
    assert sorted(os.listdir(tmp_path)) == ['.hidden.tmp', 'epoch_1.pth', 'notes.tmp']
    assert remove_leftovers(tmp_path / 'missing') == []


def test_backend_is_chosen_by_name_and_replaces_none(tmp_path):
    backend = get_file_backend(backend_args={'backend': 'vitnas.atomic'})
    assert type(backend) is AtomicBackend
    assert type(get_file_backend(tmp_path)) is LocalBackend
    backend.put(b'bytes', tmp_path / 'a')
    assert backend.get(tmp_path / 'a') == b'bytes'
    assert sorted(os.listdir(tmp_path)) == ['a']
