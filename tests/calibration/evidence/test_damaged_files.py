"""Whatever is missing from a file or wrong in it, the answer is evidence or one line: never a traceback."""

import copy
import json
from pathlib import Path

import pytest

from calibration.evidence.evidence import Options
from calibration.evidence.formats import read_evidence
from simulator.errors import ServecastError
from simulator.workload import traffic

DATA = Path(__file__).parents[2] / "data" / "evidence"
WRONG = (None, -1, 1e300, float("nan"), float("inf"), "x", [], {}, [{}])


def places(data, path=()):
    """Yield the path of everything in *data*; of a list its first two items."""
    if path:
        yield path
    inside = data.items() if isinstance(data, dict) else enumerate(data[:2]) if isinstance(data, list) else ()
    for key, value in inside:
        yield from places(value, (*path, key))


def damaged(data, path, wrong):
    """Return a copy of *data* without what lies at *path*, or with something else there."""
    found = copy.deepcopy(data)
    parent = found
    for key in path[:-1]:
        parent = parent[key]
    if wrong == "missing":
        del parent[path[-1]]
    else:
        parent[path[-1]] = wrong
    return found


def read_whole(path):
    try:
        for found in read_evidence(path, options=Options(seconds=10)):
            if found.workload is not None:
                traffic(found.workload, 0)
    except ServecastError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", sorted(path.name for path in DATA.glob("*.json*")))
def test_json_with_a_part_missing_or_wrong(name, tmp_path):
    text = (DATA / name).read_text()
    lines = name.endswith(".jsonl")
    data = [json.loads(line) for line in text.splitlines()] if lines else json.loads(text)
    path = tmp_path / "x"
    every = list(places(data))
    for number, place in enumerate(every[:: 1 + len(every) // 150]):
        for wrong in ("missing", WRONG[number % len(WRONG)]):
            broken = damaged(data, place, wrong)
            path.write_text("\n".join(map(json.dumps, broken)) if lines else json.dumps(broken))
            assert "\n" not in read_whole(path)


@pytest.mark.parametrize("name", sorted(path.name for kind in ("*.csv", "*.txt") for path in DATA.glob(kind)))
def test_text_cut_short_or_with_a_wrong_word(name, tmp_path):
    text = (DATA / name).read_text()
    path = tmp_path / "x"
    step = max(1, len(text) // 40)
    for at in range(0, len(text), step):
        for broken in (text[:at], f"{text[:at]}nan{text[at + 1 :]}", f"{text[:at]}\n,{text[at:]}"):
            path.write_text(broken)
            assert "\n" not in read_whole(path)
