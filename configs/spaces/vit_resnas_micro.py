"""A micro ViT-ResNAS of two stages, for images of 56 × 56."""

stages = [
    dict(
        embed_dim=[32, 40, 48],
        head_dim=[16],
        depth=4,
        optional=[1, 3],
        block=dict(num_heads=[1, 2, 3], hidden_dim=[48, 72, 96]),
    ),
    dict(
        embed_dim=[64, 80, 96],
        head_dim=[16],
        depth=4,
        optional=[1, 3],
        block=dict(num_heads=[2, 4, 6], hidden_dim=[96, 144, 192]),
    ),
]
space = dict(family='vit_res', name='vit-resnas-micro', stages=stages)
