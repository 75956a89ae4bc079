"""Layer-wise learning rates: smaller ones for earlier layers, no weight decay for norms and positions."""

from __future__ import annotations

from typing import Any

from mmengine.optim import DefaultOptimWrapperConstructor
from torch import nn

from ..backbones import elastic_backbone
from ..backbones.depths import layer_depths, position_weights
from ..errors import VitnasError
from ..registry import OPTIM_WRAPPER_CONSTRUCTORS
from ..utils import checks

_DEFAULTS = {'layer_decay': 1.0, 'position_decay_mult': 0.0, 'norm_decay_mult': 0.0}


@OPTIM_WRAPPER_CONSTRUCTORS.register_module()
class LayerDecayOptimWrapperConstructor(DefaultOptimWrapperConstructor):
    """mmengine's constructor with layer-wise learning rates, for any model with an elastic backbone.

    ``paramwise_cfg`` also takes:

    - ``layer_decay``: a backbone weight at depth d of n has the learning rate ``lr · layer_decay^(n − d)``; everything
      behind the backbone has ``lr`` (BEiT, arXiv 2106.08254; ViTDet). Defaults to 1: one rate for all.
    - ``position_decay_mult``: factor of the weight decay of tokens, position tables and scaling vectors. Defaults to 0.
    - ``norm_decay_mult``: factor of the weight decay of norms. Defaults to 0 here.

    Weights with equal settings are in one group, so that the optimizer takes few steps.

    Args:
        optim_wrapper_cfg: Config of the optimizer wrapper; its optimizer gives ``lr`` and ``weight_decay``.
        paramwise_cfg: Settings by kind of weight, see above. Defaults to None.

    Raises:
        VitnasError: The optimizer gives no ``lr`` or ``weight_decay``, ``layer_decay`` is not above 0 up to 1, or
            ``position_decay_mult`` is below 0.
    """

    def __init__(self, optim_wrapper_cfg: dict, paramwise_cfg: dict | None = None) -> None:
        super().__init__(optim_wrapper_cfg, {**_DEFAULTS, **(paramwise_cfg or {})})
        for name in ('layer_decay_rate', 'decay_rate'):  # mmpretrain's and mmdet's, which would do nothing here
            if name in self.paramwise_cfg:
                raise VitnasError(f'`{name}` of {type(self).__name__} is called `layer_decay`')
        checks.fraction('layer_decay', self.paramwise_cfg['layer_decay'])
        checks.least('position_decay_mult', self.paramwise_cfg['position_decay_mult'])

    def _validate_cfg(self) -> None:
        """Check the optimizer; mmengine's constructor calls this."""
        for name, value in (('lr', self.base_lr), ('weight_decay', self.base_wd)):
            if value is None:
                raise VitnasError(f'the optimizer of {type(self).__name__} should give `{name}`, but got none')
        super()._validate_cfg()

    def add_params(
        self,
        params: list[dict[str, Any]],
        module: nn.Module,
        prefix: str = '',
        is_dcn_module: int | float | None = None,
    ) -> None:
        """Add the parameters of a module; for the whole model, also set what depends on the backbone."""
        super().add_params(params, module, prefix, is_dcn_module)
        if prefix:  # mmengine calls this for every part of the model
            return
        names = {id(parameter): name for name, parameter in module.named_parameters()}
        backbone = elastic_backbone(module)
        where = next(f'{name}.' if name else '' for name, part in module.named_modules() if part is backbone)
        (depths, count), positions = layer_depths(backbone), position_weights(backbone)
        last, decay = count - 1, self.paramwise_cfg['layer_decay']
        groups: dict[tuple, dict[str, Any]] = {}
        for group in params:
            name = names.pop(id(group['params'][0]), None)
            if name is None:  # a parameter of several modules comes once for each of them
                continue
            if name.startswith(where):
                inner = name.removeprefix(where)
                group['lr'] = group.get('lr', self.base_lr) * decay ** (last - depths[inner])
                if inner in positions and not self._is_custom(name):
                    group['weight_decay'] = self.base_wd * self.paramwise_cfg['position_decay_mult']
            settings = tuple(sorted((key, repr(value)) for key, value in group.items() if key != 'params'))
            groups.setdefault(settings, {**group, 'params': []})['params'] += group['params']
        params[:] = groups.values()

    def _is_custom(self, name: str) -> bool:
        return any(key in name for key in self.paramwise_cfg.get('custom_keys', {}))
