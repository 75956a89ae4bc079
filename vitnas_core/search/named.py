"""One search loop per algorithm, with all settings side by side: ``dict(type='vitnas.EvolutionSearchLoop', …)``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from mmengine.runner import Runner

from ..registry import LOOPS
from .algorithms import NSGA2, Evolution, Halving, Policy, Predictor, Random, SearchAlgorithm
from .loop import SearchLoop
from .settings import check_names, split


class NamedSearchLoop(SearchLoop):
    """:class:`SearchLoop` for one algorithm.

    Args:
        runner: The runner.
        dataloader: Config of the hold-out images.
        **settings: Settings of the algorithm, and the other arguments of :class:`SearchLoop`.
    """

    kind: ClassVar[type[SearchAlgorithm]]
    """Class of the algorithm."""

    def __init__(self, runner: Runner, dataloader: Mapping[str, Any], **settings: Any) -> None:
        check_names(settings, self.takes(), f'vitnas.{type(self).__name__}')
        own, others = split(self.kind, settings)
        super().__init__(runner, dataloader, {'type': self.kind, **own}, **others)

    @classmethod
    def takes(cls) -> list[Any]:
        """The settings of the algorithm and of the loop."""
        return [*cls.kind.fields(), *(one for one in SearchLoop.takes() if one.name != 'algorithm')]


@LOOPS.register_module()
class EvolutionSearchLoop(NamedSearchLoop):
    """A search by :class:`~vitnas_core.search.algorithms.Evolution`."""

    kind = Evolution


@LOOPS.register_module()
class RandomSearchLoop(NamedSearchLoop):
    """A search by :class:`~vitnas_core.search.algorithms.Random`."""

    kind = Random


@LOOPS.register_module()
class SuccessiveHalvingLoop(NamedSearchLoop):
    """A search by :class:`~vitnas_core.search.algorithms.Halving`."""

    kind = Halving


@LOOPS.register_module()
class NSGA2SearchLoop(NamedSearchLoop):
    """A search by :class:`~vitnas_core.search.algorithms.NSGA2`."""

    kind = NSGA2


@LOOPS.register_module()
class PredictorSearchLoop(NamedSearchLoop):
    """A search by :class:`~vitnas_core.search.algorithms.Predictor`."""

    kind = Predictor


@LOOPS.register_module()
class SamplerSearchLoop(NamedSearchLoop):
    """A search by :class:`~vitnas_core.search.algorithms.Policy`."""

    kind = Policy
