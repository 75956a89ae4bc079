"""Compare the speed of this checkout with another one: ``python tools/benchmarks/versions.py OTHER [--cases TEXT]``.

For every space of the zoo: the price of an architecture that is new and of one that was priced before, its activation,
a training step of the supernet, and one of its largest network alone. Each checkout runs in a process of its own, on
one thread. The two take turns, in CPU time, which other load on the machine hardly affects. A process keeps the memory
that it happened to get, which can change a step by a fifth, so new processes start several times. The ratio is the
median over all turns.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
NUM_ARCHS = 500
"""Architectures that are priced or activated per turn."""


def cases(names: list[str]) -> Iterator[str]:
    """Names of the cases."""
    for name in names:
        yield from (f'{part} {name}' for part in ('new price', 'price', 'set_arch', 'supernet step', 'fixed step'))


def serve() -> None:
    """Time the cases that standard input names, one per line."""
    import numpy as np
    import torch

    import vitnas_core  # noqa: F401  (its registries)
    from vitnas_core import zoo
    from vitnas_core.backbones import FAMILIES

    torch.set_num_threads(1)

    def build(case: str) -> Callable[[], Callable[[], object]]:
        """Return a function that gets one turn ready and returns it."""
        part, _, name = case.rpartition(' ')
        space = zoo.load_space(name)
        family = FAMILIES[space.family]
        rng = np.random.default_rng(0)
        archs = [space.sample(rng) for _ in range(NUM_ARCHS)]
        if part == 'price':
            return lambda: lambda: [family.cost(arch, 224, 1000) for arch in archs]
        if part == 'new price':

            def draw() -> Callable[[], object]:
                new = [space.sample(rng) for _ in range(NUM_ARCHS)]
                return lambda: [family.cost(arch, 224, 1000) for arch in new]

            return draw
        backbone = family(arch=space.largest()) if part == 'fixed step' else family(space=space)
        if part == 'set_arch':
            return lambda: lambda: [backbone.set_arch(arch) for arch in archs]
        images = torch.randn(2, 3, 64, 64)

        def step() -> None:
            if part == 'supernet step':
                backbone.set_arch(archs[0])
            sum(out.square().sum() for out in backbone(images)).backward()
            backbone.zero_grad(set_to_none=True)

        return lambda: step

    print(' '.join(zoo.space_names()), flush=True)
    built: dict[str, Callable[[], Callable[[], object]]] = {}
    for line in sys.stdin:
        if line.strip() not in built:
            built = {line.strip(): build(line.strip())}
            built[line.strip()]()()  # does not count
        run = built[line.strip()]()
        start = time.process_time()
        run()
        print(time.process_time() - start, flush=True)


class Checkout:
    """A process that times the code of a checkout."""

    def __init__(self, folder: Path) -> None:
        env = {**os.environ, 'PYTHONPATH': str(folder), 'OMP_NUM_THREADS': '1'}
        command = [sys.executable, '-W', 'ignore', str(Path(__file__).resolve()), '--serve']
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=env, text=True, cwd=folder)
        self.spaces = self._read().split()

    def __enter__(self) -> Checkout:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.communicate()  # closes its input, which ends it

    def time(self, case: str) -> float:
        """Return the seconds of one turn."""
        assert self.process.stdin is not None
        print(case, file=self.process.stdin, flush=True)
        return float(self._read())

    def _read(self) -> str:
        assert self.process.stdout is not None
        if line := self.process.stdout.readline():
            return line
        raise SystemExit('a checkout failed; its error is above')


def main() -> None:
    """Print one ratio per case: this checkout over the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('other', nargs='?', type=Path, help='folder of the other checkout, set up or not')
    parser.add_argument('--cases', default='', help='only cases whose names contain this text')
    parser.add_argument('--rounds', type=int, default=5, help='turns in each start; defaults to 5')
    parser.add_argument('--starts', type=int, default=4, help='starts of the processes; defaults to 4')
    parser.add_argument('--serve', action='store_true', help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    if options.other is None or not (options.other / 'vitnas_core').is_dir():
        parser.error(f'OTHER should be a checkout of vitnas, but got {options.other}')
    folders = HERE, options.other.resolve()
    with Checkout(folders[0]) as ours, Checkout(folders[1]) as theirs:
        names = [name for name in ours.spaces if name in theirs.spaces]
    for case in (case for case in cases(names) if options.cases in case):
        ratios = []
        for _ in range(options.starts):
            with Checkout(folders[0]) as ours, Checkout(folders[1]) as theirs:
                ratios += [ours.time(case) / theirs.time(case) for _ in range(options.rounds)]
        ratios.sort()
        low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
        print(f'{case:40s} {statistics.median(ratios):5.2f} x (middle half {low:.2f} to {high:.2f})', flush=True)


if __name__ == '__main__':
    main()
