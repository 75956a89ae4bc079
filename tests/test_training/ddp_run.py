"""One process of distributed supernet trainings, started by test_distributed.py: WORK_DIR BATCH_SIZE CASE..."""

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from mmengine.hooks import Hook
from mmengine.runner import Runner

import vitnas_core  # noqa: F401
from tests.supernets import SANDWICH, UNIFORM, losses, supernet_config, watch
from vitnas_core.launch import make_runner
from vitnas_core.training.hooks import read_conflicts

SGD = dict(type='SGD', lr=0.02)  # its steps are as long as gradients are, unlike Adam's
CASES: dict[str, dict[str, Any]] = {
    'uniform': dict(sampler=UNIFORM, optim=dict(optimizer=SGD)),
    'distilled': dict(
        sampler=SANDWICH,
        rule=dict(type='vitnas.Sandwich', distill=dict(type='vitnas.KLDivergence')),
        optim=dict(optimizer=SGD),
    ),
    'focus': dict(
        sampler=dict(type='vitnas.FocusSampler', input_size=32, num_classes=10, step=5e5, width=16),
        rule=dict(type='vitnas.SinglePath'),
        optim=dict(optimizer=SGD),
    ),
    'shared': dict(
        sampler=dict(type='vitnas.MultiArchSampler', num_archs=4),
        rule=dict(type='vitnas.MultiArch', interleaved=True),
        optim=dict(optimizer=SGD),
    ),
    'accumulated': dict(sampler=SANDWICH, optim=dict(optimizer=SGD, accumulative_counts=3)),
    'projected': dict(
        sampler=SANDWICH,
        rule=dict(
            type='vitnas.Sandwich',
            distill=dict(type='vitnas.KLDivergence'),
            conflict=dict(type='vitnas.GradientProjection', clip_subnets=1.0),
        ),
        optim=dict(optimizer=SGD),
    ),
    'projected-accumulated': dict(
        sampler=SANDWICH,
        rule=dict(
            type='vitnas.Sandwich',
            distill=dict(type='vitnas.KLDivergence'),
            conflict=dict(type='vitnas.GradientProjection'),
        ),
        optim=dict(optimizer=SGD, accumulative_counts=3),
    ),
}


class Watch(Hook):
    """Notes what each step trained, and how often DDP exchanged gradients until then."""

    def __init__(self) -> None:
        self.archs: list[str] = []
        self.exchanges: list[int] = []
        self.calls = 0

    def before_train(self, runner: Runner) -> None:
        runner.model.register_comm_hook(None, self.reduce)
        watch(runner, self.archs)

    def reduce(self, state: object, bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """DDP's own reduction, counted."""
        self.calls += 1
        buffer = bucket.buffer().div_(torch.distributed.get_world_size())
        work = torch.distributed.all_reduce(buffer, async_op=True)
        return work.get_future().then(lambda future: future.value()[0])

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        self.exchanges.append(self.calls)


def run(case: str, work_dir: Path, batch_size: int) -> dict[str, Any]:
    cfg = supernet_config(
        work_dir, batch_size=batch_size, augment=False, checkpoint=dict(interval=4, by_epoch=False), max_iters=10,
        **CASES[case],
    )  # fmt: skip
    # Crops are seeded by the sample's position, so that they are the same however many processes there are.
    cfg.train_dataloader.dataset.dataset.pipeline.insert(1, dict(type='mmpretrain.RandomCrop', crop_size=32, padding=4))
    if case == 'focus':  # 64 images in batches of the supernet's 16, whoever holds them
        training = dict(num_archs=2, baseline=0.9, optimizer=dict(type='AdamW', lr=5e-3))
        cfg.custom_hooks = [dict(type='vitnas.SamplerTrainHook', interval=3, iterations=4, **training)]
        cfg.val_dataloader = {**cfg.train_dataloader, 'dataset': cfg.train_dataloader.dataset}
    if 'projected' in case:
        cfg.custom_hooks = [dict(type='vitnas.ConflictMeterHook', interval=4)]
    cfg.launcher = 'pytorch'
    cfg.randomness = dict(seed=3, diff_rank_seed=case == 'uniform')  # architectures and data do not depend on it
    cfg.resume = (work_dir / 'last_checkpoint').is_file()
    runner, seen = make_runner(cfg), Watch()
    runner.register_hook(seen)
    runner.train()
    weights = {name: tensor.tolist() for name, tensor in runner.model.module.state_dict().items()}
    state = runner.train_loop.sampler.state_dict().get('policy', {})
    learned = {name: tensor.tolist() for name, tensor in state.items()}
    conflicts = read_conflicts(work_dir / 'conflicts.csv') if 'projected' in case else []
    return dict(
        archs=seen.archs, exchanges=seen.exchanges, losses=losses(runner), weights=weights, learned=learned,
        conflicts=conflicts,
    )  # fmt: skip


if __name__ == '__main__':
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    seen = {case: run(case, folder / case, int(sys.argv[2])) for case in sys.argv[3:]}
    (folder / f'rank{torch.distributed.get_rank()}.json').write_text(json.dumps(seen))
