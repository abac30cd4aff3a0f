"""The frame of the command line: exit codes, one-line errors, help of every command, files written whole."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from apps import cli
from apps.output import Format, Table, emit, replacing
from simulator.errors import ConfigError, DoesNotFitError, InputError

TABLE = Table(("term", "GiB"), (("weights", "15.00"), ("kv | cache", "112.28")), right=(1,))
DATA = {"a": 1, "b": [1.5, float("nan")]}


def run_with(monkeypatch: pytest.MonkeyPatch, body) -> int:
    app = typer.Typer()
    app.callback()(lambda: None)
    app.command("act")(body)
    monkeypatch.setattr(cli, "app", app)
    return cli.main(["act"])


def raising(error: BaseException):
    def body() -> None:
        raise error

    return body


def walk(command, path=("servecast",)):
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from walk(child, (*path, name))


COMMANDS = {" ".join(path): command for path, command in walk(typer.main.get_command(cli.app))}


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ConfigError("block_size must be 16,\ngot 24"), 1, "error: block_size must be 16, got 24\n"),
        (InputError("x.csv: no header"), 1, "error: x.csv: no header\n"),
        (DoesNotFitError("No available memory"), 2, "error: No available memory\n"),
        (FileNotFoundError(2, "No such file or directory", "x"), 1, "error: x: No such file or directory\n"),
        (typer.Exit(2), 2, ""),
    ],
)
def test_an_error_is_one_line_and_a_code(monkeypatch, capsys, error, code, line):
    assert run_with(monkeypatch, raising(error)) == code
    assert capsys.readouterr() == ("", line)


def test_an_interrupt_exits_with_130(monkeypatch, capsys):
    assert run_with(monkeypatch, raising(KeyboardInterrupt())) == 130
    assert capsys.readouterr().out == ""


def test_a_bug_is_not_hidden(monkeypatch):
    with pytest.raises(ZeroDivisionError):
        run_with(monkeypatch, raising(ZeroDivisionError()))


@pytest.mark.parametrize("arguments", [["--nope"], ["nope"]])
def test_a_usage_error_exits_with_1_because_2_means_no(capsys, arguments):
    assert cli.main(arguments) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: No such")
    assert err.count("\n") == 1


def test_version_and_bare_call_answer_and_exit_0(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("servecast ")
    assert cli.main([]) == 0
    assert "Usage: servecast" in capsys.readouterr().out


def test_help_imports_nothing_heavy():
    code = (
        "import sys, apps.cli; apps.cli.main(['--help']);"
        "sys.exit(str({'numpy','pandas','scipy','simpy','pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "set()"


def test_a_closed_pipe_is_quiet():
    shell = f"{sys.executable} -m apps.cli --help | true"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)
    assert done.stderr == ""


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help_and_every_option_too(name):
    command = COMMANDS[name]
    assert (command.help or "").strip(), f"{name} has no help"
    for parameter in command.params:
        assert getattr(parameter, "help", None), f"{name}: {parameter.name} has no help"


@pytest.mark.parametrize("name", sorted(name for name, command in COMMANDS.items() if not hasattr(command, "commands")))
def test_every_command_shows_an_example(name, capsys):
    assert cli.main([*name.split()[1:], "--help"]) == 0
    out = capsys.readouterr().out
    assert "Example" in out
    assert f"  {name} " in out


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("x.txt", "term           GiB\n----------  ------\nweights      15.00\nkv | cache  112.28\n"),
        ("x.md", "| term | GiB |\n| --- | ---: |\n| weights | 15.00 |\n| kv \\| cache | 112.28 |\n"),
        ("x.csv", "term,GiB\nweights,15.00\nkv | cache,112.28\n"),
        ("x.json", json.dumps({"schema_version": 1, "a": 1, "b": [1.5, None]}, indent=2) + "\n"),
    ],
)
def test_the_suffix_of_the_file_chooses_the_format(tmp_path, name, expected):
    emit(None, table=TABLE, data=DATA, output=tmp_path / name)
    assert (tmp_path / name).read_text() == expected


def test_the_format_option_wins_and_csv_takes_rows(tmp_path, capsys):
    emit(Format.json, table=TABLE, data=DATA, output=tmp_path / "x.csv")
    assert json.loads((tmp_path / "x.csv").read_text())["a"] == 1
    emit(Format.csv, table=TABLE, data=DATA, rows=[{"a": 1}, {"a": 2, "b": None}])
    assert capsys.readouterr().out == "a,b\n1,\n2,\n"


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path):
    target = tmp_path / "x.json"
    target.write_text("old")

    def fail() -> None:
        with replacing(target) as part:
            part.write_text("ha")
            raise ValueError

    with pytest.raises(ValueError):
        fail()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(InputError, match="it is a directory"):
        emit(Format.json, table=TABLE, data=DATA, output=tmp_path)
    with pytest.raises(InputError, match=r"missing.x\.json: No such file"):
        emit(Format.json, table=TABLE, data=DATA, output=Path(tmp_path / "missing" / "x.json"))
