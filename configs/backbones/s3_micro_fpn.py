"""A micro S3 searched on drawn digits, with its supernet's weights, and an FPN of strides 4, 8 and 16.

Use it in models of the scenes: ``model = dict(backbone=dict(_delete_=True, **_base_.backbone), …)``. It comes from
``s3-micro_supernet_120e_drawn-digits.py`` and the search in that supernet.
"""

backbone = dict(
    type='vitnas.S3',
    arch='work_dirs/s3-micro_search_evolution-7m_drawn-digits/best_arch.json',
    img_size=56,
    patch_size=4,
    out_indices=(0, 1, 2),
    init_cfg=dict(type='Pretrained', checkpoint='work_dirs/s3-micro_supernet_120e_drawn-digits/epoch_120.pth'),
)
neck = dict(type='FPN', in_channels='auto', out_channels=48, num_outs=3)
data_mean, data_std = [77.6] * 3, [95.9] * 3  # of the digits that the backbone was trained on
