"""Read weight files, never executing what a file may hold; failures give one sentence.

mmengine reads local files with :func:`read`, too (:mod:`vitnas_core.integration.checkpoint_files`).
"""

from __future__ import annotations

import math
import os
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from mmengine.runner.checkpoint import CheckpointLoader
from safetensors import safe_open
from safetensors.torch import load_file as _load_safetensors
from torch import Tensor, nn

from .elastic import cut
from .errors import CheckpointError, CheckpointNotFoundError

# torch's message about a file that wants to call something, without the advice around it.
_ASKED_FOR = re.compile(r'(?:unsupported global:?(?: GLOBAL)?|unsupported class|asks for) (\S+)', re.IGNORECASE)

__all__ = ['check_fit', 'load_file', 'load_overlap', 'load_weights', 'read']


def read(path: str | os.PathLike, map_location: Any = 'cpu') -> Any:
    """Read a local weight file.

    Args:
        path: A file of ``torch.save``, or a ``.safetensors`` file; the weights of the latter go to ``state_dict`` and
            its metadata to ``meta``.
        map_location: As in :func:`torch.load`, for the former.

    Raises:
        CheckpointNotFoundError: The file is missing.
        CheckpointError: The file is damaged, or holds more than weights and numbers; nothing in it is executed.
        RuntimeError: torch's own, if the file is fine but this machine lacks the device.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise CheckpointNotFoundError(f'there is no checkpoint file {path}')
    try:
        if path.suffix == '.safetensors':
            with safe_open(path, 'pt') as file:
                notes = file.metadata() or {}
            return {'state_dict': _load_safetensors(path), 'meta': notes}
        return torch.load(path, map_location=map_location, weights_only=True)
    except pickle.UnpicklingError as err:
        asked = _ASKED_FOR.search(str(err))
        if asked:
            raise CheckpointError(
                f'{path} holds more than weights and numbers and is not loaded; nothing in it was executed '
                f'(it asks for {asked[1]})'
            ) from None
        raise CheckpointError(f'{path} is damaged, or no checkpoint (it is no pickle of weights)') from None
    except Exception as err:  # garbage makes the readers fail in every way
        if map_location != 'cpu':
            read(path)  # raises unless only the device is at fault
            raise
        raise CheckpointError(f'{path} is damaged, or no checkpoint ({_first_line(err)})') from None


def load_file(path: str | os.PathLike, map_location: Any = 'cpu') -> dict[str, Any]:
    """Read a checkpoint as a dict with its weights under ``state_dict``; a bare state dict is put there.

    Raises:
        CheckpointError: As :func:`read`, or the file holds no weights.
    """
    # mmengine's loader also knows URLs; for files it calls read().
    content = CheckpointLoader.load_checkpoint(os.fspath(path), map_location, logger='silent')
    if not isinstance(content, Mapping):
        raise CheckpointError(f'{path} should hold a dict of weights, but holds a {type(content).__name__}')
    checkpoint = dict(content) if 'state_dict' in content else {'state_dict': content}
    weights = checkpoint['state_dict']
    if not isinstance(weights, Mapping) or not weights or not all(isinstance(v, Tensor) for v in weights.values()):
        raise CheckpointError(f'{path} holds no weights: its state_dict is not a dict of tensors')
    return checkpoint


def load_weights(model: nn.Module, path: str | os.PathLike) -> None:
    """Load a file into a model; every weight must fit by name and shape.

    Args:
        model: The model, not wrapped for distributed training.
        path: A file that :func:`load_file` reads.

    Raises:
        CheckpointError: As :func:`load_file`, or a weight is missing, unexpected or has another shape. The model is
            unchanged then.
    """
    weights = load_file(path)['state_dict']
    check_fit(weights, model.state_dict(), path, 'this model')
    try:
        model.load_state_dict(weights)
    except CheckpointError as err:  # from a backbone, which does not know the file
        raise CheckpointError(f'{path}: {err}') from None


def check_fit(weights: Mapping[str, Tensor], wanted: Mapping[str, Tensor], path: str | os.PathLike, who: str) -> None:
    """Check that weights have exactly the wanted names and shapes, so that none stays random.

    Args:
        weights: Weights of a file.
        wanted: State dict of the target; only its shapes are read.
        path: The file, for the message.
        who: The target in words, for the message.

    Raises:
        CheckpointError: A weight is missing, unexpected or has another shape.
    """
    problems = [f'has no {name}' for name in wanted if name not in weights]
    problems += [f'has {name}, which the model lacks' for name in weights if name not in wanted]
    problems += [
        f'has {name} of shape {tuple(weights[name].shape)}, but the model has {tuple(tensor.shape)}'
        for name, tensor in wanted.items()
        if name in weights and weights[name].shape != tensor.shape
    ]
    if problems:
        more = f' (and {len(problems) - 3} more)' if len(problems) > 3 else ''
        raise CheckpointError(f'{path} does not fit {who}: it {"; ".join(problems[:3])}{more}')


def load_overlap(model: nn.Module, path: str | os.PathLike) -> float:
    """Load the weights of a model of other sizes as far as they overlap, by name.

    The overlap is a prefix of channels and the centre of kernels (:func:`~vitnas_core.elastic.cut`).

    Args:
        model: The model, not wrapped for distributed training.
        path: A file that :func:`load_file` reads.

    Returns:
        The fraction of the model's weights that was loaded.

    Raises:
        CheckpointError: As :func:`load_file`, or nothing overlaps. The model is unchanged then.
    """
    weights, loaded = load_file(path)['state_dict'], 0
    state = model.state_dict()
    for name, tensor in state.items():
        if name in weights and weights[name].ndim == tensor.ndim:
            common = [min(sizes) for sizes in zip(tensor.shape, weights[name].shape)]
            cut(tensor, common).copy_(cut(weights[name], common))
            loaded += math.prod(common)
    if not loaded:
        raise CheckpointError(f'{path} has no weight that this model has')
    return loaded / sum(tensor.numel() for tensor in state.values())


def _first_line(err: Exception) -> str:
    return (str(err).strip() or type(err).__name__).splitlines()[0][:200]
