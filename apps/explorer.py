"""The what-if explorer: ``servecast explore``, or ``streamlit run apps/explorer.py``.

Five pages, one question each; the answer in a sentence, then the picture, then the numbers.  The pages and what they
share live in `apps.ui`; docs/explorer.md says how it is meant.
"""

from __future__ import annotations


def main() -> None:
    """Draw the page that is asked for."""
    import streamlit as st

    from apps.ui import page_capacity, page_compare, page_fits, page_trust, page_what_if
    from apps.ui.load_inputs import load_inputs
    from apps.ui.look import page_style
    from apps.ui.server_inputs import server_inputs
    from apps.ui.state import begin, publish
    from apps.ui.work import desk

    st.set_page_config(page_title="Servecast", page_icon=":material/speed:", layout="wide")
    begin()
    desk()
    pages = [
        st.Page(page_fits.page, title="Fits?", url_path="fits", icon=":material/memory:", default=True),
        st.Page(page_what_if.page, title="What if", url_path="what_if", icon=":material/query_stats:"),
        st.Page(page_compare.page, title="Compare", url_path="compare", icon=":material/compare_arrows:"),
        st.Page(page_capacity.page, title="Capacity", url_path="capacity", icon=":material/trending_up:"),
        st.Page(page_trust.page, title="Trust", url_path="trust", icon=":material/verified:"),
    ]
    chosen = st.navigation(pages, position="top")
    page_style()
    with st.sidebar:
        server_inputs()
        load_inputs()
    publish()
    chosen.run()


if __name__ == "__main__":  # worker processes import this file under another name
    main()
