"""A micro space of ViTAS-DeiT for images of 28 × 28 or 32 × 32: tenths of 80 channels, 240 for heads, 160 hidden."""

tenths = range(1, 11)
space = dict(
    family='vitas_deit',
    name='vitas-deit-micro',
    patch_size=[14, 7, 4],
    stages=[
        dict(
            embed_dim=[8 * i for i in tenths],
            depth=[1, 2, 3, 4],
            block=dict(num_heads=[1, 2, 4], qkv_dim=[24 * i for i in tenths], hidden_dim=[16 * i for i in tenths]),
        )
    ],
)
del tenths
