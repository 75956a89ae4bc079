"""Start a supernet from the weights of a supernet of another space."""

from __future__ import annotations

from mmengine.hooks import Hook
from mmengine.runner import Runner

from ...backbones import elastic_backbone, unwrap
from ...checkpoints import load_overlap
from ...errors import VitnasError
from ...registry import HOOKS


@HOOKS.register_module()
class InheritHook(Hook):
    """Load the weights that overlap with another supernet before the first step; a resumed training keeps its own.

    Args:
        checkpoint: Checkpoint of the other supernet.

    Raises:
        VitnasError: The backbone's ``sharing`` is not ordinal: only first channels overlap.
    """

    def __init__(self, checkpoint: str) -> None:
        self.checkpoint = checkpoint

    def before_train(self, runner: Runner) -> None:
        """Load the weights unless the training is resumed."""
        pattern = elastic_backbone(runner.model).pattern
        if not pattern.is_prefix:
            raise VitnasError(
                f'weights of another space overlap with ordinal sharing only, but got sharing={pattern.name!r}'
            )
        if runner.iter == 0:
            loaded = load_overlap(unwrap(runner.model), self.checkpoint)
            runner.logger.info(f'{loaded:.0%} of the weights come from {self.checkpoint}')
