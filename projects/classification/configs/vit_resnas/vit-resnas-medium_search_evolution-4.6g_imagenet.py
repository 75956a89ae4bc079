"""Search ViT-ResNAS-Medium: at most 4.6 G MACs, in the supernet that Small and Medium share."""

_base_ = './vit-resnas-tiny_search_evolution-1.8g_imagenet.py'

model = dict(backbone=dict(space='vit-resnas-small', drop_path_rate=0.3))
train_cfg = dict(constraint=dict(macs=(None, 4.6e9)))
load_from = 'work_dirs/vit-resnas-small_supernet_8xb128-120e_imagenet/epoch_120.pth'
