"""vitnas: vision-transformer architecture search on mmengine.

Importing the package declares the registries and applies what :mod:`vitnas_core.integration` changes in other
libraries. Everything else is imported when it is used.
"""

from . import integration

integration.apply()  # first: it makes imports work that others need

from . import registry  # noqa: E402
from .version import __version__  # noqa: E402

__all__ = ['__version__', 'integration', 'registry']
