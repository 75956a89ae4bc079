"""Models around a backbone: channels that follow from it, and outputs of single architectures."""

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS

from tests.families import FAMILIES
from tests.stock import backbone_cfg
from vitnas_core.auto import fill_auto
from vitnas_core.backbones import elastic_backbone
from vitnas_core.errors import ArchError, VitnasError
from vitnas_core.extract import check_extracted, extract_model
from vitnas_core.model_configs import fixed_config, model_config

every_family = pytest.mark.parametrize('family', FAMILIES.values(), ids=FAMILIES.keys())


def classifier(family=FAMILIES['autoformer'], **settings) -> dict:
    head = dict(type='mmpretrain.LinearClsHead', num_classes=10, in_channels='auto')
    neck = dict(type='mmpretrain.GlobalAveragePooling')
    return dict(type='mmpretrain.ImageClassifier', backbone=backbone_cfg(family, **settings), neck=neck, head=head)


def segmentor() -> dict:
    return dict(
        type='mmseg.EncoderDecoder',
        data_preprocessor=dict(type='mmseg.SegDataPreProcessor', mean=[1.0, 2, 3], std=[4.0, 5, 6], size=(32, 48)),
        backbone=backbone_cfg(embed_dims=80, out_indices=(0, 1), init_cfg=dict(type='Pretrained', checkpoint='x')),
        decode_head=dict(
            type='mmseg.UPerHead', in_channels='auto', in_index=[0, 1], channels=8, num_classes=4, pool_scales=(1, 2),
            norm_cfg=dict(type='BN'),
        ),
        auxiliary_head=dict(
            type='mmseg.FCNHead', in_channels='auto', in_index=0, channels=8, num_classes=4, num_convs=1,
            norm_cfg=dict(type='BN'),
        ),
        train_cfg=dict(),
        test_cfg=dict(mode='whole'),
    )  # fmt: skip


# configs


def test_fixed_config() -> None:
    cfg = segmentor()
    cfg['decode_head']['in_channels'] = (80, 80)  # as numbers
    cfg['auxiliary_head']['channels'] = 80  # its own business
    arch = FAMILIES['autoformer'].space.smallest()
    fixed = fixed_config(cfg, arch)
    assert fixed['backbone'] == dict(
        type='vitnas.AutoFormer', arch=arch.to_dict(), out_indices=(0, 1), **FAMILIES['autoformer'].settings
    )
    assert fixed['decode_head']['in_channels'] == [48, 48] and fixed['auxiliary_head']['in_channels'] == 48
    assert fixed['auxiliary_head']['channels'] == 80
    assert 'space' in cfg['backbone'] and cfg['decode_head']['in_channels'] == (80, 80)
    other = dict(cfg['decode_head'], in_channels=[80, 64])  # not the supernet's channels: they stay
    assert fixed_config(dict(cfg, decode_head=other), arch)['decode_head']['in_channels'] == [80, 64]


@every_family
def test_an_architecture_that_does_not_fit(family) -> None:
    for change, message in family.misfits:
        data = family.space.largest().to_dict()
        change(data)
        with pytest.raises(ArchError) as err:
            fixed_config(classifier(family), data)
        assert str(err.value).startswith(message)


# extraction


def build(cfg: dict) -> torch.nn.Module:
    model = MODELS.build(fill_auto(cfg))
    for parameter in model.parameters():  # a network that ends in zeros would equal any other
        torch.nn.init.normal_(parameter, std=0.1)
    for name, buffer in model.named_buffers():
        if name.endswith('running_mean'):
            torch.nn.init.normal_(buffer, std=0.1)
    return model


@every_family
def test_an_extracted_classifier_computes_the_same(family, rng: np.random.Generator) -> None:
    cfg = classifier(family)
    model = build(cfg).eval()
    images = torch.randn(3, 3, family.image, family.image + family.stride)
    for arch in (family.space.smallest(), family.space.largest(), family.space.sample(rng), family.space.sample(rng)):
        fixed = extract_model(model, cfg, arch)
        assert check_extracted(model, fixed, arch, images) < 1e-5
        assert not fixed.training and elastic_backbone(fixed).space.size() == 1
        cost = elastic_backbone(model).price(arch, family.image, num_classes=10)
        assert sum(p.numel() for p in fixed.parameters()) == cost.params
        elastic_backbone(model).set_arch(arch)
        whole, part = (network.backbone(images)[-1] for network in (model, fixed))
        assert torch.equal(whole[:, : part.shape[1]], part) and not whole[:, part.shape[1] :].any()


def test_an_extracted_segmentor_computes_the_same() -> None:
    cfg = segmentor()
    model = build(cfg)
    model.backbone.patch_embed.requires_grad_(False)
    model.decode_head.eval()
    arch = FAMILIES['autoformer'].space.smallest()
    before = torch.random.get_rng_state()
    fixed = extract_model(model, cfg, arch)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert check_extracted(model, fixed, arch, torch.randn(2, 3, 32, 48)) < 1e-5
    assert model.backbone.arch == FAMILIES['autoformer'].space.largest() and model.auxiliary_head.training
    assert fixed.training and not fixed.decode_head.training and fixed.auxiliary_head.training
    assert not fixed.backbone.patch_embed.weight.requires_grad and fixed.backbone.norm.weight.requires_grad
    assert fixed.data_preprocessor.mean.flatten().tolist() == [1.0, 2, 3]  # buffers that no checkpoint holds
    model.eval(), fixed.eval()
    model.backbone.set_arch(arch)
    with torch.no_grad():  # the auxiliary head runs only while training
        images = torch.randn(1, 3, 32, 32)
        whole, part = (m.auxiliary_head(m.extract_feat(images)) for m in (model, fixed))
    torch.testing.assert_close(part, whole, rtol=1e-5, atol=1e-5)
    shared = set(map(torch.Tensor.data_ptr, model.parameters())) & set(map(torch.Tensor.data_ptr, fixed.parameters()))
    assert not shared


def test_an_extracted_detector_computes_the_same() -> None:
    cfg = dict(
        type='mmdet.RetinaNet',
        backbone=backbone_cfg(out_indices=(0, 1)),
        neck=dict(type='mmdet.FPN', in_channels='auto', out_channels=8, num_outs=2),
        bbox_head=dict(
            type='mmdet.RetinaHead', num_classes=3, in_channels='auto', stacked_convs=1, feat_channels=8,
            anchor_generator=dict(type='mmdet.AnchorGenerator', ratios=[1.0], octave_base_scale=4, scales_per_octave=1,
                                  strides=[8, 8]),
        ),
    )  # fmt: skip
    model, arch = build(cfg).eval(), FAMILIES['autoformer'].space.smallest()
    fixed = extract_model(model, cfg, arch)
    images = torch.randn(1, 3, 32, 40)
    assert fixed.neck.lateral_convs[1].conv.in_channels == 48
    assert check_extracted(model, fixed, arch, images) < 1e-5
    model.backbone.set_arch(arch)
    with torch.no_grad():
        whole, part = (network(images, mode='tensor') for network in (model, fixed))
    torch.testing.assert_close(part, whole, rtol=1e-5, atol=1e-5)


class NormHead(torch.nn.Module):
    """A norm over the channels of the features, which the channels that are zero change too."""

    def __init__(self, in_channels: int, used: bool = True) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(in_channels) if used else torch.nn.Identity()
        self.fc = torch.nn.Linear(in_channels, 10)
        self.spare = None if used else torch.nn.Linear(in_channels, 1)

    def forward(self, features: tuple[torch.Tensor, ...]) -> torch.Tensor:
        return self.fc(self.norm(features[-1]))


@pytest.mark.parametrize(
    ('used', 'message'),
    [
        (True, r'head.fc.weight should become \(10, 48\), but of its 72 inputs 0 are free of'),
        (False, 'head.spare is smaller in the extracted model, but no feature of the backbone reached it'),
    ],
)
def test_a_head_whose_channels_cannot_be_told_apart_is_refused(used: bool, message: str) -> None:
    cfg = classifier()
    cfg['head'] = dict(type=NormHead, in_channels='auto', used=used)
    with pytest.raises(ArchError, match=message):
        extract_model(build(cfg), cfg, FAMILIES['autoformer'].space.smallest())


def test_shared_parameters_stay_shared() -> None:
    cfg = classifier()

    class Tied(torch.nn.Module):
        def __init__(self, backbone: dict, **kwargs: object) -> None:
            super().__init__()
            self.backbone = MODELS.build(backbone)
            self.a, self.b = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
            self.b.weight = self.a.weight

    cfg['type'] = Tied
    fixed = extract_model(
        Tied(**{k: v for k, v in cfg.items() if k != 'type'}), cfg, FAMILIES['autoformer'].space.smallest()
    )
    assert fixed.b.weight is fixed.a.weight


def test_what_is_not_equal_is_refused() -> None:
    cfg = classifier()
    model = build(cfg)
    arch = FAMILIES['autoformer'].space.smallest()
    fixed = extract_model(model, cfg, arch)
    with torch.no_grad():
        fixed.backbone.norm.bias[3] += 1e-3
    with pytest.raises(ArchError, match='output 0 of the extracted backbone is not equal'):
        check_extracted(model, fixed, arch, torch.randn(1, 3, 32, 32))
    fixed = extract_model(model, cfg, arch)
    with torch.no_grad():
        fixed.head.fc.bias[3] += 1
    with pytest.raises(ArchError, match='differ by .* though the features of the backbones are equal'):
        check_extracted(model, fixed, arch, torch.randn(1, 3, 32, 32))
    assert model.training and model.backbone.arch == FAMILIES['autoformer'].space.largest()


def test_a_model_config_stands_by_itself() -> None:
    cfg = Config(
        dict(model=classifier(), default_scope='mmpretrain', data_preprocessor=dict(mean=[1.0, 2, 3], std=[4.0, 5, 6]))
    )
    cfg.model.type = 'ImageClassifier'
    alone = model_config(cfg)
    assert alone.head.in_channels == 72 and cfg.model.head.in_channels == 'auto'
    assert MODELS.build(alone).data_preprocessor.mean.flatten().tolist() == [1.0, 2, 3]
    with pytest.raises(VitnasError, match='a config should have a `model`'):
        model_config(Config(dict(default_scope='mmpretrain')))
