"""``score_all``: all metrics of several architectures, with one pass over the data."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from mmengine.evaluator import Evaluator
from mmengine.model import BaseModel

from ..backbones import elastic_backbone
from ..costs import Cost
from ..model_configs import priced_classes
from ..spaces import Arch
from .steps import make_step


@torch.no_grad()
def score_all(
    model: BaseModel,
    dataloader: Iterable[Any],
    num_samples: int,
    evaluator: Evaluator,
    archs: Mapping[str, Arch],
    recalibrate: Callable[[Arch], None] | None = None,
) -> dict[str, tuple[dict[str, Any], Cost]]:
    """Return metrics and cost of each architecture by its name; the model stays in evaluation mode.

    Each batch is loaded once for all architectures, unless batch norms are recalibrated: these hold the statistics of
    one architecture at a time.

    Args:
        model: An mm model with one elastic backbone, not wrapped.
        dataloader: The images; costs hold for their size.
        num_samples: Number of images on all ranks, each counted once.
        evaluator: mmengine's evaluator with the metrics, which stays as it is.
        archs: The architectures by their names.
        recalibrate: Gives batch norms the statistics of an architecture. Defaults to None: they stay as they are.
    """
    backbone, size = elastic_backbone(model), None
    steps = {name: make_step(model, copy.deepcopy(evaluator)) for name in archs}
    for step in steps.values():
        step.start()
    model.eval()
    for group in [list(archs)] if recalibrate is None else [[name] for name in archs]:
        if recalibrate is not None:
            recalibrate(archs[group[0]])
        for batch in dataloader:
            size = size or _image_size(model, batch)
            kept = steps[group[0]].keep(batch)  # what every step keeps
            for name in group:
                backbone.set_arch(archs[name])
                steps[name].run(kept)
    assert size is not None  # there is a batch
    classes = priced_classes(model)
    return {
        name: (steps[name].values(num_samples), backbone.price(arch, size, classes)) for name, arch in archs.items()
    }


def _image_size(model: BaseModel, batch: Any) -> tuple[int, int]:
    """Return height and width of a batch's images at the backbone's input."""
    height, width = model.data_preprocessor(copy.deepcopy(batch))['inputs'].shape[-2:]
    return height, width
