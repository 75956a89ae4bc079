"""The README is correct: its Python blocks run, its config blocks build, its commands exist."""

import re
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import init_default_scope
from mmengine.runner import Runner

from vitnas_core.registry import ARCH_SAMPLERS, RULES

ROOT = Path(__file__).parents[2]
README = (ROOT / 'README.md').read_text()
BLOCKS = re.findall(r'```python\n(.*?)```', README, re.DOTALL)
CONFIGS = {m[1]: block for block in BLOCKS if (m := re.match(r'# (\S+\.py)\n', block))}
SNIPPETS = [block for block in BLOCKS if not re.match(r'# \S+\.py\n', block)]


def build(name: str, tmp_path: Path) -> torch.nn.Module:
    """The model of a config block, made from the file as a user would."""
    (tmp_path / name).write_text(CONFIGS[name])
    cfg = Config.fromfile(tmp_path / name)
    init_default_scope(cfg.default_scope)
    cfg.model.data_preprocessor.pop('batch_augments', None)
    cfg.model.backbone.init_cfg = None
    return revert_sync_batchnorm(_models(cfg.default_scope).build(cfg.model))


def _models(scope: str):
    if scope == 'mmdet':
        from mmdet.registry import MODELS
    else:
        from mmseg.registry import MODELS
    return MODELS


def test_there_are_blocks() -> None:
    assert len(SNIPPETS) == 4
    assert len(CONFIGS) == 4


@pytest.mark.parametrize('block', SNIPPETS, ids=range(len(SNIPPETS)))
def test_snippets_run(block: str) -> None:
    names: dict = {}
    exec(block, names)
    if 'subnet' in names:
        x = torch.randn(1, 3, 64, 96)
        assert torch.equal(names['supernet'](x)[0][:, :192], names['subnet'](x)[0])
        assert names['features'].shape == (1, 240, 14, 20)
    if 'best' in names:
        assert names['price'](names['best']).macs <= 1.5e9
        assert names['best'] in names['space']


@pytest.mark.parametrize('name', ['mask-rcnn_autoformer-tiny_simple-fpn_1x_coco.py', 'mask-rcnn_s3-t_fpn_1x_coco.py'])
def test_detector_trains_a_step(name: str, tmp_path: Path) -> None:
    """Mask R-CNN of the README: strides of its pyramid, losses, gradients in the backbone."""
    from mmdet.testing import demo_mm_inputs

    model = build(name, tmp_path).train()
    features = model.extract_feat(torch.randn(1, 3, 96, 128))
    assert [tuple(f.shape[-2:]) for f in features] == [(24, 32), (12, 16), (6, 8), (3, 4), (2, 2)]
    assert {f.shape[1] for f in features} == {256}
    inputs = demo_mm_inputs(1, [[3, 64, 64]], num_items=[2], with_mask=True)
    batch = model.data_preprocessor(inputs, training=True)
    losses = model.loss(batch['inputs'], batch['data_samples'])
    assert {'loss_rpn_cls', 'loss_rpn_bbox', 'loss_cls', 'loss_bbox', 'loss_mask'} <= losses.keys()
    model.parse_losses(losses)[0].backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.backbone.parameters())


def test_segmentor_predicts(tmp_path: Path) -> None:
    model = build('autoformer-tiny_upernet_8xb2-160k_ade20k-512x512.py', tmp_path).eval()
    with torch.no_grad():
        logits = model.encode_decode(torch.randn(1, 3, 96, 64), [dict(img_shape=(96, 64), ori_shape=(96, 64))])
    assert logits.shape == (1, 150, 96, 64)


def test_the_sentence_of_parts_builds(tmp_path: Path) -> None:
    name = 'sandwich_imagenet.py'
    (tmp_path / name).write_text(CONFIGS[name].replace("'projects/", f"'{ROOT}/projects/"))
    cfg = Config.fromfile(tmp_path / name)
    sampler, rule = ARCH_SAMPLERS.build(cfg.train_cfg.sampler), RULES.build(cfg.train_cfg.rule)
    rule.check(sampler, torch.nn.ModuleDict(dict(head=torch.nn.Identity())))
    assert cfg.train_cfg.max_epochs == 500 and sampler.num_archs == 4


def test_commands_and_links_exist() -> None:
    text = README.replace('$configs/', 'projects/classification/configs/autoformer/')
    for path in re.findall(r'\b((?:tools|projects|configs|requirements)/[\w./-]+\.\w+)', text):
        assert (ROOT / path).is_file(), path
    for link in re.findall(r'\]\((?!http)([^)]+)\)', README):
        assert (ROOT / link).exists(), link


def test_holdout_of_the_classification_readme(tmp_path: Path) -> None:
    """Its config block, based on the digits as it says, gives batches of the hold-out part."""
    text = (ROOT / 'projects/classification/README.md').read_text()
    (block,) = re.findall(r'```python\n(.*?)```', text, re.DOTALL)
    base = ROOT / 'configs/_base_/datasets/digits.py'
    (tmp_path / 'holdout.py').write_text(f"_base_ = ['{base}']\n{block}")
    cfg = Config.fromfile(tmp_path / 'holdout.py')
    init_default_scope('mmpretrain')
    loader = Runner.build_dataloader(cfg.val_dataloader)
    assert len(loader.dataset) == 200
    assert next(iter(loader))['inputs'][0].shape == (3, 32, 32)
