"""``ElasticModule``: a part of a model that runs any architecture of its space."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from mmengine.model import BaseModule, PretrainedInit, initialize
from typing_extensions import Self

from .. import zoo
from ..costs import Cost, Count
from ..elastic import PREFIX, Axes, Axis, Pattern, PositionTable
from ..errors import ArchError, VitnasError
from ..spaces import Arch, Limits, Schema, SearchSpace
from ..utils import checks
from .mixed import Active
from .pretrained import NOTE, Note, channel_axes, check_note, cut_to_shape, load_pretrained
from .tokens import OUT_TYPES

ArchRef = Arch | Mapping[str, Any] | str | Path
SpaceRef = SearchSpace | Mapping[str, Any] | str | Path

PRETRAINED = ('Pretrained', PretrainedInit)
"""Values of ``type`` in an ``init_cfg`` that load a weight file."""

CHECKS: dict[str, checks.Check] = {
    'img_size': checks.size,
    'patch_size': checks.whole,
    'window_size': checks.whole,
    'out_indices': checks.sequence,
    'out_type': lambda name, value: checks.one_of(name, value, OUT_TYPES),
    'attn_drop_rate': checks.rate,
    'drop_path_rate': checks.rate,
    'scaling': checks.flag,
    'official': checks.flag,
}
"""Check of each setting that means the same in every family."""

_NO_SETTINGS = ('self', 'arch', 'space', 'init_cfg')


class ElasticModule(BaseModule):
    """A part of a model that runs any architecture of its space; a fixed one has a space of one architecture.

    A subclass sets ``schema`` and ``cost_of``, builds layers between axes in the order of its forward pass, and
    implements :meth:`widths` and ``forward``. Its settings are stated once, in the signature of its constructor, which
    passes ``locals()`` on.

    Args:
        given: Arguments of the subclass's constructor, including ``arch``, ``space`` and ``init_cfg``.

    Raises:
        VitnasError: Both or neither of ``arch`` and ``space`` are given, they are of another family, or a setting is
            invalid.
    """

    schema: ClassVar[Schema]
    """Choices of the family."""

    cost_of: ClassVar[Callable[..., Count]]
    """Counts the parameters and MACs of a network: ``(network, size, num_classes, *, setting, …)``."""

    family: ClassVar[str]
    """Value of ``family`` in architecture files."""

    defaults: ClassVar[dict[str, Any]]
    """Settings and their defaults, from the signature of the constructor."""

    cost_settings: ClassVar[tuple[str, ...]]
    """Settings that the cost depends on."""

    cost_defaults: ClassVar[dict[str, Any]]
    """Checked defaults of :attr:`cost_settings`."""

    checks: ClassVar[Mapping[str, checks.Check]] = {}
    """Checks of the settings that only this family has."""

    space_settings: ClassVar[tuple[str, ...]] = ()
    """Settings of a supernet that do not rebuild a fixed network."""

    weight_settings: ClassVar[tuple[str, ...]] = ()
    """Settings that change what the same weights compute; those of a checkpoint should be the same."""

    supernet_settings: ClassVar[tuple[str, ...]] = ('sharing',)
    """Settings that control weight sharing in a supernet; ignored if the module lacks them."""

    output_weights: ClassVar[tuple[str, ...]] = ()
    """Prefixes of the names of weights that belong to one output only."""

    is_init: bool
    """True after :meth:`init_weights` has run; mmengine's property declares no type."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        super().__init__(given['init_cfg'])
        arch, space, name = given['arch'], given['space'], type(self).__name__
        if not hasattr(type(self), 'schema'):
            raise TypeError(f'{name} should have a `schema`, the choices of its family, and `cost_of`, what they cost')
        if (arch is None) == (space is None):
            raise VitnasError(
                f'{name} should be given either `arch` or `space`, but got arch={arch!r}, space={space!r}'
            )
        self.space = SearchSpace.of(zoo.load_arch(arch)) if space is None else zoo.load_space(space)
        if self.space.family != self.family:
            raise VitnasError(f'{name} should be given {self.family}, but got {self.space.family}: {arch or space}')
        for setting in self.space_settings:
            if arch is not None and given[setting] is not None:
                raise VitnasError(f'`{setting}` is for a `space`; a fixed `arch` stores what it uses')
        own = self.defaults.keys() - set(self.space_settings)
        self.settings = self._check_settings({key: value for key, value in given.items() if key in own})
        self.schema.check_space(self.space)
        self.space = self.schema.typed(self.space)
        self.largest: Any = self.schema.read(self.space.largest())
        """Typed choices of the largest architecture, which size the weights."""
        self.limits = Limits.of_space(self.schema, self.space)
        shared = Pattern(self.settings.get('sharing', PREFIX))
        self.pattern = shared if self.space.size() > 1 else Pattern()
        """Sharing pattern of the channels of different widths; a fixed network shares none and has one side."""
        self.axes: Axes = {}
        """Axes of its own tables, by name."""
        self.positions: dict[str, PositionTable] = {}
        """Grids of its tables of absolute positions, by name."""
        self.active = Active(self.space.largest(), self.largest)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Set the name of the family from the schema, and the cost settings from the signature of ``cost_of``."""
        super().__init_subclass__(**kwargs)
        if 'schema' in cls.__dict__:
            if not hasattr(cls, 'cost_of'):
                raise TypeError(f'{cls.__name__} should have `cost_of`, which counts a network of its `schema`')
            cls.family = cls.schema.family
            given = inspect.signature(cls.__init__).parameters.values()
            cls.defaults = {own.name: own.default for own in given if own.name not in _NO_SETTINGS}
            asked = inspect.signature(cls.cost_of).parameters.values()
            cls.cost_settings = tuple(own.name for own in asked if own.kind is own.KEYWORD_ONLY)
            if missing := [name for name in cls.cost_settings if name not in cls.defaults]:
                raise TypeError(f'{cls.__name__} should take {", ".join(missing)}, which its cost depends on')
            cls.cost_defaults = cls._check_settings({name: cls.defaults[name] for name in cls.cost_settings})

    # written by a family

    @abstractmethod
    def widths(self, network: Any) -> Iterator[tuple[Axis, int]]:
        """Yield each axis and its width in an architecture; axes of absent blocks may be left out."""

    @abstractmethod
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the active architecture."""

    def check_weights(self, network: Any) -> None:
        """Refuse an architecture whose choices fit the weights but which the settings do not allow.

        Raises:
            ArchError: The message begins with the path of the error.
        """

    def why_not_sorted(self) -> str:
        """Return the setting that fixes channels to their places, so that they cannot be sorted; ``''`` if none."""
        return ''

    # building

    def axis(self, widths: Iterable[int], most: int | None = None, sortable: bool = False) -> Axis:
        """Make an axis whose narrower widths share channels by the pattern of this module.

        Args:
            widths: Widths that architectures use.
            most: Number of channels of the weights. Defaults to None: the largest of the widths.
            sortable: Whether the channels may be reordered by their importance. Defaults to False.
        """
        widths = list(widths)
        most = max(widths) if most is None else most
        return Axis(most, self.pattern.channels(most, widths), sortable)

    @classmethod
    def _check_settings(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Check settings; return the values to use.

        Raises:
            VitnasError: A setting is invalid.
        """
        known = {**CHECKS, **cls.checks}
        return {name: known[name](name, value) if name in known else value for name, value in settings.items()}

    # architectures

    @property
    def arch(self) -> Arch:
        """The active architecture."""
        return self.active.arch

    def set_arch(self, arch: ArchRef) -> None:
        """Activate an architecture; allocates no parameter.

        Anything that fits the weights runs, even outside the options of the space. Some published architectures need
        that, e.g. AutoFormer-T. ``space.validate`` is the strict check.

        Raises:
            ArchError: The architecture does not fit the weights; the active one stays.
        """
        loaded, network = self.load(arch)
        self.active.switch(self, loaded, network)
        self.active.mixture = None

    def load(self, ref: ArchRef) -> tuple[Arch, Any]:
        """Load an architecture that the weights can run; return it and its typed choices.

        Raises:
            ArchError: The weights cannot run it; the message begins with the path of the error and names the file.
        """
        arch = zoo.load_arch(ref)
        try:
            network = self.schema.read(arch)
            self.limits.check_network(network)
            self.check_weights(network)
        except ArchError as err:
            raise ArchError(f'{err} ({ref})' if isinstance(ref, (str, Path)) else str(err)) from None
        return arch, network

    # costs

    @classmethod
    def cost(
        cls, arch: ArchRef, input_size: int | tuple[int, int] = 224, num_classes: int = 0, **settings: Any
    ) -> Cost:
        """Compute parameters and multiply-accumulates of an architecture, without building it.

        Args:
            arch: The architecture.
            input_size: Side, or (height, width), of the image. Defaults to 224.
            num_classes: Classes of a linear head to count, too. Defaults to 0: no head.
            **settings: Arguments of the constructor that the cost depends on, :attr:`cost_settings`.

        Raises:
            VitnasError: The architecture is not of this family, or a setting is invalid.
        """
        for name in settings:
            if name not in cls.cost_defaults:
                raise VitnasError(
                    f'`{name}` is no setting of the cost of {cls.__name__}, which has {", ".join(cls.cost_defaults)}'
                )
        checked = {**cls.cost_defaults, **cls._check_settings(settings)} if settings else cls.cost_defaults
        return cls._count(arch, input_size, num_classes, checked)

    def price(self, arch: ArchRef, input_size: int | tuple[int, int], num_classes: int = 0) -> Cost:
        """Return :meth:`cost` with this module's own settings."""
        return self._count(arch, input_size, num_classes, {name: self.settings[name] for name in self.cost_settings})

    @classmethod
    def _count(cls, arch: ArchRef, input_size: Any, num_classes: int, settings: dict[str, Any]) -> Cost:
        network, size = cls.schema.read(zoo.load_arch(arch)), checks.size('input_size', input_size)
        return Cost(*cls.cost_of(network, size, checks.whole('num_classes', num_classes, 0), **settings))

    # weights

    def extract(self, arch: ArchRef | None = None) -> Self:
        """Return a fixed copy with only one architecture's weights; its outputs are equal bit for bit.

        With stochastic depth, the rates are spread over the copy's own depth. Random draws in training then differ.

        Args:
            arch: The architecture. Defaults to None: the active one.

        Raises:
            ArchError: The architecture does not fit the weights.
        """
        fixed_arch, _ = self.load(self.arch if arch is None else arch)
        with torch.device('meta'):  # draws no random numbers, allocates nothing twice
            build: Any = type(self)
            fixed = build(arch=fixed_arch, **self.settings)
        part = cut_to_shape(self.state_dict(), fixed.state_dict(), channel_axes(self))
        fixed.load_state_dict(part, assign=True)
        trainable = {name: parameter.requires_grad for name, parameter in self.named_parameters()}
        for name, parameter in fixed.named_parameters():
            parameter.requires_grad_(trainable[name])
        return fixed.train(self.training)

    def fit_positions(self, weights: dict[str, Any], prefix: str = '', img_size: tuple[int, int] | None = None) -> None:
        """Convert the position tables among the weights of a network from another image size to this one's, in place.

        Args:
            weights: The weights, by name.
            prefix: Prefix of their names. Defaults to ``''``.
            img_size: Height and width of the images of the stored positions. Defaults to None: unknown.
        """
        for name, table in self.positions.items():
            table.fit(weights, prefix + name, img_size)

    def init_weights(self) -> None:
        """Initialise as every mm module; check ``dict(type='Pretrained', checkpoint=…)`` and cut it to this network.

        Raises:
            CheckpointError: The file holds another architecture, or no weights for this one.
        """
        init_cfgs = [self.init_cfg] if isinstance(self.init_cfg, dict) else list(self.init_cfg or [])
        pretrained = [cfg for cfg in init_cfgs if cfg['type'] in PRETRAINED]
        if self.is_init or not pretrained:
            super().init_weights()
            return
        initialize(self, [cfg for cfg in init_cfgs if cfg not in pretrained])
        for cfg in pretrained:
            load_pretrained(self, cfg['checkpoint'], cfg.get('prefix'))
        self.is_init = True

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, metadata: Any, *args: Any) -> None:
        if NOTE in metadata:
            check_note(self, metadata[NOTE])
        self.fit_positions(state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, metadata, *args)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Add a note to the state dict, which says what a checkpoint holds."""
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if hasattr(destination, '_metadata'):
            destination._metadata.setdefault(prefix[:-1], {})[NOTE] = Note.of(self).to_json()
