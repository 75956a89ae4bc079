"""Distributed training on CPUs, which mmengine's start does not foresee."""

from __future__ import annotations

import torch
import torch.distributed
from mmengine.config import Config


def start_on_cpus(cfg: Config) -> None:
    """Start processes by gloo and wrap the model without devices, for ``launcher='pytorch'`` on a machine without GPU.

    mmengine calls ``torch.cuda.set_device`` whatever the backend, unless processes are started already, and gives
    ``MMDistributedDataParallel`` the local rank as a GPU, unless ``model_wrapper_cfg`` says otherwise.

    Does nothing with another launcher or where there is a GPU.
    """
    if cfg.launcher != 'pytorch' or torch.cuda.is_available():
        return
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group('gloo')
    unused, given = cfg.get('find_unused_parameters', False), cfg.get('model_wrapper_cfg') or {}
    wrapper = dict(type='MMDistributedDataParallel', broadcast_buffers=False, find_unused_parameters=unused)
    cfg.model_wrapper_cfg = {**wrapper, **given, 'device_ids': None}
