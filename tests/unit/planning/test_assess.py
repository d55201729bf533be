"""planning.assess: one assessment for all commands; what yields findings is registered in one place."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

import relink
from relink import Options
from relink.planning.assess import MOST_ATTEMPTS, PRODUCERS, Producer
from relink.planning.case import Command
from relink.planning.resolve.decide import PlanDraft, decide
from relink.runs.questions import nix_package
from relink.system.findings.model import finding
from tests.support.cc import cc, shared
from tests.support.command import Run
from tests.support.wheels import make_wheel
from tests.support.works import OUTPUT, TAG, Works

SLOW = pytest.mark.slow(reason="several commands or plans; the others have one")

NEW = Producer(
    "something new", lambda _: [finding("RLK117", "new", "something new was seen", level="warning")]
)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relink.planning.assess.PRODUCERS", [*PRODUCERS, NEW])


@SLOW
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


def environment(directory: Path, wheel: Path | None = None) -> Path:
    """Make a virtual environment, with a wheel that pip installs; returns its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
    python = directory / "bin/python"
    if wheel is not None:
        install(python, wheel)
    return python


def install(python: Path, wheel: Path) -> None:
    command = [sys.executable, "-m", "pip", f"--python={python}", "install", "--no-deps", "--no-index"]
    subprocess.run([*command, wheel], check=True, capture_output=True)


def with_program(works: Works, directory: Path, tag: str) -> Path:
    """A wheel whose program, in bin/, needs a library that lies in the package."""
    own = shared(directory / "lib/libown.so.1", "int own(void){return 0;}")
    program = cc("extern int own(void); int main(void){return own();}", directory / "prog", needed=[own])
    source = "extern int hip(void); int g(void){return hip();}"
    files: dict[str, bytes | Path] = {
        "demo/__init__.py": b"",
        "demo/a.so": shared(directory / "a.so", source, needed=[works.prefix / "lib/libhip.so.7"]),
        "demo/libown.so.1": own,
        "demo-1.0.data/scripts/prog": program,
    }
    return make_wheel(directory, files, tag=tag)


@SLOW
def test_a_program_of_a_wheel_for_any_python(works: Works, tmp_path: Path) -> None:
    """It starts where pip has put it for the Python that was named; without a name nothing is written."""
    wheel = with_program(works, tmp_path, "py3-none-manylinux_2_34_x86_64")
    python = environment(tmp_path / "env")
    report = relink.relink(wheel, works.options(tmp_path / "out", python=str(python)))
    assert report.output is not None, report.findings
    told = [one for one in report.findings if one.code == "RLK208"]
    assert [(one.level, one.subject) for one in told] == [("info", "demo-1.0.data/scripts/prog")]
    install(python, Path(report.output.path))
    assert subprocess.run([tmp_path / "env/bin/prog"], check=False).returncode == 0
    refused = relink.relink(wheel, works.options(tmp_path / "refused"))
    assert [one.code for one in refused.findings if one.level == "error"] == ["RLK208"]
    assert refused.output is None


@SLOW
def test_a_program_of_a_wheel_for_one_python(works: Works, tmp_path: Path) -> None:
    tag = f"cp3{sys.version_info.minor}-cp3{sys.version_info.minor}-manylinux_2_34_x86_64"
    report = relink.relink(with_program(works, tmp_path, tag), works.options(tmp_path / "out"))
    assert report.output is not None, report.findings
    assert "RLK208" not in [one.code for one in report.findings]
    install(environment(tmp_path / "env"), Path(report.output.path))
    assert subprocess.run([tmp_path / "env/bin/prog"], check=False).returncode == 0


def test_what_is_not_shown_has_a_reason() -> None:
    commands = {*get_args(Command)}
    for producer in PRODUCERS:
        assert producer.not_in.keys() <= commands
        assert all(producer.not_in.values()), producer.subject
        assert commands - producer.not_in.keys(), producer.subject
    assert len({producer.subject for producer in PRODUCERS}) == len(PRODUCERS)


def test_the_attempts_are_shown_in_order(works: Works, run: Run, tmp_path: Path) -> None:
    code, out, _ = run("explain", works.small(tmp_path), "--prefix", works.prefix, "--trace")
    assert code == 0
    assert out.endswith(
        "1. the wheel, as it is: 1 error, RLK101 libhip.so.7\n"
        "   demo/a.so: nothing, 1 edge not served\n"
        "2. linked to the providers: no error\n"
        "   demo/a.so: rpath, 0 edges not served\n"
    )


@SLOW
def test_a_wheel_is_planned_a_bounded_number_of_times(
    works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worst: a library is missing, and the prefix has a hundred others of its name, of which each is proposed and refused."""
    prefix = tmp_path / "rocm"
    shutil.copytree(works.prefix, prefix)
    for number in range(2, 102):
        shared(prefix / f"lib/libnowhere.so.{number}", "int elsewhere(void){return 1;}")
    count = 0

    def counted(*words: Any, **more: Any) -> PlanDraft:
        nonlocal count
        count += 1
        return decide(*words, **more)

    monkeypatch.setattr("relink.planning.assess.decide", counted)
    wheel = works.wheel(tmp_path, {"demo/lost.so": works.lost})
    report = relink.relink(wheel, replace(works.options(tmp_path / "out"), prefixes=(str(prefix),)))
    assert (report.ok, report.way_out) == (False, ())
    assert count == MOST_ATTEMPTS


def test_a_package_for_nix_is_assessed_with_and_without_libraries(works: Works, tmp_path: Path) -> None:
    wheel = works.small(tmp_path)
    codes = [
        {one.code for one in nix_package(wheel, options).findings}
        for options in (Options(), works.options(tmp_path))
    ]
    assert "RLK712" in codes[0] & codes[1]


def test_verify_sees_python_code_that_loads_a_library_by_name(run: Run, tmp_path: Path) -> None:
    """The places are those that the loader takes the vendor's libraries from, as nobody names one."""
    hip = shared(tmp_path / "rocm/lib/libamdhip64.so.7", "int hipInit(void){return 0;}")
    source = "extern int hipInit(void); int g(void){return hipInit();}"
    files: dict[str, bytes | Path] = {
        "demo/__init__.py": b"import ctypes\nctypes.CDLL('libamdhip64.so.7')\n",
        "demo/a.so": shared(tmp_path / "a.so", source, needed=[hip], flags=[f"-Wl,-rpath,{hip.parent}"]),
    }
    code, text, _ = run("verify", make_wheel(tmp_path, files, tag=TAG), "--output-format", "github")
    assert (code, "RLK538" in text) == (1, True), text
    assert "libamdhip64.so.7 not found; demo/__init__.py:2 opens libamdhip64.so.7" in text


def test_the_report_of_an_applied_plan_has_each_finding_once(works: Works, tmp_path: Path) -> None:
    vendor = works.small(tmp_path)
    report = relink.apply(
        relink.plan(vendor, works.options(tmp_path)), wheel=vendor, output_directory=tmp_path / "out"
    )
    pairs = [(one.code, one.subject, one.message) for one in report.findings]
    assert len(pairs) == len({*pairs})
    assert json.dumps(pairs)


@pytest.mark.parametrize(
    ("needed", "label"), [("libamdhip64.so.6", "rocm6"), ("libamdhip64.so.7", "rocm7.2.4")]
)
def test_the_label_is_of_the_runtime_that_is_used(tmp_path: Path, needed: str, label: str) -> None:
    """Debian's prefix of ROCm 7.2 has HIP 6 as well; a wheel that uses that one is none of 7.2.4."""
    for soname in ("libamdhip64.so.6", "libamdhip64.so.7"):
        shared(tmp_path / "rocm" / "lib" / soname, "int hip(void){return 1;}")
    (tmp_path / "rocm" / ".info").mkdir()
    (tmp_path / "rocm" / ".info" / "version").write_text("7.2.4\n")
    using = "extern int hip(void); int g(void){return hip();}"
    library = shared(tmp_path / "a.so", using, needed=[tmp_path / "rocm" / "lib" / needed])
    wheel = make_wheel(tmp_path, {"demo/__init__.py": b"", "demo/a.so": library})
    planned = relink.plan(
        wheel, Options(prefixes=(str(tmp_path / "rocm"),), output_directory=tmp_path / "out")
    )
    assert planned.output.startswith(f"demo-1.0+{label}-")
