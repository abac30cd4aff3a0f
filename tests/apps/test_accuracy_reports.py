import json
from pathlib import Path

from apps import accuracy_reports
from apps.cli import main

METRICS = ("ttft_mean", "ttft_p50", "ttft_p99", "tpot_p50", "itl_p99", "e2e_p50", "throughput")


def report(errors, host=None, inside=True):
    metrics = [
        {"name": name, "predicted": 1 + error / 100, "measured": 1.0, "error_percent": error, "low": 0.9, "high": 1.1,
         "is_inside": inside}
        for name, error in zip(METRICS, errors, strict=True)
    ]  # fmt: skip
    return {"kind": "validation", "metrics": metrics, "host": host}


def host(measured, seen):
    return {"expected": {"cpu_scale": 1.0, "measured": measured}, "seen": {"cpu_scale": seen}}


def written(folder, **reports):
    for name, data in reports.items():
        (folder / f"{name}.json").write_text(json.dumps(data))
    return folder


def test_reports_are_gathered_with_signs_hosts_and_coverage(tmp_path, capsys):
    written(
        tmp_path,
        one=report([-3, 1, 2, 0.5, 9, 0, 0], host("2026-12-01", 1.2)),
        two=report([5, -1, -2, 1.5, -9, 0, 0], host("", 0.97), inside=False),
    )
    assert main(["accuracy", "--reports", str(tmp_path), "--format", "md"]) == 0
    out = capsys.readouterr().out
    assert "| one | -3.0 | +1.0 | +2.0 | +0.5 | +9.0 | +0.0 | +0.0 | measured before (CPU 1.20) | 7 of 7 |" in out
    assert "as calibrated (CPU 0.97) | 0 of 7 |" in out
    assert "2 reports; median size of the error in %: TTFT mean 5.0" in out
    assert "7 of 14 metrics (50 %)" in out


def test_the_table_goes_between_the_marks_of_a_page(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- accuracy -->old<!-- /accuracy -->\nafter\n")
    folder = tmp_path / "reports"
    folder.mkdir()
    written(folder, one=report([0] * 7))
    assert main(["accuracy", "--reports", str(folder), "--update", str(page)]) == 0
    text = page.read_text()
    assert text.startswith("before\n<!-- accuracy -->\n| signed error, % |")
    assert text.endswith("<!-- /accuracy -->\nafter\n")


def test_what_is_no_report_is_refused_in_one_line(tmp_path, capsys):
    assert main(["accuracy", "--reports", str(tmp_path)]) == 1
    assert "no report; make one with `servecast validate" in capsys.readouterr().err
    (tmp_path / "x.json").write_text("{}")
    assert main(["accuracy", "--reports", str(tmp_path)]) == 1
    assert "x.json: is not a report of `servecast validate`" in capsys.readouterr().err


def test_what_the_explorer_shows_is_what_lies_in_validation():
    """`make accuracy` writes it; a report that changed without it would show old errors."""
    folder = Path(__file__).parents[2] / "validation"
    kept = json.loads((folder.parent / "profiles" / "validation.json").read_text())
    assert kept == accuracy_reports.kept(accuracy_reports.read_reports(folder))
    mine = accuracy_reports.shipped("h200-llama-3.1-8b-fp8")
    assert list(mine) == ["h200-llama-3.1-8b-fp8-fix8"]
    assert accuracy_reports.table(mine).rows[0][-1].endswith("of 18")


def test_reports_are_kept_only_where_reports_are_gathered(capsys):
    assert main(["accuracy", "--keep", "kept.json"]) == 1
    assert "give their folder with --reports" in capsys.readouterr().err
