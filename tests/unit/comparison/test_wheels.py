"""relink diff: what differs between two wheels, and whether the plan says so."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from relink.comparison import diff
from relink.errors import WheelError
from relink.report.diff_text import WheelDiff, to_json, to_text
from tests.support.forking import run as forked
from tests.support.wheels import changed, make_wheel
from tests.support.works import OUTPUT, TAG, Works
from tests.unit.comparison.pairs import INFO


def shown(found: WheelDiff) -> str:
    return "\n".join(line.plain for line in to_text(found))


def test_only_what_the_plan_says(pair: tuple[Path, Path]) -> None:
    found = diff(*pair)
    assert found.unexplained == ()
    assert (found.verdict, found.ok, found.planned) == ("only what the plan says", True, True)
    assert found.renamed == (
        ("demo-1.0.dist-info", INFO),
        ("demo-1.0.data", "demo-1.0+rocm7.2.4.data"),
    )
    assert found.added == (f"{INFO}/relink.json", f"{INFO}/sboms/relink.cdx.json")
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


def test_a_wheel_and_itself(pair: tuple[Path, Path], tmp_path: Path) -> None:
    assert diff(pair[0], pair[0]).verdict == "identical"
    again = changed(pair[0], tmp_path / "again", {}, record=False)
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
    assert not found.ok
    assert not found.planned
    assert (found.added, found.removed) == (("demo/new.py",), ("demo/gone.py",))
    assert found.renamed == (("demo-1.0.dist-info", "demo-2.0.dist-info"),)
    changes = {change.path: change for change in found.changed}
    assert [(item.start, item.stop) for item in changes["demo/x.py"].ranges] == [(4, 7)]
    assert changes["demo/a.so"].elf is not None
    assert "+ NEEDED libnowhere.so.1" in changes["demo/a.so"].elf.dynamic
    text = shown(found)
    assert "the new wheel has no plan that was made for the old one" in text
    assert "unexplained: demo/x.py: changed" in text
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


@pytest.mark.slow(reason="two processes")
def test_the_command(pair: tuple[Path, Path], works: Works, tmp_path: Path) -> None:
    def said(*words: str | Path) -> tuple[int, str, str]:
        run = forked("diff", *words)
        return run.returncode, run.stdout, run.stderr

    code, out, _ = said(*pair)
    last = (
        "only what the plan inside of NEW says (6 changed, 2 added, 0 removed, 2 unchanged); whoever made NEW wrote that plan: "
        "look at what it brings in, or compare with a plan of your own by --plan FILE or --prefix DIR"
    )
    assert (code, out.splitlines()[-1]) == (0, last)
    code, out, _ = said(*pair, "--prefix", str(works.prefix))
    last = "only what the plan says (6 changed, 2 added, 0 removed, 2 unchanged); the plan is made anew for "
    assert (code, out.splitlines()[-1]) == (0, f"{last}{works.prefix}")
    code, out, err = said(*pair, "--prefix", str(works.prefix), "--plan", pair[1])
    assert (code, out) == (2, "")
    assert "two plans to compare with" in err
    code, out, _ = said(*pair, "--json")
    assert code == 0
    assert json.loads(out)["verdict"] == "only what the plan says"
    code, out, _ = said(pair[1], pair[0])
    assert code == 1
    assert "differences that no plan explains" in out
    code, out, err = said(pair[0], tmp_path / "none.whl")
    assert (code, out) == (2, "")
    assert err.startswith("relink: ")
    code, _, err = said(*pair, "--limit", "members=2")
    assert code == 2
    assert "the limit is 2" in err
