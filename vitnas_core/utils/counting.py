"""Count parameters and MACs of a built network, as a reference for the closed forms."""

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode


def count_params(module: nn.Module) -> int:
    """Number of parameters of a module."""
    return sum(parameter.numel() for parameter in module.parameters())


@torch.no_grad()
def count_macs(module: nn.Module, inputs: Tensor) -> int:
    """Multiply-accumulates of one forward pass: convolutions, linear layers and matrix products, as executed.

    Attention runs unfused here, since torch does not count the fused kernels.

    Args:
        module: The network.
        inputs: Its input, shape (1, 3, H, W) for the count of one image.
    """
    counter = FlopCounterMode(display=False)
    with sdpa_kernel(SDPBackend.MATH), counter:
        module(inputs)
    return counter.get_total_flops() // 2
