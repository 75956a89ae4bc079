"""Save checkpoints so that a kill at any moment leaves a complete one to resume from."""

import os.path as osp
from typing import Any

import torch
from mmengine.dist import all_reduce, get_world_size, is_main_process
from mmengine.fileio import BaseStorageBackend, LocalBackend
from mmengine.hooks import CheckpointHook as _CheckpointHook
from mmengine.runner import Runner

from ...backbones import unwrap
from ...integration.runner import is_resuming
from ...registry import HOOKS
from ...utils.fileio import AtomicBackend, atomic_write, remove_leftovers
from ..projection import ASIDE

_GRADIENTS = {'gradients': 'grad', 'gradients_aside': ASIDE}
"""Key of a checkpoint for gradients that wait for an update → attribute of the parameters that holds them."""


@HOOKS.register_module()
class CheckpointHook(_CheckpointHook):
    """mmengine's ``CheckpointHook`` in a safe order; it takes the same arguments.

    mmengine removes the oldest checkpoint (and the previous best one) before it writes the new one. It also writes
    checkpoints and ``last_checkpoint`` in place. With ``max_keep_ckpts=1`` a kill during a save leaves nothing to
    resume from. This hook writes a checkpoint aside and renames it, then replaces ``last_checkpoint``, and only then
    removes old files. So the folder needs room for one checkpoint more than ``max_keep_ckpts``. A kill just before the
    removal leaves that one behind.

    mmengine's backend writes remote folders (``backend_args``, ``file_client_args`` or the prefix of ``out_dir``), in
    the same order. mmengine also makes the copy that ``published_keys`` asks for after training.

    A checkpoint in the middle of gradient accumulation holds the gradients so far, averaged over ranks, so that a
    resumed training loses none. mmengine drops them.

    A previous best checkpoint outside the folder of this run is kept: it belongs to the run that was resumed from.
    """

    file_backend: BaseStorageBackend

    def before_train(self, runner: Runner) -> None:
        """Switch a local folder to atomic writes and remove unfinished files of an earlier kill.

        Args:
            runner (Runner): The runner of the training process.
        """
        super().before_train(runner)
        self._restore_gradients(runner)
        if type(self.file_backend) is LocalBackend:
            self.backend_args = {'backend': 'vitnas.atomic'}
            self.file_backend = AtomicBackend()
        if not is_main_process():
            return
        left = remove_leftovers(runner.work_dir, 'last_checkpoint')
        if isinstance(self.file_backend, AtomicBackend):
            left += remove_leftovers(self.out_dir, '*' + osp.splitext(self.filename_tmpl)[1])
        if left:
            runner.logger.info(f'Removed what an interrupted save left: {", ".join(left)}.')

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Keep the gradients of a checkpoint that is resumed from.

        Args:
            runner (Runner): The runner of the training process.
            checkpoint (dict): The loaded checkpoint.
        """
        self._gradients = {key: checkpoint.get(key, {}) for key in _GRADIENTS} if is_resuming(runner) else {}

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Add gradients that wait for an update.

        Args:
            runner (Runner): The runner of the training process.
            checkpoint (dict): The checkpoint to save.
        """
        for key, attribute in _GRADIENTS.items():
            pairs = [(name, getattr(p, attribute, None)) for name, p in unwrap(runner.model).named_parameters()]
            if gradients := {name: gradient.cpu() for name, gradient in pairs if gradient is not None}:
                checkpoint[key] = gradients

    def _restore_gradients(self, runner: Runner) -> None:
        kept, self._gradients = getattr(self, '_gradients', {}), {}
        for name, parameter in unwrap(runner.model).named_parameters():
            for key, gradients in kept.items():
                if name in gradients:
                    setattr(parameter, _GRADIENTS[key], gradients[name].to(parameter.device))

    def _save_checkpoint_with_step(self, runner: Runner, step: int, meta: dict) -> None:
        """Write the checkpoint, then ``last_checkpoint``, then remove old checkpoints.

        The ids to keep are updated first, as in mmengine, because the checkpoint holds them.
        """
        retired = self._retire(runner, step)
        _average_gradients(runner)
        filename = self.filename_tmpl.format(step)
        self.last_ckpt = self.file_backend.join_path(self.out_dir, filename)
        runner.message_hub.update_info('last_ckpt', self.last_ckpt)
        runner.save_checkpoint(
            self.out_dir,
            filename,
            self.file_client_args,
            save_optimizer=self.save_optimizer,
            save_param_scheduler=self.save_param_scheduler,
            meta=meta,
            by_epoch=self.by_epoch,
            backend_args=self.backend_args,
            **self.args,
        )
        if is_main_process():
            atomic_write(osp.join(runner.work_dir, 'last_checkpoint'), str(self.last_ckpt))
            for old in retired:
                self._remove(self.file_backend.join_path(self.out_dir, self.filename_tmpl.format(old)))

    def _retire(self, runner: Runner, step: int) -> list[int]:
        """Add ``step`` to the kept ones; return the steps that are now beyond ``max_keep_ckpts``."""
        # A new best one saves the checkpoint of the same step a second time.
        if self.max_keep_ckpts <= 0 or (self.keep_ckpt_ids and self.keep_ckpt_ids[-1] == step):
            return []
        before = list(self.keep_ckpt_ids)
        self.keep_ckpt_ids.append(step)  # a deque of max_keep_ckpts: the oldest drops out
        runner.message_hub.update_info('keep_ckpt_ids', list(self.keep_ckpt_ids))
        return [old for old in before if old not in self.keep_ckpt_ids]

    def _save_best_checkpoint(self, runner: Runner, metrics: dict) -> None:
        """Save the new best checkpoints by mmengine's rule, then remove those that they replace.

        mmengine removes the previous best one before it saves, so that is hidden from it meanwhile.
        """
        # Runner.val() alone never calls before_train; stock mmengine fails then. There is nothing to save.
        if not self.save_best or not hasattr(self, 'file_backend'):
            return
        _average_gradients(runner)
        before = self._best_paths()
        self._set_best_paths(dict.fromkeys(before))
        try:
            super()._save_best_checkpoint(runner, metrics)
        finally:
            after = self._best_paths()
            self._set_best_paths({key: after[key] or path for key, path in before.items()})
        for key, path in before.items():
            replaced = path and after[key] and path != after[key]
            if replaced and osp.dirname(path) == str(self.out_dir).rstrip('/') and is_main_process():
                self._remove(path)
                runner.logger.info(f'The previous best checkpoint {path} is removed')

    def _best_paths(self) -> dict[str, Any]:
        """Return the best checkpoint of each metric; mmengine keeps that of a single metric in another attribute."""
        return {'': self.best_ckpt_path} if len(self.key_indicators) == 1 else dict(self.best_ckpt_path_dict)

    def _set_best_paths(self, paths: dict[str, Any]) -> None:
        if len(self.key_indicators) == 1:
            self.best_ckpt_path = paths['']
        else:
            self.best_ckpt_path_dict = dict(paths)

    def _remove(self, path: str) -> None:
        if self.file_backend.isfile(path):
            self.file_backend.remove(path)
        elif self.file_backend.isdir(path):  # deepspeed's checkpoints are folders
            self.file_backend.rmtree(path)


def _average_gradients(runner: Runner) -> None:
    """Give every rank the mean of all accumulated gradients, which leaves their final mean unchanged."""
    if get_world_size() == 1:
        return
    parameters = list(unwrap(runner.model).parameters())
    for attribute in _GRADIENTS.values():
        # Ranks may have gradients of different parameters, but they must exchange the same ones.
        found = [getattr(parameter, attribute, None) for parameter in parameters]
        somewhere = torch.tensor([float(gradient is not None) for gradient in found], device=parameters[0].device)
        all_reduce(somewhere, 'max')
        for parameter, gradient, wanted in zip(parameters, found, somewhere.tolist()):
            if wanted:
                gradient = torch.zeros_like(parameter) if gradient is None else gradient
                all_reduce(gradient, 'mean')
                setattr(parameter, attribute, gradient)
