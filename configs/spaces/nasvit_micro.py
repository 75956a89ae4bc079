"""A micro NASViT for images of 32 × 32: convolutions down to 8 × 8, transformers on 4 × 4."""

stages = [
    dict(width=[8, 16]),
    dict(width=[8, 16], depth=[1, 2], kernel_size=[3, 5], expand_ratio=[1], stride=[1], se=[0]),
    dict(width=[16, 24], depth=[1, 2, 3], kernel_size=[3, 5], expand_ratio=[2, 3, 4], stride=[2], se=[1]),
    dict(
        width=[32, 40, 48],
        depth=[2, 3, 4],
        kernel_size=[3],
        expand_ratio=[2, 3, 4],
        stride=[2],
        se=[0],
        mlp_ratio=[1],
        num_windows=[1],
    ),
    dict(
        width=[48, 56, 64],
        depth=[2, 3, 4],
        kernel_size=[3],
        expand_ratio=[3],
        stride=[1],
        se=[1],
        mlp_ratio=[1],
        num_windows=[1],
    ),
    dict(width=[96, 128], expand_ratio=[3]),
]
space = dict(family='nasvit', name='nasvit-micro', resolution=[24, 32], stages=stages)
