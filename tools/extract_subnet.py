"""Cut one architecture out of a trained supernet: ``python tools/extract_subnet.py CONFIG CHECKPOINT ARCH --out DIR``.

The tool writes ``arch.json`` and ``weights.safetensors`` into DIR and prints the config lines that load them. Before it
writes, it runs the subnet on random images and checks that its features equal the supernet's bit for bit.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from mmengine.config import Config, DictAction
from mmengine.registry import MODELS
from mmengine.utils import ProgressBar
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # configs may import projects/ from any folder

import vitnas_core  # noqa: F401  (registers everything, patches torch)
from projects import read_config
from vitnas_core import zoo
from vitnas_core.backbones import elastic_backbone
from vitnas_core.backbones.pretrained import NOTE, Note
from vitnas_core.checkpoints import load_weights
from vitnas_core.errors import VitnasError
from vitnas_core.evaluation import KeptBatches, calibrate, elastic_norms, whole_loader
from vitnas_core.extract import check_extracted, extract_model
from vitnas_core.model_configs import model_config
from vitnas_core.spaces import Arch
from vitnas_core.utils.counting import count_params
from vitnas_core.utils.fileio import atomic_write


def _count(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f'should be a number of batches from 0, but got {text}')
    return int(text)


def parse_args(args: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('config', help='config of the supernet, or of a search in that supernet')
    parser.add_argument('checkpoint', help='weights of the supernet (.pth or .safetensors)')
    parser.add_argument('arch', help='an architecture file, such as best_arch.json of a search, or a zoo name')
    parser.add_argument('--out', type=Path, required=True, metavar='DIR', help='folder for the files')
    parser.add_argument(
        '--recalibrate',
        type=_count,
        default=0,
        metavar='N',
        help="recalibrate batch norms for the architecture on N batches of the config's train_dataloader",
    )
    parser.add_argument('--pth', action='store_true', help='also write weights.pth, for tools that read only .pth')
    parser.add_argument('--cfg-options', nargs='+', action=DictAction, default={}, help='key=value pairs that override')
    parser.set_defaults(launcher='none', work_dir=None)
    return parser.parse_args(args)


def write(out: Path, arch: Arch, weights: dict[str, Tensor], notes: dict[str, str], pth: bool) -> None:
    """Write the files. The architecture comes last, so a folder with it is complete.

    Args:
        out: The folder.
        arch: The architecture.
        weights: Its weights.
        notes: Metadata for the weight files.
        pth: Whether to write ``weights.pth`` too.

    Raises:
        VitnasError: The folder cannot be written.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / 'arch.json').unlink(missing_ok=True)  # never leave an old architecture beside new weights
        atomic_write(out / 'weights.safetensors', safetensors.torch.save(weights, notes))
        if pth:
            buffer = io.BytesIO()
            torch.save(dict(state_dict=weights, meta=notes), buffer)
            atomic_write(out / 'weights.pth', buffer.getvalue())
        atomic_write(out / 'arch.json', arch.to_json() + '\n')
    except OSError as err:
        raise VitnasError(f'--out {out} cannot be written: {err}') from None


def _show_progress(batches: Iterable[Any], total: int) -> Iterator[Any]:
    bar = ProgressBar(total)
    for batch in batches:
        yield batch
        bar.update()


def recalibrate_on(model: nn.Module, arch: Arch, cfg: Config, batches: int) -> None:
    """Recalibrate batch norms for an architecture on the first batches of a config's training images.

    Raises:
        VitnasError: The config has no training images, or the model has no batch norm to recalibrate.
    """
    if not cfg.get('train_dataloader'):
        raise VitnasError(f'--recalibrate needs images: {cfg.filename} has no train_dataloader')
    # The same images as in a search with this number of batches.
    images = KeptBatches(whole_loader(cfg.train_dataloader.to_dict()), keep_gb=0)
    shown = _show_progress(images.first(batches), min(batches, len(images)))
    if not calibrate(model, arch, shown):
        raise VitnasError('--recalibrate is for models with batch norms that are not frozen; this one has none')


def main(args: list[str] | None = None) -> nn.Module:
    """Extract a subnet, check it, write the files and print how to use them."""
    options = parse_args(args)
    cfg = read_config(options)
    arch = zoo.load_arch(options.arch)
    model_cfg = model_config(cfg)
    model = MODELS.build(model_cfg)
    backbone = elastic_backbone(model)
    load_weights(model, options.checkpoint)
    if options.recalibrate:
        recalibrate_on(model.eval(), arch, cfg, options.recalibrate)
    fixed = extract_model(model.eval(), model_cfg, options.arch)
    size = backbone.settings.get('img_size', (224, 224))
    images = torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(0))
    difference = check_extracted(model, fixed, arch, images)
    # Clone the tensors, because the file format does not allow shared memory.
    weights = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in fixed.state_dict().items()}
    write(options.out, arch, weights, {NOTE: Note.of(elastic_backbone(fixed)).to_json()}, options.pth)
    height, width = backbone.priced_size(arch, size, backbone.settings.get('out_indices'))
    cost = backbone.price(arch, size)
    print(f'backbone: {cost} at {height} x {width}; the whole model: {count_params(fixed) / 1e6:.2f}M params')
    if not options.recalibrate and elastic_norms(model):
        print('its batch norms keep the statistics of the supernet, which mix all architectures: see --recalibrate')
    print(f"its features equal the supernet's bit for bit; the outputs differ by {difference:.1e} of the largest")
    print('use this in the config of the fixed network, with the other backbone arguments as in the supernet:')
    resolved = {name: backbone.settings[name] for name in backbone.resolved_settings}
    more = ''.join(f'{name}={value!r}, ' for name, value in resolved.items() if value is not None)
    print(
        f"  backbone=dict(type='vitnas.{type(backbone).__name__}', arch='{options.out / 'arch.json'}', {more}"
        f"init_cfg=dict(type='Pretrained', "
        f"checkpoint='{options.out / 'weights.safetensors'}'))"
    )
    print(f"or, for the weights of the whole model: load_from = '{options.out / 'weights.safetensors'}'")
    return fixed


if __name__ == '__main__':
    try:
        main()
    except VitnasError as err:
        raise SystemExit(f'{type(err).__name__}: {err}') from None
