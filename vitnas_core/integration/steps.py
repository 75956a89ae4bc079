"""Private parts of mmengine's models and optimizer wrappers, for several gradients in one step."""

from __future__ import annotations

from typing import Any

from mmengine.model import is_model_wrapper
from mmengine.optim import OptimWrapper
from torch import Tensor


def label_loss(model: Any, data: Any) -> Tensor:
    """Return the loss against the labels, without an update.

    ``train_step`` is all of forward, backward and update. This is its forward part, which needs ``_run_forward``; a
    distributed wrapper has the method, too, and prepares the exchange of gradients in it.

    Args:
        model: The model, perhaps wrapped for distributed training.
        data: A batch from the model's data preprocessor.
    """
    inner = model.module if is_model_wrapper(model) else model
    return inner.parse_losses(model._run_forward(data, mode='loss'))[0]


def add_gradients(optim_wrapper: OptimWrapper, loss: Tensor, last: bool) -> None:
    """Add the gradients of one loss out of several in a step.

    ``backward`` counts every call as a step, by which accumulation knows when to update. Only the last loss of a step
    should count.
    """
    count = optim_wrapper._inner_count
    optim_wrapper.backward(optim_wrapper.scale_loss(loss))
    if not last:
        optim_wrapper._inner_count = count


def progress(optim_wrapper: OptimWrapper) -> float | None:
    """Return the finished part of the training in a step whose loss is counted already, None if it is unknown.

    The wrapper is told where a training is and how long it is, also after a resume; it has no public name for either.
    """
    done, total = optim_wrapper._inner_count - 1, optim_wrapper._max_counts
    return done / total if total > 0 else None
