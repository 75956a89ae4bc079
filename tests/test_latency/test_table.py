"""Latency tables: measured parts add up exactly, files keep them, and errors name unmeasured choices."""

import time
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.families import FAMILIES, SMALL_SPACES, SPACES
from vitnas_core import zoo
from vitnas_core.backbones import AutoFormer
from vitnas_core.costs import Constraint, Cost, reachable_range
from vitnas_core.errors import ArchError, InfeasibleError, VitnasError
from vitnas_core.latency import LatencyTable
from vitnas_core.latency.measure import CPUClock, Times, WallClock, covering, fit, measure
from vitnas_core.latency.table import Validation, block_keys, stage_keys
from vitnas_core.spaces import Arch, SearchSpace

TWO_STAGES = SearchSpace.from_dict(
    dict(
        family='toy',
        name='two-stages',
        resolution=[8, 16],
        stages=[
            dict(width=[2, 3], depth=[1, 2, 3], block=dict(op=['a', 'b'], k=[3, 5])),
            dict(depth=2, optional=[1], block=dict(k=[1, 2])),
        ],
    )
)


class FakeClock(WallClock):
    """Time that passes only where a fake network says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def mark(self) -> float:
        return self.now


class FakeBlock(torch.nn.Module):
    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.clock, self.seconds = clock, 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.clock.now += self.seconds
        return x


class FakeBackbone(torch.nn.Module):
    """A network whose blocks and stages take known times; now and then the machine is busy."""

    family = 'toy'

    def __init__(self, space: SearchSpace, clock: FakeClock, busy: float = 0.0) -> None:
        super().__init__()
        self.space, self.clock, self.rng, self.busy = space, clock, np.random.default_rng(5), busy
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.stages = torch.nn.ModuleList(
            torch.nn.ModuleList(FakeBlock(clock) for _ in stage.blocks) for stage in space.stages
        )

    def stage_blocks(self) -> tuple[tuple[torch.nn.Module, ...], ...]:
        return tuple(tuple(stage) for stage in self.stages)

    def extract(self, arch: Arch) -> 'FakeBackbone':
        self.arch = arch
        for s, b, _ in block_keys(arch):
            self.stages[s][b].seconds = self.block_seconds(arch, s, b)
        return self

    @staticmethod
    def block_seconds(arch: Arch, s: int, b: int) -> float:
        stage = arch.stages[s]
        block = stage.blocks[b]
        first = 0.5 * stage.choices.get('width', 1) if b == 0 else 0  # e.g. a stride, or other channels coming in
        return arch['resolution'] * (s + 1 + len(block.get('op', '')) + ord(block.get('op', 'a')) + block['k']) + first

    def seconds(self, arch: Arch) -> float:
        blocks = sum(self.block_seconds(arch, s, b) for s, b, _ in block_keys(arch))
        return 7 + sum(3 * s + 11 * stage.choices.get('width', 0) for s, stage in enumerate(arch.stages)) + blocks

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        arch, start = self.arch, self.clock.now
        self.clock.now += 7 + sum(3 * s + 11 * stage.choices.get('width', 0) for s, stage in enumerate(arch.stages))
        for s, b, _ in block_keys(arch):
            x = self.stages[s][b](x)
            if self.rng.random() < self.busy:
                self.clock.now += 1000 * self.rng.random()
        assert self.busy or self.clock.now - start == pytest.approx(self.seconds(arch))
        return x


@pytest.mark.parametrize('busy', [0.0, 0.2])
def test_an_additive_network_is_predicted_exactly(busy: float, rng: np.random.Generator) -> None:
    clock = FakeClock()
    backbone = FakeBackbone(TWO_STAGES, clock, busy)
    seen = []
    table = measure(
        backbone, 4, 1, rng, times=3, rounds=6, held_out=20, clock=clock, progress=lambda i, n: seen.append((i, n))
    )
    for arch in TWO_STAGES.iterate():
        assert table.predict(arch) == pytest.approx(backbone.seconds(arch), rel=1e-9)
    assert seen == [(i + 1, len(seen)) for i in range(len(seen))]
    assert table.setting['input_size'] == [4, 4] and table.setting['space'] == 'two-stages'
    assert table.validation.undisturbed == pytest.approx(1)
    if not busy:
        assert table.validation.spearman == pytest.approx(1) and table.validation.largest_error < 1e-9
        assert table.validation.held_out == 20


def test_a_network_that_is_not_additive_shows_in_the_validation(rng: np.random.Generator) -> None:
    """The held-out architectures tell, as they are measured and not predicted."""
    clock = FakeClock()
    backbone = FakeBackbone(TWO_STAGES, clock)
    backbone.register_forward_hook(lambda *_: setattr(clock, 'now', clock.now + 20_000 * rng.random()))
    validation = measure(backbone, 4, 1, rng, rounds=1, held_out=20, clock=clock).validation
    assert validation.spearman < 0.9 and validation.largest_error > 0.05


@pytest.mark.parametrize('name', [*SMALL_SPACES, 's3-initial', 'nasvit', 'vit-resnas-tiny', 'autoformer-tiny'])
def test_every_setting_is_covered(name: str, rng: np.random.Generator) -> None:
    space = {**SPACES, **SMALL_SPACES}[name]
    archs = covering(space, 2, rng)
    assert all(arch in space for arch in archs) and len(set(archs)) == len(archs)
    counts = Counter(key for arch in archs for _, _, key in block_keys(arch))
    counts.update(key for arch in archs for key in stage_keys(arch))
    table = LatencyTable(space.family, {}, 1.0, dict.fromkeys(counts, 1.0), dict.fromkeys(counts, 1.0))
    for _ in range(50):
        table.predict(space.sample(rng))
    if space.size() > 1000:
        assert min(counts.values()) >= 2
        assert len(archs) < 2 * len(counts)


# the table


@pytest.fixture(scope='module')
def table() -> LatencyTable:
    """AutoFormer-T's space, a block's seconds in proportion to its parameters."""
    space = zoo.load_space('autoformer-tiny')
    rng, found = np.random.default_rng(0), {}
    for arch in covering(space, 2, rng):
        width = arch.stages[0]['embed_dim']
        blocks = {(s, b): 1e-9 * width * (256 * k.block['num_heads'] + 2 * width * k.block['mlp_ratio'])
                  for s, b, k in block_keys(arch)}  # fmt: skip
        found[arch] = Times(0, 1e-5 * width, blocks)
    return fit('autoformer', dict(threads=1), found)


def test_file_round_trip(table: LatencyTable, tmp_path: Path, rng: np.random.Generator) -> None:
    table = replace(table, validation=Validation(30, 0.96, 0.02, 0.1, 0.97))
    (tmp_path / 'table.json').write_text(table.to_json())
    again = LatencyTable.from_file(tmp_path / 'table.json')
    assert again == table and again.validation == table.validation
    assert again.to_json() == table.to_json()
    arch = zoo.load_space('autoformer-tiny').sample(rng)
    assert again.predict(Arch.from_json(arch.to_json())) == table.predict(arch)


def test_what_was_not_measured_is_named(table: LatencyTable) -> None:
    data = zoo.load_space('autoformer-tiny').smallest().to_dict()
    data['stages'][0]['blocks'][2]['num_heads'] = 5
    with pytest.raises(ArchError) as err:
        table.predict(Arch.from_dict(data))
    assert str(err.value).startswith('stages[0].blocks[2] is embed_dim 192, num_heads 5, mlp_ratio 3.5, which was not')
    assert 'num_heads 3, 4' in str(err.value) or 'num_heads 4, 3' in str(err.value)
    data['stages'][0]['embed_dim'] = 200
    with pytest.raises(ArchError, match=r'^stages\[0\] is embed_dim 200, which was not measured; .* embed_dim'):
        table.predict(Arch.from_dict(data))
    with pytest.raises(ArchError, match='family is toy; the latency table is of autoformer'):
        table.predict(TWO_STAGES.smallest())


def test_wrong_files(tmp_path: Path, table: LatencyTable) -> None:
    with pytest.raises(VitnasError, match=r'nowhere.json cannot be read \(No such file.*make one with tools/analysis'):
        LatencyTable.from_file(tmp_path / 'nowhere.json')
    for text, message in (('{', 'not a JSON file'), ('[]', 'not a latency table'), ('{"stages": []}', 'not a latency')):
        (tmp_path / 'wrong.json').write_text(text)
        with pytest.raises(VitnasError, match=f'{message}.*wrong.json'):
            LatencyTable.from_file(tmp_path / 'wrong.json')


def test_predicting_takes_microseconds(table: LatencyTable, rng: np.random.Generator) -> None:
    space = zoo.load_space('autoformer-tiny')
    archs = [space.sample(rng) for _ in range(200)]
    best = np.inf
    for _ in range(5):
        start = time.perf_counter()
        for arch in archs:
            table.predict(arch)
        best = min(best, (time.perf_counter() - start) / len(archs))
    assert best < 500e-6  # some tens on an idle machine


# as a constraint


def price(arch: Arch, table: LatencyTable | None = None) -> Cost:
    cost = AutoFormer.cost(arch, 224, 1000)
    return cost if table is None else replace(cost, latency=table.predict(arch))


def test_a_limit_on_latency(table: LatencyTable, rng: np.random.Generator) -> None:
    space, priced = zoo.load_space('autoformer-tiny'), partial(price, table=table)
    least, most = reachable_range(space, priced, 'latency')
    assert isinstance(least, float) and 0 < least < most
    assert least == table.predict(space.smallest()) and most == table.predict(space.largest())
    for _ in range(5):
        target = priced(space.sample(rng))
        limits = Constraint(dict(latency=(None, target.latency * 1.001), macs=(target.macs * 0.99, None)))
        start = time.perf_counter()
        found = limits.find(space, priced)
        assert time.perf_counter() - start < 10  # well under a second on an idle machine
        assert limits.met(priced(found)) and found in space
    with pytest.raises(InfeasibleError) as err:
        Constraint(dict(latency=(None, least / 2))).find(space, priced)
    assert str(err.value) == (
        f'no architecture of autoformer-tiny has latency <= {least / 2:.4g} s; '
        f'the reachable range is {least:.4g} s to {most:.4g} s'
    )
    assert str(target).endswith(f', {1000 * target.latency:.4g} ms')


def test_a_limit_on_latency_where_costs_have_none() -> None:
    space, limits = zoo.load_space('autoformer-tiny'), Constraint(dict(latency=(None, 0.02)))
    message = (
        'a limit on latency needs measured latencies, but the costs have none; give latency_table, which tools/ana'
    )
    with pytest.raises(VitnasError, match=message):
        limits.find(space, price)
    with pytest.raises(VitnasError, match=message):
        limits.met(Cost(1, 1))


# for real


@pytest.mark.parametrize('clock', [WallClock(), CPUClock()], ids=['wall', 'cpu'])
@pytest.mark.parametrize('family', FAMILIES.values(), ids=FAMILIES.keys())
def test_a_real_backbone(family, clock: WallClock, rng: np.random.Generator) -> None:
    backbone = family.elastic()
    table = measure(backbone, family.image, 2, rng, times=1, rounds=1, held_out=3, clock=clock)
    arch = family.space.sample(rng)
    assert table.predict(arch) > 0 and all(seconds >= 0 for seconds in table.blocks.values())
    assert table.validation.held_out == 3 and table.setting['batch_size'] == 2
    assert table.setting['clock'] == clock.name and backbone.arch == family.space.largest()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in backbone.modules())


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        (dict(batch_size=0), '`batch_size` should be a whole number of at least 1, but got 0'),
        (dict(rounds=0), '`rounds` should be a whole number of at least 1'),
        (dict(input_size=0), '`input_size` should be a whole number'),
    ],
)
def test_malformed_settings(change: dict, message: str, rng: np.random.Generator) -> None:
    with pytest.raises(VitnasError, match=message):
        measure(**{**dict(backbone=FAMILIES['autoformer'].elastic(), input_size=32, batch_size=1, rng=rng), **change})


def test_a_fixed_network_has_no_table(rng: np.random.Generator) -> None:
    fixed = FAMILIES['autoformer'].elastic().extract()
    with pytest.raises(VitnasError, match='a latency table needs a space, but the backbone has one architecture'):
        measure(fixed, 32, 1, rng)
