"""The folder with cases of the published codes: the repository's, or another one of the same layout.

The environment variable ``VITNAS_REFERENCE`` names the other one. Numbers of classes, sizes, widths, seeds and names of
cases therefore come from its files; only what the published networks and codes fix stands in the tests.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

ROOT = Path(os.environ.get('VITNAS_REFERENCE') or Path(__file__).parent / 'data' / 'reference')


def read(family: str, name: str) -> Any:
    """What a JSON file of a family holds."""
    return json.loads((ROOT / family / f'{name}.json').read_text())
