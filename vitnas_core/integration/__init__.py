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
``runner``, ``steps``      read private attributes of mmengine                                    on call
``metrics``, ``heads``     read private parts of mmengine, mmdet and mmpretrain                   on call
========================== ====================================================================== =====================

:data:`PRIVATE_NAMES` lists the few private names that other modules use; a test refuses all others.
"""

from .checkpoint_files import allow_checkpoint_globals, load_urls_weights_only, read_local_files
from .model_build import fill_auto_when_built
from .timm_models import register_zoo
from .torchvision_operators import ensure_torchvision

__all__ = ['PRIVATE_NAMES', 'apply']

PRIVATE_NAMES = {
    # overridden or called by a subclass, which is how the parent is extended
    '_load_from_state_dict': 'nn.Module: what a module does to weights before it loads them',
    '_save_to_state_dict': 'nn.Module: what a module adds to its weights',
    '_conv_forward': 'nn.Conv2d: the convolution, padding mode included, with a weight that is passed in',
    '_save_checkpoint_with_step': 'CheckpointHook: the order of saving and removing',
    '_save_best_checkpoint': 'CheckpointHook: the same for the best checkpoint',
    '_validate_cfg': 'DefaultOptimWrapperConstructor: the check of the optimizer',
    '_get_loss': "ClsHead: the loss of logits, after a head's own forward",
    '_create_image_index': 'COCOVQA: the images by their numbers, to say which are missing',
    # names of torch without a public one, the same in all its versions since 1.9
    '_metadata': 'state dicts: what modules note beside their weights, kept in checkpoints',
    '_BatchNorm': 'the base class of all batch norms, also of synchronised ones',
    '_foreach_mul_': 'many small tensors in one kernel; the optimizers of torch use it',
    '_foreach_add_': 'many small tensors in one kernel; the optimizers of torch use it',
}
"""Private names of other libraries that modules outside of this package use, and what for."""


def apply() -> None:
    """Apply everything that importing vitnas changes. A second call changes nothing."""
    ensure_torchvision()
    allow_checkpoint_globals()
    load_urls_weights_only()
    read_local_files()
    fill_auto_when_built()
    register_zoo()
