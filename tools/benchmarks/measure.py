"""Measure time and memory of contenders within one run."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

Run = Callable[[], Any]
"""A function to measure."""


def turns(contenders: dict[str, Run], rounds: int) -> dict[str, list[float]]:
    """Measure the seconds of each contender in each round. Contenders take turns; a first round does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for round_ in range(rounds + 1):
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            if round_:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def ratio(seconds: dict[str, list[float]], a: str, b: str) -> str:
    """Format the median ratio of a's time to b's over the rounds, with the middle half."""
    found = sorted(x / y for x, y in zip(seconds[a], seconds[b]))
    low, high = found[len(found) // 4], found[-1 - len(found) // 4]
    return f'{statistics.median(found):6.2f}x  (middle half {low:.2f} to {high:.2f})'


def peak_memory(make: Callable[..., Run], args: tuple, small: tuple) -> float:
    """Measure the MiB that one run adds to the resident size of a separate process (Linux).

    Args:
        make: Function that makes the run. It must be at module level, because it is sent to the process.
        args: Its arguments.
        small: Arguments of a small first run, which makes all one-time allocations.

    Raises:
        SystemExit: The process failed.
    """
    context = multiprocessing.get_context('spawn')
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_peak, args=(make, args, small, torch.get_num_threads(), theirs))
    process.start()
    process.join()
    if process.exitcode != 0 or not ours.poll():
        raise SystemExit(f'measuring the memory of {make.__name__}{args} failed with exit code {process.exitcode}')
    return ours.recv()


def _peak(make: Callable[..., Run], args: tuple, small: tuple, threads: int, pipe: Any) -> None:
    torch.set_num_threads(threads)
    make(*small)()
    run = make(*args)
    Path('/proc/self/clear_refs').write_text('5')  # resets VmHWM
    before = _resident('VmRSS')
    run()
    pipe.send(_resident('VmHWM') - before)


def _resident(field: str) -> float:
    """Read a size of this process in MiB from Linux: VmRSS (current) or VmHWM (peak)."""
    line = next(line for line in Path('/proc/self/status').read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024
