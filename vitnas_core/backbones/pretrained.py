"""Load the weights of one network into another: the part of a smaller network, and pretrained files."""

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
"""Key of a :class:`Note` in the metadata of a state dict or a file."""


@dataclass(frozen=True)
class Note:
    """Note of a checkpoint about a backbone's weights.

    Args:
        space: Search space of the weights; that of a fixed network has one architecture.
        settings: Arguments of the backbone under which the weights are valid.
        img_size: Height and width of the images of the stored positions; None without such positions.
    """

    space: SearchSpace
    settings: dict[str, Any]
    img_size: tuple[int, int] | None

    @classmethod
    def of(cls, module: ElasticModule) -> Note:
        """Return the note of a module's own weights."""
        names = module.weight_settings
        if module.space.size() > 1:
            names += tuple(name for name in module.supernet_settings if name in module.settings)
        settings = {name: module.settings[name] for name in names}
        return cls(module.space, settings, module.settings.get('img_size'))

    def to_json(self) -> str:
        """Format as text, for the metadata of a file."""
        return json.dumps(dict(space=self.space.to_dict(), settings=self.settings, img_size=self.img_size))

    @classmethod
    def from_json(cls, text: str) -> Note:
        """Read the text of :meth:`to_json`.

        Raises:
            VitnasError: The space is invalid; other damage raises ValueError, KeyError or TypeError.
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

    A file of the same network is loaded as it is, with two exceptions: positions of another image size are
    interpolated, and norms of outputs may be missing on either side. A fixed network takes its part of a
    supernet's file.

    Args:
        backbone: The backbone to load into.
        path: A file that :func:`~vitnas_core.checkpoints.load_file` reads.
        prefix: Prefix of the backbone's weights in the file, with or without the last dot. Defaults to None:
            ``'backbone.'`` if the file has such names.

    Raises:
        CheckpointError: The file cannot be read, holds another architecture, or lacks weights. The backbone is then
            unchanged.
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
    """Read a file's note about its backbone; None if it has none."""
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
    """Refuse the weights of another network; a fixed one may be a part of a supernet of its family."""
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
    """Refuse weights that fit by shape but mean something else, whoever loads them.

    These are weights under other settings, and those of cyclic runs whose places depend on other widths.

    Args:
        backbone: The backbone to load into.
        text: Note of their state dict.

    Raises:
        CheckpointError: The weights mean something else.
    """
    note, path = Note.from_json(text), 'the checkpoint'
    fixed = 1 in (note.space.size(), backbone.space.size())  # a fixed network uses its whole width
    if backbone.pattern.depends_on_widths and not fixed:
        _check_same(note, backbone, path)
    else:
        _check_settings(note, backbone, path, backbone.supernet_settings if fixed else ())


def _data(space: SearchSpace) -> dict[str, Any]:
    """Data that define a network, without its name; for a fixed one, its architecture."""
    return (space.largest() if space.size() == 1 else replace(space, name='')).to_dict()


def _called(space: SearchSpace) -> str:
    """Name a network in a sentence: a supernet by its space, a fixed network by its zoo name or its digest."""
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
    """Cut a fixed network's part out of a supernet's weights, by the supernet's sharing pattern."""
    settings = {name: note.settings.get(name, value) for name, value in backbone.settings.items()}
    with torch.device('meta'):
        build: Any = type(backbone)
        supernet = build(space=note.space, **settings)
    try:
        return cut_to_shape(weights, wanted, channel_axes(supernet))
    except ArchError as err:
        raise CheckpointError(
            f'{path} holds {_called(note.space)}, of which {_called(backbone.space)} is not a part: {err}'
        ) from None


def channel_axes(network: nn.Module) -> dict[str, tuple[Channels | None, ...]]:
    """Return the channels of each dimension of each weight, by name of the weight; None for prefix sharing."""
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
        axes: Channels of the axes of the larger network's tensors. Defaults to None: prefix sharing.

    Raises:
        ArchError: A tensor is missing or too small.
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
