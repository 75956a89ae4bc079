"""What ``bash tools/quickstart.sh`` searched on single digits, with its weights, and a pyramid of strides 4, 8 and 16.

For models of the scenes: ``model = dict(backbone=dict(_delete_=True, **_base_.backbone), …)``.
"""

subnet = 'work_dirs/quickstart/seed0/subnet'
backbone = dict(
    type='vitnas.AutoFormer',
    arch=f'{subnet}/arch.json',
    img_size=(96, 128),
    patch_size=8,
    reach=4,
    init_cfg=dict(type='Pretrained', checkpoint=f'{subnet}/weights.safetensors'),
)
# Only the first layer depends on the width of the backbone, so that a searched one can be cut out of its supernet.
neck = dict(
    type='vitnas.SimpleFeaturePyramid',
    in_channels='auto',
    out_channels=32,
    num_outs=3,
    scales=(2.0, 1.0, 0.5),
    hidden_channels=32,
)
data_mean, data_std = [77.6] * 3, [95.9] * 3  # of the digits that the backbone was trained on
