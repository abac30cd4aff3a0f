import gzip
import json

import numpy as np
import pytest

from calibration.recording import read_requests, read_steps
from simulator.errors import InputError
from tests.calibration.worlds import DATA


def dispatch(num_tokens, num_reqs, uniform):
    return (2 if uniform else 0), num_tokens


def line(**fields):
    return json.dumps(fields) + "\n"


HEADER = line(a="h", t=0.0, max_tok=100, max_run=8)


def plan(n, p, d=0, dc=0, dm=0, t=0.0):
    return line(a="s", n=n, t0=t, t1=t + 0.1, p=p, d=d, dc=dc, dm=dm)


def update(n, t):
    return line(a="u", n=n, t0=t, t1=t + 0.1)


def test_a_chunk_that_goes_on_in_the_next_step_yields_no_token(tmp_path):
    path = tmp_path / "w.steps.jsonl"
    path.write_text(
        HEADER + plan(1, [[60, 0], [40, 0]], t=1.0) + plan(2, [[20, 40]], d=1, dc=60, dm=60, t=2.0)
        + update(1, 3.0) + update(2, 4.0)
    )  # fmt: skip
    steps = read_steps(path, dispatch)
    assert steps.sampled.tolist() == [1, 2]
    assert steps.num_tokens.tolist() == [100, 21]
    assert steps.prefill_attention.tolist() == [60 * 30 + 40 * 20, 20 * 50]
    assert steps.linked.tolist() == [False, True]
    assert steps.longest_context == 60


def test_steps_without_both_ends_are_left_out(tmp_path):
    path = tmp_path / "w.steps.jsonl"
    path.write_text(HEADER + update(7, 0.5) + plan(8, [[5, 0]], t=1.0) + update(8, 2.0) + plan(9, [[5, 0]], t=3.0))
    assert read_steps(path, dispatch).number.tolist() == [8]


def test_a_truncated_gzip_gives_what_is_there_and_a_note(tmp_path):
    path = tmp_path / "w.steps.jsonl.gz"
    rng = np.random.default_rng(0)
    text = HEADER
    for n in range(1, 400):
        t = float(rng.uniform(n, n + 0.5))
        text += plan(n, [[int(rng.integers(1, 90)), 0]], t=t) + update(n, t + 0.2)
    whole = gzip.compress(text.encode())
    path.write_bytes(whole[: len(whole) // 2])
    steps = read_steps(path, dispatch)
    assert 10 < len(steps) < 399
    assert "truncated" in steps.notes[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{\n", "line 1: not JSON"),
        ("[1]\n", "line 1: expected an object"),
        (HEADER + line(a="s", n=1, t0="x", t1=1, p=[], d=0, dc=0, dm=0), "line 2: t0 must be a number"),
        (HEADER + line(a="s", n=1, t0=float("nan"), t1=1, p=[], d=0, dc=0, dm=0), "t0 must be a number"),
        (HEADER + plan(1, [[1]]), "p must be a list of"),
        (HEADER + plan(1, [[5, 0]]), "no step with a plan and an update"),
    ],
)
def test_bad_steps_are_one_line(tmp_path, text, words):
    path = tmp_path / "w.steps.jsonl"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        read_steps(path, dispatch)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_bytes_that_are_no_gzip_are_one_line(tmp_path):
    path = tmp_path / "w.steps.jsonl.gz"
    path.write_bytes(b"\x00\x01\x02")
    with pytest.raises(InputError, match="not a gzip"):
        read_steps(path, dispatch)


def test_requests_are_put_on_the_clock_of_the_steps():
    sent = read_requests(DATA / "calib.requests.json.gz")
    assert len(np.unique(sent.burst)) == 44
    assert (np.diff(sent.sent_s) >= 0).all()
    assert (sent.first_token_s > sent.sent_s).all()
    assert sent.prompt_tokens[0] == 16
