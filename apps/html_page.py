"""A page of HTML that needs nothing else: style, tables, lists; readable in light and dark, on paper and on a phone."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from apps.output import Table

STYLE = """
:root { color-scheme: light dark; --line: #8886; --faint: #7779; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1000px; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; margin: .6em 0 1.6em; font-variant-numeric: tabular-nums; }
th, td { padding: .2em .8em .2em 0; border-bottom: 1px solid var(--line); text-align: left; }
th.n, td.n { text-align: right; }
pre { background: #8882; padding: .6em .8em; overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere; }
.pictures { display: flex; flex-wrap: wrap; gap: 12px; }
svg { width: 460px; max-width: 100%; height: auto; }
svg text { fill: currentColor; font: 11px system-ui, sans-serif; }
svg text.title { font-size: 13px; font-weight: 600; }
svg .grid { stroke: var(--line); stroke-width: .6; fill: none; }
figure { margin: .6em 0 1.6em; background: #fff; color: #000; border-radius: 4px; }
figure svg { width: 100%; display: block; }
.verdict { font-size: 1.15em; font-weight: 600; padding: .5em .8em; border-left: 5px solid #888; background: #8882; }
.pass { border-color: #2a8a4a; } .miss { border-color: #c62828; }
"""


def page(title: str, body: Sequence[str]) -> str:
    """Return the whole page; *title* is text, *body* HTML."""
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style>'
    view = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    lines = "\n".join(body)
    return f'<!doctype html>\n<html lang="en"><head>{head}{view}</head><body>\n{lines}\n</body></html>\n'


def html_table(table: Table) -> str:
    """Return *table* as an element; columns in ``right`` are aligned to the right."""

    def row(tag: str, cells: Sequence[str]) -> str:
        marked = (
            f"<{tag}{' class=n' if column in table.right else ''}>{escape(cell)}</{tag}>"
            for column, cell in enumerate(cells)
        )
        return f"<tr>{''.join(marked)}</tr>"

    return f"<table>{row('th', table.columns)}{''.join(row('td', cells) for cells in table.rows)}</table>"
