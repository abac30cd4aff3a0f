"""What the widgets say becomes the scenario the command line would make, or a sentence beside the input."""

from __future__ import annotations

import json
import shlex

import pytest

from apps.cli import main
from apps.ui import tasks
from apps.ui.command import command
from apps.ui.question import MAX_REQUESTS, Question, check, searched
from simulator.errors import InputError
from simulator.scenario import Scenario
from simulator.workload import RateWorkload

CSV = "arrival_s,prompt_tokens,output_tokens\n" + "".join(f"{i / 10},{100 + i},{5 + i % 7}\n" for i in range(60))


def scenario_of(question: Question) -> Scenario:
    found = check(question)
    assert found.scenario is not None, found.problems
    return found.scenario


def test_the_first_question_is_the_one_the_command_line_asks() -> None:
    asked = Question()
    typed = Scenario.from_command(
        asked.server,
        profile=asked.profile,
        workload=RateWorkload(
            rate=12, num_prompts=1000, prompt_tokens=asked.prompt_tokens, output_tokens=asked.output_tokens
        ),
    )
    assert scenario_of(asked) == typed


@pytest.mark.parametrize(
    "question",
    [
        Question(num_prompts=80),
        Question(num_prompts=60, load="concurrency", concurrency=7, prompt_tokens="uniform:50:900", seed=3),
        Question(num_prompts=50, load="trace", trace="mooncake-conversation", rate_scale=2.5, over_length="drop"),
        Question(num_prompts=50, profile="", gpu="L40S", burstiness=0.5, rate=3.25),
        Question(num_prompts=40, server="VLLM_USE_V1=0 vllm serve meta-llama/Llama-3.1-8B --max-num-seqs 8",
                 vllm_version="0.8.5"),
    ],
    ids=["rate", "clients", "trace", "data sheet", "V0"],
)  # fmt: skip
def test_numbers_equal_the_command_lines_to_the_last_digit(
    question: Question, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = tasks.run(scenario_of(question).to_json(None)).summary
    assert main([*shlex.split(command(question))[1:], "--format", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert Scenario.from_json(json.dumps(printed.pop("scenario"))) == scenario_of(question)
    assert json.dumps(seen, allow_nan=False) == json.dumps(printed)


def test_a_file_gives_the_command_lines_numbers_too(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(str(tmp_path))
    question = Question(load="file", requests_csv=CSV)
    with open("requests.csv", "w", encoding="utf-8") as file:
        file.write(CSV)
    seen = tasks.run(scenario_of(question).to_json(None)).summary
    assert main([*shlex.split(command(question))[1:], "--format", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    del printed["scenario"]  # there it names the file, here it holds the rows
    assert seen == printed


@pytest.mark.parametrize(
    ("changes", "name", "words"),
    [
        ({"server": ""}, "server", "no command given"),
        ({"server": "vllm serve no/such-model"}, "server", "closest"),
        ({"server": "vllm serve meta-llama/Llama-3.1-8B --max-num-seqs many"}, "server", "max-num-seqs"),
        ({"prompt_tokens": "12:"}, "prompt_tokens", "not understood"),
        ({"output_tokens": "lognormal:-1:2"}, "output_tokens", "must be above 0"),
        ({"rate": -1.0}, "rate", "greater than 0"),
        ({"load": "concurrency", "concurrency": 0}, "concurrency", "greater than or equal to 1"),
        ({"num_prompts": MAX_REQUESTS + 1}, "rate", "shared page"),
        ({"load": "trace", "trace": "azure"}, "trace", "no trace is called"),
        ({"load": "file"}, "requests_csv", "upload a CSV"),
        ({"load": "file", "requests_csv": "a,b\n1,2\n"}, "requests_csv", "unknown column"),
        ({"load": "file", "requests_csv": "x\n" * (MAX_REQUESTS + 9)}, "requests_csv", "lines"),
        ({"profile": "", "gpu": ""}, "server", "no GPU"),
        ({"gpu": "H9000"}, "server", "not known"),
        ({"config_json": "{"}, "server", "is not JSON"),
        ({"vllm_version": "newest"}, "server", "newest"),
        ({"scenario_json": "[]"}, "scenario_json", "must be a JSON object"),
    ],
)
def test_what_cannot_be_read_is_a_sentence_beside_its_input(changes: dict[str, object], name: str, words: str) -> None:
    found = check(Question().with_(**changes))
    assert found.scenario is None
    assert words in found.problems[name]
    assert "\n" not in found.problems[name]


@pytest.mark.parametrize(
    "changes",
    [
        {"server": "vllm serve /etc/config.json"},
        {"server": "vllm serve meta-llama/Llama-3.1-8B", "profile": "../../etc/passwd"},
        {"server": "vllm serve meta-llama/Llama-3.1-8B", "profile": "/etc/hostname"},
    ],
)
def test_nothing_in_a_question_makes_the_server_read_a_file(changes: dict[str, object]) -> None:
    assert check(Question().with_(**changes)).scenario is None


def test_a_saved_scenario_that_names_files_is_refused() -> None:
    saved = scenario_of(Question(num_prompts=5)).model_dump(mode="json")
    listed = saved | {"workload": {"kind": "requests", "path": "/etc/hostname"}}
    assert "upload the CSV" in check(Question(scenario_json=json.dumps(listed))).problems["scenario_json"]
    elsewhere = saved | {"profile": "/etc/hostname"}
    assert "is not shipped" in check(Question(scenario_json=json.dumps(elsewhere))).problems["scenario_json"]
    assert scenario_of(Question(scenario_json=json.dumps(saved))) == scenario_of(Question(num_prompts=5))


def test_the_rate_on_the_left_is_not_part_of_a_search_for_the_capacity() -> None:
    assert searched(Question(rate=3.0)) == searched(Question(rate=30.0))
    users = searched(Question(axis="users", think_time="15s"))
    assert users.workload.think_time_s  # type: ignore[union-attr]
    with pytest.raises(InputError, match="length"):
        searched(Question(prompt_tokens="?"))


def test_side_b_takes_over_what_it_does_not_change() -> None:
    b = Question(b_gpu="L40S", gpu="H100-80GB").b_side()
    assert (b.gpu, b.server, b.profile) == ("L40S", Question().server, Question().profile)


@pytest.mark.parametrize("gpu", ["H200", "L4"])
def test_the_memory_is_the_command_lines_to_the_last_byte(gpu: str, capsys: pytest.CaptureFixture[str]) -> None:
    from apps.ui.page_fits import plan_of

    question = Question(gpu=gpu, server="vllm serve meta-llama/Llama-3.1-8B --max-model-len 131072")
    code = main(["memory", question.server, "--gpu", gpu, "--format", "json"])
    printed = json.loads(capsys.readouterr().out)
    shown = plan_of(question.model_dump_json())
    assert {name: printed[name] for name in shown.model_dump()} == shown.model_dump(mode="json")
    assert code == (0 if shown.fits else 2)


def test_the_capacity_is_the_command_lines(capsys: pytest.CaptureFixture[str]) -> None:
    question = Question(slo="ttft_p99=1us", prompt_tokens="64", output_tokens="8")
    found = tasks.capacity(searched(question).to_json(None), question.slo, 0, tell=lambda _: None)
    code = main([
        "capacity", question.server, "--profile", question.profile, "--slo", question.slo, "--prompt-tokens", "64",
        "--output-tokens", "8", "--no-marginal", "--draws", "0", "--workers", "1", "--format", "json",
    ])  # fmt: skip
    printed = json.loads(capsys.readouterr().out)
    shown = json.loads(json.dumps(found.as_dict()))
    assert code == 2
    assert {name: printed[name] for name in shown} == shown
