"""What all pages look like: the answer on top, badges under it, quiet tables; HTML that works in light and dark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import Any

import streamlit as st

from apps.ui.figures.style import CONFIG
from apps.ui.words import Kind

_WORDS: dict[Kind, str] = {"yes": "✓", "no": "✕", "careful": "!", "plain": "·"}
#: Edges of the answer; text keeps the theme's colour, the sign differs too, so colour is never alone.
_CSS = """<style>
.block-container, [data-testid="stMainBlockContainer"] {padding: 4.1rem 2rem 3rem; max-width: 1280px}
@media (max-width: 640px) {[data-testid="stMainBlockContainer"] {padding: 4.1rem .8rem 2rem}}
[data-testid="stSidebarHeader"] {height: 2.2rem; padding-bottom: 0; margin-bottom: 0}
[data-testid="stSidebarUserContent"] {padding-bottom: 2rem}
[data-testid="stSidebar"] [data-testid="stVerticalBlock"] {gap: .5rem}
[data-testid="stVerticalBlock"] {gap: .65rem}
.sc-answer {display: flex; gap: .8rem; align-items: flex-start; padding: .7rem .9rem; border-radius: .5rem;
  border: 1px solid rgba(128,128,128,.25); border-left: 5px solid #8a8f98; background: rgba(128,128,128,.06)}
.sc-answer.yes {border-left-color: #16967a} .sc-answer.no {border-left-color: #d9622b}
.sc-answer.careful {border-left-color: #b98300} .sc-answer.plain {border-left-color: #2f7fc1}
.sc-sign {flex: none; width: 1.55rem; height: 1.55rem; border-radius: 50%; color: #fff; font-weight: 700;
  display: flex; align-items: center; justify-content: center; background: #2f7fc1; font-size: .95rem}
.yes .sc-sign {background: #16967a} .no .sc-sign {background: #c4521d} .careful .sc-sign {background: #a07200}
.sc-answer p {margin: 0; font-size: 1.16rem; line-height: 1.45} .sc-answer p + p {font-size: .93rem; opacity: .8;
  margin-top: .25rem}
.sc-badges {display: flex; flex-wrap: wrap; gap: .35rem; margin-top: -.1rem}
.sc-badge {font-size: .78rem; padding: .1rem .55rem; border-radius: 1rem; border: 1px solid rgba(128,128,128,.4)}
.sc-badge.careful {border-color: #b98300; background: rgba(185,131,0,.14)}
.sc-table {border-collapse: collapse; font-size: .88rem; width: 100%; font-variant-numeric: tabular-nums}
.sc-scroll {overflow-x: auto}
.sc-table th, .sc-table td {padding: .22rem .6rem; border-bottom: 1px solid rgba(128,128,128,.22); text-align: left;
  white-space: nowrap}
.sc-table th {font-weight: 600; opacity: .75} .sc-table .r {text-align: right}
.sc-table .wrap {white-space: normal; min-width: 9rem}
.sc-table tr:last-child td {border-bottom: none} .sc-quiet {opacity: .65; font-size: .82rem}
[data-testid="stSidebar"] [data-testid="stButtonGroup"] button {padding: .2rem .3rem; min-width: 0}
.sc-problem {color: inherit; font-size: .84rem; border-left: 3px solid #d9622b; padding: .1rem .5rem;
  background: rgba(217,98,43,.10)}
</style>"""


def page_style() -> None:
    """Put the page's style sheet in place."""
    st.html(_CSS)


def answer(kind: Kind, sentence: str, more: str = "") -> None:
    """Show the answer in a sentence; *more* in smaller type.  ``**bold**`` is read, all else is plain text."""
    second = f"<p>{_rich(more)}</p>" if more else ""
    st.html(
        f'<div class="sc-answer {kind}" role="status"><span class="sc-sign" aria-hidden="true">{_WORDS[kind]}</span>'
        f"<div><p>{_rich(sentence)}</p>{second}</div></div>"
    )


def badges(*words: tuple[str, bool] | str) -> None:
    """Show short facts; a pair (text, True) is one to be careful about."""
    parts = []
    for word in words:
        text, careful = (word, False) if isinstance(word, str) else word
        if text:
            parts.append(f'<span class="sc-badge{" careful" if careful else ""}">{escape(text)}</span>')
    st.html(f'<div class="sc-badges">{"".join(parts)}</div>')


def problem(text: str | None) -> None:
    """Show what is wrong beside the input it is about; nothing for None."""
    if text:
        st.html(f'<div class="sc-problem" role="alert">{escape(_short(text))}</div>')


def table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = (), wrap: Sequence[int] = ()
) -> None:
    """Show a quiet table; columns in *right* are numbers, those in *wrap* may break lines."""

    def classes(at: int) -> str:
        names = " ".join(name for name, chosen in (("r", right), ("wrap", wrap)) if at in chosen)
        return f' class="{names}"' if names else ""

    head = "".join(f"<th{classes(at)}>{escape(name)}</th>" for at, name in enumerate(columns))
    body = "".join(
        "<tr>" + "".join(f"<td{classes(at)}>{_cell(cell)}</td>" for at, cell in enumerate(row)) + "</tr>"
        for row in rows
    )
    inner = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    st.html(f'<div class="sc-scroll"><table class="sc-table">{inner}</table></div>')


def chart(figure: Any, key: str) -> None:
    """Show a plotly figure in the page's theme."""
    st.plotly_chart(figure, key=key, config=CONFIG, width="stretch", theme="streamlit")


def _short(text: str, longest: int = 600) -> str:
    return text if len(text) <= longest else text[:longest] + " …"


def _cell(text: str) -> str:
    """Return a cell; a second line is quieter."""
    first, _, second = text.partition("\n")
    return escape(first) + (f'<br><span class="sc-quiet">{escape(second)}</span>' if second else "")


def _rich(text: str) -> str:
    return re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", escape(text))
