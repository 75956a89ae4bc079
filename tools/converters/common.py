"""What the converters of published checkpoints share: files, a digest, a check of shapes, the command line."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from vitnas_core.backbones import ElasticBackbone
from vitnas_core.backbones.pretrained import NOTE
from vitnas_core.errors import CheckpointError, VitnasError
from vitnas_core.utils.fileio import atomic_write


def digest(state: Mapping[str, Tensor]) -> str:
    """A fingerprint of names, shapes, types and every bit of a state dict, whatever its order."""
    sha = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        sha.update(f'{name} {tuple(tensor.shape)} {tensor.dtype}\n'.encode())
        sha.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()


def check_shapes(
    given: Mapping[str, Tensor], wanted: Mapping[str, Tensor], where: str, name_of: Callable[[str], str | None] = str
) -> None:
    """Check that a state dict has just the names and shapes of another.

    Args:
        given: The state dict.
        wanted: The other one; only its shapes are read.
        where: What the other one belongs to, e.g. ``'a supernet of autoformer-tiny'``.
        name_of: What the file calls one of these names. Defaults to the same.

    Raises:
        CheckpointError: A tensor is missing, too much, or of another shape.
    """
    for name in sorted({*wanted, *given}):
        want, got = (tuple(tensors[name].shape) if name in tensors else 'missing' for tensors in (wanted, given))
        if want != got:
            raise CheckpointError(f'{name_of(name)} is {got}; in {where} it is {want}')


def part(
    state: Mapping[str, Tensor], table: Mapping[str, Sequence[str]], backbone: ElasticBackbone, who: str
) -> dict[str, Tensor]:
    """Rename the tensors of a classifier to ours; one that is several here is parted along its first axis.

    Args:
        state: Their weights.
        table: Their name → ours, in the order of the parts.
        backbone: The network that they are for.
        who: What they should be, e.g. ``'a Twins-SVT of this architecture'``.

    Raises:
        CheckpointError: They are not of this network.
    """
    own, converted = backbone.state_dict(), dict[str, Tensor]()
    for name, tensor in state.items():
        if name not in table:
            raise CheckpointError(f'not {who}: {name} is none of its tensors')
        sizes = [len(own[ours.removeprefix('backbone.')]) for ours in table[name]] if len(table[name]) > 1 else []
        if sizes and sum(sizes) != len(tensor):
            raise CheckpointError(f'{name} has shape {tuple(tensor.shape)}; in this network it has {sum(sizes)} rows')
        parts = tensor.split(sizes) if sizes else (tensor,)
        converted |= {ours: piece.contiguous() for ours, piece in zip(table[name], parts)}
    check_classifier(converted, backbone, {ours: theirs for theirs, names in table.items() for ours in names})
    return converted


def join(
    state: Mapping[str, Tensor], table: Mapping[str, Sequence[str]], backbone: ElasticBackbone
) -> dict[str, Tensor]:
    """The inverse of :func:`part`.

    Raises:
        CheckpointError: The weights are not of this network.
    """
    check_classifier(state, backbone, {})
    return {theirs: torch.cat([state[name] for name in names]) for theirs, names in table.items() if names[0] in state}


def check_classifier(state: Mapping[str, Tensor], backbone: ElasticBackbone, names: Mapping[str, str]) -> None:
    """Check that weights in our layout are just those of a backbone, with or without a linear head.

    Args:
        state: The weights.
        backbone: The network.
        names: What the file calls them, by our names; those that it lacks are called the same.

    Raises:
        CheckpointError: They are not.
    """
    wanted: dict[str, Tensor] = {f'backbone.{name}': tensor for name, tensor in backbone.state_dict().items()}
    heads = [state[name] for name in ('head.fc.bias', 'head.fc.weight') if name in state]
    if heads:
        wanted['head.fc.weight'] = torch.empty(len(heads[0]), backbone.out_channels()[-1], device='meta')
        wanted['head.fc.bias'] = torch.empty(len(heads[0]), device='meta')
    check_shapes(state, wanted, 'this network', lambda name: names.get(name, name))


class _Settings(dict):
    """Stands for the settings that a published file carries, whose package need not be there."""


def read(path: Path, keys: Sequence[str] = ('model', 'state_dict')) -> dict[str, Tensor]:
    """Read the tensors of a ``.safetensors`` file or of a checkpoint, with nothing executed.

    Args:
        path: The file.
        keys: Under which of its entries the state dict is, the first that there is. Defaults to the usual ones.

    Raises:
        CheckpointError: The file is missing, damaged, or holds no state dict.
    """
    try:
        if path.suffix == '.safetensors':
            return safetensors.torch.load_file(path)
        # The official files carry their command line, or settings of yacs.
        with torch.serialization.safe_globals([argparse.Namespace, (_Settings, 'yacs.config.CfgNode')]):
            data = torch.load(path, map_location='cpu', weights_only=True)
    except FileNotFoundError:
        raise CheckpointError(f'there is no file {path}') from None
    except Exception as err:
        reason = f'{type(err).__name__}: {str(err).splitlines()[0] if str(err) else ""}'
        raise CheckpointError(f'{path} cannot be read as a checkpoint of torch or safetensors ({reason})') from None
    for key in keys:
        if isinstance(data, dict) and isinstance(data.get(key), dict):
            data = data[key]
            break
    if not isinstance(data, dict) or not data or not all(isinstance(value, Tensor) for value in data.values()):
        raise CheckpointError(f'{path} holds no state dict')
    return data


def write(path: Path, key: str, state: dict[str, Tensor], note: str | None = None) -> None:
    """Write a state dict aside and rename it: ``.safetensors`` as it is, else a checkpoint under ``key``.

    Args:
        path: The file.
        key: ``'state_dict'`` or ``'model'``.
        state: The weights.
        note: What the backbone says of them (:meth:`~vitnas_core.backbones.ElasticBackbone.note`); None for files in
            the layout of others.
    """
    notes = {} if note is None else {NOTE: note}
    if path.suffix == '.safetensors':
        atomic_write(path, safetensors.torch.save(state, notes))
        return
    buffer = io.BytesIO()
    torch.save({key: state, **({'meta': notes} if notes else {})}, buffer)
    atomic_write(path, buffer.getvalue())


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """A command line that takes a source and a target."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('source', type=Path, help='checkpoint to read (.pth or .safetensors)')
    parser.add_argument('target', type=Path, help='checkpoint to write (.pth or .safetensors)')
    return parser


def parse(parser: argparse.ArgumentParser, args: list[str] | None) -> argparse.Namespace:
    """Read the command line, and refuse to write over the source."""
    options = parser.parse_args(args)
    if options.source.resolve() == options.target.resolve():
        parser.error(f'the target is the source: {options.source}')
    return options


@contextlib.contextmanager
def refusing(source: Path) -> Iterator[None]:
    """End the program with one sentence that names the file where it cannot be converted."""
    try:
        yield
    except VitnasError as err:
        raise SystemExit(f'{type(err).__name__}: {err} ({source})') from None


def config_line(backbone: str, settings: Mapping[str, Any]) -> str:
    """The backbone of a config, in a line."""
    arguments = ', '.join(f'{name}={value!r}' for name, value in settings.items())
    return f"backbone: dict(type='vitnas.{backbone}', {arguments})"
