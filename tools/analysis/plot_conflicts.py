"""Plot the results of ``vitnas.ConflictMeterHook``: ``plot_conflicts.py WORK_DIR/conflicts.csv --out conflicts.png``.

The picture shows the fraction of layers in conflict during training, and how often each layer is in conflict, in
network order. A table lists the layers with the most conflicts.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import vitnas_core  # noqa: F401  (patches torch)
from vitnas_core.errors import VitnasError
from vitnas_core.training.hooks import read_conflicts
from vitnas_core.utils.text import table
from vitnas_core.visualization import draw_conflicts, save_png
from vitnas_core.visualization.conflicts import LayerConflicts, layer_conflicts

_ROWS = 10
"""Number of layers in the table."""


def parse_args(args: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('csv', type=Path, help='conflicts.csv of a training with vitnas.ConflictMeterHook')
    parser.add_argument(
        '--out', type=Path, default=Path('conflicts.png'), metavar='FILE', help='the picture; defaults to conflicts.png'
    )
    return parser.parse_args(args)


def describe(layers: list[LayerConflicts]) -> str:
    """Format a table of the layers with the most conflicts."""
    worst = sorted(layers, key=lambda one: (-one.fraction, one.mean))[:_ROWS]
    rows = [[one.layer, f'{one.fraction:.0%}', f'{one.mean:+.3f}'] for one in worst]
    return table(['layer', 'in conflict', 'mean cosine'], rows)


def main(args: list[str] | None = None) -> None:
    """Print the table and write the picture."""
    options = parse_args(args)
    rows = read_conflicts(options.csv)
    if not rows:
        raise VitnasError(f'{options.csv} holds no measurement')
    print(describe(layer_conflicts(rows)))
    save_png(draw_conflicts(rows), options.out)
    print(f'Picture: {options.out}')


if __name__ == '__main__':
    try:
        main()
    except VitnasError as err:
        raise SystemExit(f'{type(err).__name__}: {err}') from None
