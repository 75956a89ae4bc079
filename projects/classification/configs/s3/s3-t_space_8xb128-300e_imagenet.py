"""Search S3's search space on ImageNet-1k, then S3-T in it: the paper's whole pipeline with one command.

It trains four supernets for 300 epochs with 8 × 128 images per step. The first space has 4.6 to 18.8 G MACs, so hardly
any architecture meets S3-T's 4.7 G. So the limit for drawn architectures is S3-S's 9.5 G, and only the final search has
4.7 G.
"""

_base_ = [
    '../../../../configs/supernets/s3.py',
    '../../../../configs/_base_/datasets/imagenet.py',
    '../../../../configs/_base_/schedules/deit_bs1024_300e.py',
]

runner_type = 'vitnas.SpaceSearch'
space_search = dict(
    iterations=3,
    num_samples=1000,
    # One step of num_heads is one step of the paper's q-k-v dimension: 64 = 2 heads of 32.
    evolution=dict(
        steps=dict(depth=1, embed_dim=64, num_heads=2, mlp_ratio=0.5, window_size=7),
        threshold=0.4,
    ),
    constraint=dict(macs=(None, 9.5e9)),
    search=dict(
        type='vitnas.EvolutionSearchLoop',
        evaluator=dict(type='Accuracy'),
        constraint=dict(macs=(None, 4.7e9)),
        population=50,
        parents=10,
        generations=20,
        mutations=25,
        crossovers=25,
        mutation_prob=dict(depth=0.2, stage=0.2, block=0.4),
        keep_gb=16,  # per process: the 100,000 held-out images take 15 GB when decoded
    ),
)
