"""Every architecture of the zoo as a timm model: ``timm.create_model('vitnas_autoformer_tiny')``."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from timm.models import register_model
from torch import Tensor, nn

from .. import zoo
from ..errors import VitnasError
from .catalog import FAMILIES


class ZooClassifier(nn.Module):
    """A fixed backbone, the mean over its last map or its class token, and a linear head, with timm's interface.

    Args:
        name: Zoo name of the architecture.
        num_classes: Classes of the head; 0 for none. Defaults to 1000.
        backbone: Further arguments of the backbone, e.g. ``drop_path_rate``.
    """

    def __init__(self, name: str, num_classes: int = 1000, **backbone: Any) -> None:
        super().__init__()
        entry = zoo.entry(name)
        family = FAMILIES[entry.arch.family]
        size = {'img_size': entry.input_size} if 'img_size' in family.cost_settings else {}
        self.global_pool = family.global_pool
        tokens = {'out_type': 'raw'} if self.global_pool == 'token' else {}
        self.backbone = family(arch=name, **{**size, **tokens, **backbone})  # type: ignore[call-arg]  # settings of the family
        self.num_features = self.head_hidden_size = self.backbone.out_channels()[-1]
        self.pretrained_cfg = self.default_cfg = dict(
            architecture=f'vitnas_{name.replace("-", "_")}',
            input_size=(3, *entry.input_size),
            num_classes=num_classes,
            classifier='head.fc',
            mean=(0.485, 0.456, 0.406),
            std=(0.229, 0.224, 0.225),
            interpolation='bicubic',
            crop_pct=0.875,
            url='',
        )
        self.reset_classifier(num_classes)

    def get_classifier(self) -> nn.Module:
        """Return the head."""
        return self.head.get_submodule('fc') if self.num_classes else self.head

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Replace the head; 0 classes leave the pooled features."""
        if global_pool not in (None, self.global_pool):
            raise VitnasError(f'`global_pool` should be "{self.global_pool}", but got {global_pool!r}')
        self.num_classes = num_classes
        self.head: nn.Module = nn.Identity()
        if num_classes:
            linear = nn.Linear(self.num_features, num_classes)
            nn.init.trunc_normal_(linear.weight, std=0.02)
            nn.init.zeros_(linear.bias)
            self.head = nn.Sequential(OrderedDict(fc=linear))  # the names of mm's checkpoints: head.fc.weight

    def forward_features(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) → the last feature map (B, C, h, w), or tokens (B, 1 + h·w, C) if the class token is pooled."""
        return self.backbone(x)[-1]

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Turn the output of :meth:`forward_features` into logits, or into the pooled features."""
        pooled = x[:, 0] if self.global_pool == 'token' else x.mean((2, 3))
        return pooled if pre_logits else self.head(pooled)

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) → logits."""
        return self.forward_head(self.forward_features(x))


# Arguments that timm's scripts pass to every model, with the values that our models have.
_FIXED = dict(in_chans=3, drop_rate=0.0, features_only=False)


def _register(name: str) -> None:
    def create(pretrained: bool = False, **kwargs: Any) -> ZooClassifier:
        if pretrained:
            raise VitnasError(f'no weights are published with vitnas for {name}; convert its official ones (README)')
        pool = FAMILIES[zoo.entry(name).arch.family].global_pool
        fixed = dict(_FIXED, global_pool=pool, out_type='raw' if pool == 'token' else 'featmap')
        for key, ours in fixed.items():
            if kwargs.pop(key, ours) not in (ours, None):
                raise VitnasError(f'`{key}` of a zoo model is {ours!r} and cannot be changed')
        for key in ('pretrained_cfg', 'pretrained_cfg_overlay', 'cache_dir'):
            kwargs.pop(key, None)
        return ZooClassifier(name, **kwargs)

    create.__name__ = f'vitnas_{name.replace("-", "_")}'
    create.__doc__ = f'{zoo.entry(name).title} of the zoo.'
    register_model(create)


for _name in zoo.arch_names():
    _register(_name)
