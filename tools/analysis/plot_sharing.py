"""Plot the channels of each width in the three sharing patterns: ``plot_sharing.py --groups 10 --out sharing.png``.

The output lists the starts of cyclic runs, and how even training times and influence are (ViTAS, Tab. 16).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import vitnas_core  # noqa: F401  (patches torch)
from vitnas_core.elastic import cyclic_starts, influence_gap, shares
from vitnas_core.elastic.sharing import MOST_GROUPS, PATTERNS
from vitnas_core.errors import VitnasError
from vitnas_core.utils.text import table
from vitnas_core.visualization import draw_sharing, save_png


def parse_args(args: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--groups', type=int, default=10, help='groups of channels; defaults to 10, as in the paper')
    parser.add_argument(
        '--out', type=Path, default=Path('sharing.png'), metavar='FILE', help='the picture; defaults to sharing.png'
    )
    options = parser.parse_args(args)
    if not 2 <= options.groups <= MOST_GROUPS:
        parser.error(f'--groups should be from 2 to {MOST_GROUPS}, but got {options.groups}')
    return options


def describe(groups: int) -> str:
    """Format a table of the patterns."""
    rows = []
    for pattern in PATTERNS:
        times, gap = shares(pattern, groups).sum(0), influence_gap(pattern, groups)
        rows.append([pattern, f'{times.min()} to {times.max()}', f'{gap:.2f}', f'{gap / groups:.3f}'])
    return table(['sharing', 'training times', 'influence gap', 'gap per group'], rows)


def main(args: list[str] | None = None) -> None:
    """Print the table and write the picture."""
    options = parse_args(args)
    print(describe(options.groups))
    starts = ' '.join(str(start + 1) for start in cyclic_starts(options.groups))
    print(f'Cyclic runs of 1 to {options.groups} groups begin at group {starts}')
    save_png(draw_sharing(options.groups), options.out)
    print(f'Picture: {options.out}')


if __name__ == '__main__':
    try:
        main()
    except VitnasError as err:
        raise SystemExit(f'{type(err).__name__}: {err}') from None
