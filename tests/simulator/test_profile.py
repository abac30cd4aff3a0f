import json

import pytest

from simulator.errors import InputError
from simulator.profile import Profile, load_profile, parse_profile, shipped_profiles

SHIPPED = ["h200-llama-3.1-8b", "h200-qwen2.5-32b"]


@pytest.mark.parametrize(("name", "day"), [*zip(SHIPPED, ("2026-11-30", "2026-12-01"), strict=True)])
def test_a_shipped_profile_says_where_every_number_comes_from(name, day):
    profile = load_profile(name)
    source = profile.provenance
    assert profile.name == name
    assert source.calibrated
    assert source.gpu == "H200"
    assert source.vllm_version == "0.24.0"
    assert source.measured == day
    assert source.command.startswith("vllm serve ")
    assert [file.name.split(".")[0] for file in source.files][:2] == ["calib", "calib"]
    assert profile.residuals["decode"].median_percent < 2
    assert len(profile.covariance.matrix) == len(profile.covariance.names) > 10


def test_json_round_trip_is_exact():
    profile = load_profile(SHIPPED[0])
    assert parse_profile(profile.model_dump_json(), "again") == profile


def test_a_profile_of_schema_1_is_read_and_says_that_it_is_old():
    old = json.loads(load_profile(SHIPPED[0]).model_dump_json())
    old |= {"schema_version": 1}
    old["gpu_time"] |= {"imbalance_factor": 1.6, "partial_wave_factor": 0.3}
    old["covariance"] = {"names": ["gpu_time.step_s", "gpu_time.imbalance_factor"], "matrix": [[0.1, 0.0], [0.0, 0.2]]}
    found = parse_profile(json.dumps(old), "old.json")
    assert (found.covariance.names, found.covariance.matrix) == (("gpu_time.step_s",), ((0.1,),))
    assert "fit it again: servecast calibrate fit" in found.provenance.note
    assert parse_profile(found.model_dump_json(), "new.json") == found


def changed(**changes):
    data = json.loads(load_profile(SHIPPED[0]).model_dump_json())
    for path, value in changes.items():
        *sections, name = path.split("__")
        place = data
        for section in sections:
            place = place[section]
        place[name] = value
    return json.dumps(data)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (changed(schema_version=3), "schema_version 3 is newer"),
        (changed(schema_version=0), "schema_version"),
        (changed(gpu_time__bandwith_efficiency=0.8), "bandwith_efficiency"),
        (changed(gpu_time__bandwidth_efficiency=-1), "gpu_time.bandwidth_efficiency"),
        (changed(gpu_time__bandwidth_efficiency="NaN"), "gpu_time.bandwidth_efficiency"),
        (changed(gpu_time__compute_tokens=[1, 2]), "compute_efficiency must have 2 values"),
        (changed(gpu_time__compute_tokens=[9, 8, 7, 6, 5, 4, 3]), "must be positive and ascend"),
        (changed(host__gpu_scale=0), "host.gpu_scale"),
        (changed()[:200], "not JSON (truncated?)"),
        ("[]", "the top level must be an object"),
    ],
)
def test_a_bad_profile_is_one_line(text, words):
    with pytest.raises(InputError) as error:
        parse_profile(text, "profile p.json")
    assert words in str(error.value)
    assert str(error.value).startswith("profile p.json: ")
    assert "\n" not in str(error.value)


def test_bytes_a_folder_and_a_wrong_name_are_one_line(tmp_path):
    binary = tmp_path / "p.json"
    binary.write_bytes(b"\x80\x81")
    with pytest.raises(InputError, match="not a text file"):
        load_profile(binary)
    with pytest.raises(InputError, match="directory"):
        load_profile(tmp_path)
    with pytest.raises(InputError, match=r"neither a file nor a shipped profile.*h200-llama"):
        load_profile("h300-nothing")


def test_profiles_are_frozen():
    with pytest.raises(ValueError):
        load_profile(SHIPPED[0]).name = "x"  # type: ignore[misc]


def test_the_schema_has_the_reserved_sections():
    sections = {
        "gpu_time",
        "launch",
        "cpu",
        "front_end",
        "transfer",
        "host",
        "covariance",
        "noise",
        "hull",
        "residuals",
    }
    assert sections <= set(Profile.model_fields)


def test_shipped_profiles_are_profiles_and_nothing_else_that_lies_beside_them():
    names = shipped_profiles()
    assert "h200-llama-3.1-8b" in names
    assert [load_profile(name).name for name in names] == names
    assert shipped_profiles("H200") == names
    assert shipped_profiles("L4") == []
