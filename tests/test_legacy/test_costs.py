"""Prices, random draws, architecture files, space files and latency tables of an earlier version stay valid."""

from __future__ import annotations

import hashlib
import io
import json
import lzma
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vitnas_core import zoo
from vitnas_core.backbones import S3, AutoFormer, NASViT, ViTASDeiT, ViTASTwins, ViTRes
from vitnas_core.latency import LatencyTable
from vitnas_core.spaces import Arch, SearchSpace

from .common import VERSIONS, read

BACKBONES = {cls.family: cls for cls in (S3, AutoFormer, NASViT, ViTASDeiT, ViTASTwins, ViTRes)}
SPACES = [(version, name) for version in VERSIONS for name in read(version / 'files.json')['spaces']]
every_version = pytest.mark.parametrize('version', VERSIONS, ids=lambda version: version.name)
every_space = pytest.mark.parametrize(('version', 'name'), SPACES, ids=[f'{v.name}/{name}' for v, name in SPACES])


@cache
def prices(version: Path) -> dict[str, np.ndarray]:
    return dict(np.load(io.BytesIO(lzma.decompress((version / 'costs.npz.xz').read_bytes()))))


def space_of(version: Path, name: str) -> SearchSpace:
    return SearchSpace.from_json(read(version / 'files.json')['spaces'][name])


def stored_archs(stored: dict[str, np.ndarray], name: str) -> Iterator[Arch]:
    """The architectures that were priced, from columns of values and rows of indices."""
    columns = json.loads(bytes(stored[f'{name}.columns']))
    for row in stored[f'{name}.rows'].tolist():
        data: dict[Any, Any] = {}
        for (path, *values), index in zip(columns, row):
            if index >= 0:
                *parents, last = path.strip('/').split('/')
                at = data
                for parent in parents:
                    at = at.setdefault(parent, {})
                at[last] = values[index]
        yield Arch.from_dict(_with_lists(data))


def _with_lists(data: Any) -> Any:
    """Objects whose keys are numbers become lists, which is what they were."""
    if not isinstance(data, dict):
        return data
    read = {key: _with_lists(value) for key, value in data.items()}
    return [read[str(i)] for i in range(len(read))] if read and all(key.isdigit() for key in read) else read


@every_space
def test_prices_are_equal(version: Path, name: str) -> None:
    stored = prices(version)
    archs, costs = list(stored_archs(stored, name)), stored[f'{name}.costs'].tolist()
    settings = json.loads(bytes(stored[f'{name}.settings']))
    varied = (len(costs) - len(archs)) // (len(settings) - 1)
    asked = [(arch, settings[0]) for arch in archs]
    asked += [(arch, changes) for changes in settings[1:] for arch in archs[:varied]]
    price = BACKBONES[archs[0].family].cost
    assert len(costs) == len(asked) >= 500
    for (arch, changes), (params, macs) in zip(asked, costs):
        cost = price(arch, **changes)
        assert (cost.params, cost.macs) == (params, macs), (arch.to_json(), changes)


@every_space
def test_draws_are_equal(version: Path, name: str) -> None:
    """Searches and samplers propose what they proposed."""
    space, stored = space_of(version, name), prices(version)
    rng = np.random.default_rng(4)
    assert [space.sample(rng) for _ in range(len(stored[f'{name}.rows']))] == list(stored_archs(stored, name))
    assert streams(space) == read(version / 'streams.json')[name]
    if not name.endswith('-test'):
        assert zoo.load_space(name) == space


def streams(space: SearchSpace) -> dict[str, Any]:
    """Digests of what a space draws, changes and encodes under a seed; as write.py made them."""
    kinds = {'global': 0.3, 'stage': 0.4, 'depth': 0.4, 'block': 0.2}
    rng = np.random.default_rng(5)
    drawn = [space.sample(rng) for _ in range(100)]
    return dict(
        size=str(space.size()),
        ends=_digest([space.smallest(), space.largest()]),
        sample=_digest(drawn),
        sample_spread=_digest(space.sample_spread(20, rng)),
        mutate=_digest(space.mutate(arch, 0.3, rng) for arch in drawn[:50]),
        mutate_kinds=_digest(space.mutate(arch, kinds, rng) for arch in drawn[:50]),
        cross=_digest(space.cross(a, b, rng) for a, b in zip(drawn[:50], drawn[50:])),
        encode=hashlib.sha256(json.dumps([space.encode(arch).tolist() for arch in drawn]).encode()).hexdigest()[:16],
        after=int(rng.integers(2**31)),
    )


def _digest(archs: Iterable[Arch]) -> str:
    return hashlib.sha256('\n'.join(arch.to_json() for arch in archs).encode()).hexdigest()[:16]


@every_version
def test_files_are_read_and_written_alike(version: Path, tmp_path: Path) -> None:
    files = read(version / 'files.json')
    for name, text in files['spaces'].items():
        (tmp_path / 'space.json').write_text(text)
        assert zoo.load_space(tmp_path / 'space.json').to_json() == text, name
    for entry in files['archs']:
        (tmp_path / 'arch.json').write_text(entry['text'])
        arch = zoo.load_arch(tmp_path / 'arch.json')
        assert (arch.to_json(), arch.digest()) == (entry['text'], entry['digest'])
        assert arch in space_of(version, entry['space'])


@every_version
def test_latency_tables_predict_alike(version: Path) -> None:
    for name, predicted in read(version / 'latency' / 'predicted.json').items():
        table = LatencyTable.from_file(version / 'latency' / f'{name}.json')
        for entry in predicted:
            assert table.predict(Arch.from_dict(entry['arch'])) == pytest.approx(entry['seconds'], rel=1e-12)
        assert LatencyTable.from_json(table.to_json()) == table
