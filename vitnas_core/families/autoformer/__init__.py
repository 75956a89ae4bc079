"""AutoFormer (Chen et al., ICCV 2021), also the network of FocusFormer."""
