"""Compare backbones with Swin-T at a detector's size: ``python tools/benchmarks/dense.py [--shape H W] [--train]``.

Each run processes one image and computes all outputs that a detector reads. The networks take turns; the result is the
median ratio over the turns. Peak memory is what one run adds to a process that holds the weights. The table has the
MACs of the papers' convention and the executed MACs, which include the products of AutoFormer's relative positions.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # finds the repository's packages as a script

import vitnas_core  # noqa: F401  (before mmdet: repairs its import)
from tools.benchmarks.measure import peak_memory, ratio, turns
from vitnas_core.backbones import S3, AutoFormer, ElasticBackbone
from vitnas_core.utils.counting import count_macs, count_params


def swin() -> nn.Module:
    """Build mmdet's Swin-T with four outputs and without stochastic depth, as the other networks."""
    from mmdet.models import SwinTransformer

    return SwinTransformer(drop_path_rate=0.0)


BASELINE = 'Swin-T (mmdet)'
NETWORKS: dict[str, Callable[[], nn.Module]] = {
    'AutoFormer-S': lambda: AutoFormer(arch='autoformer-small'),
    'S3-T': lambda: S3(arch='s3-t', out_indices=(0, 1, 2, 3)),
    BASELINE: swin,
}


@cache
def network(name: str, train: bool) -> nn.Module:
    """Build a network, once per process."""
    torch.manual_seed(0)
    built = NETWORKS[name]()
    built.train(train)  # train() of mmdet's Swin returns None
    return built


def runner(name: str, shape: tuple[int, int], train: bool) -> Callable[[], None]:
    """Return a function that runs the forward pass of one image and, for training, the backward pass."""
    built, images = network(name, train), torch.randn(1, 3, *shape)

    def run() -> None:
        with torch.set_grad_enabled(train):
            outputs = built(images)
            if train:  # gradients accumulate; they exist before the measured run, like the weights
                sum(output.mean() for output in outputs).backward()

    return run


def executed(name: str, shape: tuple[int, int]) -> int:
    """Count the executed multiply-accumulates of one image on the meta device, without computing anything."""
    built = copy.deepcopy(network(name, train=False)).to('meta')
    return count_macs(built, torch.empty(1, 3, *shape, device='meta'))


def priced(name: str, shape: tuple[int, int]) -> int:
    """Count multiply-accumulates by the papers' convention: without the relative positions' own products."""
    built = network(name, train=False)
    return built.price(built.arch, shape).macs if isinstance(built, ElasticBackbone) else executed(name, shape)


def main(args: list[str] | None = None) -> None:
    """Measure every network and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--shape', type=int, nargs=2, default=(800, 1344), metavar=('H', 'W'), help='of the image')
    parser.add_argument('--train', action='store_true', help='forward and backward; defaults to forward alone')
    parser.add_argument('--rounds', type=int, default=9, help='number of measured turns; defaults to 9')
    parser.add_argument('--threads', type=int, default=1, help='torch threads; defaults to 1')
    options = parser.parse_args(args)
    torch.set_num_threads(options.threads)
    shape, train = tuple(options.shape), options.train
    what = 'forward and backward' if train else 'forward'
    print(f'torch {torch.__version__}, {torch.get_num_threads()} threads, one image of {shape[0]} x {shape[1]}, {what}')
    memory = {name: peak_memory(runner, (name, shape, train), (name, (64, 64), train)) for name in NETWORKS}
    seconds = turns({name: runner(name, shape, train) for name in NETWORKS}, options.rounds)
    print('| backbone | parameters | MACs | executed | time | time / Swin-T | peak memory | memory / Swin-T |')
    print('|---|---|---|---|---|---|---|---|')
    for name in NETWORKS:
        row = [
            name,
            f'{count_params(network(name, train)) / 1e6:.1f} M',
            f'{priced(name, shape) / 1e9:.1f} G',
            f'{executed(name, shape) / 1e9:.1f} G',
            f'{statistics.median(seconds[name]):.2f} s',
            ratio(seconds, name, BASELINE).strip(),
            f'{memory[name]:.0f} MiB',
            f'{memory[name] / memory[BASELINE]:.2f}x',
        ]
        print(f'| {" | ".join(row)} |')


if __name__ == '__main__':
    main()
