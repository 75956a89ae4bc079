"""Weights of one network for another: the leading part that a smaller one holds, and pretrained files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from mmengine.logging import print_log
from torch import Tensor, nn

from .. import zoo
from ..checkpoints import check_fit, load_file
from ..elastic import PREFIX, Channels, cut
from ..errors import ArchError, CheckpointError, VitnasError
from ..spaces import SearchSpace
from ..utils.jsondata import difference

if TYPE_CHECKING:
    from .module import ElasticModule

NOTE = 'vitnas'
"""The key under which a state dict's metadata, or those of a file, hold a :class:`Note`."""


@dataclass(frozen=True)
class Note:
    """What a checkpoint says of a backbone's weights.

    Args:
        space: The space whose weights they are; that of a fixed network has one architecture.
        settings: Arguments of the backbone under which they hold.
        img_size: Height and width of the images that positions are stored for; None where there are no such positions.
    """

    space: SearchSpace
    settings: dict[str, Any]
    img_size: tuple[int, int] | None

    @classmethod
    def of(cls, module: ElasticModule) -> Note:
        """The note of a module's own weights."""
        names = module.weight_settings
        if module.space.size() > 1:
            names += tuple(name for name in module.supernet_settings if name in module.settings)
        settings = {name: module.settings[name] for name in names}
        return cls(module.space, settings, module.settings.get('img_size'))

    def to_json(self) -> str:
        """As a text, for the metadata of a file."""
        return json.dumps(dict(space=self.space.to_dict(), settings=self.settings, img_size=self.img_size))

    @classmethod
    def from_json(cls, text: str) -> Note:
        """The inverse of :meth:`to_json`.

        Raises:
            VitnasError: The space is none; other damage raises ValueError, KeyError or TypeError.
        """
        note = json.loads(text)
        size = None
        if note['img_size'] is not None:
            height, width = note['img_size']
            size = (int(height), int(width))
        # Files that predate `sharing` do not name it.
        return cls(SearchSpace.from_dict(note['space']), {'sharing': PREFIX, **note['settings']}, size)


def load_pretrained(backbone: ElasticModule, path: str | os.PathLike, prefix: str | None = None) -> None:
    """Load a backbone's weights from a checkpoint of a classifier, a detector or the backbone alone.

    A file of the same network fits as it is, but for positions of another image size, which are interpolated, and for
    norms of outputs that only one of the two has. From a supernet's file a fixed network takes its part.

    Args:
        backbone: What gets the weights.
        path: A file that :func:`~vitnas_core.checkpoints.load_file` reads.
        prefix: What the names of the backbone's weights begin with, with or without the last dot. Defaults to None:
            ``'backbone.'`` where the file has such names.

    Raises:
        CheckpointError: The file cannot be read, holds another architecture, or lacks weights; the backbone is
            unchanged then.
    """
    checkpoint = load_file(path)
    stored: Mapping[str, Tensor] = checkpoint['state_dict']
    if prefix is None:
        prefix = 'backbone.' if any(name.startswith('backbone.') for name in stored) else ''
    prefix = f'{prefix}.' if prefix and not prefix.endswith('.') else prefix  # as mmengine takes it
    weights = {name.removeprefix(prefix): tensor for name, tensor in stored.items() if name.startswith(prefix)}
    note = _read_note(checkpoint, prefix.rstrip('.'), path)
    if note is not None:
        _check_same(note, backbone, path)
    wanted = backbone.state_dict()
    backbone.fit_positions(weights, img_size=None if note is None else note.img_size)
    fresh = [name for name in wanted if name not in weights and name.startswith(backbone.output_weights)]
    weights.update({name: wanted[name] for name in fresh})
    weights = {name: w for name, w in weights.items() if name in wanted or not name.startswith(backbone.output_weights)}
    if note is not None and note.space.size() > 1 and backbone.space.size() == 1:
        weights = _cut(weights, wanted, note, backbone, path)
    check_fit(weights, wanted, path, f'the backbone, {_called(backbone.space)}')
    backbone.load_state_dict(weights)
    new = f'; new, as the file has no such output: {", ".join(fresh)}' if fresh else ''
    print_log(f'{type(backbone).__name__}: {len(wanted) - len(fresh)} weights from {path}{new}', 'current')


def _read_note(checkpoint: Mapping[str, Any], prefix: str, path: str | os.PathLike) -> Note | None:
    """What a file says of its backbone, None for files that say nothing."""
    metadata = getattr(checkpoint['state_dict'], '_metadata', None)
    places = (metadata.get(prefix) if isinstance(metadata, Mapping) else None, checkpoint.get('meta'))
    text = next((place[NOTE] for place in places if isinstance(place, Mapping) and NOTE in place), None)
    if text is None:
        return None
    try:
        return Note.from_json(text)
    except (VitnasError, ValueError, KeyError, TypeError) as err:
        raise CheckpointError(f'{path} has a note of its backbone that cannot be read: {err}') from None


def _check_same(note: Note, backbone: ElasticModule, path: str | os.PathLike) -> None:
    """Refuse weights of another network; a fixed one may be a part of a supernet of its family."""
    held, own = note.space, backbone.space
    part = held.size() > 1 and own.size() == 1 and len(held.stages) == len(own.stages)
    theirs, ours = _data(held), _data(own)
    if held.family != own.family or not (part or theirs == ours):
        comparable = held.family == own.family and (held.size() > 1) == (own.size() > 1)
        where = f'; {next(difference(theirs, ours), "")}' if comparable else ''
        raise CheckpointError(f'{path} holds {_called(held)}, but the backbone is {_called(own)}{where}')
    _check_settings(note, backbone, path, backbone.supernet_settings if part else ())


def _check_settings(note: Note, backbone: ElasticModule, path: str | os.PathLike, but: Sequence[str] = ()) -> None:
    settings = Note.from_json(Note.of(backbone).to_json()).settings  # as JSON has them
    for name, value in note.settings.items():
        if settings.get(name) != value and name not in but:
            raise CheckpointError(
                f'{path} holds weights for {name}={value!r}, but the backbone has {settings.get(name)!r}'
            )


def check_note(backbone: ElasticModule, text: str) -> None:
    """Refuse weights whose shapes fit, but that mean something else, whoever loads them.

    Those are weights under other settings, and those of runs on a ring that other widths have placed.

    Args:
        backbone: What is to get the weights.
        text: What their state dict says of them.

    Raises:
        CheckpointError: They are of another kind.
    """
    note, path = Note.from_json(text), 'the checkpoint'
    fixed = 1 in (note.space.size(), backbone.space.size())  # all that it has is the whole width
    if backbone.pattern.depends_on_widths and not fixed:
        _check_same(note, backbone, path)
    else:
        _check_settings(note, backbone, path, backbone.supernet_settings if fixed else ())


def _data(space: SearchSpace) -> dict[str, Any]:
    """What makes a network, without its name: the architecture of a fixed one."""
    return (space.largest() if space.size() == 1 else replace(space, name='')).to_dict()


def _called(space: SearchSpace) -> str:
    """What to call a network in a sentence: its name in the zoo, or what makes it different from others."""
    if space.size() > 1:
        return f'a supernet of {space.name or space.family}'
    arch = space.largest()
    names = [name for name in zoo.arch_names() if zoo.entry(name).arch == arch]
    return names[0] if names else f'an architecture of {arch.family} ({arch.digest()})'


def _cut(
    weights: Mapping[str, Tensor],
    wanted: Mapping[str, Tensor],
    note: Note,
    backbone: ElasticModule,
    path: str | os.PathLike,
) -> dict[str, Tensor]:
    """A fixed network's part of a supernet's weights, as that supernet shares them."""
    settings = {name: note.settings.get(name, value) for name, value in backbone.settings.items()}
    with torch.device('meta'):
        build: Any = type(backbone)
        supernet = build(space=note.space, **settings)
    try:
        return cut_to_shape(weights, wanted, channel_axes(supernet))
    except ArchError as err:
        raise CheckpointError(
            f'{path} holds {_called(note.space)}, which {_called(backbone.space)} is no part of: {err}'
        ) from None


def channel_axes(network: nn.Module) -> dict[str, tuple[Channels | None, ...]]:
    """Channel layout along the dimensions of each weight, by its name; None for prefix sharing."""
    return {
        f'{name}.{key}'.removeprefix('.'): tuple(axis and axis.channels for axis in axes)
        for name, module in network.named_modules()
        for key, axes in getattr(module, 'axes', {}).items()
    }


def cut_to_shape(
    source: Mapping[str, Tensor],
    target: Mapping[str, Tensor],
    axes: Mapping[str, tuple[Channels | None, ...]] | None = None,
) -> dict[str, Tensor]:
    """Cut tensors, by name, to the part that a smaller network holds; see :func:`cut`.

    Args:
        source: State dict of the larger network.
        target: State dict of the smaller one; only its shapes are read.
        axes: Whose channels the axes of the larger one's tensors are. Defaults to None: the first ones are taken.

    Raises:
        ArchError: A tensor is missing or smaller than asked.
    """
    parts = {}
    for name, wanted in target.items():
        if name not in source:
            raise ArchError(f'the weights have no {name}')
        tensor = source[name]
        if tensor.ndim != wanted.ndim or any(have < want for have, want in zip(tensor.shape, wanted.shape)):
            raise ArchError(f'{name} has shape {tuple(tensor.shape)}, too small for {tuple(wanted.shape)}')
        parts[name] = cut(tensor, wanted.shape, (axes or {}).get(name, ())).clone()
    return parts
