"""``LatencyTable``: measured seconds of blocks and stages, which add up to the latency of an architecture."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import ArchError, VitnasError
from ..spaces import Arch, Choices, Value

SPEARMAN = 0.95
"""Least rank correlation on held-out architectures for a reliable table."""


class BlockKey(NamedTuple):
    """Key of a block: everything that its time is assumed to depend on.

    Args:
        network: Choices of the whole network.
        stage: Index of its stage.
        choices: Choices of its stage.
        block: Its own choices.
    """

    network: Choices
    stage: int
    choices: Choices
    block: Choices


class StageKey(NamedTuple):
    """Key of a stage: everything that its time outside of its blocks is assumed to depend on.

    Args:
        network: Choices of the whole network.
        stage: Its index.
        choices: Its choices.
    """

    network: Choices
    stage: int
    choices: Choices


def block_keys(arch: Arch) -> Iterator[tuple[int, int, BlockKey]]:
    """(stage, position, key) of each block that is present."""
    for s, stage in enumerate(arch.stages):
        for b, block in enumerate(stage.blocks):
            if block is not None:
                yield s, b, BlockKey(arch.choices, s, stage.choices, block)


def stage_keys(arch: Arch) -> list[StageKey]:
    """The key of each stage."""
    return [StageKey(arch.choices, s, stage.choices) for s, stage in enumerate(arch.stages)]


@dataclass(frozen=True)
class Validation:
    """Accuracy of a table on held-out architectures.

    Args:
        held_out: Number of held-out architectures.
        spearman: Rank correlation of predicted latency and the fastest whole pass.
        median_error: Median relative error of predicted latency against the fastest whole pass.
        largest_error: Largest of these errors.
        undisturbed: Rank correlation with the sum of each part's fastest pass. If only this one is
            high, the machine was too busy to time whole passes.
    """

    held_out: int
    spearman: float
    median_error: float
    largest_error: float
    undisturbed: float

    @classmethod
    def of(cls, predicted: Sequence[float], measured: Sequence[float], parts: Sequence[float]) -> Validation:
        """Compare predictions with whole passes and with sums of parts."""
        from scipy.stats import spearmanr

        truth = np.asarray(measured)
        errors = np.abs(np.asarray(predicted) - truth) / truth
        ranks = [
            float(spearmanr(predicted, seconds).statistic) if len(truth) > 1 else float('nan')
            for seconds in (measured, parts)
        ]
        return cls(len(truth), ranks[0], float(np.median(errors)), float(errors.max()), ranks[1])

    def __str__(self) -> str:
        return (
            f'Spearman {self.spearman:.3f}, relative error {100 * self.median_error:.1f}% (median), '
            f'{100 * self.largest_error:.1f}% (largest) on {self.held_out} held-out architectures '
            f'(Spearman {self.undisturbed:.3f} with the sum of their parts at their fastest)'
        )


@dataclass(frozen=True)
class LatencyTable:
    """Latency of an architecture as a sum: base + rest of each stage + each block.

    Args:
        family: Family of the backbones.
        setting: Setting of the measurement: device, torch, threads, clock,
            input_size, batch_size.
        base: Seconds that every architecture takes.
        stages: Seconds of each stage outside of its blocks.
        blocks: Seconds of each block.
        validation: Accuracy of the table; None if no architecture was held out.
    """

    family: str
    setting: Mapping[str, Any]
    base: float
    stages: Mapping[StageKey, float]
    blocks: Mapping[BlockKey, float]
    validation: Validation | None = field(default=None, compare=False)

    def predict(self, arch: Arch) -> float:
        """Seconds for one batch.

        Raises:
            ArchError: A choice of the architecture was not measured; the message names its path.
        """
        total, network, stages, blocks = self.base, arch.choices, self.stages, self.blocks
        try:
            for s, stage in enumerate(arch.stages):
                choices = stage.choices
                total += stages[network, s, choices]  # type: ignore[index]  # a plain tuple is faster
                for block in stage.blocks:
                    if block is not None:
                        total += blocks[network, s, choices, block]  # type: ignore[index]  # a plain tuple is faster
        except KeyError:
            raise ArchError(self._unknown(arch)) from None
        return total

    def _unknown(self, arch: Arch) -> str:
        if arch.family != self.family:
            return f'family is {arch.family}; the latency table is of {self.family}'
        asked: list[tuple[str, BlockKey | StageKey]] = [(f'stages[{key.stage}]', key) for key in stage_keys(arch)]
        asked += [(f'stages[{s}].blocks[{b}]', key) for s, b, key in block_keys(arch)]
        path, key = next((p, k) for p, k in asked if k not in self.stages and k not in self.blocks)
        known: list[BlockKey | StageKey] = [
            other for other in (*self.stages, *self.blocks) if type(other) is type(key) and other.stage == key.stage
        ]
        offers: dict[str, dict[Value, None]] = {}
        for other in known:
            for name, value in _choices_of(other).items():
                offers.setdefault(name, {})[value] = None
        return f'{path} is {_words(_choices_of(key))}, which was not measured; the latency table has ' + (
            '; '.join(f'{name} {", ".join(map(str, values))}' for name, values in offers.items()) or 'no such stage'
        )

    # reading and writing

    def to_json(self) -> str:
        """JSON text, one line per entry."""
        head = dict(
            family=self.family,
            setting=dict(self.setting),
            validation=None if self.validation is None else asdict(self.validation),
            base=self.base,
        )
        stages = [{**_to_dict(key), 'seconds': seconds} for key, seconds in self.stages.items()]
        blocks = [{**_to_dict(key), 'seconds': seconds} for key, seconds in self.blocks.items()]
        lists = [f'"{name}": [\n{_lines(entries)}\n]' for name, entries in (('stages', stages), ('blocks', blocks))]
        return '{' + json.dumps(head)[1:-1] + ',\n' + ',\n'.join(lists) + '}\n'

    @classmethod
    def from_json(cls, text: str) -> LatencyTable:
        """Read JSON text.

        Raises:
            VitnasError: The text is not a latency table.
        """
        try:
            data = json.loads(text)
            stages = {StageKey(**_from_dict(e)): _seconds(e) for e in data['stages']}
            blocks = {BlockKey(**_from_dict(e)): _seconds(e) for e in data['blocks']}
            validation = None if data['validation'] is None else Validation(**data['validation'])
            return cls(str(data['family']), dict(data['setting']), float(data['base']), stages, blocks, validation)
        except json.JSONDecodeError as err:
            raise VitnasError(f'not a JSON file: {err}') from None
        except (KeyError, TypeError, ValueError) as err:
            raise VitnasError(f'not a latency table of tools/analysis/build_latency_table.py: {err!r}') from None

    @classmethod
    def from_file(cls, path: str | os.PathLike) -> LatencyTable:
        """Read a file.

        Raises:
            VitnasError: There is no such file, or it is not a latency table.
        """
        try:
            return cls.from_json(Path(path).read_text())
        except OSError as err:
            raise VitnasError(
                f'the latency table {path} cannot be read ({err.strerror}); '
                f'make one with tools/analysis/build_latency_table.py'
            ) from None
        except VitnasError as err:
            raise VitnasError(f'{err} ({path})') from None


def _to_dict(key: BlockKey | StageKey) -> dict[str, Any]:
    return {k: dict(v) if isinstance(v, Choices) else v for k, v in key._asdict().items()}


def _from_dict(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {k: Choices(v) if isinstance(v, dict) else v for k, v in entry.items() if k != 'seconds'}


def _choices_of(key: BlockKey | StageKey) -> dict[str, Value]:
    return {**key.network, **key.choices, **(key.block if isinstance(key, BlockKey) else {})}


def _words(choices: Mapping[str, Value]) -> str:
    return ', '.join(f'{name} {value}' for name, value in choices.items()) or 'without choices'


def _seconds(entry: Mapping[str, Any]) -> float:
    return float(entry['seconds'])


def _lines(entries: list[dict[str, Any]]) -> str:
    return ',\n'.join(json.dumps(entry) for entry in entries)
