"""Price architectures without building them: ``python tools/analysis/get_cost.py autoformer-tiny best_arch.json``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from vitnas_core import zoo
from vitnas_core.backbones import FAMILIES
from vitnas_core.errors import ArchError, VitnasError
from vitnas_core.text import table


def main(args: list[str] | None = None) -> None:
    """Print a table of parameters and multiply-accumulates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('archs', nargs='*', help='names of the zoo or architecture files; defaults to the whole zoo')
    parser.add_argument(
        '--shape', type=int, nargs='+', default=[224], metavar='N', help='image side, or height and width'
    )
    parser.add_argument('--num-classes', type=int, default=1000, help='of a linear head that is counted; 0 for none')
    options = parser.parse_args(args)
    if len(options.shape) > 2 or min(options.shape) < 1:
        parser.error(f'--shape should be a side, or height and width, but got {options.shape}')
    size = (options.shape[0], options.shape[-1])
    rows = []
    for ref in options.archs or zoo.arch_names():
        try:
            arch = zoo.load_arch(ref)
            if arch.family not in FAMILIES:
                raise ArchError(f'family is {arch.family}; there is a backbone for {", ".join(FAMILIES)}')
            cost = FAMILIES[arch.family].cost(arch, size, options.num_classes)
        except VitnasError as err:
            sys.exit(f'{type(err).__name__}: {err}' + f' ({ref})' * (str(ref) not in str(err)))
        rows.append([Path(ref).name, arch.family, f'{cost.params:,}', f'{cost.macs:,}'])
    print(table(['architecture', 'family', 'params', f'MACs at {size[0]} x {size[1]}'], rows))


if __name__ == '__main__':
    main()
