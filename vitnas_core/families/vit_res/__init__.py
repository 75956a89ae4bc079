"""ViT-Res, the network of ViT-ResNAS (Liao et al., 2021)."""
