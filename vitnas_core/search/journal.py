"""The journal of a search: an append-only file with one line per candidate, which survives a kill at any moment."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from mmengine.dist import barrier, broadcast_object_list

from ..errors import VitnasError
from ..utils.jsondata import difference
from .candidate import Candidate

_SHOWN = 8
"""Number of differences that a refusal shows."""


class Journal:
    """``history.jsonl``: a header that identifies the search, then one line per candidate.

    Rank 0 writes ``history.jsonl``. Another rank appends its candidates to ``history.rank<r>.jsonl`` at once; rank 0
    moves those lines over at the end of a round. So no scored candidate is lost, for any number of ranks before and
    after. A candidate that a kill left in both files is read once.

    Args:
        folder: The work dir.
        header: Everything that determines the search, as JSON data. A journal with another header is not continued.
        rank: Rank of this process. Defaults to 0.
    """

    def __init__(self, folder: str | os.PathLike, header: Mapping[str, Any], rank: int = 0) -> None:
        self.folder, self.rank = Path(folder), rank
        self.header = json.loads(json.dumps(header))  # as it will be read back: tuples become lists
        self.path = self.folder / ('history.jsonl' if rank == 0 else f'history.rank{rank}.jsonl')
        self.candidates: dict[int, Candidate] = {}

    def open(self) -> dict[int, Candidate]:
        """Read the candidates of earlier runs by id, the same on every rank, before any rank appends.

        An incomplete last line is cut off the file; part files of other ranks are merged.

        Raises:
            VitnasError: The journal belongs to another search (the message lists the differences), or is damaged.
        """
        found: list[Any] = [None]
        if self.rank == 0:
            try:
                found[0] = self._read_all()
            except VitnasError as err:  # all ranks stop with the same sentence
                found[0] = err
        broadcast_object_list(found)
        if isinstance(found[0], VitnasError):
            raise found[0]
        self.candidates = found[0]
        return dict(self.candidates)

    def _read_all(self) -> dict[int, Candidate]:
        self.candidates = {candidate.id: candidate for candidate in self._read(self.path, mend=True)}
        parts = sorted(self.folder.glob('history.rank*.jsonl'))
        self._merge(candidate for part in parts for candidate in self._read(part))
        for part in parts:
            part.unlink()
        return self.candidates

    def append(self, candidate: Candidate) -> None:
        """Write a candidate at once; a new file begins with the header."""
        lines = [candidate.to_dict()] if self._begun() else [self.header, candidate.to_dict()]
        self._write(lines)
        self.candidates[candidate.id] = candidate

    def end_round(self, candidates: Iterable[Candidate]) -> None:
        """Flush a whole round to disk: rank 0 adds the candidates of other ranks, which then drop their part files.

        Args:
            candidates: The round, on every rank.
        """
        if self.rank == 0:
            self._merge(candidates)
        barrier()
        if self.rank:
            self.path.unlink(missing_ok=True)

    def _merge(self, candidates: Iterable[Candidate]) -> None:
        """Add candidates that are not written yet, and flush all to disk."""
        for candidate in candidates:
            if candidate.id not in self.candidates:
                self.append(candidate)
        if self._begun():
            with self.path.open('rb') as file:
                os.fsync(file.fileno())

    def _begun(self) -> bool:
        return self.path.exists() and self.path.stat().st_size > 0

    def _write(self, lines: list[Mapping[str, Any]]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.path.open('ab', buffering=0) as file:  # writes each line in one system call
            for line in lines:
                file.write((json.dumps(line) + '\n').encode())

    def _read(self, path: Path, mend: bool = False) -> Iterator[Candidate]:
        """Yield the candidates of a file and check its header; skip an incomplete last line (``mend``: cut it off)."""
        if not path.exists():
            return
        content = path.read_bytes()
        whole = content[: content.rfind(b'\n') + 1]
        lines = whole.splitlines()
        if lines:
            self._check_header(_parse(lines[0], path, 1), path)
        if mend and len(whole) < len(content):
            os.truncate(path, len(whole))
        for number, line in enumerate(lines[1:], 2):
            try:
                yield Candidate.from_dict(_parse(line, path, number))
            except VitnasError as err:
                raise VitnasError(f'line {number} of {path}: {err}') from None

    def _check_header(self, found: Any, path: Path) -> None:
        differences = list(difference(found, self.header))
        if not differences:
            return
        shown = '; '.join(differences[:_SHOWN])
        more = f'; and {len(differences) - _SHOWN} more' if len(differences) > _SHOWN else ''
        raise VitnasError(
            f'{path} is the journal of another search: {shown}{more} (journal → now). '
            f'Give another --work-dir, undo the change, or remove {path} to start anew; nothing was changed'
        )


def read_candidates(path: str | os.PathLike) -> list[Candidate]:
    """Read the candidates of any ``history.jsonl``, by id; an incomplete last line is skipped.

    Raises:
        VitnasError: There is no such file, or a line is damaged.
    """
    path = Path(path)
    if not path.is_file():
        raise VitnasError(f'there is no history of a search: {path}')
    content = path.read_bytes()
    lines = content[: content.rfind(b'\n') + 1].splitlines()[1:]
    found = [Candidate.from_dict(_parse(line, path, number)) for number, line in enumerate(lines, 2)]
    return sorted(found, key=lambda candidate: candidate.id)


def _parse(line: bytes, path: Path, number: int) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        raise VitnasError(f'line {number} of {path} is not JSON; restore the file or remove it') from None
