"""``servecast capacity`` and ``servecast search``: exit codes, formats, files, one-line errors."""

import csv
import io
import json
import re

import pytest

from apps import cli
from tests.apps.planning.queue_world import SERVE, queue  # noqa: F401

QUEUE = f"{SERVE} --max-num-seqs 1"
SHORT = ["--prompt-tokens", "16", "--output-tokens", "1", "--workers", "1"]
FAST = [*SHORT, "--num-prompts", "400", "--no-marginal", "--draws", "0", "--replications", "2"]


def run(capsys, *words):
    code = cli.main([str(word) for word in words])
    found = capsys.readouterr()
    return code, found.out, found.err


def test_a_capacity_is_told_with_its_limit_its_cost_and_what_to_run_next(queue, capsys):  # noqa: F811
    code, out, err = run(
        capsys, "capacity", QUEUE, "--profile", queue, "--slo", "e2el_p99=750ms", "--closed-loop", *FAST,
        "--price", "3.6", "--target-users", "20", "--gpus", "3", "--growth", "100%/month", "--horizon", "1",
    )  # fmt: skip
    assert code == 0, err
    assert out.startswith("Capacity: 7 clients within e2el_p99=750ms (NOT CALIBRATED: a first answer)\n")
    assert "Breaks:   e2el_p99, at 8 clients" in out
    assert "max_num_seqs: the running list is full" in out
    assert "3 GPUs carry 21 clients: enough for 20" in out
    assert "vllm serve meta-llama/Llama-3.1-8B" in out
    assert "vllm bench serve" in out
    assert err == "" or "warning" in err


def test_an_uncalibrated_capacity_says_so_in_its_first_line_and_in_json(capsys):
    words = ["capacity", SERVE, "--gpu", "L4", "--slo", "ttft_p99=1s", *FAST]
    assert "(NOT CALIBRATED: a first answer)" in run(capsys, *words)[1].splitlines()[0]
    assert json.loads(run(capsys, *words, "--format", "json")[1])["calibrated"] is False


@pytest.mark.parametrize(
    "words",
    [
        ["--slo", "ttft_p50=50ms"],
        ["--slo", "ttft_p99=1s", "--target-rate", "1000", "--gpus", "2"],
    ],
)
def test_no_is_exit_code_2(words, queue, capsys):  # noqa: F811
    code, out, _ = run(capsys, "capacity", QUEUE, "--profile", queue, *words, *FAST)
    assert code == 2
    assert "No load meets" in out or "NOT enough" in out


def test_json_carries_everything_and_csv_is_the_curve(queue, tmp_path, capsys):  # noqa: F811
    command = ["capacity", QUEUE, "--profile", queue, "--slo", "ttft_mean=200ms", *FAST, "--target-rate", "30"]
    assert run(capsys, *command, "-o", tmp_path / "c.json")[0] == 0
    data = json.loads((tmp_path / "c.json").read_text())
    assert {"load", "interval", "binding_limit", "points", "fleet", "next_commands", "slo", "scenario"} <= set(data)
    assert data["fleet"][0]["gpus"] == -(-30 // data["load"])
    rows = list(csv.DictReader(io.StringIO(run(capsys, *command, "--format", "csv")[1])))
    assert [float(row["load"]) for row in rows] == [point["load"] for point in data["points"]]
    assert {"holds", "target_ttft_mean_ms", "p99_ttft_ms", "kv_usage_max"} <= set(rows[0])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--slo", "ttft_p99=5"], "positive time with its unit"),
        (["--slo", "ttft_p99=1s", "--users"], "need a --think-time"),
        (["--slo", "ttft_p99=1s", "--think-time", "2s", "--closed-loop"], "do not think"),
        (["--slo", "ttft_p99=1s", "--target-users", "4"], "give --target-rate"),
        (["--slo", "ttft_p99=1s", "--gpus", "4"], "need a target"),
        (["--slo", "ttft_p99=1s", "--target-rate", "-4"], "must be positive"),
        (["--slo", "ttft_p99=1s", "--target-rate", "4", "--growth", "much"], "growth 'much'"),
        (["--slo", "ttft_p99=1s", "--target-rate", "4", "--horizon", "3"], "needs --growth"),
        (["--slo", "ttft_p99=1s", "--price", "0"], "price of a GPU hour"),
        (["--slo", "ttft_p99=1s", "--draws", "2"], "at least 5 draws"),
        (["--slo", "ttft_p99=1s", "--tolerance", "9"], "--tolerance"),
        (["--slo", "ttft_p99=1s", "--trace", "mooncake-synthetic", "--think-time", "9"], "leave --requests"),
        (["--slo", "ttft_p99=1s", "--turns", "4", "--closed-loop"], "send single requests"),
        (["--slo", "ttft_p99=1s", "--turns", "4", "--trace", "mooncake-synthetic"], "--turns does not go with"),
        (["--slo", "ttft_p99=1s", "--turns", "many"], "length 'many'"),
        (["--slo", "ttft_p99=1s", "--turns", "4", "--num-prompts", "100"], "as many as its load needs"),
        (["--slo", "ttft_p99=1s", "--think-time", "9s", "--num-prompts", "100"], "as many as its load needs"),
        (["--slo", "ttft_p99=1s", "--mix", "nowhere.toml"], "nowhere.toml: cannot be read"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_one_line_before_any_work(words, message, capsys):
    code, out, err = run(capsys, "capacity", "vllm serve meta-llama/Llama-3.1-8B", "--gpu", "H200", *words)
    assert (code, out) == (1, "")
    assert message in err
    assert err.count("\n") == 1


CHATS = ["--turns", "2", "--think-time", "exponential:1", "--prompt-tokens", "16", "--output-tokens", "1"]


def test_users_who_chat_are_as_many_as_simulate_carries_and_not_15_percent_more(queue, capsys):  # noqa: F811
    words = [QUEUE, "--profile", queue, *CHATS]
    code, out, err = run(
        capsys, "capacity", *words, "--users", "--slo", "e2el_p99=750ms", "--draws", "0", "--replications", "2",
        "--no-marginal", "--workers", "1", "--format", "json",
    )  # fmt: skip
    assert code == 0, err
    data = json.loads(out)
    assert (data["axis"], data["unit"]) == ("users", "users")
    load = int(data["load"])

    def p99_ms(users):
        loaded = [*words, "--users", users, "--num-prompts", "8000", "--format", "json"]
        return json.loads(run(capsys, "simulate", *loaded)[1])["p99_e2el_ms"]

    assert p99_ms(load) <= 1.05 * 750
    assert p99_ms(-(-115 * load // 100)) > 750


def test_chats_without_users_are_searched_by_how_many_begin_a_second(queue, capsys):  # noqa: F811
    words = ["--turns", "2", "--slo", "e2el_p99=750ms", *SHORT, "--no-marginal", "--draws", "0", "--replications", "2"]
    code, out, err = run(capsys, "capacity", QUEUE, "--profile", queue, *words)
    assert code == 0, err
    found = re.match(r"Capacity: ([\d.]+) chats/s", out)
    assert found
    assert 3 < float(found[1]) < 5  # two requests each, of a server that answers ten a second


SEARCH = ["search", "vllm serve meta-llama/Llama-3.1-8B --max-model-len 4096", "--profile", "h200-llama-3.1-8b",
          "--num-prompts", "40", "--prompt-tokens", "64", "--output-tokens", "4", "--workers", "1"]  # fmt: skip
OVER = ["--over", "max_num_seqs=2,8,64", "--over", "gpu_memory_utilization=0.1,0.9"]


def test_a_search_keeps_every_row_and_goes_on_where_it_was_stopped(tmp_path, capsys):
    file = tmp_path / "rows.jsonl"
    command = [*SEARCH, *OVER, "--rate", "20", "--slo", "ttft_p99=1s", "-o", file]
    code, out, err = run(capsys, *command)
    assert code == 0, err
    assert out.startswith("6 of 6 configurations: 3 does not fit, 3 ok")
    whole = file.read_text()
    lines = whole.splitlines(keepends=True)
    file.write_text("".join(lines[:4]) + lines[4][:20])
    code, again, err = run(capsys, *command)
    assert (code, again) == (0, out)
    assert "going on with 3 configurations" in err
    assert sorted(file.read_text().splitlines()) == sorted(whole.splitlines())


def test_an_interrupted_search_says_what_is_kept(tmp_path, monkeypatch, capsys):
    from apps.search_store import SearchStore

    added = SearchStore.add

    def add_and_stop(self, config, row):
        added(self, config, row)
        raise KeyboardInterrupt

    monkeypatch.setattr(SearchStore, "add", add_and_stop)
    code, _, err = run(capsys, *SEARCH, *OVER, "--rate", "20", "-o", tmp_path / "s.jsonl")
    assert code == 130, err
    assert "stopped: 1 configurations are kept; the same command goes on" in err


def test_rows_of_another_search_are_refused_unless_overwritten(tmp_path, capsys):
    file = tmp_path / "rows.jsonl"
    assert run(capsys, *SEARCH, *OVER, "--rate", "20", "-o", file)[0] == 0
    code, _, err = run(capsys, *SEARCH, *OVER, "--rate", "30", "-o", file)
    assert code == 1
    assert "holds another search" in err
    assert run(capsys, *SEARCH, *OVER, "--rate", "30", "-o", file, "--overwrite")[0] == 0
    (tmp_path / "x.jsonl").write_bytes(b"\xff\n")
    assert "holds no rows" in run(capsys, *SEARCH, *OVER, "--rate", "30", "-o", tmp_path / "x.jsonl")[2]


def test_gpus_that_are_searched_need_not_be_named_twice(capsys):
    words = [
        "search",
        SERVE,
        "--over",
        "gpu=H100,L4",
        "--rate",
        "2",
        *SHORT,
        "--num-prompts",
        "20",
        "--slo",
        "ttft_p99=1s",
    ]
    code, out, err = run(capsys, *words)
    assert code == 0, err
    assert "2 of 2 configurations: 2 ok" in out
    assert re.search(r"(Cheapest|Most per GPU):  vllm serve .*\(on (L4|H100)\)", out)
    assert "leaves the GPU idle" in out  # the limit, in words


def test_a_search_by_too_few_requests_says_that_they_do_not_tell(queue, capsys):  # noqa: F811
    words = [
        "search",
        QUEUE,
        "--profile",
        queue,
        "--over",
        "max_num_batched_tokens=4096",
        "--slo",
        "ttft_p99=100s",
        *SHORT,
    ]
    assert "too short to tell" in run(capsys, *words, "--num-prompts", "5")[2]
    assert "too short to tell" not in run(capsys, *words, "--num-prompts", "1000")[2]


def test_a_search_in_which_nothing_holds_is_exit_code_2(capsys):
    code, out, _ = run(capsys, *SEARCH, "--over", "max_num_seqs=2,8", "--rate", "20", "--slo", "ttft_p99=1ms")
    assert code == 2
    assert "Nothing holds ttft_p99=1ms" in out


def test_gpus_are_compared_by_cost_if_all_have_a_price(capsys):
    code, out, err = run(capsys, *SEARCH, "--over", "gpu=H200,L40S", "--rate", "4", "--format", "json")
    assert code == 0
    data = json.loads(out)
    assert data["objective"] == "cost"
    assert [row["config"]["gpu"] for row in data["rows"]] == ["H200", "L40S"]
    assert "not calibrated" in err
    assert (
        json.loads(run(capsys, *SEARCH, "--over", "gpu=H200,L4", "--rate", "4", "--format", "json")[1])["objective"]
        == "throughput"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--over", "max_num_seqs=2"], "give a load"),
        (["--rate", "3", "--latency", "p99"], "is not known"),
        (["--rate", "3", "--latency", "slo"], "is not known"),
        (["--rate", "3", "--objective", "fun"], "throughput or cost"),
        (["--rate", "3", "--over", "gpu=L4,H200", "--objective", "cost"], "--price L4=DOLLARS"),
        (["--rate", "3", "--price", "cheap"], "write 2.50"),
        (["--rate", "3", "-o", "rows.csv"], ".jsonl"),
    ],
)
def test_a_search_that_makes_no_sense_is_one_line(words, message, capsys):
    code, out, err = run(capsys, *SEARCH, *words)
    assert (code, out) == (1, "")
    assert message in err
    assert err.count("\n") == 1
