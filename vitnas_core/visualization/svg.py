"""A figure as SVG that several can be put into one HTML page: no names that clash, no references outside."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from xml.dom import minidom

from matplotlib.figure import Figure

from . import theme
from .formats import plain

_REFERENCE = re.compile(r'(?<=url\(#)[^)]+|(?<=^#).+')
# What a figure has too much for a page: dates, and a style that would hold for the whole page.
_DROPPED = ('metadata', 'style')


def inline_svg(figure: Figure, name: str, label: str) -> str:
    """Render a figure as an ``<svg>`` element for an HTML page; equal text for equal figures.

    Args:
        figure (Figure): The picture.
        name (str): A word that no other figure of the page has; ids begin with it.
        label (str): What it shows, for those who do not see it.
    """
    buffer = io.StringIO()
    with theme.context():
        figure.savefig(buffer, format='svg', metadata={'Date': None, 'Creator': None})
    root = minidom.parseString(buffer.getvalue().encode()).documentElement
    assert root is not None  # matplotlib writes a whole document
    elements = list(_clean(root))
    _rename_ids(elements, name)
    for attribute in ('width', 'height', 'version', 'xmlns', 'xmlns:xlink'):
        if root.hasAttribute(attribute):
            root.removeAttribute(attribute)
    width, height = figure.get_size_inches() * 96
    root.setAttribute('style', f'max-width:{width * 1.15:.0f}px;aspect-ratio:{width:.0f}/{height:.0f}')
    root.setAttribute('role', 'img')
    root.setAttribute('aria-label', plain(label))
    return root.toxml()


def _clean(element: minidom.Element) -> Iterator[minidom.Element]:
    """Every element, first to last, after comments, line breaks and unwanted elements are gone."""
    for child in list(element.childNodes):
        if isinstance(child, minidom.Element) and child.tagName not in _DROPPED:
            continue
        written = isinstance(child, minidom.Text) and not isinstance(child, minidom.Comment) and child.data.strip()
        if not written:
            element.removeChild(child)
    yield element
    for child in element.childNodes:
        if isinstance(child, minidom.Element):
            yield from _clean(child)


def _rename_ids(elements: list[minidom.Element], name: str) -> None:
    """Give the ids that something refers to new names, and drop all others."""
    used: dict[str, str] = {}
    for element in elements:
        for key, value in list(element.attributes.items()):
            # `href` alone is what SVG 2 and HTML say; no declared namespace is needed then.
            if key in ('clip-path', 'fill', 'stroke', 'style', 'xlink:href'):
                new = _REFERENCE.sub(lambda match: used.setdefault(match[0], f'{name}-{len(used)}'), value)
                element.removeAttribute(key)
                element.setAttribute('href' if key == 'xlink:href' else key, new)
    for element in elements:
        if element.hasAttribute('id'):
            old = element.getAttribute('id')
            element.removeAttribute('id')
            if old in used:
                element.setAttribute('id', used[old])
