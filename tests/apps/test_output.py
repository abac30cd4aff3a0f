"""Where answers are written: files whole or not at all, links followed, streams as they are."""

import json
from pathlib import Path

import pytest

from apps import output
from simulator.errors import InputError


def test_a_link_is_followed_and_stays_a_link(tmp_path):
    (tmp_path / "far").mkdir()
    link, target = tmp_path / "link.txt", tmp_path / "far" / "target.txt"
    target.write_text("old")
    link.symlink_to(target)
    output.write_file(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_dash_is_stdout_and_no_file_of_that_name(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    output.write_file(Path("-"), "to stdout\n")
    assert capfd.readouterr().out == "to stdout\n"
    assert list(tmp_path.iterdir()) == []


def test_a_device_is_written_not_replaced():
    output.write_file(Path("/dev/null"), "nothing")
    assert Path("/dev/null").is_char_device()


def test_only_one_output_goes_to_stdout():
    output.check_places(Path("-"), None)
    with pytest.raises(InputError, match="two outputs would be written to stdout"):
        output.check_places(Path("-"), Path("-"))


def test_every_json_object_carries_a_schema_version(capsys):
    for data, version in (({"a": 1}, 1), ({"schema_version": 2, "a": 1}, 2)):
        output.emit(output.Format.json, table="", data=data)
        assert json.loads(capsys.readouterr().out) == {"schema_version": version, "a": 1}
    output.emit(output.Format.json, table="", data=[1])
    assert json.loads(capsys.readouterr().out) == [1]
