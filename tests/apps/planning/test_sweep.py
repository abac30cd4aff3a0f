"""What is varied, how it is written, and which simulations come of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.planning.sweep import Sweep
from apps.planning.sweep_file import read_sweep, write_sweep
from apps.planning.sweep_run import METRICS, run_sweep
from apps.planning.sweep_summary import averages, curves, half_interval
from apps.planning.sweep_values import read_choices, read_value, text_of
from simulator.errors import InputError
from simulator.simulate import simulate

SERVE = "vllm serve meta-llama/Llama-3.1-8B --max-num-seqs 32"
SMALL = {"profile": "h200-llama-3.1-8b", "num_prompts": 8, "prompt_tokens": "64", "output_tokens": "4"}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("64,128,256", (64, 128, 256)),
        ("2..8:2", (2, 4, 6, 8)),
        ("1..3", (1, 2, 3)),
        ("0.8..0.95:0.05", (0.8, 0.85, 0.9, 0.95)),
        ("1..20:*4", (1, 4, 16)),
        ("0.5, 2..4:2", (0.5, 2, 4)),
        ("true,false", (True, False)),
        ("fp8,auto", ("fp8", "auto")),
        ("2.0", (2,)),
        ('"choice:1,2",512', ("choice:1,2", 512)),
        ("inf", ("inf",)),
        ("lognormal:300:1.0", ("lognormal:300:1.0",)),
    ],
)
def test_values_are_lists_ranges_and_words(text, values):
    assert read_choices(text, "rate") == values


def test_versions_and_names_stay_words_and_pairs_are_split():
    assert read_choices("0.20,0.6.3", "vllm_version") == ("0.20", "0.6.3")
    assert read_choices("L4/2,A100-80/1", "gpu,tensor_parallel_size") == (("L4", 2), ("A100-80", 1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "rate has no values; write e.g."),
        ("1,,2", "has an empty value"),
        ("9..2", "ends before it begins"),
        ("1..2:0", "needs a step above 0"),
        ("0..8:*2", "needs a positive start and a factor above 1"),
        ("1..1000000", "more than 10,000 values"),
        ('"a', "cannot be read"),
    ],
)
def test_values_that_cannot_be_read_are_one_line(text, message):
    with pytest.raises(InputError, match=message):
        read_choices(text, "rate")


@given(st.one_of(st.booleans(), st.integers(-(10**9), 10**9), st.floats(1e-6, 1e9).map(lambda x: float(f"{x:.10g}"))))
def test_a_value_written_is_read_back(value):
    assert read_value(text_of(value)) == value


def test_the_last_axis_changes_fastest_and_seeds_faster_still():
    sweep = Sweep(command=SERVE, vary={"max_num_seqs": (1, 2), "rate": (4, 5)}, seed=7, replications=2)
    points = list(sweep.points())
    assert len(sweep) == len(points) == 8
    assert [(p.index, *p.values.values(), p.seed) for p in points][:5] == [
        (0, 1, 4, 7),
        (1, 1, 4, 8),
        (2, 1, 5, 7),
        (3, 1, 5, 8),
        (4, 2, 4, 7),
    ]


def test_flags_stand_in_for_those_of_the_command_and_default_is_vllms():
    sweep = Sweep(command=SERVE, options=SMALL, vary={"--max-num-seqs": (8, "default"), "rate": (3,)})
    first, second = (sweep.scenario(point) for point in sweep.points())
    assert first.engine.max_num_seqs == 8
    assert second.engine.max_num_seqs == 1024
    assert (first.workload.rate, first.workload.num_prompts, first.seed) == (3, 8, 0)


def test_an_axis_can_vary_two_names_together():
    pairs = (("L4", 2), ("A100-80", 1))
    sweep = Sweep(command=SERVE, options={"rate": 1}, vary={"gpu,tensor_parallel_size": pairs})
    found = [sweep.scenario(point) for point in sweep.points()]
    assert [(each.gpu.name, each.engine.tensor_parallel_size) for each in found] == [("L4", 2), ("A100-80", 1)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vary": {}}, "nothing is varied"),
        ({"vary": {"max_nun_seqs": (1,)}}, "did you mean max_num_seqs"),
        ({"vary": {"rate": (1, 2, 1)}}, "rate lists 1 twice"),
        ({"vary": {"rate": ()}}, "rate has no values"),
        ({"vary": {"num_prompts": (1,)}}, "num_prompts is given twice, fixed or varied"),
        ({"vary": {"seed": (1,)}}, "seed is no axis"),
        ({"vary": {"gpu,rate": ("L4",)}}, "has 1 parts"),
        ({"vary": {"vllm_version": (0.2,)}}, "vllm_version must be text, got 0.2; write it in quotes"),
        (
            {"vary": {"rate": tuple(range(1, 400)), "max_num_seqs": tuple(range(1, 400))}},
            "159,201 simulations are more",
        ),
        ({"slo": "ttft=1"}, "SLO"),
        ({"replications": 0}, "replications"),
    ],
)
def test_sweeps_that_cannot_be_are_refused_in_one_line(changes, message):
    with pytest.raises(InputError, match=message):
        Sweep(**({"command": SERVE, "options": SMALL, "vary": {"rate": (1,)}} | changes))


@pytest.mark.parametrize("name", ["s.toml", "s.yaml", "s.json.yml"])
def test_a_sweep_file_round_trips(name):
    sweep = Sweep(
        command=SERVE,
        options={**SMALL, "vllm_version": "0.20", "rate": 2.5},
        vary={
            "max_num_seqs": (1, "default"),
            "gpu,enforce_eager": (("L4", True), ("H200", False)),
            "block_size": (16,),
        },
        slo="ttft_p99=500ms",
        seed=3,
        replications=2,
    )
    again = read_sweep(write_sweep(sweep, name), name)
    assert again == sweep
    assert list(again.vary) == list(sweep.vary)


def test_a_file_may_use_ranges_and_misses_are_named():
    text = f'command = "{SERVE}"\nnum_prompts = 8\n[vary]\nrate = "2..6:2"\n'
    assert read_sweep(text, "s.toml").vary == {"rate": (2, 4, 6)}
    for broken, message in [
        ("x", "s.toml: is not TOML"),
        ("[vary]\nrate = [1]", "s.toml: is no sweep"),
        (f'command = "{SERVE}"', "s.toml: has no table vary"),
        (text.replace("num_prompts", "nun_prompts"), "s.toml: .*did you mean num_prompts"),
    ]:
        with pytest.raises(InputError, match=message):
            read_sweep(broken, "s.toml")


def test_every_row_is_the_simulation_it_says_and_failures_are_rows():
    sweep = Sweep(
        command=SERVE,
        options={**SMALL, "rate": 20},
        vary={"max_num_seqs": (2, 8), "max_model_len": (4096, 10**9, 131072), "gpu": ("H200", "T4")},
        slo="ttft_p99=10s",
    )
    rows = {tuple(point.values.values()): row for point, row in run_sweep(sweep, workers=1)}
    assert len(rows) == 12
    statuses = [row["status"] for row in rows.values()]
    assert statuses.count("ok") == 4
    assert rows[(2, 10**9, "H200")]["status"] == "refused"
    assert rows[(2, 4096, "T4")]["status"] == "does not fit"
    assert "does not fit on T4" in rows[(2, 4096, "T4")]["reason"]
    point = next(point for point in sweep.points() if tuple(point.values.values()) == (8, 4096, "H200"))
    summary = simulate(sweep.scenario(point)).summary()
    row = rows[(8, 4096, "H200")]
    assert {name: row[name] for name in METRICS if name in summary and name != "warnings"} == {
        name: summary[name] for name in METRICS if name in summary and name != "warnings"
    }
    assert row["slo_met"] is True
    assert row["calibrated"] is True
    assert all(list(each) == list(row) for each in rows.values())


def test_a_simulation_that_takes_too_long_is_a_row_and_the_next_one_is_asked():
    load = {**SMALL, "num_prompts": 20_000, "output_tokens": "uniform:100:900", "rate": 100}
    sweep = Sweep(command=SERVE, options=load, vary={"max_num_seqs": (8, 9)})
    rows = [row for _, row in run_sweep(sweep, workers=1, time_limit_s=0.05)]
    assert [row["status"] for row in rows] == ["out of time", "out of time"]
    assert rows[0]["reason"] == "not done in 0.05 s; allow more with --time-limit"


def test_seeds_are_averaged_with_their_interval_and_curves_follow_an_axis():
    sweep = Sweep(
        command=SERVE, options={**SMALL}, vary={"rate": (20, 10), "gpu": ("H200", "T4")}, seed=1, replications=3
    )
    found = averages(sweep, [row for _, row in run_sweep(sweep, workers=1)])
    assert [(a.values["rate"], a.values["gpu"], a.status, a.seeds) for a in found] == [
        (20, "H200", "ok", 3),
        (20, "T4", "does not fit", 0),
        (10, "H200", "ok", 3),
        (10, "T4", "does not fit", 0),
    ]
    assert found[0].means["completed"] == 8
    assert found[0].halves["completed"] == 0
    assert found[0].halves["mean_ttft_ms"] > 0
    (line,) = curves(found, "rate", "completed")
    assert (line.name, line.x, line.y) == ("gpu H200", (10, 20), (8, 8))


def test_half_an_interval_is_students():
    import numpy as np

    assert half_interval(np.array([1.0, 2.0, 3.0])) == pytest.approx(2.920 / 3**0.5, rel=1e-3)
    assert half_interval(np.array([1.0])) is None


@given(st.text(max_size=40), st.sampled_from(["rate", "gpu", "gpu,rate", "max_num_seqs,enforce_eager"]))
def test_whatever_is_written_is_a_sweep_or_one_line(text, axis):
    try:
        sweep = Sweep(command=SERVE, vary={axis: read_choices(text, axis)})
    except InputError as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017
    else:
        assert read_sweep(write_sweep(sweep, "s.yaml"), "s.yaml") == sweep
        assert read_sweep(write_sweep(sweep, "s.toml"), "s.toml") == sweep
