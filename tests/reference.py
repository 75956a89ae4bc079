"""The folder with reference cases of the published codes.

The environment variable ``VITNAS_REFERENCE`` can name another folder of the same layout. So numbers of classes, sizes,
widths, seeds and names of cases come from its files. Tests contain only facts of the published networks and codes.
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
