"""Distributed training on CPUs starts from any config that mmengine takes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from mmengine.config import Config

from vitnas_core.integration.distributed import start_on_cpus


@pytest.mark.parametrize('given', [None, dict(broadcast_buffers=True), 'missing'])
def test_the_wrapper_of_a_config_is_kept(monkeypatch: pytest.MonkeyPatch, given: Any) -> None:
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: False)
    monkeypatch.setattr(torch.distributed, 'is_initialized', lambda: True)
    cfg = Config(dict(launcher='pytorch', **({} if given == 'missing' else dict(model_wrapper_cfg=given))))
    start_on_cpus(cfg)
    assert cfg.model_wrapper_cfg == dict(
        type='MMDistributedDataParallel',
        broadcast_buffers=isinstance(given, dict),
        find_unused_parameters=False,
        device_ids=None,
    )
