"""Widths inside of an MBConv."""


def rounded(channels: float) -> int:
    """The multiple of 8 that is nearest, but not below nine tenths (MobileNet's rule)."""
    nearest = max(8, int(channels + 4) // 8 * 8)
    return nearest + 8 if nearest < 0.9 * channels else nearest


def hidden_width(channels: int, expand_ratio: int) -> int:
    """Channels between the two convolutions of an MBConv; without an expansion those that come in."""
    return channels if expand_ratio == 1 else rounded(channels * expand_ratio)


def squeezed_width(hidden: int) -> int:
    """Channels between the two layers of squeeze and excitation."""
    return rounded(hidden // 4)
