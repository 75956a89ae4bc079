"""vitnas: vision-transformer architecture search on mmengine.

Importing the package mends what today's torch needs (:mod:`vitnas_core.compat`), declares the
registries, reads weight files safely (:mod:`vitnas_core.checkpoints`), fills in what configs leave to a backbone
(:mod:`vitnas_core.auto`) and makes the zoo known to timm.
"""

from . import compat

compat.apply()

from . import auto, checkpoints, registry  # noqa: E402
from .backbones import timm_entry as _timm_entry  # noqa: E402,F401
from .version import __version__  # noqa: E402

auto.register()
checkpoints.register()

__all__ = ['__version__', 'auto', 'checkpoints', 'compat', 'registry']
