"""S3, also called AutoFormerV2 (Chen et al., NeurIPS 2021)."""
