"""Measure the cost of cyclic and bilateral sharing: ``python tools/benchmarks/sharing.py``.

It prints the time of a training step (forward, backward, AdamW) of random architectures with each pattern, relative to
the same architectures with ordinal sharing. Steps take turns, and the result is the median ratio over the turns. So
other load on the machine affects all of them.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # finds the repository's packages as a script

import vitnas_core  # noqa: F401
from tools.benchmarks.measure import ratio, turns
from vitnas_core import zoo
from vitnas_core.backbones import FAMILIES
from vitnas_core.elastic.sharing import PATTERNS
from vitnas_core.spaces import Arch, SearchSpace


def stepper(space: SearchSpace, sharing: str, archs: Sequence[Arch], images: Tensor) -> Callable[[], None]:
    """Return a function that runs a training step of each architecture and waits for the device."""
    backbone = FAMILIES[space.family](space=space, sharing=sharing).to(images.device).train()
    head = nn.Linear(backbone.out_channels()[-1], 1000, device=images.device)
    optimizer = torch.optim.AdamW([*backbone.parameters(), *head.parameters()], lr=1e-5)

    def run() -> None:
        for arch in archs:
            backbone.set_arch(arch)
            optimizer.zero_grad()
            head(backbone(images)[-1].mean((2, 3))).square().mean().backward()
            optimizer.step()
        if images.device.type == 'cuda':
            torch.cuda.synchronize()

    return run


def main() -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    spaces = [name for name in zoo.space_names() if name.startswith(('autoformer', 's3', 'vitas'))]
    parser.add_argument('--model', default='vitas-deit-tiny', choices=spaces, help='space of the zoo')
    parser.add_argument('--batch', type=int, default=32, help='images per step')
    parser.add_argument('--archs', type=int, default=4, help='number of random architectures')
    parser.add_argument('--rounds', type=int, default=7, help='turns of each contender')
    args = parser.parse_args()
    torch.manual_seed(0)
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    space, rng = zoo.load_space(args.model), np.random.default_rng(0)
    archs = [space.sample(rng) for _ in range(args.archs)]
    images = torch.randn(args.batch, 3, 224, 224, device=device)
    print(f'{args.model}, {args.archs} architectures, {args.batch} images, {device}, {torch.get_num_threads()} threads')
    seconds = turns({name: stepper(space, name, archs, images) for name in PATTERNS}, args.rounds)
    print(f'  ordinal    {statistics.median(seconds["ordinal"]) / args.archs:.2f} s per step')
    print(f'  cyclic     {ratio(seconds, "cyclic", "ordinal")}  (target: at most 1.05x)')
    print(f'  bilateral  {ratio(seconds, "bilateral", "ordinal")}  (two passes)')


if __name__ == '__main__':
    main()
