"""ViTAS on the DeiT and the Twins space (Su et al., 2021)."""
