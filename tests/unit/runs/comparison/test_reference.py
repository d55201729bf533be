"""relink diff against whoever had the new wheel: what relink would make today is what counts."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from relink import library
from relink.planning.model.model import Plan
from relink.planning.options import Options
from relink.report.diff_text import WheelDiff
from relink.runs.comparison.reference import Reference
from relink.runs.comparison.wheels import diff
from relink.system.errors import UsageError, WheelError
from tests.support.works import Works
from tests.unit.runs.comparison.pairs import INFO, Pair
from tests.unit.runs.comparison.tampering import (
    EVIL,
    PLAN,
    SBOM,
    TAMPERINGS,
    Draft,
    listed,
    of_json,
    renamed,
)


def test_packed_anew_is_accepted(stubbed: Pair, reference: Reference, tmp_path: Path) -> None:
    """Or the tamperings below, which are packed by :mod:`zipfile`, show nothing."""
    new = Draft.of(stubbed.new).write(tmp_path / "new" / stubbed.new.name)
    assert new.read_bytes() != stubbed.new.read_bytes()
    for path in (stubbed.new, new):
        found = diff(stubbed.old, path, reference=reference)
        assert (found.verdict, found.unexplained, found.notes) == ("only what the plan says", (), ())


def test_there_are_a_hundred() -> None:
    assert len(TAMPERINGS) >= 100


@pytest.mark.parametrize("name", TAMPERINGS)
def test_diff_accepts(stubbed: Pair, reference: Reference, tmp_path: Path, name: str) -> None:
    """No tampering passes, whatever else was made to match, and each is named."""
    words, change = TAMPERINGS[name]
    draft = Draft.of(stubbed.new)
    change(draft)
    found = diff(stubbed.old, draft.write(tmp_path / "new" / stubbed.new.name), reference=reference)
    assert (found.verdict, found.ok) == ("unexplained", False)
    assert [text for text in found.unexplained if text.startswith(words)], found.unexplained


def raw(change: Callable[[bytes], bytes]) -> Callable[[Path, Path], Path]:
    def write(wheel: Path, path: Path) -> Path:
        path.write_bytes(change(wheel.read_bytes()))
        return path

    return write


def twice(wheel: Path, path: Path) -> Path:
    path.write_bytes(wheel.read_bytes())
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("demo/__init__.py", b"import evil\n")
    return path


@pytest.mark.parametrize(
    "write",
    [
        raw(lambda data: b"evil" + data),
        raw(lambda data: data + b"evil"),
        raw(lambda data: data.replace(b"PK\x01\x02", b"evilPK\x01\x02", 1)),
        twice,
    ],
    ids=["in front", "behind", "before the directory", "a name twice"],
)
def test_what_no_wheel_has(
    stubbed: Pair, reference: Reference, tmp_path: Path, write: Callable[[Path, Path], Path]
) -> None:
    """Bytes outside of members, and two members of one name, are refused by whatever reads a wheel."""
    with pytest.raises(WheelError, match="not a wheel that can be trusted"):
        diff(stubbed.old, write(stubbed.new, tmp_path / stubbed.new.name), reference=reference)


@pytest.mark.parametrize("version", ["1.0+rocm7.2.4", "1.0+rocm9.9", "2.0+rocm7.2.4"])
def test_another_name(stubbed: Pair, reference: Reference, tmp_path: Path, version: str) -> None:
    name = stubbed.new.name.replace("linux_", "manylinux_2_17_").replace("1.0+rocm7.2.4", version)
    draft = Draft.of(stubbed.new)
    for path in [*draft.order]:
        renamed(path, path.replace("1.0+rocm7.2.4", version))(draft)
    found = diff(stubbed.old, draft.write(tmp_path / "new" / name), reference=reference)
    assert f"the wheel is called {name}, relink calls it {stubbed.new.name}" in found.unexplained
    top = f"demo-{version}.dist-info"
    assert (f"{top}: relink calls it {INFO}" in found.unexplained) == (top != INFO)


def test_the_old_wheel_is_not_the_new_one(stubbed: Pair, reference: Reference) -> None:
    found = diff(stubbed.old, stubbed.old, reference=reference)
    assert any(text.startswith("demo/a.so: bytes ") for text in found.unexplained)
    assert "demo-1.0.dist-info/relink.json: is not there" not in found.unexplained
    assert f"{INFO}/relink.json: is not there" in found.unexplained


# What is the user's to say, and what is taken from the new wheel


def said(pair: Pair, **options: object) -> WheelDiff:
    return library.diff(pair.old, pair.new, replace(pair.options, **options))  # type: ignore[arg-type]


def test_the_options_are_the_users(works: Works, tmp_path: Path) -> None:
    """What weakens a proof counts if the user says it, and not because the new wheel was made so."""
    vendor = works.wheel(tmp_path, {"demo/lost.so": works.lost})
    options = works.options(tmp_path / "out", allow_missing=("libnowhere.so.1",))
    report = library.relink(vendor, options)
    pair = Pair(vendor, Path(report.path or ""), options)
    assert said(pair).unexplained == ()
    (text,) = (text for text in said(pair, allow_missing=()).unexplained if "RLK101" in text)
    assert text.startswith("relink writes nothing: RLK101 libnowhere.so.1: ")
    forced = said(pair, allow_missing=(), force=True).unexplained
    assert [text for text in forced if text.startswith(f"{INFO}/relink.json: ")]
    other = said(pair, local_version="other").unexplained
    assert [text for text in other if text.startswith("the wheel is called ")]
    assert said(pair, ignore=("RLK102",)).unexplained


def test_what_the_new_wheel_was_made_with(stubbed: Pair) -> None:
    """A stub that the user does not ask for is not explained."""
    found = said(stubbed, stub=())
    assert not found.ok
    assert any("RLK101 libmany.so.1" in text for text in found.unexplained)


def test_the_time_is_taken(stubbed: Pair, tmp_path: Path) -> None:
    options = replace(stubbed.options, output_directory=tmp_path, epoch=1_700_000_000)
    pair = Pair(stubbed.old, Path(library.relink(stubbed.old, options).path or ""), options)
    found = said(pair, epoch=None)
    assert (found.verdict, found.notes) == (
        "only what the plan says",
        ("taken from NEW: 2023-11-14 22:13:20, the time of what relink writes (SOURCE_DATE_EPOCH)",),
    )
    draft = Draft.of(pair.new)
    draft.headers["demo/a.so"].date_time = (2024, 5, 1, 12, 0, 0)
    again = pair._replace(new=draft.write(tmp_path / "other" / pair.new.name))
    (text,) = said(again).unexplained
    assert text.startswith(
        "not as relink writes it: time of 1 members: demo/a.so: ((2023, 11, 14, 22, 13, 20)"
    )
    draft.headers[f"{INFO}/RECORD"].date_time = (2024, 0, 0, 0, 0, 0)
    again = pair._replace(new=draft.write(tmp_path / "none" / pair.new.name))
    assert said(again).notes == ()
    assert any("time of" in text for text in said(again).unexplained)


def of_release(release: object) -> Callable[[Draft], None]:
    return of_json(SBOM, lambda data: data["metadata"]["tools"]["components"][0].update(version=release))


@pytest.fixture
def drafted(stubbed: Pair, tmp_path: Path) -> Callable[..., Path]:
    def write(*changes: Callable[[Draft], None]) -> Path:
        draft = Draft.of(stubbed.new)
        for change in changes:
            change(draft)
        return draft.write(tmp_path / str(len([*tmp_path.iterdir()])) / stubbed.new.name)

    return write


SITES = of_json(PLAN, lambda data: data.update(sites=["/x"]))


def test_another_release(stubbed: Pair, drafted: Callable[..., Path]) -> None:
    """What is not as this release writes it is told, and that it may be another's."""
    found = said(stubbed._replace(new=drafted(of_release("9.9"), listed)))
    assert {text.partition(": ")[0] for text in found.unexplained} == {SBOM, f"{INFO}/RECORD"}
    (note,) = found.notes
    assert note.startswith("NEW says that relink 9.9 wrote it, and this is ")


@pytest.mark.parametrize("release", [None, {}, []])
def test_no_release(stubbed: Pair, drafted: Callable[..., Path], release: object) -> None:
    found = said(stubbed._replace(new=drafted(of_release(release), SITES, listed)))
    assert found.notes == ()
    assert any('"sites"' in text for text in found.unexplained)


# A plan that the user trusts


def test_a_plan_of_ones_own(stubbed: Pair, works: Works, tmp_path: Path) -> None:
    saved, inside = tmp_path / "plan.json", tmp_path / "relink.json"
    library.plan(stubbed.old, stubbed.options).save(saved)
    inside.write_bytes(Draft.of(stubbed.new).contents[PLAN])
    for path in (saved, inside):
        found = library.diff(stubbed.old, stubbed.new, plan=Plan.load(path))
        assert (found.verdict, found.unexplained) == ("only what the plan says", ())
    data = json.loads(inside.read_text())
    data["files"][0]["rpath"]["after"] = EVIL
    inside.write_text(json.dumps(data))
    with pytest.raises(UsageError, match="prefixes are two things"):
        library.diff(stubbed.old, stubbed.new, stubbed.options, plan=Plan.load(saved))
    other = works.small(tmp_path / "other")
    with pytest.raises(UsageError, match="the plan does not hold any more"):
        library.diff(other, stubbed.new, plan=Plan.load(saved))


def test_the_attackers_plan(works: Works, pair: tuple[Path, Path], tmp_path: Path) -> None:
    """A wheel that was relinked by a plan with one more directory agrees with that plan, and with no other."""
    made = library.plan(pair[0], works.options(tmp_path))
    files = [
        replace(file, rpath=replace(file.rpath, after=f"{EVIL}:{file.rpath.after}")) if file.changed else file
        for file in made.files
    ]
    evil = replace(made, files=tuple(files))
    report = library.apply(evil, output_directory=tmp_path / "evil", options=Options(verify=False))
    new = Path(report.path or "")
    assert library.diff(pair[0], new, Options(verify=False), plan=evil).ok
    found = library.diff(pair[0], new, works.options(tmp_path))
    assert f"demo/a.so: + RPATH {EVIL}:{works.prefix}/lib" in found.unexplained
    assert not library.diff(pair[0], new, plan=made).ok
