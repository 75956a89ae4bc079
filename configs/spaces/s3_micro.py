"""A stage of small S3 networks for images of about 32 × 32. Their spaces have three alike."""

stage = dict(
    embed_dim=[24, 32, 40],
    depth=[1, 2],
    block=dict(num_heads=[1, 2], mlp_ratio=[1.0, 1.5, 2.0], window_size=[2, 4]),
)
