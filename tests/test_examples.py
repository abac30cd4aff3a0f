"""The examples run, and print what is stored beside them."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.py")), ids=lambda script: script.stem)
def test_the_example_prints_what_is_stored(script):
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout == script.with_suffix(".out").read_text()


def test_the_page_on_guide_claims_is_the_output_of_the_example():
    page = (ROOT / "docs" / "guide-claims.md").read_text()
    between = page.split("<!-- guide-claims -->\n")[1].split("<!-- /guide-claims -->")[0]
    assert between == (ROOT / "examples" / "guide_claims.out").read_text()
