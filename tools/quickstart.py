"""The quickstart: train a supernet on the embedded digits, search it under a MACs limit, test the winner."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.config import Config

import vitnas_core  # noqa: F401  (registers everything, patches torch)
from tools import extract_subnet
from vitnas_core import zoo
from vitnas_core.backbones import elastic_backbone
from vitnas_core.checkpoints import load_weights
from vitnas_core.costs import Constraint, Cost
from vitnas_core.evaluation import Job, Scorer
from vitnas_core.evaluation.pricing import resolve_pricing
from vitnas_core.launch import make_runner
from vitnas_core.model_configs import fixed_config
from vitnas_core.search import SearchLoop
from vitnas_core.search.feasible import FeasibleSpace
from vitnas_core.spaces import Arch
from vitnas_core.utils.fileio import atomic_write
from vitnas_core.utils.text import table

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = ROOT / 'projects/classification/configs/autoformer'
SUPERNET = CONFIGS / 'autoformer-micro_supernet_40e_digits.py'
SEARCH = CONFIGS / 'autoformer-micro_search_evolution-2m_digits.py'
NUM_RANDOM = 20
"""Number of random architectures behind the "random" result."""


def read(path: Path, work_dir: Path, seed: int) -> Config:
    """Read a config and silence its log."""
    cfg = Config.fromfile(path)
    cfg.work_dir, cfg.log_level, cfg.launcher = str(work_dir), 'ERROR', 'none'
    cfg.randomness.seed = seed
    return cfg


def train(folder: Path, seed: int, epochs: int | None) -> Path:
    """Train the supernet, or resume an interrupted quickstart; return the last checkpoint."""
    cfg = read(SUPERNET, folder / 'supernet', seed)
    if epochs:
        cfg.train_cfg.max_epochs = cfg.train_cfg.val_interval = epochs
        cfg.param_scheduler[1].end = max(epochs, 6)
    cfg.custom_hooks += [dict(type='vitnas.ProgressHook')]
    cfg.resume = (folder / 'supernet/last_checkpoint').is_file()
    make_runner(cfg).train()
    return Path((folder / 'supernet/last_checkpoint').read_text())


def search(folder: Path, seed: int, checkpoint: Path) -> SearchLoop:
    """Search the supernet; an interrupted search resumes from its journal."""
    cfg = read(SEARCH, folder / 'search', seed)
    cfg.load_from = str(checkpoint)
    runner = make_runner(cfg)
    runner.train()
    return runner.train_loop


def show_baselines(found: SearchLoop) -> None:
    """Rewrite the report with the largest and the smallest network beside the candidates."""
    baselines = []
    for name in ('largest', 'smallest'):
        arch = getattr(found.space, name)()
        cost = found.price(arch)
        baselines.append((name, found.scorer.score(Job(arch)).value, dict(macs=cost.macs, params=cost.params)))
    found.write_pictures(baselines)


class Test:
    """Test accuracy with weights inherited from the supernet."""

    def __init__(self, cfg: Config, checkpoint: Path) -> None:
        self.cfg = cfg
        self.model = make_model(cfg.model, cfg, checkpoint)
        self.backbone = elastic_backbone(self.model)
        self.pricing = resolve_pricing(cfg.model, cfg.train_dataloader)
        self.scorer = self.make_scorer(self.model)

    def make_scorer(self, model: Any) -> Scorer:
        """Make a scorer of a model on the test images."""
        return Scorer.build(model, self.cfg.test_dataloader, dict(self.cfg.test_evaluator))

    def price(self, arch: Arch) -> Cost:
        """Return parameters and MACs of the whole network."""
        return self.backbone.price(arch, *self.pricing)

    def row(self, name: str, accuracy: float, cost: Cost) -> dict[str, Any]:
        """Make a row of the table."""
        return dict(name=name, accuracy=accuracy, macs=cost.macs, params=cost.params)

    def subnet(self, name: str, arch: Arch) -> dict[str, Any]:
        """Test one architecture of the supernet."""
        return self.row(name, self.scorer.score(Job(arch)).value, self.price(arch))

    def random(self, limit: float, seed: int) -> dict[str, Any]:
        """Test random architectures that use nearly all of the budget; return their mean."""
        near = FeasibleSpace(self.backbone.space, self.price, Constraint(dict(macs=(0.9 * limit, limit))))
        rng, archs = np.random.default_rng(seed), list[Arch]()
        while len(archs) < NUM_RANDOM and (arch := near.draw(rng, archs)):
            archs.append(arch)
        rows = [self.subnet('', arch) for arch in archs]
        mean = {key: float(np.mean([row[key] for row in rows])) for key in ('accuracy', 'macs', 'params')}
        return dict(name=f'random, {len(rows)} of the same budget', **mean)

    def extracted(self, name: str, folder: Path) -> dict[str, Any]:
        """Test the standalone network in the files of extract_subnet.py."""
        arch = zoo.load_arch(folder / 'arch.json')
        model = make_model(fixed_config(self.cfg.model, arch), self.cfg, folder / 'weights.safetensors')
        return self.row(name, self.make_scorer(model).score(Job(arch)).value, self.price(arch))


def make_model(model_cfg: Any, cfg: Config, checkpoint: Path) -> Any:
    """Build a model of the config and load its weights."""
    from mmpretrain.registry import MODELS

    preprocessor = dict(cfg.data_preprocessor, type='ClsDataPreprocessor')
    model = MODELS.build({**model_cfg, 'data_preprocessor': preprocessor})
    load_weights(model, checkpoint)
    return model


def main(args: list[str] | None = None) -> list[dict[str, Any]]:
    """Run the quickstart."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--seed', type=int, default=0, help='seed of the training and the search; defaults to 0')
    parser.add_argument('--epochs', type=int, help="epochs of the supernet; defaults to the config's")
    parser.add_argument('--work-dir', type=Path, default=ROOT / 'work_dirs/quickstart', help='folder for all results')
    options = parser.parse_args(args)
    if options.epochs is not None and options.epochs < 1:
        parser.error(f'--epochs should be at least 1, but got {options.epochs}')
    torch.set_num_threads(1)  # the networks are tiny: more threads cost more time than they save
    folder, start = options.work_dir / f'seed{options.seed}', time.perf_counter()

    print(f'1. Training a supernet on 1,142 real digits ({SUPERNET.name})', flush=True)
    checkpoint = train(folder, options.seed, options.epochs)
    limit = Config.fromfile(SEARCH).train_cfg.constraint.macs[1]
    print(f'\n2. Searching it for at most {limit / 1e6:g} M MACs on 300 held-out images ({SEARCH.name})', flush=True)
    found = search(folder, options.seed, checkpoint)
    print('\n3. Extracting the winner and testing it on 355 unseen images')
    subnet, best = folder / 'subnet', folder / 'search/best_arch.json'
    extract_subnet.main([str(SUPERNET), str(checkpoint), str(best), '--out', str(subnet)])
    test = Test(found.runner.cfg, checkpoint)
    space = test.backbone.space
    show_baselines(found)
    rows = [
        test.subnet('largest', space.largest()),
        test.subnet('smallest', space.smallest()),
        test.random(limit, options.seed),
        test.extracted('searched', subnet),
    ]
    atomic_write(folder / 'quickstart.json', json.dumps(rows, indent=1))
    cells = [[r['name'], f'{r["accuracy"]:.1f}%', f'{r["macs"] / 1e6:.2f}', f'{r["params"] / 1e6:.3f}'] for r in rows]
    print('\n' + table(['network', 'test accuracy', 'MACs (M)', 'params (M)'], cells))
    print(f'\nThe report: {folder / "search/report.html"}\nThe network: {subnet}')
    print(f'{time.perf_counter() - start:.0f} s in all')
    return rows


if __name__ == '__main__':
    main()
