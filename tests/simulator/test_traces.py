import gzip
from pathlib import Path

import numpy as np
import pytest

from simulator.errors import InputError
from simulator.request_table import RequestTable
from simulator.traces import NAMES, apply_over_length, load, load_file


@pytest.mark.parametrize(
    ("name", "requests", "last_s", "prompt", "output", "segments"),
    [
        ("azure-conv-2023", 19366, 3501.721937, 374, 44, 0),
        ("azure-code-2023", 8819, 3435.948056, 4808, 10, 0),
        ("mooncake-conversation", 12031, 3536.999, 6758, 500, 288500),
        ("mooncake-synthetic", 3993, 1022.025, 40160, 6, 121877),
    ],
)
def test_a_shipped_trace_is_complete(name, requests, last_s, prompt, output, segments):
    table = load(name)
    assert len(table) == requests
    assert table.arrival_s[-1] == last_s
    assert (table.prompt_tokens[0], table.output_tokens[0]) == (prompt, output)
    assert len(table.segment_id) == segments
    assert (np.diff(table.arrival_s) >= 0).all()


def write(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()))
    return path


MOONCAKE = '{"timestamp": %d, "input_length": %d, "output_length": 3, "hash_ids": [%s]}\n'


def test_a_hash_id_ends_every_512_tokens_and_the_last_with_the_prompt(tmp_path):
    table = load_file(write(tmp_path, "t.jsonl.gz", MOONCAKE % (0, 1100, "7, 8, 9") + MOONCAKE % (500, 512, "7")))
    assert table.segment_start.tolist() == [0, 3, 4]
    assert table.segment_id.tolist() == [7, 8, 9, 7]
    assert table.segment_end.tolist() == [512, 1024, 1100, 512]
    assert table.arrival_s.tolist() == [0, 0.5]


def test_the_limit_keeps_the_first_requests():
    assert len(load("mooncake-synthetic", limit=5)) == 5
    assert np.array_equal(load("azure-code-2023", limit=5).prompt_tokens, load("azure-code-2023").prompt_tokens[:5])


AZURE = "arrived_at,num_prefill_tokens,num_decode_tokens\n"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.csv.gz", AZURE, "holds no request"),
        ("t.csv.gz", "", "holds no request"),
        ("t.csv.gz", "arrived_at,num_prefill_tokens\n1,2\n", "t.csv.gz:2: .*'num_decode_tokens' is missing"),
        ("t.csv.gz", AZURE + "0,5,6\nx,5,6\n", "t.csv.gz:3: .*could not convert"),
        ("t.csv.gz", AZURE + "0,5,0\n", "output_tokens must be at least 1"),
        ("t.csv.gz", AZURE + "nan,5,6\n", "arrival_s must be finite"),
        ("t.jsonl.gz", "{\n", "t.jsonl.gz:1: is not a request"),
        ("t.jsonl.gz", MOONCAKE % (0, 512, "1, 2"), "2 hash_ids are more than 512 tokens hold"),
        ("t.jsonl.gz", MOONCAKE % (0, 512, '"a"'), "t.jsonl.gz:1: is not a request"),
    ],
)
def test_a_damaged_trace_is_refused_in_one_line(tmp_path, name, text, message):
    with pytest.raises(InputError, match=message) as caught:
        load_file(write(tmp_path, name, text))
    assert "\n" not in str(caught.value)


def test_a_cut_file_is_refused(tmp_path):
    path = write(tmp_path, "t.csv.gz", AZURE + "0,5,6\n" * 1000)
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(InputError, match="cut short"):
        load_file(path)


def test_an_unknown_name_gets_the_nearest_one():
    with pytest.raises(InputError, match="did you mean mooncake-synthetic") as caught:
        load("mooncake-synthetics")
    assert all(name in str(caught.value) for name in NAMES)


def lengths(*pairs: tuple[int, int]) -> RequestTable:
    prompt, output = zip(*pairs, strict=True)
    return RequestTable.build(prompt_tokens=np.array(prompt), output_tokens=np.array(output))


def test_what_just_fits_is_not_over_length():
    table = lengths((90, 10), (1, 99))
    assert apply_over_length(table, 100, "fail") == (table, 0)


def test_over_length_fails_with_the_count_and_the_fix():
    with pytest.raises(
        InputError, match=r"2 of 3 requests .* 100 .*longest 110.*--max-model-len to 110 .*--over-length drop"
    ):
        apply_over_length(lengths((90, 11), (5, 5), (100, 10)), 100, "fail")


def test_over_length_drops_and_counts():
    table, dropped = apply_over_length(lengths((90, 11), (5, 5), (100, 10)), 100, "drop")
    assert dropped == 2
    assert table.prompt_tokens.tolist() == [5]


def test_dropping_everything_is_an_error():
    with pytest.raises(InputError, match="none is left"):
        apply_over_length(lengths((100, 1)), 100, "drop")
