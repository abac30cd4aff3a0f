import json

import pytest

from simulator.errors import InputError
from simulator.measured import load_measured, names, parse
from simulator.workload import traffic

REQUESTS = [
    {"t": 0.5, "send": 0.6, "isl": 10, "osl": 3, "n": 3, "ttft": 0.1, "e2e": 0.3, "itl": [120.0, 80.0]},
    {"t": 0.0, "send": 0.1, "isl": 20, "osl": 1, "n": 1, "ttft": 0.2, "e2e": 0.2, "itl": []},
]


def recorded(conc: int | None = None) -> str:
    return json.dumps({"t_base": 9.0, "duration": 2.0, "conc": conc, "requests": REQUESTS})


def test_an_open_loop_is_replayed_at_the_recorded_send_times():
    run = parse(recorded(), "x")
    assert run.table.arrival_s.tolist() == [0.1, 0.6]
    assert run.table.prompt_tokens.tolist() == [20, 10]
    assert run.seen.ttft_s.tolist() == [0.2, 0.1]
    sent = traffic(run.replay(), 0)
    assert sent.table.arrival_s.tolist() == [0.1, 0.6]
    assert sent.max_concurrency is None


def test_a_closed_loop_is_replayed_with_its_clients():
    run = parse(recorded(conc=7), "x")
    sent = traffic(run.replay(), 0)
    assert sent.max_concurrency == 7
    assert sent.table.arrival_s.tolist() == [0, 0]
    assert run.sent_s.tolist() == [0.6, 0.1]


def test_its_summary_uses_our_definitions():
    summary = parse(recorded(), "x").summary()
    assert summary["completed"] == 2
    assert summary["request_throughput"] == 1.0
    assert summary["output_throughput"] == 2.0
    assert summary["mean_ttft_ms"] == pytest.approx(150)
    assert summary["mean_tpot_ms"] == pytest.approx(100)
    assert summary["mean_itl_ms"] == pytest.approx(100)


def test_the_shipped_runs_have_provenance_and_agree_with_what_was_published():
    shipped = ("c24", "c32", "c64", "chat12", "eager", "fix8", "fix8-host2", "long4", "seqs16", "sync")
    assert names() == [f"h200-llama-3.1-8b-{name}" for name in shipped]
    for name in names():
        run = load_measured(name)
        assert run.name == name
        assert {"gpu", "vllm_version", "model", "command", "date"} <= run.provenance.keys()
    assert load_measured("h200-llama-3.1-8b-c32").concurrency == 32
    chat = load_measured("h200-llama-3.1-8b-chat12")
    assert len(chat.table) == 300
    assert chat.summary()["mean_ttft_ms"] == pytest.approx(30.78, abs=0.01)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "x: is not JSON"),
        ("[]", "x: is not a measured run"),
        ("{}", "x: is not a measured run .*'requests' is missing"),
        ('{"schema_version": 2}', "x: schema_version 2 is newer than 1"),
        ('{"duration_s": 1, "requests": []}', "holds no request"),
        ('{"duration_s": 1, "requests": [{"sent_s": 1}]}', "is missing"),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(text, message):
    with pytest.raises(InputError, match=message):
        parse(text, "x")


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(InputError, match=r"h200-llama-3\.1-8b-chat12"):
        load_measured("chat13")
