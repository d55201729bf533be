"""relink diff: what differs between two wheels, and whether the plan says so."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from relink.report.diff_text import WheelDiff, to_json, to_text
from relink.runs.comparison.reference import Reference
from relink.runs.comparison.wheels import diff
from relink.system.errors import WheelError
from tests.support.command import Run
from tests.support.wheels import changed, make_wheel
from tests.support.works import OUTPUT, TAG, Works
from tests.unit.runs.comparison.pairs import INFO, Pair, flipped, member
from tests.unit.runs.comparison.tampering import Draft


def shown(found: WheelDiff) -> str:
    return "\n".join(line.plain for line in to_text(found))


def test_what_relink_changes(pair: tuple[Path, Path]) -> None:
    """Without anything of the user's to compare with, nothing is judged."""
    found = diff(*pair)
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


def test_each_member_has_its_own(stubbed: Pair, reference: Reference, tmp_path: Path) -> None:
    data = flipped(member(stubbed.new, "demo/a.so"), 9)
    new = changed(stubbed.new, tmp_path, {"demo/a.so": data}, modes={"demo/bin/prog": 0o100777})
    found = diff(stubbed.old, new, reference=reference)
    texts = {change.path: change.unexplained for change in found.changed}
    assert texts["demo/a.so"][0].startswith(
        "bytes 0x9..0xa (the ELF header) are not what relink writes (1 byte)"
    )
    assert texts["demo/bin/prog"] == ("the mode is 100777, relink writes 100755",)
    assert texts[f"{INFO}/METADATA"] == ()
    assert f"demo/bin/prog: {texts['demo/bin/prog'][0]}" in found.unexplained


def test_a_wheel_and_itself(pair: tuple[Path, Path], tmp_path: Path) -> None:
    assert diff(pair[0], pair[0]).verdict == "identical"
    draft = Draft.of(pair[0])
    draft.comment = b"again"
    again = draft.write(tmp_path / "again" / pair[0].name)
    found = diff(pair[0], again)
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
    found = diff(one, two)
    assert (found.ok, found.verdict) == (True, "not judged")
    assert (found.added, found.removed) == (("demo/new.py",), ("demo/gone.py",))
    assert found.renamed == (("demo-1.0.dist-info", "demo-2.0.dist-info"),)
    changes = {change.path: change for change in found.changed}
    assert [(item.start, item.stop) for item in changes["demo/x.py"].ranges] == [(4, 7)]
    assert changes["demo/a.so"].elf is not None
    assert "+ NEEDED libnowhere.so.1" in changes["demo/a.so"].elf.dynamic
    text = shown(found)
    assert "added    demo/new.py" in text
    assert json.loads(json.dumps(to_json(found)))["schema"] == "relink.comparison/1"


def test_unreadable(pair: tuple[Path, Path], tmp_path: Path) -> None:
    broken = tmp_path / pair[0].name
    broken.write_bytes(pair[0].read_bytes()[:-1])
    with pytest.raises(WheelError):
        diff(broken, pair[1])
    data = bytearray(pair[1].read_bytes())
    with zipfile.ZipFile(pair[1]) as archive:
        item = archive.getinfo("demo/a.so")
    data[item.header_offset + 30 + len(item.filename) + item.compress_size // 2] ^= 0xFF
    bad = tmp_path / OUTPUT
    bad.write_bytes(data)
    with pytest.raises(WheelError, match=r"demo/a\.so"):
        diff(pair[0], bad)


def test_more_ranges_than_are_told_apart(tmp_path: Path) -> None:
    data = bytes(3 << 20)
    other = bytearray(data)
    other[::256] = b"x" * len(other[::256])
    one, two = (
        make_wheel(tmp_path / str(len(x)), {"demo/x": bytes(x)}, tag=TAG) for x in (data, other + b"y")
    )
    (change, _) = diff(one, two).changed
    assert (len(change.ranges), change.differing) == (10_000, len(data) // 256 + 1)
    assert change.ranges[-1].stop == len(data) + 1


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
        assert out.splitlines()[-1].startswith("only what the plan says (6 changed, ")
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
