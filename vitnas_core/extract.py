"""Extraction: from a supernet and an architecture to a fixed model of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from mmengine.registry import MODELS as MM_MODELS
from torch import Tensor, nn

from . import zoo
from .backbones.base import elastic_backbone, unwrap
from .backbones.module import ArchRef
from .backbones.pretrained import channel_axes, cut_to_shape
from .errors import ArchError
from .model_configs import fixed_config
from .spaces import Arch

_ROUNDING = 1e-4
"""Largest difference of outputs relative to the largest one: kernels may sum the same numbers in another order."""


def extract_model(model: nn.Module, model_cfg: Mapping[str, Any], arch: ArchRef) -> nn.Module:
    """Return the fixed model of one architecture, with the supernet's weights, mode and device.

    The backbone's features equal the supernet's bit for bit. Parts behind it sum over fewer channels than in the
    supernet, where the other channels are zero: equal up to the order of rounding.

    Args:
        model: The supernet, perhaps in a distributed wrapper; it is not changed.
        model_cfg: Config of the supernet.
        arch: The architecture: a zoo name, a file, or the data.

    Raises:
        VitnasError: The model has no elastic backbone, or several.
        ArchError: The architecture does not fit the weights. Or a neck or head, e.g. a norm over the backbone's
            channels, mixes its channels with those that it lacks.
    """
    source: nn.Module = unwrap(model)
    loaded, _ = elastic_backbone(source).load(arch)
    with torch.random.fork_rng(devices=[]):  # initial weights are replaced: they take no random numbers
        fixed = MM_MODELS.build(fixed_config(model_cfg, arch))
    kept = _kept_channels(source, fixed, loaded)
    # Not the state dict: it lacks non-persistent buffers, such as the mean and deviation of images. Data are replaced,
    # not parameters, so that tied parameters stay tied.
    axes = {f'{_name_of(source)}{name}': own for name, own in channel_axes(elastic_backbone(source)).items()}
    for mine, theirs in (
        (dict(fixed.named_parameters()), dict(source.named_parameters(remove_duplicate=False))),
        (dict(fixed.named_buffers()), dict(source.named_buffers(remove_duplicate=False))),
    ):
        for name, tensor in cut_to_shape(_select(theirs, mine, kept), mine, axes).items():
            mine[name].data = tensor.detach()
            mine[name].requires_grad_(theirs[name].requires_grad)
    modes = {name: module.training for name, module in source.named_modules()}
    for name, module in fixed.named_modules():
        module.training = modes.get(name, source.training)
    return fixed


@torch.no_grad()
def check_extracted(model: nn.Module, fixed: nn.Module, arch: ArchRef, images: Tensor) -> float:
    """Compare a supernet at an architecture with the model that was extracted from it.

    Args:
        model: The supernet; its active architecture and its mode are restored afterwards.
        fixed: Result of :func:`extract_model`.
        arch: The architecture.
        images: Input (B, 3, H, W).

    Returns:
        The largest difference of the outputs relative to the largest output.

    Raises:
        ArchError: The backbones' features are not equal bit for bit, or the outputs differ by more than the order of
            rounding can explain.
    """
    backbone, before = elastic_backbone(model), elastic_backbone(model).arch
    present = backbone.out_masks(zoo.load_arch(arch))
    modes = {module: module.training for part in (model, fixed) for module in part.modules()}
    try:
        backbone.set_arch(arch)
        features = backbone.eval()(images), elastic_backbone(fixed).eval()(images)
        outputs = [list(_tensors(_run(network.eval(), images))) for network in (model, fixed)]
    finally:
        backbone.set_arch(before)
        for module, training in modes.items():
            module.training = training
    for i, (whole, part, mask) in enumerate(zip(*features, present)):
        axis = whole.ndim - 1 if whole.ndim == 3 else 1  # tokens, or a map
        if not torch.equal(whole.index_select(axis, mask.nonzero().flatten().to(whole.device)), part):
            raise ArchError(f'output {i} of the extracted backbone is not equal to that of the supernet')
    scale = max(float(whole.abs().max()) for whole in outputs[0])
    largest = max(float((whole - part).abs().max()) for whole, part in zip(*outputs)) / max(scale, 1e-30)
    if not largest <= _ROUNDING:
        raise ArchError(
            f'the outputs of supernet and extracted model differ by {largest:.1e} of the largest, though the '
            f'features of the backbones are equal: a part behind them mixes the channels that this architecture lacks'
        )
    return largest


@torch.no_grad()
def _kept_channels(model: nn.Module, fixed: nn.Module, arch: Arch) -> dict[str, Tensor]:
    """Return the input channels that layers behind the backbone keep, by the layers' names.

    A head may concatenate the backbone's channels with others (UperNet does), so that an architecture's channels are
    not the first ones. So the channels that it lacks are marked with NaN, and layers note where the marks arrive. Only
    layers that are smaller in the fixed model are listed.
    """
    backbone = elastic_backbone(model)
    inside = {id(module) for module in backbone.modules()}
    smaller = {name: (module, part) for (name, module), part in _pairs(model, fixed) if id(module) not in inside}
    smaller = {name: pair for name, pair in smaller.items() if _shapes(pair[0]) != _shapes(pair[1])}
    if not smaller:
        return {}
    owner: Any = next(module for module in model.modules() if backbone in module.children())
    heads = [
        head
        for name, part in owner.named_children()
        if name not in ('backbone', 'neck')
        for head in (part if isinstance(part, nn.ModuleList) else [part])
        if any(module in head.modules() for module, _ in smaller.values())
    ]
    kept: dict[str, Tensor] = {}
    hooks = [
        module.register_forward_pre_hook(partial(_note_channels, kept, name, part))
        for name, (module, part) in smaller.items()
    ]
    hooks.append(backbone.register_forward_hook(partial(_mark_absent, backbone.out_masks(arch))))
    before, modes = backbone.arch, {module: module.training for module in model.modules()}
    try:
        backbone.set_arch(arch)
        reference = next(backbone.parameters())
        model.eval()
        features = owner.extract_feat(reference.new_zeros(1, 3, 128, 128))
        for head in heads:
            getattr(head, 'every_layer', head)(features)  # also layers that only train
    finally:
        backbone.set_arch(before)
        for module, training in modes.items():
            module.training = training
        for hook in hooks:
            hook.remove()
    for name in smaller:
        if name not in kept:
            raise ArchError(f'{name} is smaller in the extracted model, but no feature of the backbone reached it')
    return kept


def _name_of(model: nn.Module) -> str:
    """Return the prefix of the elastic backbone's weights."""
    backbone = elastic_backbone(model)
    name = next(name for name, module in model.named_modules() if module is backbone)
    return f'{name}.' if name else ''


def _pairs(model: nn.Module, fixed: nn.Module) -> Iterator[tuple[tuple[str, nn.Module], nn.Module]]:
    parts = dict(fixed.named_modules())
    return (((name, module), parts[name]) for name, module in model.named_modules() if name in parts)


def _shapes(module: nn.Module) -> list[tuple[int, ...]]:
    return [tuple(parameter.shape) for parameter in module.parameters(recurse=False)]


def _mark_absent(
    masks: Sequence[Tensor], backbone: nn.Module, args: Any, outputs: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """Put NaN into the channels that the active architecture lacks."""
    marked = tuple(output.clone() for output in outputs)
    for output, present in zip(marked, masks):
        output.transpose(-1 if output.ndim == 3 else 1, -1)[..., ~present.to(output.device)] = torch.nan
    return marked


def _note_channels(kept: dict[str, Tensor], name: str, part: nn.Module, module: nn.Module, args: Any) -> Any:
    """Note where a layer's input has no marks; a layer that sums over channels gets zeros in their place."""
    x = args[0]
    marks = x.isnan().transpose(-1 if isinstance(module, nn.Linear) else 1, 0).flatten(1).any(1)
    kept[name] = (~marks).nonzero().flatten()
    axis = 0 if isinstance(module, nn.ConvTranspose2d) else 1  # the axis of input channels in its weight
    shapes = zip(_shapes(module), _shapes(part))
    sums = any(len(whole) > 1 and whole[axis] != cut[axis] for whole, cut in shapes)
    return (x.nan_to_num(0.0), *args[1:]) if sums else None


def _select(theirs: Mapping[str, Tensor], mine: Mapping[str, Tensor], kept: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Cut tensors to the kept input channels if that is what makes them smaller."""
    selected = dict(theirs)
    for name in mine:
        indices = kept.get(name.rpartition('.')[0])
        if indices is None or name not in theirs:
            continue
        differing = [dim for dim, size in enumerate(mine[name].shape) if size != theirs[name].shape[dim]]
        if len(differing) > 1:
            raise ArchError(
                f'{name} is {tuple(theirs[name].shape)} and should become {tuple(mine[name].shape)}: the output '
                f'of the layer is smaller, too, so that its weights are not a part of the larger ones; give the neck '
                f'a fixed width there, e.g. hidden_channels of SimpleFeaturePyramid'
            )
        for dim in differing:
            size = mine[name].shape[dim]
            if size != len(indices):
                raise ArchError(
                    f'{name} should become {tuple(mine[name].shape)}, but of its {theirs[name].shape[dim]} inputs '
                    f'{len(indices)} are free of the channels that this architecture lacks: a part mixes them'
                )
            selected[name] = selected[name].index_select(dim, indices)
    return selected


def _run(model: Any, images: Tensor) -> Any:
    """Return raw outputs; for a detector the features behind its neck, as the rest needs proposals."""
    if hasattr(model, 'roi_head') or hasattr(model, 'bbox_head'):
        return model.extract_feat(images)
    return model(images, mode='tensor')


def _tensors(outputs: Any) -> Iterator[Tensor]:
    if isinstance(outputs, Tensor):
        yield outputs
    elif isinstance(outputs, (list, tuple)):
        for output in outputs:
            yield from _tensors(output)
