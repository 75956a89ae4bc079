"""Text for terminals."""


def table(head: list[str], rows: list[list[str]]) -> str:
    """Format rows in columns under a header; the first column is left-aligned, the others right-aligned."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]

    def line(cells: list[str]) -> str:
        return '  '.join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(cells, widths)))

    return '\n'.join([line(head), '  '.join('-' * w for w in widths), *map(line, rows)])
