"""A micro space of ViTAS-DeiT for 28 × 28 images: fifths of 80 channels, 240 attention channels, 160 hidden units."""

fifths = range(1, 6)
space = dict(
    family='vitas_deit',
    name='vitas-deit-micro',
    patch_size=[14, 7],
    stages=[
        dict(
            embed_dim=[16 * i for i in fifths],
            depth=[1, 2, 3, 4],
            block=dict(num_heads=[1, 2, 4], qkv_dim=[48 * i for i in fifths], hidden_dim=[32 * i for i in fifths]),
        )
    ],
)
del fifths
