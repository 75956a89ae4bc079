"""Time and memory of contenders that are compared in one run."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

Run = Callable[[], Any]
"""What is measured."""


def turns(contenders: dict[str, Run], rounds: int) -> dict[str, list[float]]:
    """Seconds of each contender in each round; they take turns, after one round that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for round_ in range(rounds + 1):
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            if round_:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def ratio(seconds: dict[str, list[float]], a: str, b: str) -> str:
    """Median over the rounds of a's time over b's, with the middle half."""
    found = sorted(x / y for x, y in zip(seconds[a], seconds[b]))
    low, high = found[len(found) // 4], found[-1 - len(found) // 4]
    return f'{statistics.median(found):6.2f}x  (middle half {low:.2f} to {high:.2f})'


def peak_memory(make: Callable[..., Run], args: tuple, small: tuple) -> float:
    """MiB that one run adds to the resident size of a process of its own (Linux).

    Args:
        make: What makes the run; a function of a module, as it is sent to the process.
        args: Its arguments.
        small: Arguments of a small run before, for what is allocated once.

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
    Path('/proc/self/clear_refs').write_text('5')  # VmHWM starts anew
    before = _resident('VmRSS')
    run()
    pipe.send(_resident('VmHWM') - before)


def _resident(field: str) -> float:
    """A size in MiB of this process, as Linux gives it: VmRSS (now) or VmHWM (the highest)."""
    line = next(line for line in Path('/proc/self/status').read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024
