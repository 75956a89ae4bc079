"""Foreign checkpoints: safe reading, renaming, and checks against one of our networks.

The ``weights.py`` of each family builds on it. No other module imports it, so it costs nothing before a conversion.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from ..errors import CheckpointError, VitnasError
from .base import ElasticBackbone


class _Settings(dict):
    """Stand-in for the settings inside a published file, so that their package need not be installed."""


def read(path: str | os.PathLike, keys: Sequence[str] = ('model', 'state_dict')) -> dict[str, Tensor]:
    """Read the tensors of a ``.safetensors`` file or of a checkpoint; nothing in it is executed.

    Args:
        path: The file.
        keys: Entries that may hold the state dict; the first one found counts. Without any, the file itself is the
            state dict. Defaults to the usual ones.

    Raises:
        CheckpointError: The file is missing, damaged, or holds no state dict.
    """
    path = Path(path)
    try:
        if path.suffix == '.safetensors':
            return safetensors.torch.load_file(path)
        # Published files also hold their command line, or settings of yacs.
        with torch.serialization.safe_globals([argparse.Namespace, (_Settings, 'yacs.config.CfgNode')]):
            data = torch.load(path, map_location='cpu', weights_only=True)
    except FileNotFoundError:
        raise CheckpointError(f'there is no file {path}') from None
    except Exception as err:  # garbage makes the readers fail in every way
        reason = f'{type(err).__name__}: {str(err).splitlines()[0] if str(err) else ""}'
        raise CheckpointError(f'{path} cannot be read as a checkpoint of torch or safetensors ({reason})') from None
    for key in keys:
        if isinstance(data, dict) and isinstance(data.get(key), dict):
            data = data[key]
            break
    if not isinstance(data, dict) or not data or not all(isinstance(value, Tensor) for value in data.values()):
        raise CheckpointError(f'{path} holds no state dict')
    return data


def digest(state: Mapping[str, Tensor]) -> str:
    """Return the fingerprint of a state dict: names, shapes, types and every bit, in any order."""
    sha = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        sha.update(f'{name} {tuple(tensor.shape)} {tensor.dtype}\n'.encode())
        sha.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()


def count_numbered(pattern: str, names: Iterable[str]) -> int:
    """Return one more than the largest number that ``pattern`` captures at the start of a name; 0 without a match."""
    return 1 + max((int(match[1]) for match in (re.match(pattern, name) for name in names) if match), default=-1)


def axis_size(state: Mapping[str, Tensor], name: str, axis: int) -> int:
    """Return the size of one axis of a tensor; 0 if there is no such tensor or axis."""
    return state[name].shape[axis] if name in state and -state[name].ndim <= axis < state[name].ndim else 0


def by_head(qkv: Tensor, head_dim: int) -> Tensor:
    """Reorder rows of qkv from query, key, value (the usual layout) to head by head (ours).

    Args:
        qkv: Weight (3 · heads · head_dim, C) or bias (3 · heads · head_dim,).
        head_dim: Rows of one head in each of the three.

    Raises:
        RuntimeError: The rows are not those of whole heads.
    """
    return qkv.unflatten(0, (3, -1, head_dim)).transpose(0, 1).flatten(0, 2)


def by_kind(qkv: Tensor, head_dim: int) -> Tensor:
    """Inverse of :func:`by_head`."""
    return qkv.unflatten(0, (-1, 3, head_dim)).transpose(0, 1).flatten(0, 2)


@contextlib.contextmanager
def building(what: str) -> Iterator[None]:
    """Build backbones without memory, on the meta device; a failed build means that the input is wrong.

    Args:
        what: What the input should be, e.g. ``'an S3 checkpoint'``.

    Raises:
        CheckpointError: The settings inside fit no backbone.
    """
    try:
        with torch.device('meta'):
            yield
    except VitnasError as err:
        raise CheckpointError(f'not {what}: {err}') from None


def classifier_shapes(
    state: Mapping[str, Tensor], backbone: ElasticBackbone, heads: Sequence[str] = ('head.fc',)
) -> dict[str, Tensor]:
    """Return names and shapes of a classifier: those of a backbone, and of the linear heads in a state dict.

    Args:
        state: Weights in our layout. They show the heads and their numbers of classes.
        backbone: The network.
        heads: Names of heads that a classifier of this family may have. Defaults to the one of mmpretrain.
    """
    wanted: dict[str, Tensor] = {f'backbone.{name}': tensor for name, tensor in backbone.state_dict().items()}
    for head in heads:
        found = [state[f'{head}.{name}'] for name in ('bias', 'weight') if f'{head}.{name}' in state]
        if found:
            classes = found[0].shape[:1]
            wanted[f'{head}.weight'] = torch.empty((*classes, backbone.out_channels()[-1]), device='meta')
            wanted[f'{head}.bias'] = torch.empty(classes, device='meta')
    return wanted


def check_shapes(
    given: Mapping[str, Tensor], wanted: Mapping[str, Tensor], where: str, name_of: Callable[[str], str | None] = str
) -> None:
    """Check that two state dicts have the same names and shapes.

    Args:
        given: The state dict to check.
        wanted: The state dict to compare with; only its shapes are read.
        where: What ``wanted`` belongs to, e.g. ``'a supernet of autoformer-tiny'``.
        name_of: Maps our name of a tensor to the file's, for the message. Defaults to no change.

    Raises:
        CheckpointError: A tensor is missing, unexpected, or has another shape.
    """
    for name in sorted({*wanted, *given}):
        want, got = (tuple(tensors[name].shape) if name in tensors else 'missing' for tensors in (wanted, given))
        if want != got:
            raise CheckpointError(f'{name_of(name)} is {got}; in {where} it is {want}')


def split(
    state: Mapping[str, Tensor], table: Mapping[str, Sequence[str]], backbone: ElasticBackbone, who: str
) -> dict[str, Tensor]:
    """Rename the tensors of a foreign classifier to ours; split fused tensors along their first axis.

    Args:
        state: The foreign weights.
        table: Foreign name → our names, in the order of the parts.
        backbone: The network that the weights are for.
        who: What the weights should be, e.g. ``'a Twins-SVT of this architecture'``.

    Raises:
        CheckpointError: The weights are not of this network.
    """
    own, converted = backbone.state_dict(), dict[str, Tensor]()
    for name, tensor in state.items():
        if name not in table:
            raise CheckpointError(f'not {who}: {name} is not one of its tensors')
        sizes = [len(own[ours.removeprefix('backbone.')]) for ours in table[name]] if len(table[name]) > 1 else []
        if sizes and tensor.shape[:1] != (sum(sizes),):
            raise CheckpointError(f'{name} has shape {tuple(tensor.shape)}; in this network it has {sum(sizes)} rows')
        parts = tensor.split(sizes) if sizes else (tensor,)
        converted |= {ours: piece.contiguous() for ours, piece in zip(table[name], parts)}
    foreign = {ours: theirs for theirs, names in table.items() for ours in names}
    wanted = classifier_shapes(converted, backbone)
    check_shapes(converted, wanted, 'this network', lambda name: foreign.get(name, name))
    return converted


def join(
    state: Mapping[str, Tensor], table: Mapping[str, Sequence[str]], backbone: ElasticBackbone
) -> dict[str, Tensor]:
    """Inverse of :func:`split`.

    Raises:
        CheckpointError: The weights are not of this network.
    """
    check_shapes(state, classifier_shapes(state, backbone), 'this network')
    return {theirs: torch.cat([state[name] for name in names]) for theirs, names in table.items() if names[0] in state}
