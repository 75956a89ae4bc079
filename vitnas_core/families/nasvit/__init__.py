"""NASViT (Gong et al., ICLR 2022)."""
