"""All that vitnas changes in other libraries or takes from their private parts, each with its reason and its guard.

Importing vitnas calls :func:`apply`. It changes nothing for a config without a part of vitnas:

========================== ====================================================================== =====================
module                     what                                                                   when
========================== ====================================================================== =====================
``torchvision_operators``  make ``import torchvision`` work beside another build of torch         on import, if broken
``checkpoint_files``       read mmengine's checkpoints with ``weights_only=True``                 on import
``model_build``            fill in ``'auto'`` channels wherever a model is built                  on import
``timm_models``            register the zoo with timm                                             with ``import timm``
``bfloat16``               run in float32 what mmcv and mmdet cannot run in bfloat16              by our optim wrapper
``distributed``            start processes and wrap models on CPUs                                by our launcher
``runner``, ``steps``,     read private attributes of mmengine                                    on call
``metrics``
========================== ====================================================================== =====================

A few of our classes also override private methods of their mmengine parents, which is how those are extended:
``CheckpointHook._save_checkpoint_with_step`` and ``DefaultOptimWrapperConstructor._validate_cfg``.
"""

from .checkpoint_files import allow_checkpoint_globals, load_urls_weights_only, read_local_files
from .model_build import fill_auto_when_built
from .timm_models import register_zoo
from .torchvision_operators import ensure_torchvision

__all__ = ['apply']


def apply() -> None:
    """Apply everything that importing vitnas changes. A second call changes nothing."""
    ensure_torchvision()
    allow_checkpoint_globals()
    load_urls_weights_only()
    read_local_files()
    fill_auto_when_built()
    register_zoo()
