"""S3 against timm's networks of the same architectures: logits, and gradients of the smallest."""

import pytest
import timm
import torch
import torch.nn.functional as F
from torch import nn

from vitnas_core.backbones import S3
from vitnas_core.families.s3.weights import find_arch, find_entry, find_settings, to_timm, to_vitnas

NAMES = {'swin_s3_tiny_224': 's3-t', 'swin_s3_small_224': 's3-s', 'swin_s3_base_224': 's3-b'}
TOLERANCE = 1e-5


class Classifier(nn.Module):
    """What an ImageClassifier with a linear head is, with its names."""

    def __init__(self, backbone: S3, classes: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = nn.ModuleDict(dict(fc=nn.Linear(backbone.embed_dims[-1], classes)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head['fc'](self.backbone(x)[-1].mean((2, 3)))


def pair(name: str) -> tuple[nn.Module, Classifier]:
    """timm's network, every parameter moved off its initial value, and ours with its weights."""
    theirs = timm.create_model(name, pretrained=False).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    state = to_vitnas(theirs.state_dict())
    arch = find_arch(state)
    entry = find_entry(arch)
    assert find_settings(state, arch) == {} and (entry and entry.name) == NAMES.get(name)
    ours = Classifier(S3(arch=NAMES.get(name, arch)), theirs.num_classes).eval()
    ours.load_state_dict(state)
    return theirs, ours


def relative(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


@pytest.mark.parametrize('name', [*NAMES, 'swin_tiny_patch4_window7_224'])
@torch.no_grad()
def test_logits(name: str) -> None:
    """A plain Swin is an S3 with other windows."""
    theirs, ours = pair(name)
    x = torch.randn(1, 3, 224, 224)
    assert relative(ours(x), theirs(x)) < TOLERANCE


def test_gradients() -> None:
    theirs, ours = pair('swin_s3_tiny_224')
    x = torch.randn(1, 3, 224, 224)
    for model in (theirs, ours):
        F.cross_entropy(model(x), torch.tensor([7])).backward()
    grads = to_timm({name: parameter.grad for name, parameter in ours.named_parameters()})
    expected = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    assert grads.keys() == expected.keys()
    for name, grad in expected.items():
        assert relative(grads[name], grad) < 5 * TOLERANCE, name
