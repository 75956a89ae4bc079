"""Unpack Fashion-MNIST for training: ``python tools/dataset_converters/fashion_mnist.py [FOLDER] [--out DIR]``.

FOLDER holds the four ``*-ubyte.gz`` files. It defaults to the files of Debian's package ``dataset-fashion-mnist``
(``apt-get install dataset-fashion-mnist``). You can also download them from
https://github.com/zalandoresearch/fashion-mnist.
"""

from __future__ import annotations

import argparse
import gzip
import subprocess
import zlib
from pathlib import Path

from vitnas_core.errors import DatasetError, VitnasError
from vitnas_core.utils.fileio import atomic_write

PACKAGE = 'dataset-fashion-mnist'
HELP = (
    f'install the Debian package {PACKAGE}, or download the four files from '
    'https://github.com/zalandoresearch/fashion-mnist and give their folder'
)
HEADERS = {
    'train-images-idx3-ubyte': (0x803, 60_000, 28, 28),
    'train-labels-idx1-ubyte': (0x801, 60_000),
    't10k-images-idx3-ubyte': (0x803, 10_000, 28, 28),
    't10k-labels-idx1-ubyte': (0x801, 10_000),
}
"""Header of each file: content type, number of samples, and height and width of an image."""


def find_package() -> Path:
    """Find the files of Debian's package.

    Raises:
        DatasetError: The package is not installed.
    """
    try:
        listed = subprocess.run(['dpkg', '-L', PACKAGE], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        raise DatasetError(f'no folder was given and the package {PACKAGE} is not installed; {HELP}') from None
    return next(Path(line).parent for line in listed.splitlines() if line.endswith('-ubyte.gz'))


def unpack(folder: Path, out: Path) -> None:
    """Unpack the four files and check the content of each.

    Raises:
        DatasetError: A file is missing, damaged or belongs to another dataset.
    """
    for name, header in HEADERS.items():
        source = folder / f'{name}.gz'
        try:
            data = gzip.decompress(source.read_bytes())
        except FileNotFoundError:
            raise DatasetError(f'there is no file {source}; {HELP}') from None
        except (OSError, EOFError, zlib.error) as err:
            raise DatasetError(f'{source} is not a complete gzip file ({err}); {HELP}') from None
        start = b''.join(number.to_bytes(4, 'big') for number in header)
        size = len(start) + header[1] * (784 if len(header) > 2 else 1)
        if not data.startswith(start) or len(data) != size:
            raise DatasetError(f'{source} should hold {size:,} bytes of Fashion-MNIST, but holds other data; {HELP}')
        atomic_write(out / name, data)


def main(args: list[str] | None = None) -> None:
    """Unpack the dataset."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('folder', nargs='?', type=Path, help="folder of the .gz files; defaults to Debian's package")
    parser.add_argument('--out', type=Path, default=Path('data/fashion-mnist'), help='defaults to data/fashion-mnist')
    options = parser.parse_args(args)
    try:
        unpack(options.folder or find_package(), options.out)
    except VitnasError as err:
        raise SystemExit(f'{type(err).__name__}: {err}') from None
    print(f'60,000 training and 10,000 test images: {options.out}')


if __name__ == '__main__':
    main()
