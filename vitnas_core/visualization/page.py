"""Style sheet, cards, tiles and tables of the HTML reports. All text is escaped here."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence

from .formats import plain

_CSS = """
:root { color-scheme: light dark; --page: #f5f7fa; --card: #fff; --ink: #1f2933; --faint: #616e7c;
  --line: #e4e7eb; --accent: #0072b2; --mark: #fff4ec; }
@media (prefers-color-scheme: dark) {
  :root { --page: #14181d; --card: #1f252c; --ink: #e6e9ed; --faint: #a3adb8; --line: #353d47;
    --accent: #6cb8e6; --mark: #3a2a1e; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; overflow-wrap: anywhere; }
main { max-width: 1240px; margin: 0 auto; padding: 24px 16px 40px; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 4px; }
h2 { font-size: 1.05rem; margin: 0 0 10px; }
p { margin: 0 0 8px; }
.faint, footer { color: var(--faint); }
footer { margin-top: 24px; font-size: .85rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); gap: 12px; margin: 20px 0 16px; }
.tile, .card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
.tile { padding: 12px 14px; }
.tile b { display: block; font-size: 1.35rem; line-height: 1.3; font-variant-numeric: tabular-nums; }
.tile.main b { color: var(--accent); }
.tile span { color: var(--faint); font-size: .85rem; }
.grid { display: grid; grid-template-columns: minmax(0, 1fr); gap: 16px; }
@media (min-width: 1000px) {
  .grid { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .wide { grid-column: 1 / -1; }
}
.card { padding: 16px; min-width: 0; }
.scroll { overflow-x: auto; }
.plot { background: #fff; border-radius: 6px; padding: 6px; }
.plot svg { display: block; width: 100%; height: auto; margin: 0 auto; }
.plot svg * { stroke-linejoin: round; stroke-linecap: butt; }
.arch svg { min-width: 680px; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { padding: 6px 10px; text-align: right; border-bottom: 1px solid var(--line); vertical-align: top;
  font-variant-numeric: tabular-nums; }
th { color: var(--faint); font-weight: 600; white-space: nowrap; }
td { white-space: nowrap; }
th:first-child, td:first-child, .candidates th:last-child, .candidates td:last-child { text-align: left; }
tr.mark td { background: var(--mark); font-weight: 600; }
.settings td { white-space: normal; text-align: left; }
.settings td:first-child { color: var(--faint); white-space: nowrap; }
summary { cursor: pointer; color: var(--accent); font-weight: 400; }
pre { margin: 6px 0 0; font: 12px/1.45 ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-weight: 400;
  white-space: pre; text-align: left; }
@media print {
  :root { color-scheme: light; --page: #fff; --card: #fff; --ink: #000; --faint: #444; --line: #ccc; --accent: #004a73;
    --mark: #f2f2f2; }
  main { max-width: none; padding: 0; }
  .card, .tile { break-inside: avoid; }
  .card.long { break-inside: auto; }
  tr { break-inside: avoid; }
  .scroll { overflow: visible; }
  .arch svg { min-width: 0; }
  body { font-size: 12px; }
  table { font-size: 10px; }
  th, td { padding: 3px 5px; white-space: normal; }
}
"""


def escape(text: object, length: int = 2000) -> str:
    """Escape a user's string for HTML text or an attribute."""
    return html.escape(plain(text, length))


def page(title: str, body: str) -> str:
    """Build the whole file; ``body`` is HTML."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{escape(title)}</title>\n<style>{_CSS}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n'
    )


def tiles(pairs: Iterable[tuple[str, str]]) -> str:
    """Show (label, value) pairs as tiles; the first one is highlighted."""
    made = [
        f'<div class="tile{" main" if i == 0 else ""}"><b>{escape(value)}</b><span>{escape(label)}</span></div>'
        for i, (label, value) in enumerate(pairs)
    ]
    return f'<div class="tiles">{"".join(made)}</div>'


def card(title: str, content: str, kind: str = '', note: str = '') -> str:
    """A part of the page: a heading, a faint note, and HTML content."""
    words = f'<p class="faint">{escape(note)}</p>' if note else ''
    return f'<section class="card {kind}"><h2>{escape(title)}</h2>{words}{content}</section>'


def plot(svg: str, kind: str = '') -> str:
    """A picture on white, in light and dark mode; it scrolls on narrow screens."""
    return f'<div class="scroll plot {kind}">{svg}</div>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]], marked: int = -1, kind: str = '') -> str:
    """A table that scrolls if it is too wide; cells are HTML, ``marked`` is the index of the highlighted row."""
    lines = [
        f'<tr{" class=mark" if i == marked else ""}>{"".join(f"<td>{cell}</td>" for cell in row)}</tr>'
        for i, row in enumerate(rows)
    ]
    heading = ''.join(f'<th>{escape(cell)}</th>' for cell in head)
    top = f'<thead><tr>{heading}</tr></thead>' if head else ''
    return f'<div class="scroll"><table class="{kind}">{top}<tbody>{"".join(lines)}</tbody></table></div>'


def settings(pairs: Mapping[str, str]) -> str:
    """A table of a run's settings, one row each."""
    return table([], [[escape(name), escape(value)] for name, value in pairs.items()], kind='settings')


def details(summary: str, text: str) -> str:
    """A text that unfolds on a click, without a script."""
    lines = '\n'.join(escape(line) for line in text.split('\n'))
    return f'<details><summary>{escape(summary)}</summary><pre>{lines}</pre></details>'
