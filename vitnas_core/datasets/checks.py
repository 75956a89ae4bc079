"""Checks of dataset configs: architectures must not be chosen on the test set."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import VitnasError

# Keys that change how or how many samples are read, not the set to which they belong.
_READING = ('pipeline', 'indices', 'lazy_init', 'serialize_data', 'max_refetch', 'metainfo', '_scope_')


def datasets_in(dataset: Any) -> Iterator[Mapping[str, Any]]:
    """Configs of the datasets inside wrappers."""
    if isinstance(dataset, (list, tuple)):
        for one in dataset:
            yield from datasets_in(one)
    elif isinstance(dataset, Mapping):
        inner = [dataset[name] for name in ('dataset', 'datasets') if name in dataset]
        if inner:
            yield from datasets_in(inner)
        else:
            yield dataset


def check_not_test_set(searched: Any, test: Any, where: str) -> None:
    """Refuse to choose architectures by the test set.

    Args:
        searched: The config of the dataloader that architectures are scored on.
        test: The config of the test dataloader, or None.
        where: Name of ``searched`` in the error, e.g. ``'train_dataloader of the search'``.

    Raises:
        VitnasError: The dataloaders share a dataset, wrapped or not; pipelines do not matter.
    """
    if not isinstance(searched, Mapping) or not isinstance(test, Mapping):
        return
    of_test = [_identity(leaf) for leaf in datasets_in(test.get('dataset'))]
    for leaf in datasets_in(searched.get('dataset')):
        if _identity(leaf) in of_test:
            raise VitnasError(
                f'{where} reads {leaf.get("type")}, the dataset of test_dataloader; the test '
                f'set must never be searched on: give a part of the training set, e.g. dict(type="vitnas.HoldOut", '
                f'part="holdout", dataset=…)'
            )


def _identity(dataset: Mapping[str, Any]) -> str:
    known = {name: value for name, value in dataset.items() if name not in _READING}
    if isinstance(known.get('type'), str):
        known['type'] = known['type'].rpartition('.')[2]  # 'vitnas.Digits' and 'Digits' are the same
    return plain_text(known)


def plain_text(data: Any) -> str:
    """Serialize configs and other plain data to text that is the same in every process."""
    return json.dumps(data, sort_keys=True, default=_word)


def _word(value: Any) -> Any:
    """Represent classes and functions by their name, other objects by their text."""
    return getattr(value, '__qualname__', None) or str(value)
