"""Every VQA config is parsed, built, trained, resumed and tested on tiny data."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import Runner
from safetensors.torch import save_file

from projects.vqa.vqa.tokenizer import SPECIAL
from tests.config_files import CONFIGS, VQA, build, check_schedule_ends, parsed, provide_files, shrink
from tools import test as testing
from tools import train
from tools.analysis import get_flops
from vitnas_core.backbones import elastic_backbone
from vitnas_core.backbones.pretrained import cut_to_shape

NAME = re.compile(
    r'(?P<backbone>[a-z0-9-]+)_((?P<gpus>\d+)xb(?P<batch>\d+)-)?(?P<epochs>\d+)e_(?P<dataset>scenes|vqav2)(-(?P<side>\d+))?'
)
WORDS = [*SPECIAL, *['is', 'there', 'a', '7', '?', 'how', 'many', 'digits', 'are']]


def write_small(stem: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The file of a small run of a config, and all the files that it reads."""
    cfg = Config(parsed(stem).to_dict())
    provide_files(cfg)
    shrink(cfg, monkeypatch)
    for part in ('train', 'val', 'test'):
        for step in cfg[f'{part}_dataloader'].dataset.pipeline:
            if step.type == 'Resize':
                step.scale = (64, 64)
    cfg.model.text.vocab_size = len(WORDS)
    cfg.model.fusion.depth = 1
    for path, text in (
        (cfg.model.text.vocab, '\n'.join(WORDS)),
        (cfg.model.head.answers, json.dumps([*map(str, range(cfg.model.head.num_answers - 1)), 'yes'])),
    ):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text)
    if cfg.model.text.get('init_cfg'):
        write_bert(cfg)
    cfg.visualizer.pop('name', None)
    cfg.log_level = 'WARNING'
    cfg.default_hooks.checkpoint.interval = 1
    path = Path(f'{stem}.py')
    cfg.dump(path)
    return str(path)


def write_bert(cfg: Config) -> None:
    """A file in BERT's layout; text and fusion take their parts."""
    init_default_scope('mmpretrain')
    torch.manual_seed(7)
    text = MODELS.build({**cfg.model.text, 'depth': cfg.model.fusion.depth, 'init_cfg': None})
    save_file(text.state_dict(), cfg.model.text.init_cfg.checkpoint)


def run(path: str, name: str, *more: str, **options: Any) -> Runner:
    values = [f'{key}={value}' for key, value in {'experiment_name': name, **options}.items()]
    return train.main([path, '--work-dir', f'work_dirs/{name}', *more, '--cfg-options', *values])


@pytest.mark.parametrize('stem', VQA)
def test_trains_resumes_and_answers(stem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = write_small(stem, monkeypatch)
    runner = run(path, 'whole', **{'train_cfg.max_epochs': 2})
    scalars = runner.message_hub.log_scalars
    losses = {name for name in scalars if name.startswith('train/loss_')}
    assert losses == {'train/loss_answer', *(['train/loss_match'] if runner.model.match else [])}
    for name in losses:
        assert torch.isfinite(torch.as_tensor(scalars[name].data[0])).all()
    assert 0 <= scalars['val/VQA/acc'].current() <= 100 and 'val/VQA/acc_yes/no' in scalars

    # Resumed after the first epoch, it ends bit for bit where it did.
    folder, whole = Path('work_dirs/whole'), runner.model.state_dict()
    (folder / 'last_checkpoint').write_text(str(folder / 'epoch_1.pth'))
    resumed = run(path, 'whole', '--resume', **{'train_cfg.max_epochs': 2, 'experiment_name': 'resumed'})
    assert resumed.iter == runner.iter
    assert all(torch.equal(tensor, whole[name]) for name, tensor in resumed.model.state_dict().items())

    metrics = testing.main([path, str(folder / 'epoch_2.pth'), '--work-dir', 'work_dirs/test'])['metrics']
    file = parsed(stem).test_evaluator.get('file_path')
    if file is None:
        assert 0 <= metrics['VQA/acc'] <= 100
    else:
        answers = json.loads(Path(file).read_text())
        assert [set(one) for one in answers] == [{'question_id', 'answer'}] * 2
        assert {one['answer'] for one in answers} <= set(json.loads(Path(parsed(stem).model.head.answers).read_text()))


@pytest.mark.parametrize('stem', [stem for stem in VQA if not stem.startswith('question-only')])
def test_weights_are_loaded(stem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cfg = Config.fromfile(write_small(stem, monkeypatch))
    model: Any = build(cfg)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.init_weights()
    after = model.state_dict()
    if cfg.model.text.get('init_cfg'):
        for part in ('text.embeddings', 'fusion.encoder', 'fusion.image_type'):
            names = [name for name in after if name.startswith(part) and not name.endswith(('.bias', 'Norm.weight'))]
            assert names and not any(torch.equal(before[name], after[name]) for name in names)
    if model.backbone is not None and cfg.model.backbone.get('init_cfg'):
        weights = torch.load(cfg.model.backbone.init_cfg.checkpoint, weights_only=True)['state_dict']
        own = {n.removeprefix('backbone.'): w for n, w in weights.items() if n.startswith('backbone.')}
        backbone = elastic_backbone(model)
        trained = {n: w for n, w in backbone.state_dict().items() if not n.startswith(backbone.output_weights)}
        assert all(torch.equal(w, trained[n]) for n, w in cut_to_shape(own, trained).items())


@pytest.mark.parametrize('stem', VQA)
def test_name_says_what_the_config_does(stem: str) -> None:
    name, cfg = NAME.fullmatch(stem), parsed(stem)
    assert name, f'{stem} should be named as {VQA[0]}'
    assert (name['backbone'] == 'question-only') == (cfg.model.backbone is None)
    assert cfg.train_cfg.max_epochs == int(name['epochs'])
    check_schedule_ends(cfg)
    if name['batch']:
        assert cfg.train_dataloader.batch_size == int(name['batch'])
        assert cfg.auto_scale_lr.base_batch_size == int(name['gpus']) * int(name['batch'])
    if name['side']:
        assert cfg.train_pipeline[1].scale == (int(name['side']),) * 2
    if cfg.model.backbone is not None and not cfg.model.backbone.arch.endswith('.json'):
        assert cfg.model.backbone.arch == name['backbone']


def test_recipe_of_the_paper() -> None:
    """S3, App. C: 2,048 pairs, four an image; 5e-5, a tenth in the backbone; steps at 25 and 35; 500 of warm-up."""
    cfg = parsed('s3-t_8xb64-40e_vqav2-384')
    loader, optim = cfg.train_dataloader, cfg.optim_wrapper
    assert 8 * loader.batch_size * loader.dataset.questions_per_image * 2 == 2048 and 'match' in cfg.model
    assert (optim.optimizer.type, optim.optimizer.lr) == ('AdamW', 5e-5)
    assert optim.paramwise_cfg.custom_keys.backbone.lr_mult == 0.1
    warm_up, steps = cfg.param_scheduler
    assert (warm_up.end, warm_up.by_epoch) == (500, False) and (steps.milestones, steps.gamma) == ([25, 35], 0.1)
    assert cfg.model.head.num_answers == 3129


def test_cost_of_s3_t() -> None:
    """The backbone's are the exact ones of S3-T; 12 layers of BERT's size over 144 + 16 tokens by hand."""
    stem = 's3-t_8xb64-40e_vqav2-384'
    costs = get_flops.main([str(CONFIGS[stem]), '--shape', '384'])
    width, tokens = 768, (384 // 32) ** 2 + 16
    layer = tokens * 12 * width**2 + 2 * tokens**2 * width
    assert costs['fusion'].macs == 12 * layer
    assert costs['fusion'].params == 12 * (12 * width**2 + 13 * width) + width
    assert costs['text'].params == (30522 + 512 + 2 + 2) * width
    assert costs['backbone'].params == 27_559_674
    assert costs['total'].params == sum(cost.params for name, cost in costs.items() if name != 'total')
