"""A space of small S3 networks for the scenes of digits: strides 4, 8 and 16, windows that see whole digits."""

block = dict(num_heads=[1, 2], mlp_ratio=[1.0, 2.0], window_size=[4, 7])
space = dict(
    family='s3',
    name='s3-micro-scenes',
    stages=[
        dict(embed_dim=[24, 32], depth=[1, 2], block=block),
        dict(embed_dim=[40, 48], depth=[1, 2], block=block),
        dict(embed_dim=[64, 80], depth=[2, 3], block=block),
    ],
)
