"""vitnas: vision-transformer architecture search on mmengine.

Importing the package mends what today's torch needs (:mod:`vitnas_core.compat`), declares the
registries, reads weight files safely (:mod:`vitnas_core.checkpoints`) and makes the zoo known to timm.
"""

from . import compat

compat.apply()

from . import checkpoints, registry  # noqa: E402
from .backbones import timm_entry as _timm_entry  # noqa: E402,F401
from .version import __version__  # noqa: E402

checkpoints.register()

__all__ = ['__version__', 'checkpoints', 'compat', 'registry']
