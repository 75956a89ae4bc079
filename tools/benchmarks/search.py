"""Compare a whole search with a naive loop to the same score: ``python tools/benchmarks/search.py``.

Both search a small supernet, trained for a few seconds, on the digits. They use the same evolution, seeds and images,
in one process. The naive loop validates proposals one by one, as a plain runner does: it decodes the images again for
every candidate, and evaluates repeated proposals again. It runs as many generations, and more until it is as good as
our winner. Our search is timed from the start to the report, with the journal and all files. The time is CPU time (one
thread, no waiting), which other load on the machine hardly affects. It runs once plain and once with racing at
confidence 1. This drops only candidates that can no longer become parents, so the winner must be the same (and this is
checked). The output also splits the ratio into the number of evaluations and the time per evaluation.

The decoding cost matters. The digits are in memory, so decoding them is nearly free. The same digits as JPEG files of
256 × 256 pixels, read like ImageNet (load, resize, crop), cost as much as photographs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.config import Config
from mmengine.runner import Runner

import vitnas_core  # noqa: F401  (before mmpretrain: repairs its import)
from vitnas_core.search import SearchLoop
from vitnas_core.spaces import Arch

SPACE = dict(
    family='autoformer',
    name='autoformer-digits',
    stages=[dict(embed_dim=[48, 64, 80, 96], depth=[2, 3, 4], block=dict(num_heads=[1, 2], mlp_ratio=[1.0, 2.0]))],
)
SEARCH = dict(type='vitnas.EvolutionSearchLoop', population=30, parents=8, generations=8, mutations=15, crossovers=15)
LIMIT = dict(macs=(None, 3.5e6))


def model_config() -> dict[str, Any]:
    """Config of a small AutoFormer supernet for 32 × 32 images in 10 classes."""
    return dict(
        type='mmpretrain.ImageClassifier',
        backbone=dict(
            type='vitnas.AutoFormer', space=SPACE, img_size=32, patch_size=8, reach=4, out_type='avg_featmap'
        ),
        data_preprocessor=dict(type='mmpretrain.ClsDataPreprocessor', mean=[77.6] * 3, std=[95.9] * 3, num_classes=10),
        head=dict(type='mmpretrain.LinearClsHead', num_classes=10, in_channels=96),
    )


def write_jpegs(folder: Path) -> Path:
    """Write the digits' training images as JPEG files of 256 × 256 pixels, one folder per class."""
    import cv2

    from vitnas_core.datasets import Digits

    for i, sample in enumerate(Digits(split='train', pipeline=[])):
        path = folder / str(sample['gt_label']) / f'{i:04}.jpg'
        path.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(path), cv2.resize(sample['img'], (256, 256), interpolation=cv2.INTER_CUBIC))
    return folder


def data_config(per_class: int, batch_size: int, jpegs: Path | None = None) -> dict[str, Any]:
    """Config of the hold-out part of the digits' training images, in memory or as files."""
    pack = dict(type='PackInputs')
    if jpegs is None:
        pipeline = [dict(type='Resize', scale=32, interpolation='bicubic'), pack]
        train = dict(type='vitnas.Digits', split='train', pipeline=pipeline)
    else:
        resize = dict(type='ResizeEdge', scale=36, edge='short', backend='pillow', interpolation='bicubic')
        pipeline = [dict(type='LoadImageFromFile'), resize, dict(type='CenterCrop', crop_size=32), pack]
        train = dict(type='mmpretrain.CustomDataset', data_prefix=str(jpegs), pipeline=pipeline)
    return dict(
        batch_size=batch_size,
        num_workers=0,
        dataset=dict(type='vitnas.HoldOut', part='holdout', per_class=per_class, dataset=train),
        sampler=dict(type='DefaultSampler', shuffle=False),
    )


def save_supernet(path: Path, epochs: int = 0) -> Path:
    """Write a supernet: trained with a random architecture per step, or with random weights (0 epochs).

    The random weights are scaled up so that architectures score differently.
    """
    from mmengine.optim import OptimWrapper
    from mmpretrain.registry import MODELS

    torch.manual_seed(0)
    model = MODELS.build(model_config())
    if not epochs:
        with torch.no_grad():
            for name, tensor in model.named_parameters():
                if tensor.ndim > 1:
                    tensor.mul_(3.0 if 'backbone' in name else 10.0)
    else:
        data = data_config(10, 64)
        data['dataset']['part'], data['sampler']['shuffle'] = 'train', True
        loader, rng = Runner.build_dataloader(data, seed=0), np.random.default_rng(0)
        wrapper = OptimWrapper(torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05))
        for _ in range(epochs):
            for batch in loader:
                model.backbone.set_arch(model.backbone.space.sample(rng))
                model.train_step(batch, wrapper)
    torch.save({'state_dict': model.state_dict()}, path)
    return path


def make_runner(
    work_dir: Path,
    supernet: Path,
    search: dict[str, Any],
    seed: int,
    per_class: int = 10,
    batch_size: int = 50,
    jpegs: Path | None = None,
) -> Runner:
    """Build a runner that searches and can validate on the same images."""
    images, accuracy = data_config(per_class, batch_size, jpegs), dict(type='mmpretrain.Accuracy')
    return Runner.from_cfg(
        Config(
            dict(
                model=model_config(),
                work_dir=str(work_dir),
                train_dataloader=images,
                train_cfg=dict(evaluator=accuracy, constraint=LIMIT, input_size=32, num_classes=10, **search),
                val_dataloader=images,
                val_cfg=dict(),
                val_evaluator=accuracy,
                optim_wrapper=dict(optimizer=dict(type='SGD', lr=0.1)),
                load_from=str(supernet),
                default_scope='mmpretrain',
                randomness=dict(seed=seed),
                experiment_name=work_dir.name,
                log_level='ERROR',
            )
        )
    )


def naive_search(runner: Runner, winner: float, most: int) -> tuple[int, float]:
    """Run the same evolution without a memory: it validates each proposal, one by one.

    A generation has as many mutations and crossovers of the best architectures as ours, but the loop does not know
    repeated ones. It runs as many generations as ours, and more until it is as good.

    Args:
        runner: A runner whose search loop has the settings.
        winner: The score that the other search found.
        most: Largest number of validations.

    Returns:
        The number of validations, and the best score.
    """
    loop: SearchLoop = runner.train_loop
    evolution: Any = loop.algorithm
    runner.load_or_resume()
    scored: dict[Arch, tuple[float, float]] = {}
    validations, generation, best = 0, 0, 0.0
    while generation < loop.max_epochs or (best < winner and validations < most):
        rng = np.random.default_rng([loop.seed, generation])
        parents = sorted(scored, key=scored.__getitem__)[: evolution.parents]
        for arch in [naive_proposal(loop, parents, i, rng) for i in range(evolution.population)]:
            loop.backbone.set_arch(arch)
            score = runner.val_loop.run()['accuracy/top1']
            scored[arch], best = (-score, loop.price(arch).macs), max(best, score)
            validations += 1
        generation += 1
    return validations, best


def naive_proposal(loop: SearchLoop, parents: list[Arch], index: int, rng: np.random.Generator) -> Arch:
    """Draw a random architecture (without parents), a mutation or a crossover, until one meets the limits."""
    evolution: Any = loop.algorithm
    while True:
        if not parents:
            arch = loop.space.sample(rng)
        elif index < evolution.mutations:
            arch = loop.space.mutate(parents[rng.integers(len(parents))], evolution.chances, rng)
        else:
            a, b = (parents[i] for i in rng.integers(len(parents), size=2))
            arch = loop.space.cross(a, b, rng)
        if arch in loop.feasible:
            return arch


def compare(
    folder: Path, supernet: Path, seed: int, searches: dict[str, dict[str, Any]], jpegs: Path | None
) -> dict[str, list[float]]:
    """Run one turn; return for each search the ratios of total time, number of evaluations and time per evaluation."""
    seconds: dict[str, float] = {}
    for name, search in searches.items():
        runner = make_runner(folder / f'{name}{seed}', supernet, search, seed, jpegs=jpegs)
        start = time.process_time()
        runner.train()
        seconds[name] = time.process_time() - start
    loop = runner.train_loop
    winners = [json.loads((folder / f'{name}{seed}' / 'pareto.json').read_text())[-1] for name in searches]
    if any(winner != winners[0] for winner in winners):
        raise SystemExit(f'the winners differ: {winners}')
    best = winners[0]['score']
    naive = make_runner(folder / f'naive{seed}', supernet, SEARCH, seed, jpegs=jpegs)
    start = time.process_time()
    count, found = naive_search(naive, best, most=4 * loop.max_iters)
    theirs = time.process_time() - start
    ours = ', '.join(f'{name} {value:.1f} s' for name, value in seconds.items())
    print(f'  seed {seed}: {ours}, {loop.iter} evaluations, score {best:.2f}; ', end='')
    print(f'naive {theirs:.1f} s, {count} evaluations, score {found:.2f}', flush=True)
    return {name: [theirs / s, count / loop.iter, theirs / count * loop.iter / s] for name, s in seconds.items()}


def main(args: list[str] | None = None) -> None:
    """Compare over several seeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--threads', type=int, default=1, help='defaults to 1, because threads wait on a busy machine')
    parser.add_argument('--seeds', type=int, default=3, help='number of turns; defaults to 3')
    parser.add_argument('--epochs', type=int, default=30, help='training epochs of the supernet; defaults to 30')
    options = parser.parse_args(args)
    torch.set_num_threads(options.threads)
    print(f'torch {torch.__version__}, {torch.get_num_threads()} threads')
    searches = {'plain': SEARCH, 'racing': dict(SEARCH, racing=dict(confidence=1.0))}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        supernet = save_supernet(folder / 'supernet.pth', options.epochs)
        for images, jpegs in (('in memory', None), ('JPEG files', write_jpegs(folder / 'jpegs'))):
            print(f'{images}:')
            work = folder / images.split()[-1]
            turns = [compare(work, supernet, seed, searches, jpegs) for seed in range(options.seeds)]
            for name in searches:
                print(f'  naive / {name}:')
                parts = zip(*(turn[name] for turn in turns))
                for what, values in zip(('total time', 'evaluations', 'time per one'), parts):
                    print(f'    {what:12} {statistics.median(values):6.2f}x  ({min(values):.2f} to {max(values):.2f})')


if __name__ == '__main__':
    main()
