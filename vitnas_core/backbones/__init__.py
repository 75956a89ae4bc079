"""Base classes and common parts of the searchable backbones; the families' classes are importable from here, too."""

from typing import Any

from .base import ElasticBackbone, elastic_backbone, unwrap
from .module import ElasticModule
from .pretrained import cut_to_shape
from .staged import StagedBackbone

_FAMILIES = ('FAMILIES', 'S3', 'AutoFormer', 'NASViT', 'ViTASDeiT', 'ViTASTwins', 'ViTRes')

__all__ = [
    'ElasticBackbone',
    'ElasticModule',
    'StagedBackbone',
    'cut_to_shape',
    'elastic_backbone',
    'unwrap',
    *_FAMILIES,
]


def __getattr__(name: str) -> Any:
    """Import the families on first use: they are built on this package."""
    if name in _FAMILIES:
        from ..families import catalog

        return getattr(catalog, name)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
