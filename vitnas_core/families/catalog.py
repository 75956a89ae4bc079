"""The backbones of all families."""

from ..backbones.base import ElasticBackbone
from .autoformer.backbone import AutoFormer
from .nasvit.backbone import NASViT
from .s3.backbone import S3
from .vit_res.backbone import ViTRes
from .vitas.deit import ViTASDeiT
from .vitas.twins import ViTASTwins

FAMILIES: dict[str, type[ElasticBackbone]] = {
    cls.family: cls for cls in (AutoFormer, S3, ViTRes, NASViT, ViTASDeiT, ViTASTwins)
}
"""Family name of architecture files → backbone."""
