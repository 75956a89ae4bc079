"""Figures as inline SVG: several fit into one HTML page, without clashing ids or external references."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from xml.dom import minidom

from matplotlib.figure import Figure

from . import theme
from .formats import plain

_REFERENCE = re.compile(r'(?<=url\(#)[^)]+|(?<=^#).+')
# Dates, and a style that would apply to the whole page.
_DROPPED = ('metadata', 'style')


def inline_svg(figure: Figure, name: str, label: str) -> str:
    """Render a figure as an ``<svg>`` element for an HTML page; equal figures give equal text.

    Args:
        figure (Figure): The picture.
        name (str): Prefix of the ids, unique within the page.
        label (str): Description for screen readers.
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
    """Remove comments, line breaks and unwanted elements; yield the others in order."""
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
    """Rename the ids that are referenced, and drop all others."""
    used: dict[str, str] = {}
    for element in elements:
        for key, value in list(element.attributes.items()):
            # SVG 2 and HTML use plain `href`, which needs no declared namespace.
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
