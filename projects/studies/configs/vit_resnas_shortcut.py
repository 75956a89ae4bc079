"""ViT-ResNAS, Sec. 2.2, small: training a deep network with and without the main branch of its spatial reduction.

A ViT-Res of twice twelve blocks on 4,000 images of Fashion-MNIST, with and without the branch. The learning rate is
that of the other studies, or three times as large; gradients are not clipped.
"""

title = 'ViT-ResNAS: the main branch of the reduction (Fashion-MNIST, 24 blocks)'
seeds = [0, 1, 2]
baseline = 'with'

retrain = 'projects/classification/configs/vit_resnas/vit-resnas-micro_retrain_8e_fashion-mnist.py'
deep = dict(
    _delete_=True,
    family='vit_res',
    stages=[
        dict(embed_dim=48, head_dim=16, blocks=[dict(num_heads=3, hidden_dim=96)] * 12),
        dict(embed_dim=96, head_dim=16, blocks=[dict(num_heads=6, hidden_dim=192)] * 12),
    ],
)


def trained(shortcut, rate):
    """Train for four epochs."""
    overrides = {
        'model.backbone.arch': deep,
        'model.backbone.shortcut': shortcut,
        'optim_wrapper.optimizer.lr': rate,
        'optim_wrapper.clip_grad': None,
        'train_cfg.max_epochs': 4,
        'param_scheduler.1.end': 4,
    }
    return dict(config=retrain, overrides=overrides)


runs = [
    dict(
        name=name,
        steps=[dict(name='slow', **trained(shortcut, 3e-3)), dict(name='fast', **trained(shortcut, 1e-2))],
    )
    for name, shortcut in (('with', True), ('without', False))
]
measures = {
    'slow.accuracy/top1': 'learning rate 0.003, test (%)',
    'fast.accuracy/top1': 'learning rate 0.01, test (%)',
}
