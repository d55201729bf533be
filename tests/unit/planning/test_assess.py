"""planning.assess: one assessment for all commands; what yields findings is registered in one place."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

import relink
from relink import Options
from relink.planning.assess import MOST_ATTEMPTS, PRODUCERS, Producer
from relink.planning.case import Command
from relink.runs.questions import explain, nix_package
from relink.system.findings.model import finding
from tests.support.command import Run
from tests.support.works import OUTPUT, Works

NEW = Producer(
    "something new", lambda _: [finding("RLK117", "new", "something new was seen", level="warning")]
)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relink.planning.assess.PRODUCERS", [*PRODUCERS, NEW])


@pytest.mark.usefixtures("registered")
def test_a_new_producer_is_shown_by_every_command(works: Works, run: Run, tmp_path: Path) -> None:
    vendor, out = works.small(tmp_path), tmp_path / "out"
    code, text, _ = run(vendor, "--prefix", works.prefix, "-o", out)
    assert (code, "something new was seen" in text) == (0, True)
    applied = relink.apply(
        relink.plan(vendor, works.options(tmp_path)), wheel=vendor, output_directory=tmp_path / "b"
    )
    assert applied.output is not None
    told = [reported.message for reported in applied.findings if reported.subject == "new"]
    assert told == ["something new was seen"]
    for words in (
        ("verify", out / OUTPUT),
        ("explain", vendor, "--prefix", works.prefix),
        ("nix", vendor, "--prefix", works.prefix, "-o", tmp_path / "nix"),
        ("nix", vendor, "-o", tmp_path / "nix2"),
        ("check", "--python", environment(tmp_path / "env", out / OUTPUT), "-v"),
    ):
        assert "something new was seen" in run(*words)[1], words


def environment(directory: Path, wheel: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
    python = directory / "bin/python"
    command = [
        sys.executable,
        "-m",
        "pip",
        f"--python={python}",
        "install",
        "--no-deps",
        "--no-index",
        str(wheel),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return python


def test_what_is_not_shown_has_a_reason() -> None:
    commands = {*get_args(Command)}
    for producer in PRODUCERS:
        assert producer.not_in.keys() <= commands
        assert all(producer.not_in.values()), producer.subject
        assert any(map(producer.is_shown, commands)), producer.subject
    assert len({producer.subject for producer in PRODUCERS}) == len(PRODUCERS)


def test_the_attempts_are_shown_in_order(works: Works, run: Run, tmp_path: Path) -> None:
    code, out, _ = run("explain", works.small(tmp_path), "--prefix", works.prefix, "--trace")
    assert code == 0
    assert out.rstrip().endswith("2. linked to the providers: no error")


def test_a_wheel_is_planned_a_bounded_number_of_times(works: Works, tmp_path: Path) -> None:
    """Of a refusal whose every proposal fails: each attempt is counted, and those of all ways out together are bounded."""
    report = relink.relink(
        works.wheel(tmp_path, {"demo/lost.so": works.lost}), works.options(tmp_path / "out")
    )
    assert not report.ok
    attempts = explain(
        works.wheel(tmp_path / "b", {"demo/lost.so": works.lost}), works.options(tmp_path)
    ).attempts
    assert 0 < len(attempts) <= MOST_ATTEMPTS


def test_a_package_for_nix_is_assessed_with_and_without_libraries(works: Works, tmp_path: Path) -> None:
    wheel = works.small(tmp_path)
    codes = [
        {one.code for one in nix_package(wheel, options).findings}
        for options in (Options(), works.options(tmp_path))
    ]
    assert "RLK712" in codes[0] & codes[1]


def test_the_report_of_an_applied_plan_has_each_finding_once(works: Works, tmp_path: Path) -> None:
    vendor = works.small(tmp_path)
    report = relink.apply(
        relink.plan(vendor, works.options(tmp_path)), wheel=vendor, output_directory=tmp_path / "out"
    )
    pairs = [(one.code, one.subject, one.message) for one in report.findings]
    assert len(pairs) == len({*pairs})
    assert json.dumps(pairs)
