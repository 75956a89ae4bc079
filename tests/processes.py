"""Python in a separate process, for tests of imports."""

import os
import subprocess
import sys
from pathlib import Path


def run(code: str, folder: Path | None = None) -> str:
    """Run code, with the modules of a folder first; return what it prints."""
    path = os.pathsep.join(filter(None, [folder and str(folder), os.environ.get('PYTHONPATH')]))
    environment = {**os.environ, 'PYTHONPATH': path}
    done = subprocess.run([sys.executable, '-c', code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
