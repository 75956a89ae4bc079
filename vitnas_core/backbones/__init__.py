"""One searchable backbone a family."""

from .autoformer import AutoFormer
from .base import ElasticBackbone, cut_to_shape, elastic_backbone, unwrap
from .nasvit import NASViT
from .s3 import S3
from .vit_res import ViTRes
from .vitas_deit import ViTASDeiT
from .vitas_twins import ViTASTwins

FAMILIES: dict[str, type[ElasticBackbone]] = {
    cls.family: cls for cls in (AutoFormer, S3, ViTRes, NASViT, ViTASDeiT, ViTASTwins)
}
"""Family name of architecture files → backbone."""

__all__ = [
    'FAMILIES',
    'S3',
    'AutoFormer',
    'ElasticBackbone',
    'NASViT',
    'ViTASDeiT',
    'ViTASTwins',
    'ViTRes',
    'cut_to_shape',
    'elastic_backbone',
    'unwrap',
]
