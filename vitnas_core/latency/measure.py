"""Measure a latency table: choose architectures, time them and fit the table."""

from __future__ import annotations

import platform
import time
from collections import Counter
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from ..errors import VitnasError
from ..spaces import Arch, Choices, SearchSpace, Stage
from ..spaces.grammar import ChoiceSpace
from ..utils import checks
from .table import BlockKey, LatencyTable, StageKey, Validation, block_keys, stage_keys

if TYPE_CHECKING:
    from ..backbones import ElasticBackbone

_Key = TypeVar('_Key', StageKey, BlockKey)

_PASSES = 6
"""Passes per visit to an architecture; the first is a warm-up and not timed."""


class WallClock:
    """Wall-clock time, for a CPU."""

    name = 'wall'

    def mark(self) -> Any:
        """The current time."""
        return time.perf_counter()

    def finish(self) -> None:
        """Wait until all marks have passed."""

    def seconds(self, start: Any, end: Any) -> float:
        """Seconds between two marks."""
        return end - start


class CPUClock(WallClock):
    """CPU time of this thread, for a CPU that other programs use too; correct if torch has one thread."""

    name = 'cpu'

    def mark(self) -> Any:
        """The current time."""
        return time.thread_time()


class CudaClock(WallClock):
    """Time of a GPU's queue: marks are queued events, so that nothing waits between blocks."""

    def mark(self) -> Any:
        """An event in the queue."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def finish(self) -> None:
        """Wait until the queue is empty."""
        torch.cuda.synchronize()

    def seconds(self, start: Any, end: Any) -> float:
        """Seconds between two marks."""
        return start.elapsed_time(end) / 1000


@dataclass
class Times:
    """Seconds of one architecture: the least of all passes, since slower ones were disturbed.

    Args:
        total: Seconds of the whole network.
        rest: Seconds outside of its blocks.
        blocks: (stage, position) → seconds of the block.
    """

    total: float = float('inf')
    rest: float = float('inf')
    blocks: dict[tuple[int, int], float] = field(default_factory=dict)

    @property
    def undisturbed(self) -> float:
        """Seconds of the whole network if no part of it had been disturbed."""
        return self.rest + sum(self.blocks.values())

    def add(self, total: float, blocks: dict[tuple[int, int], float]) -> None:
        """Add one pass."""
        self.total = min(self.total, total)
        self.rest = min(self.rest, total - sum(blocks.values()))
        self.blocks = {place: min(seconds, self.blocks.get(place, seconds)) for place, seconds in blocks.items()}


def measure(
    backbone: ElasticBackbone,
    input_size: int | tuple[int, int],
    batch_size: int,
    rng: np.random.Generator,
    times: int = 4,
    rounds: int = 15,
    held_out: int = 30,
    clock: WallClock | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> LatencyTable:
    """Measure the latency table of a backbone's space on the backbone's device.

    Networks run as in deployment, extracted and whole; hooks mark the start and end of each block. Every
    round visits all architectures, so that a busy minute of the machine spoils a round and not an
    architecture. The fastest pass of each block counts.

    Args:
        backbone: An elastic backbone.
        input_size: Side, or (height, width), of the images.
        batch_size: Images per batch.
        rng: Draws architectures and images.
        times: Least number of measurements of each setting of a stage or a block. Defaults to 4.
        rounds: Number of visits to each architecture. Defaults to 15.
        held_out: Number of further architectures that are measured only to validate. Defaults to 30.
        clock: The clock. Defaults to None: that of the device.
        progress: Called with (visits done, total visits). Defaults to nothing.

    Raises:
        VitnasError: The space has one architecture, or a number is out of range.
    """
    size = checks.size('input_size', input_size)
    for name, value in (('batch_size', batch_size), ('times', times), ('rounds', rounds)):
        checks.whole(name, value)
    if backbone.space.size() == 1:
        raise VitnasError('a latency table needs a space, but the backbone has one architecture; give it `space`')
    device = next(backbone.parameters()).device
    clock = clock or (CudaClock() if device.type == 'cuda' else WallClock())
    images = torch.from_numpy(rng.standard_normal((batch_size, 3, *size), dtype=np.float32)).to(device)
    measured = covering(backbone.space, times, rng)
    others = _draw_others(backbone.space, set(measured), held_out, rng)
    archs = [*measured, *others]
    found: dict[Arch, Times] = {arch: Times() for arch in archs}
    for done in range(rounds * len(archs)):
        if done % len(archs) == 0:
            order = rng.permutation(len(archs))
        arch = archs[order[done % len(archs)]]
        for total, blocks in run(backbone.extract(arch), arch, images, clock):
            found[arch].add(total, blocks)
        progress(done + 1, rounds * len(archs))
    setting = dict(
        space=backbone.space.name,
        device=_device_name(device),
        torch=torch.__version__,
        threads=torch.get_num_threads(),
        clock=clock.name,
        input_size=list(size),
        batch_size=batch_size,
    )
    return fit(
        backbone.family, setting, {arch: found[arch] for arch in measured}, {arch: found[arch] for arch in others}
    )


def fit(
    family: str, setting: dict[str, Any], found: dict[Arch, Times], others: dict[Arch, Times] | None = None
) -> LatencyTable:
    """Fit a table to measured architectures.

    The entry of a block is the median over the blocks of that setting. The first block of a stage may have
    another form, so it counts only if there are no others. Least squares over one-hot columns split the rest
    of each architecture, including the difference of first blocks, into a base and one term per stage.

    Args:
        family: Family of the backbone.
        setting: Description of the measurement, stored in the table.
        found: Times of the measured architectures.
        others: Times of held-out architectures, which validate the table.
    """
    blocks = _block_seconds(found)
    columns = {key: i for i, key in enumerate(dict.fromkeys(key for arch in found for key in stage_keys(arch)), 1)}
    matrix, left = np.zeros((len(found), 1 + len(columns))), np.zeros(len(found))
    for row, (arch, times) in enumerate(found.items()):
        matrix[row, [0, *(columns[key] for key in stage_keys(arch))]] = 1
        left[row] = times.rest + sum(times.blocks[s, b] - blocks[key] for s, b, key in block_keys(arch))
    solution = np.linalg.lstsq(matrix, left, rcond=None)[0]
    stages = {key: float(solution[column]) for key, column in columns.items()}
    table = LatencyTable(family, setting, float(solution[0]), stages, blocks)
    if not others:
        return table
    validation = Validation.of(
        [table.predict(arch) for arch in others],
        [times.total for times in others.values()],
        [times.undisturbed for times in others.values()],
    )
    return LatencyTable(family, setting, table.base, stages, blocks, validation)


def _block_seconds(found: dict[Arch, Times]) -> dict[BlockKey, float]:
    later: dict[BlockKey, list[float]] = {}
    first: dict[BlockKey, list[float]] = {}
    for arch, times in found.items():
        for s, b, key in block_keys(arch):
            (later if b else first).setdefault(key, []).append(times.blocks[s, b])
    return {key: float(np.median(seconds)) for key, seconds in {**first, **later}.items()}


@torch.no_grad()
def run(
    network: ElasticBackbone, arch: Arch, images: Tensor, clock: WallClock
) -> list[tuple[float, dict[tuple[int, int], float]]]:
    """Run a fixed network several times; return seconds of the whole and of each present block."""
    results = []
    network.eval()
    marks: dict[tuple[int, int], list[Any]] = {}
    with _hooks(network, arch, marks, clock):
        for turn in range(_PASSES):
            marks.clear()
            start = clock.mark()
            network(images)
            end = clock.mark()
            clock.finish()
            if turn:
                blocks = {place: clock.seconds(*pair) for place, pair in marks.items()}
                results.append((clock.seconds(start, end), blocks))
    return results


@contextmanager
def _hooks(
    network: ElasticBackbone, arch: Arch, marks: dict[tuple[int, int], list[Any]], clock: WallClock
) -> Iterator[None]:
    """Mark the start and end of each block while a network runs."""
    handles = []
    modules = network.stage_blocks()

    def begin(place: tuple[int, int]) -> None:
        marks[place] = [clock.mark()]

    def end(place: tuple[int, int]) -> None:
        marks[place].append(clock.mark())

    for s, b, _ in block_keys(arch):
        place, module = (s, b), modules[s][b]
        handles.append(module.register_forward_pre_hook(lambda *_, place=place: begin(place)))
        handles.append(module.register_forward_hook(lambda *_, place=place: end(place)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


# choice of architectures


def covering(space: SearchSpace, times: int, rng: np.random.Generator) -> list[Arch]:
    """Choose architectures in which each setting of a stage, and of a block in it, occurs at least ``times`` times.

    Draws architectures, and replaces their stages and blocks by the settings that are missing most. The first block
    of a stage counts only for settings that no later block can have (see :func:`fit`). If the space has too few
    architectures, the result is all of them.
    """
    need = _Need(space, times, rng)
    archs: dict[Arch, None] = {}
    while need.times:
        drawn, network = space.sample(rng), next(iter(need.times)).network
        stages = []
        for s, (stage, grammar) in enumerate(zip(drawn.stages, space.stages)):
            choices = need.take([StageKey(network, s, own) for own in _settings(grammar.choices)]).choices
            later = {own for options in grammar.blocks[1:] if options is not None for own in _settings(options)}
            blocks: list[Choices | None] = []
            for b, (block, options) in enumerate(zip(stage.blocks, grammar.blocks)):
                if block is not None and options is not None:
                    keys = [BlockKey(network, s, choices, own) for own in _settings(options)]
                    block = need.take(keys, uncounted=later if b == 0 else frozenset()).block
                blocks.append(block)
            stages.append(Stage(choices, tuple(blocks)))
        archs[Arch(space.family, tuple(stages), network)] = None
    return list(archs)


class _Need:
    """Number of occurrences that each setting still needs."""

    def __init__(self, space: SearchSpace, times: int, rng: np.random.Generator) -> None:
        self.times: dict[StageKey | BlockKey, int] = dict.fromkeys(_all_keys(space), times)
        self.inside = Counter(_stage_of(key) for key in self.times)  # number of missing settings per stage
        self.rng = rng

    def take(self, keys: list[_Key], uncounted: Set[Choices] = frozenset()) -> _Key:
        """Take the setting that is missing most, or the stage with the most missing settings; ties are random.

        A block with an ``uncounted`` setting does not reduce the need.
        """
        score = self.inside if isinstance(keys[0], StageKey) else self.times
        key = max((keys[i] for i in self.rng.permutation(len(keys))), key=lambda key: score.get(key, 0))
        if key in self.times and not (isinstance(key, BlockKey) and key.block in uncounted):
            self.times[key] -= 1
            if not self.times[key]:
                del self.times[key]
                self.inside[_stage_of(key)] -= 1
        return key


def _all_keys(space: SearchSpace) -> Iterator[StageKey | BlockKey]:
    for network in _settings(space.choices):
        for s, stage in enumerate(space.stages):
            for choices in _settings(stage.choices):
                yield StageKey(network, s, choices)
                for block in (block for block in stage.blocks[: stage.depths[-1]] if block is not None):
                    yield from (BlockKey(network, s, choices, own) for own in _settings(block))


def _stage_of(key: StageKey | BlockKey) -> StageKey:
    return StageKey(key.network, key.stage, key.choices)


@cache
def _settings(choices: ChoiceSpace) -> list[Choices]:
    """Every setting of independent choices."""
    names = [name for name, _ in choices.options]
    return [Choices(zip(names, values)) for values in product(*(options for _, options in choices.options))]


def _draw_others(space: SearchSpace, measured: set[Arch], count: int, rng: np.random.Generator) -> list[Arch]:
    """Draw at most ``count`` architectures that are not among the measured ones."""
    others: dict[Arch, None] = {}
    for _ in range(20 * count):
        arch = space.sample(rng)
        if arch not in measured and len(others) < count:
            others[arch] = None
    return list(others)


def _device_name(device: torch.device) -> str:
    if device.type == 'cuda':
        return torch.cuda.get_device_name(device)
    try:  # the name that users know, if the system has it
        lines = Path('/proc/cpuinfo').read_text().splitlines()
        return next(line.partition(':')[2].strip() for line in lines if line.startswith('model name'))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
