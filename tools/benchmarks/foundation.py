"""Benchmark the core parts, as ratios within one run: ``python tools/benchmarks/foundation.py [PART ...]``.

    price    cost computations per second on one core
    fused    fused relative positions versus the published formula, forward and backward, time and peak memory
    elastic  a training step of the elastic network at an architecture versus the extracted network
    step     a training step of fixed AutoFormer-T versus timm's DeiT-Ti
    windows  torch's attention in windows versus plain matrix products, with and without a learned bias
    s3       a training step of fixed S3-T versus timm's swin_s3_tiny_224, and of elastic versus extracted networks

Contenders take turns, and the result is the median ratio over the turns. So other load on the machine affects both.
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

import vitnas_core  # noqa: F401  (before timm: repairs its import)
from tools.benchmarks.measure import peak_memory, ratio, turns
from vitnas_core import zoo
from vitnas_core.backbones import FAMILIES, S3, AutoFormer, ElasticBackbone
from vitnas_core.elastic import RelativePositions2D, TokenGrid

HEAD_DIM, REACH = 64, 14


def benchmark_price(rounds: int) -> None:
    """Cost computations per second on one core."""
    for name in zoo.space_names():
        space, rng = zoo.load_space(name), np.random.default_rng(0)
        archs = [space.sample(rng) for _ in range(20_000)]

        family = FAMILIES[space.family]

        def price(archs: list = archs, family: type[ElasticBackbone] = family) -> None:
            for arch in archs:
                family.cost(arch, 224, 1000)

        seconds = turns({'price': price}, rounds)
        print(f'  {name}: {len(archs) / statistics.median(seconds["price"]):,.0f} architectures per second')


def published_formula(tables: RelativePositions2D, q: Tensor, k: Tensor, v: Tensor, grid: tuple[int, int]) -> Tensor:
    """Compute the formula literally: a vector for every pair of tokens, for keys and for values."""
    position = torch.arange(grid[0] * grid[1])
    index = []
    for axis in (position // grid[1], position % grid[1]):
        offset = (axis[None, :] - axis[:, None]).clamp(-REACH, REACH) + REACH + 1
        index.append(F.pad(offset, (1, 0, 1, 0)))
    keys = tables.key_vertical[index[0]] + tables.key_horizontal[index[1]]
    values = tables.value_vertical[index[0]] + tables.value_horizontal[index[1]]
    pairs = (q.permute(2, 0, 1, 3).flatten(1, 2) @ keys.mT).unflatten(1, q.shape[:2]).permute(1, 2, 0, 3)
    weights = ((q @ k.mT + pairs) * HEAD_DIM**-0.5).softmax(-1)
    mixed = (weights.permute(2, 0, 1, 3).flatten(1, 2) @ values).unflatten(1, q.shape[:2]).permute(1, 2, 0, 3)
    return weights @ v + mixed


def attention(kind: str, grid: tuple[int, int], heads: int, backward: bool) -> Callable[[], None]:
    """Return a function that runs one attention layer of either kind."""
    torch.manual_seed(0)
    tables = RelativePositions2D(HEAD_DIM, REACH)
    q, k, v = (torch.randn(1, heads, 1 + grid[0] * grid[1], HEAD_DIM, requires_grad=True) for _ in range(3))

    def run() -> None:
        with torch.set_grad_enabled(backward):
            if kind == 'fused':
                out = tables(q, k, v, TokenGrid.make(*grid, HEAD_DIM, REACH, q.device))
            else:
                out = published_formula(tables, q, k, v, grid)
            if backward:
                out.sum().backward()

    return run


def benchmark_fused(rounds: int) -> None:
    """Fused relative positions versus the published formula: one layer, 3 heads, one image."""
    for height, width in ((224, 224), (512, 512), (800, 1344)):
        grid = (height // 16, width // 16)
        pairs = (1 + grid[0] * grid[1]) ** 2 * HEAD_DIM * 4 / 2**30
        for backward in (False, True):
            what = f'  {height} x {width}, forward{" and backward" if backward else ""}'
            fused = attention('fused', grid, 3, backward)
            small = ('fused', (2, 2), 1, backward)
            memory = peak_memory(attention, ('fused', grid, 3, backward), small)
            if pairs > 1.5:  # backward holds the two tables, their gradients and copies
                seconds = turns({'fused': fused}, min(rounds, 3))
                print(
                    f'{what}: {statistics.median(seconds["fused"]):.2f} s, {memory:.0f} MiB; '
                    f'the formula needs {pairs:.1f} GiB for each of several tensors'
                )
                continue
            seconds = turns({'fused': fused, 'formula': attention('formula', grid, 3, backward)}, rounds)
            plain = peak_memory(attention, ('formula', grid, 3, backward), small)
            print(f'{what}: formula / fused time {ratio(seconds, "formula", "fused")}')
            print(
                f'{"":{len(what)}}  fused / formula memory {memory / plain:6.2f}x  ({memory:.0f} and {plain:.0f} MiB)'
            )


def trainer(model: nn.Module, x: Tensor) -> Callable[[], None]:
    """Return a function that runs a training step: forward, backward, AdamW (fused, to avoid the cost of its loop)."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        out = model(x)
        (out[-1] if isinstance(out, tuple) else out).square().mean().backward()
        optimizer.step()

    return step


def benchmark_elastic(rounds: int) -> None:
    """Elastic network at an architecture versus the extracted network: training step at 224 x 224, batch 16."""
    x = torch.randn(16, 3, 224, 224)
    elastic = AutoFormer(space='autoformer-tiny')
    for name, arch in (('AutoFormer-T', zoo.load_arch('autoformer-tiny')), ('largest', elastic.space.largest())):
        elastic.set_arch(arch)
        seconds = turns({'elastic': trainer(elastic, x), 'fixed': trainer(elastic.extract(), x)}, rounds)
        print(f'  {name}: elastic / extracted {ratio(seconds, "elastic", "fixed")}')


def benchmark_step(rounds: int) -> None:
    """Fixed AutoFormer-T versus timm's DeiT-Ti: training step at 224 x 224, batch 8."""
    import timm

    x = torch.randn(8, 3, 224, 224)
    contenders = {'deit': trainer(timm.create_model('deit_tiny_patch16_224'), x)}
    for name, reach in (('with relative positions', REACH), ('without', 0)):
        contenders[name] = trainer(timm.create_model('vitnas_autoformer_tiny', reach=reach), x)
    seconds = turns(contenders, rounds)
    for name in list(contenders)[1:]:
        print(f'  AutoFormer-T {name}: / DeiT-Ti {ratio(seconds, name, "deit")}')


def biased(shape: tuple[int, ...], learns: bool, fused: bool) -> Callable[[], None]:
    """Return a function that runs attention with a bias on (windows, heads, tokens, 32); backward if it learns."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(shape, requires_grad=learns) for _ in range(3))
    bias = torch.randn(shape[1], shape[2], shape[2], requires_grad=learns)

    def run() -> None:
        if fused:
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias[None])
        else:
            out = ((q * shape[-1] ** -0.5) @ k.mT).add_(bias).softmax(-1) @ v
        if learns:
            out.sum().backward()

    return run


def benchmark_windows(rounds: int) -> None:
    """Attention of S3-T's stages on 8 images: torch's own versus matrix products (`attend` chooses between these)."""
    for shape in ((512, 3, 49, 32), (128, 6, 49, 32), (8, 12, 196, 32), (8, 24, 49, 32)):
        for learns in (True, False):
            seconds = turns({name: biased(shape, learns, name == 'fused') for name in ('fused', 'plain')}, rounds)
            what = 'forward and backward' if learns else 'forward'
            print(f'  {shape[0]} windows of {shape[2]}, {what}: torch / products {ratio(seconds, "fused", "plain")}')


def benchmark_s3(rounds: int) -> None:
    """Training steps at 224 x 224, batch 8: S3-T versus timm's network, and elastic versus extracted networks."""
    import timm

    x = torch.randn(8, 3, 224, 224)
    contenders = {name: trainer(timm.create_model(name), x) for name in ('vitnas_s3_t', 'swin_s3_tiny_224')}
    seconds = turns(contenders, rounds)
    print(f'  S3-T: / timm {ratio(seconds, "vitnas_s3_t", "swin_s3_tiny_224")}')
    widths = dict(
        embed_dim=[64, 96], depth=[1, 2], block=dict(num_heads=[2, 3], mlp_ratio=[3.0, 4.0], window_size=[7, 14])
    )
    elastic = S3(space=dict(family='s3', stages=[widths] * 4))
    for name, arch in (('smallest', elastic.space.smallest()), ('largest', elastic.space.largest())):
        elastic.set_arch(arch)
        seconds = turns({'elastic': trainer(elastic, x), 'fixed': trainer(elastic.extract(), x)}, rounds)
        print(f'  {name}: elastic / extracted {ratio(seconds, "elastic", "fixed")}')


PARTS = {
    'price': benchmark_price,
    'fused': benchmark_fused,
    'elastic': benchmark_elastic,
    'step': benchmark_step,
    'windows': benchmark_windows,
    's3': benchmark_s3,
}


def main(args: list[str] | None = None) -> None:
    """Run the requested parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('parts', nargs='*', metavar='PART', help=f'of {", ".join(PARTS)}; defaults to all')
    parser.add_argument(
        '--threads', type=int, default=1, help='defaults to 1: on a busy machine, threads wait for each other at random'
    )
    parser.add_argument('--rounds', type=int, default=9, help='number of measured turns; defaults to 9')
    options = parser.parse_args(args)
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f'PART should be of {", ".join(PARTS)}, but got {", ".join(unknown)}')
    torch.set_num_threads(options.threads)
    print(f'torch {torch.__version__}, {torch.get_num_threads()} threads')
    for part in options.parts or PARTS:
        print(f'{part}: {(PARTS[part].__doc__ or "").strip()}', flush=True)
        PARTS[part](options.rounds)


if __name__ == '__main__':
    main()
