"""What somebody else has put where relink writes: nothing outside is written or removed, and the run ends as it should."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from relink.library import relink
from relink.planning.options import Options
from relink.runs.questions import verify_wheel
from relink.system.errors import UsageError
from tests.support.command import Run
from tests.support.works import OUTPUT, Works

NAME = ".relink-1-0123456789abcdef"
"""A name that a killed run might have left; pid 1 is never relink's."""


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A directory elsewhere."""
    directory = tmp_path / "victim"
    (directory / "sub").mkdir(parents=True)
    (directory / "file").write_bytes(b"precious")
    (directory / "sub" / "file").write_bytes(b"precious")
    return directory


def state(directory: Path) -> dict[str, tuple[int, bytes | None]]:
    """Modes and contents of all that is in a directory."""
    return {
        str(path.relative_to(directory)): (
            path.lstat().st_mode,
            path.read_bytes() if path.is_file() else None,
        )
        for path in [directory, *directory.rglob("*")]
    }


PLANTED: dict[str, Callable[[Path, Path], object]] = {
    "a link to a file": lambda place, victim: place.symlink_to(victim / "file"),
    "a link to a directory": lambda place, victim: place.symlink_to(victim),
    "a link to nothing": lambda place, victim: place.symlink_to(victim / "new"),
    "another name of a file": lambda place, victim: os.link(victim / "file", place),
}


@pytest.mark.few(1, reason="other things at the same name")
@pytest.mark.parametrize("kind", PLANTED)
@pytest.mark.parametrize("member", ["library", "plain"])
def test_at_the_name_of_the_output(
    works: Works, tmp_path: Path, victim: Path, kind: str, member: str
) -> None:
    """Also where the output is a copy of the input."""
    vendor = works.wheel(tmp_path, {"demo/a.so": getattr(works, member)})
    place = tmp_path / "out" / (OUTPUT if member == "library" else vendor.name)
    place.parent.mkdir()
    PLANTED[kind](place, victim)
    before = state(victim)
    report = relink(vendor, works.options(place.parent))
    assert report.ok, report.findings
    assert state(victim) == before
    assert place.is_file()
    assert not place.is_symlink()
    assert os.listdir(place.parent) == [place.name]
    assert verify_wheel(place, Options()).findings == ()


def test_a_directory_at_the_name_of_the_output(works: Works, tmp_path: Path, victim: Path) -> None:
    place = tmp_path / "out" / OUTPUT
    place.mkdir(parents=True)
    (place / "link").symlink_to(victim)
    before = state(victim)
    with pytest.raises(UsageError, match="cannot be written"):
        relink(works.small(tmp_path), works.options(tmp_path / "out"))
    assert state(victim) == before
    assert os.listdir(place) == ["link"]


def test_a_link_to_the_input_at_the_name_of_the_output(works: Works, tmp_path: Path) -> None:
    vendor = works.small(tmp_path)
    before = vendor.read_bytes()
    place = tmp_path / "out" / OUTPUT
    place.parent.mkdir()
    place.symlink_to(vendor)
    with pytest.raises(UsageError, match="take the input's place"):
        relink(vendor, works.options(place.parent))
    assert vendor.read_bytes() == before
    assert os.readlink(place) == str(vendor)


@pytest.mark.few(1, reason="other files at other names")
@pytest.mark.parametrize("ending", [".tmp", ".dir"])
@pytest.mark.parametrize("kind", [*PLANTED, "a directory with links", "a pipe"])
def test_at_the_name_of_something_temporary(
    works: Works, tmp_path: Path, victim: Path, kind: str, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the output directory and in TMPDIR: the next run removes what a killed one has left, and follows nothing."""
    before = state(victim)
    out, temporary = tmp_path / "out", tmp_path / "tmp"
    for place in (out, temporary):
        place.mkdir()
        planted = place / (NAME + ending)
        if kind == "a pipe":
            os.mkfifo(planted)
        elif kind == "a directory with links":
            (planted / "deep").mkdir(parents=True)
            for number, target in enumerate((victim, victim / "file", victim / "sub")):
                (planted / "deep" / str(number)).symlink_to(target)
            os.link(victim / "file", planted / "deep" / "same")
        else:
            PLANTED[kind](planted, victim)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    assert relink(works.small(tmp_path), works.options(out)).ok
    assert verify_wheel(out / OUTPUT, Options()).findings == ()
    assert state(victim) == before
    assert {*os.listdir(out)} <= {OUTPUT, NAME + ending}
    assert {*os.listdir(temporary)} <= {NAME + ending}


def test_a_directory_that_others_may_write_to(
    works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else can enter what relink makes there, nor guess its name."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir(mode=0o777)
    seen: dict[str, int] = {}

    def look(_stage: str) -> None:
        for place in (tmp_path / "tmp", tmp_path / "out"):
            if place.exists():
                seen.update((path.name, path.stat().st_mode & 0o777) for path in place.iterdir())

    for _ in range(2):
        relink(works.small(tmp_path), works.options(tmp_path / "out"), on_stage=look)
        (tmp_path / "out" / OUTPUT).unlink()
    made = {name: mode for name, mode in seen.items() if name != OUTPUT}
    assert len(made) >= 2, "another name in each run"
    assert {*made.values()} == {0o700}


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("kind", [kind for kind in PLANTED if kind != "a link to a directory"])
def test_at_the_names_of_other_files(works: Works, run: Run, tmp_path: Path, victim: Path, kind: str) -> None:
    """The page. A link to a directory names the directory, into which a file of the wheel's name goes."""
    vendor = works.small(tmp_path)
    page = tmp_path / "page.html"
    PLANTED[kind](page, victim)
    before = state(victim)
    code, _, said = run(vendor, "--prefix", works.prefix, "-o", tmp_path / "out", "-q", "--report", page)
    assert state(victim) == before
    assert code == 0, said
    assert page.is_file()
    assert not page.is_symlink()
