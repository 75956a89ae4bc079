"""The registries of scope ``vitnas``: children of mmengine's, so that every mm config finds our parts.

``dict(type='vitnas.AutoFormer')`` works in any mmdet, mmseg or mmpretrain config that says
``custom_imports = dict(imports=['vitnas_core'])``; the module that holds the part is imported on first use.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from mmengine import registry as mm

MODELS = mm.Registry(
    'model',
    parent=mm.MODELS,
    scope='vitnas',
    locations=['vitnas_core.families.catalog', 'vitnas_core.necks', 'vitnas_core.training'],
)
DATASETS = mm.Registry('dataset', parent=mm.DATASETS, scope='vitnas', locations=['vitnas_core.datasets'])
TRANSFORMS = mm.Registry('transform', parent=mm.TRANSFORMS, scope='vitnas', locations=['vitnas_core.datasets'])
DATA_SAMPLERS = mm.Registry('data sampler', parent=mm.DATA_SAMPLERS, scope='vitnas', locations=['vitnas_core.datasets'])
METRICS = mm.Registry('metric', parent=mm.METRICS, scope='vitnas')  # those of projects
HOOKS = mm.Registry('hook', parent=mm.HOOKS, scope='vitnas', locations=['vitnas_core.training.hooks'])
LOOPS = mm.Registry('loop', parent=mm.LOOPS, scope='vitnas', locations=['vitnas_core.training', 'vitnas_core.search'])
RUNNERS = mm.Registry('runner', parent=mm.RUNNERS, scope='vitnas', locations=['vitnas_core.search'])
OPTIM_WRAPPERS = mm.Registry(
    'optim wrapper', parent=mm.OPTIM_WRAPPERS, scope='vitnas', locations=['vitnas_core.training']
)
OPTIM_WRAPPER_CONSTRUCTORS = mm.Registry(
    'optim wrapper constructor',
    parent=mm.OPTIM_WRAPPER_CONSTRUCTORS,
    scope='vitnas',
    locations=['vitnas_core.training'],
)


class OwnRegistry(mm.Registry):
    """A registry of a kind that no other project has; it never looks into the registries of the default scope."""

    @contextmanager
    def switch_scope_and_registry(self, scope: str | None) -> Iterator[mm.Registry]:
        """Yield this registry, whatever the scope; mmengine would warn that the scope has no such registry."""
        with mm.DefaultScope.overwrite_default_scope(scope):
            yield self


# Kinds that mmengine lacks: they pick the architectures of a step, turn them into gradients, resolve conflicts between
# gradients, propose architectures in a search, and score them.
ARCH_SAMPLERS = OwnRegistry('architecture sampler', scope='vitnas', locations=['vitnas_core.training.samplers'])
RULES = OwnRegistry('training rule', scope='vitnas', locations=['vitnas_core.training.rules'])
CONFLICTS = OwnRegistry('gradient conflict', scope='vitnas', locations=['vitnas_core.training.projection'])
ALGORITHMS = OwnRegistry('search algorithm', scope='vitnas', locations=['vitnas_core.search.algorithms'])
WORKERS = OwnRegistry('workers', scope='vitnas', locations=['vitnas_core.workers'])


def class_of(registry: mm.Registry, config: Any) -> Any:
    """Return the class that a config's ``type`` means: a name, or the class itself, as in pure-Python configs.

    Args:
        registry: The registry of the name.
        config: The config. An object stands for its own class.

    Returns:
        The class, or a function that builds such an object; None if the config has no ``type`` or its name is unknown.
    """
    if not isinstance(config, Mapping):
        return type(config)
    kind = config.get('type')
    return registry.get(kind) if isinstance(kind, str) else kind
