"""relink diff against whoever had the new wheel: what relink would make today is what counts."""

from __future__ import annotations

import dataclasses
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from relink import library
from relink.planning.model import Plan
from relink.planning.options import Options
from relink.report.diff_text import WheelDiff, to_json, to_text
from relink.runs.comparison import Reference, compare_wheels
from relink.system.errors import UsageError, WheelError
from tests.support.command import Run
from tests.support.wheels import changed, make_wheel
from tests.support.works import OUTPUT, TAG, Works
from tests.unit.runs.pairs import INFO, Pair, flipped, member
from tests.unit.runs.tampering import (
    EVIL,
    PLAN,
    SBOM,
    TAMPERINGS,
    Draft,
    listed,
    of_json,
    renamed,
)

SLOW = pytest.mark.slow(reason="several runs; test_the_command has the whole of it")


def test_packed_anew_is_accepted(stubbed: Pair, reference: Reference, tmp_path: Path) -> None:
    """Or the tamperings below, which are packed by :mod:`zipfile`, show nothing."""
    new = Draft.of(stubbed.new).write(tmp_path / "new" / stubbed.new.name)
    assert new.read_bytes() != stubbed.new.read_bytes()
    for path in (stubbed.new, new):
        found = compare_wheels(stubbed.old, path, reference=reference)
        assert (found.verdict, found.unexplained, found.notes) == ("only what the plan says", (), ())


def test_there_are_a_hundred() -> None:
    assert len(TAMPERINGS) >= 100


@pytest.mark.parametrize("name", TAMPERINGS)
def test_diff_accepts(stubbed: Pair, reference: Reference, tmp_path: Path, name: str) -> None:
    """No tampering passes, whatever else was made to match, and each is named."""
    words, change = TAMPERINGS[name]
    draft = Draft.of(stubbed.new)
    change(draft)
    found = compare_wheels(stubbed.old, draft.write(tmp_path / "new" / stubbed.new.name), reference=reference)
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
        compare_wheels(stubbed.old, write(stubbed.new, tmp_path / stubbed.new.name), reference=reference)


@pytest.mark.parametrize("version", ["1.0+rocm7.2.4", "1.0+rocm9.9", "2.0+rocm7.2.4"])
def test_another_name(stubbed: Pair, reference: Reference, tmp_path: Path, version: str) -> None:
    name = stubbed.new.name.replace("linux_", "manylinux_2_17_").replace("1.0+rocm7.2.4", version)
    draft = Draft.of(stubbed.new)
    for path in [*draft.order]:
        renamed(path, path.replace("1.0+rocm7.2.4", version))(draft)
    found = compare_wheels(stubbed.old, draft.write(tmp_path / "new" / name), reference=reference)
    assert f"the wheel is called {name}, relink calls it {stubbed.new.name}" in found.unexplained
    top = f"demo-{version}.dist-info"
    assert (f"{top}: relink calls it {INFO}" in found.unexplained) == (top != INFO)


def test_the_old_wheel_is_not_the_new_one(stubbed: Pair, reference: Reference) -> None:
    found = compare_wheels(stubbed.old, stubbed.old, reference=reference)
    assert "demo/a.so: the content is not what relink writes" in found.unexplained
    assert "demo-1.0.dist-info/relink.json: is not there" not in found.unexplained
    assert f"{INFO}/relink.json: is not there" in found.unexplained


# What is the user's to say, and what is taken from the new wheel


def said(pair: Pair, **options: object) -> WheelDiff:
    return library.diff(pair.old, pair.new, dataclasses.replace(pair.options, **options))  # type: ignore[arg-type]


@SLOW
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


@SLOW
def test_the_time_is_taken(stubbed: Pair, tmp_path: Path) -> None:
    options = dataclasses.replace(stubbed.options, output_directory=tmp_path, epoch=1_700_000_000)
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
    assert text.startswith("demo/a.so: time, ")
    draft.headers[f"{INFO}/RECORD"].date_time = (2024, 0, 0, 0, 0, 0)
    again = pair._replace(new=draft.write(tmp_path / "none" / pair.new.name))
    assert said(again).notes == ()
    assert any(": time, " in text for text in said(again).unexplained)


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


@SLOW
def test_another_release(stubbed: Pair, drafted: Callable[..., Path]) -> None:
    """What is not as this release writes it is told, and that it may be another's."""
    found = said(stubbed._replace(new=drafted(of_release("9.9"), listed)))
    assert {text.partition(": ")[0] for text in found.unexplained} == {SBOM, f"{INFO}/RECORD"}
    (note,) = found.notes
    assert note.startswith("NEW says that relink 9.9 wrote it, and this is ")


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("release", [None, {}, []])
def test_no_release(stubbed: Pair, drafted: Callable[..., Path], release: object) -> None:
    found = said(stubbed._replace(new=drafted(of_release(release), SITES, listed)))
    assert found.notes == ()
    assert f"{PLAN}: sites: added" in found.unexplained


# A plan that the user trusts


@SLOW
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


@SLOW
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
    assert "demo/a.so: the content is not what relink writes" in found.unexplained
    place = f"{PLAN}: files[demo/a.so].rpath.after: "
    (text,) = (text for text in found.unexplained if text.startswith(place))
    assert text.startswith(f'{place}"{EVIL}:')
    assert not library.diff(pair[0], new, plan=made).ok


@pytest.mark.parametrize(("at", "data"), [(4, b"\x3f"), (10, b"\0\0\x21\x28")], ids=["version", "time"])
def test_a_local_header_alone(
    stubbed: Pair, reference: Reference, tmp_path: Path, at: int, data: bytes
) -> None:
    """Readers that stream take what stands before a member."""
    content = bytearray(stubbed.new.read_bytes())
    content[at : at + len(data)] = data
    new = tmp_path / stubbed.new.name
    new.write_bytes(content)
    (text,) = compare_wheels(stubbed.old, new, reference=reference).unexplained
    assert ": time, method, " in text


def test_a_flag_that_means_nothing(stubbed: Pair, reference: Reference, tmp_path: Path) -> None:
    """A flag of the local header says how hard the compressor tried."""
    content = bytearray(stubbed.new.read_bytes())
    content[6] = 2
    new = tmp_path / stubbed.new.name
    new.write_bytes(content)
    assert compare_wheels(stubbed.old, new, reference=reference).ok


# Any two wheels, and the command


def shown(found: WheelDiff) -> str:
    return "\n".join(line.plain for line in to_text(found))


def test_what_relink_changes(pair: tuple[Path, Path]) -> None:
    """Without anything of the user's to compare with, nothing is judged."""
    found = compare_wheels(*pair)
    assert (found.verdict, found.ok, found.planned, found.unexplained) == ("not judged", True, False, ())
    assert found.renamed == (
        ("demo-1.0.dist-info", INFO),
        ("demo-1.0.data", "demo-1.0+rocm7.2.4.data"),
    )
    assert {f"{INFO}/relink.json", f"{INFO}/sboms/relink.cdx.json"} <= {*found.added}
    assert found.removed == ()
    assert [change.path for change in found.changed] == [
        "demo/a.so",
        "demo/bin/prog",
        "demo-1.0+rocm7.2.4.data/scripts/demo-prog",
        f"{INFO}/METADATA",
        f"{INFO}/WHEEL",
        f"{INFO}/RECORD",
    ]
    assert found.unchanged == 2


def test_each_member_is_named(stubbed: Pair, reference: Reference, tmp_path: Path) -> None:
    data = flipped(member(stubbed.new, "demo/a.so"), 9)
    new = changed(stubbed.new, tmp_path, {"demo/a.so": data}, modes={"demo/bin/prog": 0o100777})
    found = compare_wheels(stubbed.old, new, reference=reference)
    assert "demo/a.so: the content is not what relink writes" in found.unexplained
    assert "demo/bin/prog: the mode is 100777, relink writes 100755" in found.unexplained
    assert not any("METADATA" in text for text in found.unexplained)


def test_a_wheel_and_itself(pair: tuple[Path, Path], tmp_path: Path) -> None:
    assert compare_wheels(pair[0], pair[0]).verdict == "identical"
    draft = Draft.of(pair[0])
    draft.comment = b"again"
    again = draft.write(tmp_path / "again" / pair[0].name)
    found = compare_wheels(pair[0], again)
    assert found.old.sha256 != found.new.sha256
    assert (found.verdict, found.ok, found.unexplained) == ("same content", True, ())


def test_any_two_wheels(works: Works, tmp_path: Path) -> None:
    one = make_wheel(
        tmp_path / "1", {"demo/x.py": b"x = 1\n", "demo/gone.py": b"", "demo/a.so": works.library}, tag=TAG
    )
    two = make_wheel(
        tmp_path / "2",
        {"demo/x.py": b"x = 22\n", "demo/new.py": b"", "demo/a.so": works.lost},
        tag=TAG,
        version="2.0",
    )
    found = compare_wheels(one, two)
    assert (found.ok, found.verdict) == (True, "not judged")
    assert (found.added, found.removed) == (("demo/new.py",), ("demo/gone.py",))
    assert found.renamed == (("demo-1.0.dist-info", "demo-2.0.dist-info"),)
    assert {"demo/x.py", "demo/a.so"} <= {change.path for change in found.changed}
    text = shown(found)
    assert "added    demo/new.py" in text
    assert json.loads(json.dumps(to_json(found)))["schema"] == "relink.comparison/1"


def test_unreadable(pair: tuple[Path, Path], tmp_path: Path) -> None:
    broken = tmp_path / pair[0].name
    broken.write_bytes(pair[0].read_bytes()[:-1])
    with pytest.raises(WheelError):
        compare_wheels(broken, pair[1])
    data = bytearray(pair[1].read_bytes())
    with zipfile.ZipFile(pair[1]) as archive:
        item = archive.getinfo("demo/a.so")
    data[item.header_offset + 30 + len(item.filename) + item.compress_size // 2] ^= 0xFF
    bad = tmp_path / OUTPUT
    bad.write_bytes(data)
    with pytest.raises(WheelError, match=r"demo/a\.so"):
        compare_wheels(pair[0], bad)


def test_the_command(pair: tuple[Path, Path], works: Works, run: Run, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_bytes(member(pair[1], f"{INFO}/relink.json"))
    code, out, _ = run("diff", *pair)
    assert code == 0
    assert out.splitlines()[-1].endswith(
        "2 unchanged; nothing is judged: --prefix DIR or --plan FILE compares with what relink makes of OLD"
    )
    for words, source in (
        (("--prefix", works.prefix), f"made anew for {works.prefix}"),
        (("--plan", plan), "the one that was given"),
    ):
        code, out, _ = run("diff", *pair, *words)
        assert code == 0
        assert out.splitlines()[-1].startswith("made again: equal (6 changed, ")
        assert out.splitlines()[-1].endswith(f"; the plan is {source}")
    code, out, err = run("diff", *pair, "--prefix", works.prefix, "--plan", plan)
    assert (code, out) == (2, "")
    assert "two things to compare with" in err
    code, out, _ = run("diff", *pair, "--json")
    assert (code, json.loads(out)["verdict"]) == (0, "not judged")
    evil = changed(pair[1], tmp_path / "evil", {"evil.pth": b"import evil"})
    code, out, _ = run("diff", pair[0], evil, "--prefix", works.prefix)
    assert code == 1
    assert "unexplained: evil.pth: added" in out.splitlines()
    assert run("diff", pair[0], evil)[0] == 0
    code, out, err = run("diff", pair[0], tmp_path / "none.whl")
    assert (code, out) == (2, "")
    assert err.startswith("relink: ")
    code, _, err = run("diff", *pair, "--limit", "members=2")
    assert code == 2
    assert "the limit is 2" in err


def test_settings_of_a_checkout_judge_nothing(
    pair: tuple[Path, Path], works: Works, run: Run, tmp_path: Path
) -> None:
    """The prefix of a relink.toml is not the user's word for what a wheel should be."""
    (tmp_path / "relink.toml").write_text(f'prefix = ["{works.prefix}"]\n')
    code, out, _ = run("diff", *pair)
    assert code == 0
    assert "nothing is judged" in out
