"""Train the supernet AutoFormer-T on CIFAR-100 with batch size, epochs and learning rate of FocusFormer's baseline."""

_base_ = [
    '../../../../configs/supernets/autoformer.py',
    '../../../../configs/_base_/datasets/cifar100.py',
    '../../../../configs/_base_/schedules/deit_bs1024_500e.py',
]

model = dict(head=dict(num_classes=100))
optim_wrapper = dict(optimizer=dict(lr=5e-4 * 128 / 512))
auto_scale_lr = dict(base_batch_size=128)
