"""A fault in one of several members that are asked about together is found, as if each had been asked about alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from relink.library import relink
from relink.loader import joint
from relink.loader.dryrun import start_loader
from relink.planning.options import Options
from relink.runs.questions import verify_wheel
from relink.system.findings.model import Finding
from tests.support.cc import shared
from tests.support.works import OUTPUT, VENDOR_PATH, Works

MEMBERS = ("one", "two", "three")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Have members asked about together however little that saves; notes of each start whether symbols are looked up."""
    calls: list[bool] = []

    def start(*arguments: object, symbols: bool) -> object:
        calls.append(symbols)
        return start_loader(*arguments, symbols=symbols)  # type: ignore[arg-type]

    monkeypatch.setattr(joint, "START_COST", 0)
    monkeypatch.setattr("relink.loader.dryrun.start_loader", start)
    return calls


@pytest.fixture
def wheel(works: Works, tmp_path: Path) -> Callable[..., Path]:
    def make(**calls: str) -> Path:
        members: dict[str, bytes | Path] = {}
        for name in MEMBERS:
            source = f"extern int {calls.get(name, 'hip')}(void); int in_{name}(void) {{ return {calls.get(name, 'hip')}(); }}"
            flags = [VENDOR_PATH, "-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined"]
            hip = works.prefix / "lib" / "libhip.so.7"
            members[f"demo/{name}.so"] = shared(tmp_path / f"{name}.so", source, needed=[hip], flags=flags)
        return works.wheel(tmp_path, members)

    return make


def errors(findings: tuple[Finding, ...]) -> set[tuple[str, str]]:
    return {(item.code, item.subject) for item in findings if item.level == "error"}


def test_symbols_are_looked_up_once(
    works: Works, wheel: Callable[..., Path], started: list[bool], tmp_path: Path
) -> None:
    report = relink(wheel(), works.options(tmp_path / "out"))
    assert (report.ok, report.verified) == (True, 3)
    assert sorted(started) == [False, False, False, True]


@pytest.mark.parametrize("faulty", MEMBERS)
def test_an_open_symbol_of_one_of_them(
    works: Works, wheel: Callable[..., Path], started: list[bool], tmp_path: Path, faulty: str
) -> None:
    vendor = wheel(**{faulty: "vanished"})
    relink(vendor, works.options(tmp_path / "out", force=True))
    result = verify_wheel(tmp_path / "out" / OUTPUT, Options())
    for name in MEMBERS:
        lines = [line for line in result.maps[f"demo/{name}.so"].problems if "vanished" in line]
        assert bool(lines) is (name == faulty)
    assert started.count(True) == 2  # once for each of the two verifications


def test_each_is_asked_alone_where_the_joint_answer_is_another(
    works: Works,
    wheel: Callable[..., Path],
    started: list[bool],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The simulation of the joint run names a library that the loader does not map."""
    monkeypatch.setattr("relink.make.dry_runs.mapped_by", lambda _: ((), ("libother.so",)))
    report = relink(wheel(), works.options(tmp_path / "out"))
    assert started == [True, True, True, True]
    assert report.verified == 3
