"""Compute costs without building networks: ``python tools/analysis/get_cost.py autoformer-tiny best_arch.json``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from mmengine.utils import import_modules_from_strings

from vitnas_core import zoo
from vitnas_core.backbones import FAMILIES
from vitnas_core.errors import ArchError, VitnasError
from vitnas_core.utils.text import table


def main(args: list[str] | None = None) -> None:
    """Print a table of parameters and multiply-accumulates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('archs', nargs='*', help='zoo names or architecture files; defaults to the whole zoo')
    parser.add_argument(
        '--shape',
        type=int,
        nargs='+',
        metavar='N',
        help="image side, or height and width; defaults to the zoo's size for zoo names and to 224 for files. An "
        'architecture with its own resolution is counted at that resolution',
    )
    parser.add_argument('--num-classes', type=int, default=1000, help='classes of the linear head; 0 for no head')
    parser.add_argument(
        '--custom-imports', nargs='+', metavar='MODULE', help='modules with families of your own, as in a config'
    )
    options = parser.parse_args(args)
    if options.shape and (len(options.shape) > 2 or min(options.shape) < 1):
        parser.error(f'--shape should be a side, or height and width, but got {options.shape}')
    import_modules_from_strings(options.custom_imports)
    rows = []
    for ref in options.archs or zoo.arch_names():
        try:
            arch = zoo.load_arch(ref)
            if arch.family not in FAMILIES:
                raise ArchError(
                    f'family is {arch.family}; there is a backbone for {", ".join(FAMILIES)}; give the module of '
                    f'another to --custom-imports'
                )
            family, own = FAMILIES[arch.family], zoo.entry(ref).input_size if ref in zoo.arch_names() else (224, 224)
            given = (options.shape[0], options.shape[-1]) if options.shape else own
            built_for = {'img_size': own} if 'img_size' in family.cost_settings else {}
            cost = family.cost(arch, given, options.num_classes, **built_for)
            size = family.priced_size(arch, given)
        except VitnasError as err:
            sys.exit(f'{type(err).__name__}: {err}' + f' ({ref})' * (str(ref) not in str(err)))
        rows.append([Path(ref).name, arch.family, f'{size[0]} x {size[1]}', f'{cost.params:,}', f'{cost.macs:,}'])
    print(table(['architecture', 'family', 'image', 'params', 'MACs'], rows))


if __name__ == '__main__':
    main()
