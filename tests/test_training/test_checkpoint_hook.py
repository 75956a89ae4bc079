"""Checkpoints survive kills and full disks, keep mmengine's arguments, and resume with weights_only=True."""

import copy
import errno
import importlib
import json
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

import pytest
import torch
from mmengine.evaluator import BaseMetric
from mmengine.fileio import LocalBackend, register_backend
from mmengine.fileio.backends import backends
from mmengine.hooks import CheckpointHook as StockCheckpointHook
from mmengine.logging import MessageHub
from mmengine.model import BaseModel
from mmengine.registry import METRICS
from mmengine.runner import Runner

import vitnas_core.utils.fileio
from vitnas_core.training.hooks import CheckpointHook

ROOT = Path(__file__).parents[2]


@METRICS.register_module()
class Rising(BaseMetric):
    """Better in every epoch, so that each one saves a best checkpoint."""

    def process(self, data_batch, data_samples):
        self.results.append(0)

    def compute_metrics(self, results):
        epoch = MessageHub.get_current_instance().get_info('epoch')
        return {'accuracy/top1': epoch, 'accuracy/top5': 2 * epoch}


@pytest.fixture(autouse=True)
def one_thread():
    """Threads that wait for each other cost a tiny model most of its time, above all on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def config(work_dir, epochs, images=100, metric='Rising', **hook):
    """A transformer of one block on the digits, compared on a hold-out part of the training set."""
    digits = {'type': 'vitnas.Digits', 'indices': images, 'serialize_data': False}
    data = {
        'type': 'vitnas.HoldOut',
        'dataset': {**digits, 'pipeline': [{'type': 'mmpretrain.PackInputs'}]},
        'fraction': 0.2,
        'test_dataset': {**digits, 'split': 'test'},
    }
    loader = {'batch_size': 32, 'num_workers': 0, 'collate_fn': {'type': 'default_collate'}}
    arch = {'embed_dims': 16, 'num_layers': 1, 'num_heads': 2, 'feedforward_channels': 32}
    return {
        'default_scope': 'mmpretrain',
        'model': {
            'type': 'ImageClassifier',
            'data_preprocessor': {'num_classes': 10, 'mean': [128] * 3, 'std': [64] * 3},
            'backbone': {'type': 'VisionTransformer', 'arch': arch, 'img_size': 8, 'patch_size': 2},
            'head': {'type': 'VisionTransformerClsHead', 'num_classes': 10, 'in_channels': 16},
        },
        'train_dataloader': {
            **loader,
            'dataset': {**data, 'part': 'train'},
            'sampler': {'type': 'DefaultSampler', 'shuffle': True},
        },
        'val_dataloader': {
            **loader,
            'dataset': {**data, 'part': 'holdout'},
            'sampler': {'type': 'DefaultSampler', 'shuffle': False},
        },
        'val_evaluator': {'type': metric},
        'train_cfg': {'by_epoch': True, 'max_epochs': epochs},
        'val_cfg': {},
        'optim_wrapper': {'optimizer': {'type': 'AdamW', 'lr': 0.005}},
        'param_scheduler': {'type': 'CosineAnnealingLR', 'T_max': 4, 'end': 4},
        'default_hooks': {'checkpoint': {'type': 'vitnas.CheckpointHook', 'interval': 1, **hook}},
        'custom_hooks': [{'type': 'ClassNumCheckHook'}],
        'randomness': {'seed': 0},
        'work_dir': str(work_dir),
        'experiment_name': str(work_dir).replace(os.sep, '_'),
        'log_level': 'ERROR',
    }


def train(work_dir, epochs, resume=False, **options):
    runner = Runner.from_cfg({**copy.deepcopy(config(work_dir, epochs, **options)), 'resume': resume})
    runner.train()
    return runner


def files(folder):
    """What a run leaves: no logs, but aside files if there were any."""
    return sorted(p.name for p in Path(folder).iterdir() if p.is_file() and p.suffix in ('.pth', '.tmp', ''))


def test_resumed_training_equals_an_uninterrupted_one(tmp_path):
    options = {'max_keep_ckpts': 1, 'save_best': 'auto', 'images': 800, 'metric': 'Accuracy'}
    whole = train(tmp_path / 'whole', 4, **options)
    train(tmp_path / 'parts', 2, **options)
    last = tmp_path / 'parts' / 'epoch_2.pth'
    assert (tmp_path / 'parts' / 'last_checkpoint').read_text() == str(last)
    parts = train(tmp_path / 'parts', 4, resume=True, **options)

    for (name, a), (_, b) in zip(whole.model.state_dict().items(), parts.model.state_dict().items(), strict=True):
        assert torch.equal(a, b), name
    score = whole.message_hub.get_info('best_score')
    assert parts.message_hub.get_info('best_score') == score > 20  # per cent; chance is 10
    for folder in ('whole', 'parts'):
        kept = files(tmp_path / folder)
        assert [n for n in kept if not n.startswith('best')] == ['epoch_4.pth', 'last_checkpoint']
        assert len(kept) == 3  # one best checkpoint: the replaced ones are gone
        best = torch.load(tmp_path / folder / kept[0])
        assert best['meta']['dataset_meta']['classes'] == tuple('0123456789')


def test_several_best_metrics_each_keep_one(tmp_path):
    metrics = ['accuracy/top1', 'accuracy/top5']
    runner = train(tmp_path, 3, save_best=metrics, max_keep_ckpts=2)
    hook = next(h for h in runner.hooks if isinstance(h, CheckpointHook))
    best = ['best_accuracy_top1_epoch_3.pth', 'best_accuracy_top5_epoch_3.pth']
    assert [os.path.basename(hook.best_ckpt_path_dict[key]) for key in metrics] == best
    assert files(tmp_path) == [*best, 'epoch_2.pth', 'epoch_3.pth', 'last_checkpoint']


@pytest.mark.parametrize('step', ['epoch_2.pth', 'last_checkpoint', 'best_accuracy_top1_epoch_2.pth'])
def test_full_disk_leaves_the_old_checkpoints(tmp_path, monkeypatch, step):
    """Whatever write of the second epoch fails, what the first one saved is still there."""
    write, written = vitnas_core.utils.fileio.atomic_write, []

    def full(path, *args):
        name = os.path.basename(path)
        written.append(name)
        if name == step and 'epoch_2.pth' in written:
            raise OSError(errno.ENOSPC, 'no space left')
        write(path, *args)

    monkeypatch.setattr('vitnas_core.utils.fileio.atomic_write', full)
    monkeypatch.setattr('vitnas_core.training.hooks.checkpoint.atomic_write', full)
    with pytest.raises(OSError, match='no space'):
        train(tmp_path, 2, max_keep_ckpts=1, save_best='auto')
    kept = files(tmp_path)
    assert 'best_accuracy_top1_epoch_1.pth' in kept
    last = Path((tmp_path / 'last_checkpoint').read_text())
    assert last.name == ('epoch_2.pth' if step.startswith('best') else 'epoch_1.pth')
    assert torch.load(last)['state_dict']


def test_leftovers_of_a_kill_are_removed_at_the_start(tmp_path):
    for name in ('.epoch_9.pth.0123abcd.tmp', '.last_checkpoint.0123abcd.tmp', '.journal.json.0123abcd.tmp'):
        (tmp_path / name).write_text('torn')
    train(tmp_path, 1)
    assert files(tmp_path) == ['.journal.json.0123abcd.tmp', 'epoch_1.pth', 'last_checkpoint']


def test_best_checkpoint_of_another_run_is_kept(tmp_path):
    train(tmp_path / 'first', 1, save_best='auto')
    cfg = config(tmp_path / 'second', 2, save_best='auto')
    runner = Runner.from_cfg({**cfg, 'load_from': str(tmp_path / 'first' / 'epoch_1.pth'), 'resume': True})
    runner.train()
    assert 'best_accuracy_top1_epoch_2.pth' in files(tmp_path / 'second')
    assert 'best_accuracy_top1_epoch_1.pth' in files(tmp_path / 'first')


def test_validation_alone_saves_nothing(tmp_path):
    Runner.from_cfg(config(tmp_path, 1, metric='Accuracy', save_best='auto')).val()
    assert files(tmp_path) == []


def test_a_given_backend_is_used_as_it_is(tmp_path):
    """With one of the user's own the atomic one stays out; only the order is ours."""
    events = []

    class Recording(LocalBackend):
        def put(self, obj, filepath):
            events.append(('put', os.path.basename(filepath)))
            super().put(obj, filepath)

        def remove(self, filepath):
            events.append(('remove', os.path.basename(filepath)))
            super().remove(filepath)

    register_backend('recording', Recording)
    try:
        runner = train(tmp_path, 2, max_keep_ckpts=1, backend_args={'backend': 'recording'})
    finally:
        del backends['recording']
    assert events == [('put', 'epoch_1.pth'), ('put', 'epoch_2.pth'), ('remove', 'epoch_1.pth')]
    hook = next(h for h in runner.hooks if isinstance(h, StockCheckpointHook))
    assert type(hook) is CheckpointHook and hook.backend_args == {'backend': 'recording'}


# The rest runs in an interpreter of its own, where this file is the script. Its parent process never trains,
# so that forking it is safe, and the imports are paid for once.


@pytest.fixture(scope='module')
def report(tmp_path_factory):
    environment = {**os.environ, 'PYTHONPATH': os.pathsep.join([str(ROOT), os.environ.get('PYTHONPATH', '')])}
    command = [sys.executable, __file__, str(tmp_path_factory.mktemp('processes'))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_killed_at_any_moment_it_resumes(report):
    """SIGKILL at random moments; see kill_and_check for what is checked after each."""
    reached = report['killed']['iterations']
    assert reached == sorted(set(reached))  # each life goes on where the last ended
    assert report['killed']['asides'] == 0


def test_only_the_first_process_writes(report):
    assert report['distributed'] == {'rank0': ['iter_2.pth', 'last_checkpoint'], 'rank1': []}


class Line(BaseModel):
    """Large enough (2 MB) that writing it takes a part of each iteration."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(512, 1024)

    def forward(self, inputs, mode):
        return {'loss': self.linear(inputs).square().mean()}


def save_every_iteration(work_dir, iterations, **options):
    """Save after every iteration and keep one checkpoint, which is the hardest case."""
    torch.set_num_threads(1)
    runner = Runner(
        Line(),
        work_dir=str(work_dir),
        train_dataloader={
            'dataset': torch.ones(64, 512),
            'batch_size': 8,
            'sampler': {'type': 'InfiniteSampler'},
            'collate_fn': lambda rows: {'inputs': torch.stack(rows)},
        },
        train_cfg={'by_epoch': False, 'max_iters': iterations},
        optim_wrapper={'optimizer': {'type': 'SGD', 'lr': 0.01}},
        default_hooks={
            'checkpoint': {'type': 'vitnas.CheckpointHook', 'interval': 1, 'by_epoch': False, 'max_keep_ckpts': 1}
        },
        resume=True,
        log_level='ERROR',
        **options,
    )
    runner.train()


def fork(function, *args, **options):
    pid = os.fork()
    if pid == 0:
        try:
            function(*args, **options)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return pid


def last_checkpoint(work_dir):
    file = work_dir / 'last_checkpoint'
    return file.read_text() if file.exists() else None


def check(work_dir):
    """After a kill: ``last_checkpoint`` names a whole file, and next to nothing else is left."""
    last = Path(last_checkpoint(work_dir))
    checkpoint = torch.load(last, weights_only=True)
    assert checkpoint['state_dict']['linear.weight'].shape == (1024, 512)
    assert last.name == f'iter_{checkpoint["meta"]["iter"]}.pth', last
    for path in work_dir.glob('*.pth'):
        torch.load(path, weights_only=True)
    return checkpoint['meta']['iter']


def kill_and_check(work_dir, times):
    """Let one life after another make some progress, kill it at a random moment, and look at what is left."""
    moments = random.Random(0)
    reached = []
    for _ in range(times):
        before = last_checkpoint(work_dir)
        pid = fork(save_every_iteration, work_dir, 10**6)
        while last_checkpoint(work_dir) == before:
            assert os.waitpid(pid, os.WNOHANG) == (0, 0), 'the process ended by itself'
            time.sleep(0.001)
        time.sleep(moments.uniform(0, 0.1))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        reached.append(check(work_dir))
    _, status = os.waitpid(fork(save_every_iteration, work_dir, reached[-1] + 1), 0)
    assert status == 0 and check(work_dir) == reached[-1] + 1
    return {'iterations': reached, 'asides': len(list(work_dir.glob('.*.tmp')))}


def distributed(work_dir):
    """Two processes with a folder each, to see which of them writes."""

    def one(rank):
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE='2')
        torch.distributed.init_process_group('gloo', init_method=f'file://{work_dir}/meeting', rank=rank, world_size=2)
        wrapper = {'type': 'MMDistributedDataParallel', 'device_ids': None, 'broadcast_buffers': False}
        save_every_iteration(
            work_dir / f'rank{rank}', 2, launcher='pytorch', cfg={'model_wrapper_cfg': wrapper}, experiment_name='two'
        )

    for pid in [fork(one, rank) for rank in (0, 1)]:
        assert os.waitpid(pid, 0)[1] == 0
    return {f'rank{rank}': files(work_dir / f'rank{rank}') for rank in (0, 1)}


if __name__ == '__main__':
    # What a Runner imports when it is built, so that no process has to do it again.
    importlib.import_module('torchvision')
    importlib.import_module('matplotlib.backends.backend_agg')
    folder = Path(sys.argv[1])
    print(json.dumps({'killed': kill_and_check(folder / 'killed', 6), 'distributed': distributed(folder)}))
