"""Measure the cost of training many architectures per step: ``python tools/benchmarks/multi_arch.py``.

It prints the time of a training step (forward, backward, AdamW) for 1, 4 and 16 architectures that split a batch:
masked, sliced, and as separate passes with added gradients. The baseline is one architecture of the mean cost on the
whole batch. Contenders take turns, and the result is the median ratio over the turns. So other load on the machine
affects all of them.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # finds the repository's packages as a script

import vitnas_core  # noqa: F401
from tools.benchmarks.measure import ratio, turns
from vitnas_core import zoo
from vitnas_core.backbones import FAMILIES, ElasticBackbone
from vitnas_core.spaces import Arch


class Step:
    """A training step of a classifier with an elastic backbone.

    Args:
        backbone: The supernet.
        images: The batch.
    """

    def __init__(self, backbone: ElasticBackbone, images: Tensor) -> None:
        self.backbone, self.images = backbone.train(), images
        self.labels = torch.randint(1000, (len(images),), device=images.device)
        self.head = nn.Linear(backbone.out_channels()[-1], 1000, device=images.device)
        self.optimizer = torch.optim.AdamW([*backbone.parameters(), *self.head.parameters()])

    def backward(self, rows: slice) -> None:
        """Add the gradients of the mean loss for some of the samples."""
        logits = self.head(self.backbone(self.images[rows])[-1].mean((2, 3)))
        (F.cross_entropy(logits, self.labels[rows], reduction='sum') / len(self.images)).backward()

    def update(self) -> None:
        """Update the weights and wait for the device."""
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.images.device.type == 'cuda':
            torch.cuda.synchronize()

    def single(self, arch: Arch) -> Callable[[], None]:
        """Return a step of one architecture."""

        def run() -> None:
            self.backbone.set_arch(arch)
            self.backward(slice(None))
            self.update()

        return run

    def together(self, archs: list[Arch], way: str) -> Callable[[], None]:
        """Return a step of several architectures in one pass."""

        def run() -> None:
            self.backbone.set_archs(archs, way)
            self.backward(slice(None))
            self.update()

        return run

    def separate(self, archs: list[Arch]) -> Callable[[], None]:
        """Return a step of several architectures with one pass each."""
        part = len(self.images) // len(archs)

        def run() -> None:
            for i, arch in enumerate(archs):
                self.backbone.set_arch(arch)
                self.backward(slice(i * part, (i + 1) * part))
            self.update()

        return run


def mean_arch(archs: list[Arch], price: Callable[[Arch], int], draws: list[Arch]) -> Arch:
    """Return the draw whose cost is nearest to the mean cost of the architectures."""
    mean = statistics.mean(map(price, archs))
    return min(draws, key=lambda arch: abs(price(arch) - mean))


def main() -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--space', default='vit-resnas-tiny', choices=zoo.space_names(), help='space of the zoo')
    parser.add_argument('--batch', type=int, default=128, help='images per step')
    parser.add_argument('--size', type=int, default=224, help='side of an image')
    parser.add_argument('--archs', type=int, nargs='+', default=[1, 4, 16], help='architectures per step')
    parser.add_argument('--rounds', type=int, default=3, help='turns of each contender')
    parser.add_argument('--device', default='cpu', help="'cpu' or 'cuda'")
    args = parser.parse_args()
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    space = zoo.load_space(args.space)
    with torch.device(args.device):
        backbone = FAMILIES[space.family](space=space, img_size=args.size)
        step = Step(backbone, torch.randn(args.batch, 3, args.size, args.size))
    draws = [space.sample(rng) for _ in range(1000)]

    def price(arch: Arch) -> int:
        return backbone.price(arch, args.size).macs

    print(f'{args.space}, {args.batch} images of {args.size}, {args.device}, {torch.get_num_threads()} threads')
    for count in args.archs:
        archs = space.sample_spread(count, rng)
        contenders = {
            'alone': step.single(mean_arch(archs, price, draws)),
            'masked': step.together(archs, 'masked'),
            'sliced': step.together(archs, 'sliced'),
            'separate': step.separate(archs),
        }
        seconds = turns(contenders, args.rounds)
        print(f'  {count} architectures, versus one of their mean cost ({statistics.median(seconds["alone"]):.2f} s)')
        for name in ('masked', 'sliced', 'separate'):
            print(f'    {name:8}  {ratio(seconds, name, "alone")}', flush=True)


if __name__ == '__main__':
    main()
