"""A link restores the question, whatever is in it; what a stranger wrote there is read with care."""

from __future__ import annotations

import base64
import zlib
from urllib.parse import parse_qsl, urlencode

from hypothesis import given
from hypothesis import strategies as st

from apps.ui.link import LONGEST, from_query, left_out, to_query
from apps.ui.question import Question

texts = st.text(st.characters(blacklist_categories=("Cs",)), max_size=400)
questions = st.builds(
    Question,
    server=texts,
    gpu=texts,
    log=texts,
    requests_csv=texts,
    prompt_tokens=texts,
    load=st.sampled_from(["rate", "concurrency", "trace", "file"]),
    rate=st.floats(allow_nan=False).filter(lambda value: value > float("-inf")),
    concurrency=st.integers(-10, 10**9),
    seed=st.integers(0, 2**53 - 1),
)


@given(questions)
def test_a_link_restores_the_question(question: Question) -> None:
    address = urlencode(to_query(question))
    assert len(address) <= LONGEST
    again, problems = from_query(dict(parse_qsl(address, keep_blank_values=True)))
    assert problems == []
    assert again == question


def test_the_first_question_has_a_bare_address_and_short_changes_are_readable() -> None:
    assert to_query(Question()) == {}
    assert to_query(Question(rate=20.0, gpu="L4")) == {"gpu": "L4", "rate": "20.0"}


def test_an_upload_that_is_too_long_stays_out_and_that_is_said() -> None:
    csv = "prompt_tokens,output_tokens\n" + "".join(f"{(i * 7919) % 9973},{i % 311}\n" for i in range(9000))
    question = Question(load="file", requests_csv=csv, rate=7.0)
    query = to_query(question)
    assert len(urlencode(query)) <= LONGEST
    assert left_out(question) == ["your CSV"]
    assert left_out(Question(requests_csv="short")) == []
    again, _problems = from_query(query)
    assert (again.load, again.rate, again.requests_csv) == ("file", 7.0, "")


def test_a_damaged_link_says_so_and_the_rest_counts() -> None:
    question, problems = from_query({"rate": "many", "z": "%%%", "seed": "4", "utm_source": "mail"})
    assert question == Question(seed=4)
    assert len(problems) == 2
    assert any("rate" in text for text in problems)
    assert any("damaged" in text for text in problems)


def test_a_bomb_in_a_link_is_cut_off() -> None:
    bomb = base64.urlsafe_b64encode(zlib.compress(b'{"server":"' + b"a" * 300_000_000, 9)[:20_000]).decode()
    question, problems = from_query({"z": bomb})
    assert question == Question()
    assert problems


def test_numbers_that_no_page_can_show_are_not_taken_from_a_link() -> None:
    query = {"seed": str(2**60), "rate": "nan", "burstiness": "inf", "replications": "100000", "price": "-inf"}
    question, problems = from_query(query)
    assert question == Question()
    assert len(problems) == 5
