import gzip

import numpy as np
import pytest

from simulator.errors import InputError
from simulator.request_list import parse, read, render

HEADER = "arrival_s,prompt_tokens,output_tokens\n"
PREFIX = "arrival_s,prompt_tokens,output_tokens,prefix_id,prefix_tokens\n"


def test_three_columns_are_enough():
    found = parse(HEADER + "0,512,128\n1.5,7,1\n", "x.csv")
    assert found.table.arrival_s.tolist() == [0, 1.5]
    assert found.table.prompt_tokens.tolist() == [512, 7]
    assert found.table.output_tokens.tolist() == [128, 1]
    assert found.has_arrivals
    assert found.notes == ()


def test_the_same_prefix_id_is_the_same_segment_and_no_prefix_is_none():
    table = parse(
        PREFIX + "0,100,1,system,40\n1,50,1,,\n2,60,1,other,60\n3,90,1,system,30\n4,9,1,system,0\n", "x"
    ).table
    assert table.segment_start.tolist() == [0, 1, 1, 2, 3, 3]
    assert table.segment_id.tolist() == [0, 1, 0]
    assert table.segment_end.tolist() == [40, 60, 30]


def test_unsorted_arrivals_are_sorted_stably_with_a_note_and_prefixes_move_along():
    found = parse(PREFIX + "2,10,1,a,4\n1,20,2,,\n1,30,3,b,5\n", "x.csv")
    assert found.table.prompt_tokens.tolist() == [20, 30, 10]
    assert found.table.segment_start.tolist() == [0, 0, 1, 2]
    assert found.table.segment_end.tolist() == [5, 4]
    assert found.notes == ("x.csv: requests were not in order of arrival_s and have been sorted",)


def test_time_stamps_count_from_the_first_and_a_note_says_so():
    found = parse(HEADER + "1700000001.5,10,1\n1700000000,20,2\n", "x.csv")
    assert found.table.arrival_s.tolist() == [0, 1.5]
    assert found.table.prompt_tokens.tolist() == [20, 10]
    assert "x.csv: arrival_s are time stamps" in found.notes[0]
    assert len(found.notes) == 2
    assert parse(HEADER + "86400,10,1\n", "x.csv").table.arrival_s.tolist() == [86400]


@pytest.mark.parametrize("text", ["prompt_tokens,output_tokens\n5,6\n", HEADER + ",5,6\n"])
def test_arrivals_may_be_missing_and_are_then_zero(text):
    found = parse(text, "x.csv")
    assert not found.has_arrivals
    assert found.table.arrival_s.tolist() == [0]


def test_columns_in_any_order_with_a_byte_order_mark_and_windows_line_ends(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(
        b"\xef\xbb\xbfoutput_tokens,prompt_tokens,arrival_s,priority,session_id\r\n1,2,3,-4,anna\r\n1,2,4,,\r\n"
    )
    table = read(path).table
    assert table.priority.tolist() == [-4, 0]
    assert table.session_id.tolist() == [0, -1]


def test_a_gzipped_list_reads_the_same(tmp_path):
    path = tmp_path / "x.csv.gz"
    path.write_bytes(gzip.compress((HEADER + "0,5,6\n").encode()))
    assert read(path).table.prompt_tokens.tolist() == [5]


def test_what_is_written_reads_back_the_same():
    header = "arrival_s,prompt_tokens,output_tokens,prefix_id,prefix_tokens,priority,session_id\n"
    text = header + "0.1,9,2,0,4,1,\n0.3,7,1,,,0,0\n"
    table = parse(text, "x").table
    assert render(table) == text
    plain = parse(HEADER + "0.1,9,2\n", "x").table
    assert render(plain) == HEADER + "0.1,9,2\n"


def test_nested_prefixes_cannot_be_written():
    from simulator.request_table import RequestTable

    two = (np.array([0, 2]), np.array([0, 1]), np.array([4, 8]))
    table = RequestTable.build(prompt_tokens=np.array([9]), output_tokens=np.array([1]), segments=two)
    with pytest.raises(InputError, match="request 0 has 2 nested prefixes"):
        render(table)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.csv: is empty"),
        (HEADER, "x.csv: holds a header but no request"),
        ("arrival_s,prompt_tokens\n0,5\n", "x.csv:1: column output_tokens is missing"),
        (
            "arrival_s,prompt_token,output_tokens\n",
            "x.csv:1: unknown column 'prompt_token'; did you mean prompt_tokens?",
        ),
        ("prompt_tokens,output_tokens,colour\n", "x.csv:1: unknown column 'colour'; the columns are arrival_s"),
        ("prompt_tokens,output_tokens,prompt_tokens\n", "x.csv:1: column prompt_tokens stands there 2 times"),
        ("prompt_tokens,output_tokens,prefix_id\n", "x.csv:1: column prefix_tokens is missing"),
        (HEADER + "0,5,6\n0,5.5,6\n", "x.csv:3: prompt_tokens '5.5' is not a whole number"),
        (HEADER + "0,-5,6\n", "x.csv:2: prompt_tokens must be from 1 to 10,000,000, got -5"),
        (HEADER + "0,5,0\n", "x.csv:2: output_tokens must be from 1 to 10,000,000, got 0"),
        (HEADER + "0,1_000,6\n", "x.csv:2: prompt_tokens '1_000' is not a whole number"),
        (HEADER + "nan,5,6\n", "x.csv:2: arrival_s must be finite and not negative, got nan"),
        (HEADER + "-1,5,6\n", "x.csv:2: arrival_s must be finite and not negative, got -1.0"),
        (HEADER + "soon,5,6\n", "x.csv:2: arrival_s 'soon' is not a number"),
        (HEADER + "0,5\n", "x.csv:2: has 2 cells, the header names 3 columns"),
        (HEADER + "0,5,6\n,5,6\n", "x.csv: arrival_s is empty in request 2"),
        (HEADER + '0,"5,6\n', "x.csv:2: is not CSV"),
        (PREFIX + "0,5,6,a,6\n", "x.csv:2: prefix_tokens 6 must lie inside prompt_tokens 5"),
        (PREFIX + "0,5,6,a,\n", "x.csv:2: prefix_id 'a' has no prefix_tokens"),
        (PREFIX + "0,5,6,,4\n", "x.csv:2: prefix_tokens 4 has no prefix_id"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(text, message):
    with pytest.raises(InputError) as caught:
        parse(text, "x.csv")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("x.csv.gz", gzip.compress(HEADER.encode() * 100)[:-20], "damaged or cut short"),
        ("x.csv.gz", HEADER.encode(), "damaged or cut short"),
        ("x.csv", HEADER.encode("utf-16"), "not UTF-8 text"),
        ("x.csv", b"\x00\x01\x02", "holds a zero byte"),
    ],
)
def test_a_file_that_is_not_text_is_refused(tmp_path, name, data, message):
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(InputError, match=message):
        read(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(InputError, match="cannot be read"):
            read(path)
