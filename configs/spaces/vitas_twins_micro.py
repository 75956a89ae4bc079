"""A micro space of ViTAS-Twins for images of 32 × 32: patches of 4, two stages, fifths of the widths."""

fifths = range(1, 6)
space = dict(
    family='vitas_twins',
    name='vitas-twins-micro',
    stages=[
        dict(
            embed_dim=[most * i // 5 for i in fifths],
            depth=depth,
            block=dict(
                op=['local', 'global'],
                num_heads=[1, 2, 4],
                qkv_dim=[3 * most * i // 5 for i in fifths],
                hidden_dim=[2 * most * i // 5 for i in fifths],
            ),
        )
        for most, depth in ((40, [1, 2]), (80, [1, 2, 3]))
    ],
)
del fifths
