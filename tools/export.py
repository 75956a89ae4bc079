"""Export a fixed network: ``python tools/export.py CONFIG CHECKPOINT --out FILE.onnx --shape H [W] [--backbone]``.

``.onnx`` is for ONNX runtimes, ``.pt2`` for ``torch.export.load``. Before the tool keeps the file, it runs the exported
network on random images and compares it with the model. ``--backbone`` exports only the features of a vitnas backbone,
from any model: ``feature_0``, ``feature_1``, … in the order of its ``out_indices``.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from mmengine.config import DictAction
from mmengine.registry import MODELS
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # configs may import projects/ from any folder

import vitnas_core  # noqa: F401  (registers everything, patches torch)
from projects import read_config
from vitnas_core.backbones import ElasticBackbone, elastic_backbone
from vitnas_core.checkpoints import load_weights
from vitnas_core.errors import VitnasError
from vitnas_core.model_configs import model_config
from vitnas_core.utils.fileio import atomic_write

TOLERANCE = 1e-4
"""Largest allowed difference of the exported network's outputs, relative to the largest output."""


class Raw(nn.Module):
    """Map normalized images to the raw outputs of a model, e.g. the logits of a classifier.

    Args:
        model: Any mm model.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Return the outputs for images of shape (B, 3, H, W)."""
        return self.model(images, mode='tensor')


class Features(nn.Module):
    """Map normalized images to the features of a backbone, for ``--backbone``.

    Args:
        backbone: A vitnas backbone.
    """

    def __init__(self, backbone: ElasticBackbone) -> None:
        super().__init__()
        self.backbone = backbone
        self.output_names = [f'feature_{i}' for i in range(len(backbone.out_channels()))]

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return the features for images of shape (B, 3, H, W), one per out_index."""
        return self.backbone(images)


def export_onnx(network: nn.Module, images: Tensor) -> tuple[bytes, Callable[[Tensor], list[Tensor]]]:
    """Export to ONNX; return the bytes of the file and a function that runs it.

    Raises:
        VitnasError: A required package is not installed.
    """
    try:
        import onnxruntime
        import onnxscript  # noqa: F401  (torch's exporter needs it)
    except ImportError as err:
        raise VitnasError(
            f'ONNX export needs {err.name}, which is not installed: pip install "vitnas[export]", or '
            f'pip install onnx onnxruntime onnxscript; a .pt2 file needs none of them'
        ) from None
    outputs = network.output_names if isinstance(network, Features) else None
    program = torch.onnx.export(
        network, (images,), dynamo=True, input_names=['images'], output_names=outputs, verbose=False
    )
    assert program is not None
    data = program.model_proto.SerializeToString()
    session = onnxruntime.InferenceSession(data, providers=['CPUExecutionProvider'])
    name = session.get_inputs()[0].name

    def run(inputs: Tensor) -> list[Tensor]:
        return [torch.from_numpy(output) for output in session.run(None, {name: inputs.numpy()})]

    return data, run


def export_program(network: nn.Module, images: Tensor) -> tuple[bytes, Callable[[Tensor], list[Tensor]]]:
    """Export for ``torch.export.load``; return the bytes of the file and a function that runs the loaded file."""
    buffer = io.BytesIO()
    torch.export.save(torch.export.export(network, (images,)), buffer)
    data = buffer.getvalue()
    loaded = torch.export.load(io.BytesIO(data)).module()
    return data, lambda inputs: _as_list(loaded(inputs))


FORMATS = {'.onnx': export_onnx, '.pt2': export_program}
"""Suffix → export function."""


def parse_args(args: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('config', help='config of a fixed network (arch=…)')
    parser.add_argument('checkpoint', help='weights (.pth or .safetensors)')
    parser.add_argument('--out', type=Path, required=True, metavar='FILE', help='.onnx or .pt2')
    parser.add_argument('--shape', type=int, nargs='+', required=True, metavar='N', help='side, or height and width')
    parser.add_argument('--backbone', action='store_true', help='only the features of the backbone, one per out_index')
    parser.add_argument('--batch-size', type=int, default=1, help='images per batch, fixed in the file; defaults to 1')
    parser.add_argument('--cfg-options', nargs='+', action=DictAction, default={}, help='key=value pairs that override')
    parser.set_defaults(launcher='none', work_dir=None)
    options = parser.parse_args(args)
    if len(options.shape) > 2 or min(options.shape) < 1 or options.batch_size < 1:
        parser.error(f'--shape should be a side, or height and width, but got {options.shape}')
    if options.out.suffix not in FORMATS:
        parser.error(f'--out should end in {" or ".join(FORMATS)}, but got {options.out}')
    return options


def main(args: list[str] | None = None) -> float:
    """Export a network, compare it with the model and write the file; return the largest difference."""
    options = parse_args(args)
    model = MODELS.build(model_config(read_config(options)))
    for backbone in (module for module in model.modules() if isinstance(module, ElasticBackbone)):
        if backbone.space.size() > 1:
            raise VitnasError(
                'a supernet is not exported: tools/extract_subnet.py makes a fixed network from it (`arch=`)'
            )
    load_weights(model, options.checkpoint)
    network: nn.Module = (Features(elastic_backbone(model)) if options.backbone else Raw(model)).eval()
    generator = torch.Generator().manual_seed(0)
    shape = (options.batch_size, 3, options.shape[0], options.shape[-1])
    images, others = (torch.randn(shape, generator=generator) for _ in range(2))
    with torch.no_grad():
        if isinstance(network, Raw):
            check_raw(network, images)
        data, run = FORMATS[options.out.suffix](network, images)
        difference = compare(network, run, others)  # other images than for tracing
    try:
        atomic_write(options.out, data)
    except OSError as err:
        raise VitnasError(f'--out {options.out} cannot be written: {err}') from None
    print(
        f'{options.out}: {len(data) / 2**20:.1f} MiB for images {shape}; largest difference to torch {difference:.1e}'
    )
    return difference


def check_raw(network: Raw, images: Tensor) -> None:
    """Check that a model runs on images alone.

    Raises:
        VitnasError: It does not, such as a detector whose boxes depend on the data.
    """
    try:
        network(images)
    except Exception as err:  # every model fails in its own way
        why = ': '.join([type(err).__name__, *str(err).splitlines()[:1]])
        raise VitnasError(
            f'{type(network.model).__name__} does not run on images alone (`mode="tensor"` raised {why}). If boxes '
            f'depend on the data, as in detectors with proposals or queries, --backbone exports the features instead'
        ) from err


def compare(network: nn.Module, run: Callable[[Tensor], list[Tensor]], images: Tensor) -> float:
    """Return the largest difference of outputs.

    Raises:
        VitnasError: The difference is too large.
    """
    wanted, got = _as_list(network(images)), run(images)
    largest = max(float((a - b).abs().max()) for a, b in zip(wanted, got, strict=True))
    scale = max(float(a.abs().max()) for a in wanted)
    if not largest <= TOLERANCE * max(scale, 1.0):
        raise VitnasError(
            f'the exported network differs from the model by {largest:.1e} (largest output {scale:.1e}), more than '
            f'{TOLERANCE:.0e} of it; nothing was written'
        )
    return largest


def _as_list(outputs: Tensor | list | tuple) -> list[Tensor]:
    if isinstance(outputs, Tensor):
        return [outputs]
    return [tensor for output in outputs for tensor in _as_list(output)]


if __name__ == '__main__':
    try:
        main()
    except VitnasError as err:
        raise SystemExit(f'{type(err).__name__}: {err}') from None
