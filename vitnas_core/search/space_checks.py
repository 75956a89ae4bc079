"""Checks before a space search trains anything, for mistakes that would otherwise show after hours."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from mmengine.config import Config
from mmengine.evaluator import Evaluator
from mmengine.registry import DefaultScope

from ..datasets.checks import check_not_test_set
from ..errors import VitnasError
from ..registry import LOOPS, class_of
from .algorithms import SearchAlgorithm
from .loop import SearchLoop
from .settings import algorithm_class, check_names


def check_search(search: Any) -> None:
    """Refuse a search that would only fail after the last supernet is trained.

    Raises:
        VitnasError: The config is not that of a search loop, or a setting is unknown or missing.
    """
    loop = class_of(LOOPS, search) if isinstance(search, Mapping) else None
    if not isinstance(loop, type) or not issubclass(loop, SearchLoop):
        raise VitnasError(
            f'`search` should be the config of a search loop, e.g. dict(type="vitnas.EvolutionSearchLoop", …), but got '
            f'{search!r}'
        )
    if 'latency_table' in search:
        raise VitnasError('`search` has a latency_table, which is of one space; limit macs or params instead')
    algorithm = search.get('algorithm')  # a config or an object
    own_cost = algorithm.get('cost') if isinstance(algorithm, Mapping) else getattr(algorithm, 'cost', None)
    if 'latency' in (search.get('cost'), own_cost):
        raise VitnasError('`search` has cost="latency", whose table would be of one space; give macs or params instead')
    check_names(search, loop.takes(), '`search`')
    if 'algorithm' in search and not isinstance(algorithm, SearchAlgorithm):
        check_names(algorithm, algorithm_class(algorithm).fields(), '`search.algorithm`')


def check_evaluator(evaluator: Any, cfg: Config) -> None:
    """Build the metrics once, now, as the search itself would only do so after hours.

    Raises:
        VitnasError: There are no such metrics.
    """
    try:
        with DefaultScope.overwrite_default_scope(cfg.get('default_scope')):
            Evaluator(metrics=copy.deepcopy(evaluator))
    except (KeyError, TypeError, ValueError) as err:
        raise VitnasError(f'`search.evaluator` cannot be built: {str(err).splitlines()[0]}') from None


def check_config(cfg: Config) -> None:
    """Refuse a config that cannot run the parts of a step.

    Raises:
        VitnasError: An entry is missing or in the way; the message names it.
    """
    for name in ('train_cfg', 'train_dataloader', 'val_dataloader', 'optim_wrapper'):
        if not cfg.get(name):
            raise VitnasError(f'a space search trains supernets and compares architectures: the config lacks `{name}`')
    check_not_test_set(cfg.val_dataloader, cfg.get('test_dataloader'), 'val_dataloader of the space search')
    hook = (cfg.get('default_hooks') or {}).get('checkpoint')
    if not hook or hook.get('out_dir'):
        raise VitnasError(
            f'a space search needs default_hooks.checkpoint, in the folder of each supernet, but got {hook!r}'
        )
    if cfg.get('load_from'):
        raise VitnasError(
            f'load_from is {cfg.load_from}, but every supernet of a space search is trained here; for weights from '
            f'one to the next give space_search.inherit=True'
        )
