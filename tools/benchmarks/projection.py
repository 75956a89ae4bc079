"""Measure the cost of gradient projection: ``python tools/benchmarks/projection.py``.

It prints the time ratio of a projected to a plain sandwich step (four architectures, distillation, AdamW), and the
additional memory as a multiple of the size of all gradients. Steps take turns, and the result is the median ratio over
the turns. So other load on the machine affects both. Memory is the peak of torch's allocations during a step. On a GPU,
torch counts it; on a CPU, the tool sums the allocations and frees in torch's profile. It measures the whole batch and
one image, where activations hide nothing.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault('KINETO_LOG_LEVEL', '99')  # silences torch's profiler

import torch
from mmengine.optim import OptimWrapper
from mmengine.registry import MODELS
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # finds the repository's packages as a script

import vitnas_core  # noqa: F401
from tools.benchmarks.measure import ratio, turns
from vitnas_core import zoo
from vitnas_core.backbones import FAMILIES, elastic_backbone
from vitnas_core.spaces import SearchSpace
from vitnas_core.training.rules import Sandwich
from vitnas_core.training.samplers import SandwichSampler

DISTILL = dict(type='vitnas.AdaptiveAlphaDivergence')
RULES: dict[str, dict[str, Any]] = {
    'plain': dict(distill=DISTILL),
    'projected': dict(distill=DISTILL, conflict=dict(type='vitnas.GradientProjection', cap=2.0, eps=1e-6)),
}


def classifier(space: SearchSpace, size: int) -> nn.Module:
    """Build a supernet of the space for 1000 classes."""
    family = FAMILIES[space.family]
    settings = {} if space.family == 'nasvit' else dict(img_size=size)  # NASViT's space sets its sizes
    width = family(space=space, **settings).out_channels()[-1]
    return MODELS.build(
        dict(
            type='mmpretrain.ImageClassifier',
            backbone=dict(type=f'vitnas.{family.__name__}', space=space.to_dict(), **settings),
            neck=dict(type='mmpretrain.GlobalAveragePooling'),
            head=dict(type='mmpretrain.LinearClsHead', num_classes=1000, in_channels=width),
            data_preprocessor=dict(type='mmpretrain.ClsDataPreprocessor', num_classes=1000, mean=[118.0], std=[58.0]),
        )
    )


def batch_of(images: int, size: int) -> dict[str, Any]:
    """Make random images with labels, in the format of a data loader."""
    from mmpretrain.structures import DataSample

    pixels = [torch.randint(0, 256, (3, size, size), dtype=torch.uint8) for _ in range(images)]
    return dict(inputs=pixels, data_samples=[DataSample().set_gt_label(i) for i in range(images)])


def stepper(model: nn.Module, rule: dict[str, Any], batch: dict[str, Any]) -> Callable[[], None]:
    """Return a function that runs a training step and waits for the device."""
    made, rng = Sandwich(**rule), np.random.default_rng(0)
    made.bind(elastic_backbone(model))
    optim_wrapper = OptimWrapper(torch.optim.AdamW(model.parameters(), lr=1e-5))
    archs = SandwichSampler(2).sample(elastic_backbone(model).space, rng, 0.0)

    def run() -> None:
        made.step(model, batch, archs, optim_wrapper)
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    return run


def peak_bytes(run: Callable[[], None]) -> int:
    """Measure the largest increase of torch's memory during a run."""
    if torch.cuda.is_available():
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run()
        return torch.cuda.max_memory_allocated() - before
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        run()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == '[memory]']
    held = np.cumsum([event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())])
    return int(held.max())


def extra_memory(model: nn.Module, batch: dict[str, Any]) -> float:
    """Measure what projection adds to the peak memory of a step, as a multiple of all gradients."""
    gradients = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    peaks = {}
    for name, rule in RULES.items():
        run = stepper(model, rule, batch)
        run()  # the optimizer's own memory stays
        peaks[name] = peak_bytes(run)
    return (peaks['projected'] - peaks['plain']) / gradients


def main() -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--model', default='autoformer-tiny', choices=zoo.space_names(), help='space of the zoo')
    parser.add_argument('--batch', type=int, default=16, help='images per step')
    parser.add_argument('--size', type=int, default=224, help='side of an image')
    parser.add_argument('--rounds', type=int, default=7, help='turns of each contender')
    args = parser.parse_args()
    torch.manual_seed(0)
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    model = classifier(zoo.load_space(args.model), args.size).to(device).train()
    batch = batch_of(args.batch, args.size)
    print(f'{args.model}, {args.batch} images of {args.size}, {device}, {torch.get_num_threads()} threads')
    seconds = turns({name: stepper(model, rule, batch) for name, rule in RULES.items()}, args.rounds)
    print(f'  a plain step takes {statistics.median(seconds["plain"]):.2f} s')
    print(f'  a projected one  {ratio(seconds, "projected", "plain")}  (target: at most 1.10x)')
    for images in (args.batch, 1):
        extra = extra_memory(model, batch_of(images, args.size))
        print(f'  memory beyond a plain step, batch of {images}: {extra:.2f} of the gradients  (target: at most 1)')


if __name__ == '__main__':
    main()
