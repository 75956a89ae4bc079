"""Backbones of the families that come with vitnas; importing one registers it in ``FAMILIES``."""

from ..backbones.base import FAMILIES
from .autoformer.backbone import AutoFormer
from .nasvit.backbone import NASViT
from .s3.backbone import S3
from .vit_res.backbone import ViTRes
from .vitas.deit import ViTASDeiT
from .vitas.twins import ViTASTwins

__all__ = ['FAMILIES', 'S3', 'AutoFormer', 'NASViT', 'ViTASDeiT', 'ViTASTwins', 'ViTRes']
