"""NASViT-A1 for dense tasks: the last stage of each stride, 4 to 64, and 7 × 7 windows as in the paper's segmentation.

The paper names no stages. Without stage 7, its weights would get no gradient.
Use it as ``model = dict(backbone=dict(_delete_=True, **_base_.backbone), …)``.
"""

backbone = dict(
    type='vitnas.NASViT',
    arch='nasvit-a1',
    out_indices=(2, 3, 4, 6, 7),
    window_size=7,
)
