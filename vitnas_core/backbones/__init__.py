"""One searchable backbone a family."""

from .autoformer import AutoFormer
from .base import ElasticBackbone, cut_to_shape, elastic_backbone, unwrap

FAMILIES: dict[str, type[ElasticBackbone]] = {cls.family: cls for cls in (AutoFormer,)}
"""Family name of architecture files → backbone."""

__all__ = ['FAMILIES', 'AutoFormer', 'ElasticBackbone', 'cut_to_shape', 'elastic_backbone', 'unwrap']
