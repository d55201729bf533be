"""additions: what is added to a wheel, and what an earlier run added, when that wheel is relinked again."""

from __future__ import annotations

import json
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from relink.library import relink
from relink.options import Options
from relink.provenance import MEMBERS, read_plan
from relink.queries import inspect, saved_report, verify_wheel
from relink.report.model import Report
from relink.wheel.archive import WheelArchive
from tests.support.elf_builder import SUPPORTED, WHY_NOT
from tests.support.two_prefixes import RCCL, TwoPrefixes, build_two_prefixes

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)

STUB = f"demo.libs/relink-stubs/{RCCL}"


@pytest.fixture
def both(tmp_path: Path) -> TwoPrefixes:
    return build_two_prefixes(tmp_path)


def written(report: Report) -> Path:
    assert report.ok, report.findings
    return Path(report.path or "")


def stubbed(both: TwoPrefixes) -> Path:
    """Relink for the first prefix, with a stub of what it lacks."""
    return written(relink(both.wheel, both.options("stubbed", prefixes=(str(both.first),), stub=(RCCL,))))


def with_plan(wheel: Path, directory: Path, **more: object) -> Path:
    """Write a relinked wheel again with other values in the plan inside of it."""
    directory.mkdir()
    output = directory / wheel.name
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(output, "w") as new:
        for entry in old.infolist():
            data = old.read(entry)
            if entry.filename.endswith("/relink.json"):
                data = json.dumps({**json.loads(data), **more}).encode()
            new.writestr(entry, data)
    return output


@pytest.mark.parametrize("prefixes", ["both", "first with a stub"])
def test_graft_licence_link(both: TwoPrefixes, prefixes: str) -> None:
    """A licence in a prefix that is a link to a private key: no library and no licence of a prefix is copied into an output."""
    key = both.root / "id_ed25519"
    key.write_text("PRIVATE KEY that no output has")
    for path in (f"doc/{RCCL}", "doc/librccl1", "doc/rccl", "licenses/librccl1"):
        for prefix in (both.first, both.second):
            directory = prefix / "share" / path
            directory.mkdir(parents=True)
            for name in ("copyright", "LICENSE", "LICENSE.txt", "COPYING"):
                (directory / name).symlink_to(key)
    more = {"prefixes": (str(both.first),), "stub": (RCCL,)} if "stub" in prefixes else {}
    output = written(relink(both.wheel, both.options("out", **more)))
    with zipfile.ZipFile(both.wheel) as vendor, zipfile.ZipFile(output) as archive:
        info = "demo-1.0.dist-info/"
        names = {name.replace("+rocm7.2.4.dist-info", ".dist-info") for name in archive.namelist()}
        added = names - set(vendor.namelist())
        assert added <= {STUB, *(info + name for name in MEMBERS)}
        assert (STUB in added) == ("stub" in prefixes)
        assert not [name for name in archive.namelist() if b"PRIVATE KEY" in archive.read(name)]
    assert all(b"PRIVATE KEY" not in path.read_bytes() for path in output.parent.rglob("*") if path.is_file())


def test_a_wheel_with_copied_libraries_is_still_read(both: TwoPrefixes) -> None:
    """Before, libraries were copied in: the plan of such a wheel says so in a key that is passed over."""
    copy = {
        "path": "demo.libs/relink-grafts-01234567/libx.so.1",
        "soname": "libx.so.1",
        "licence": {"names": []},
    }
    wheel = with_plan(stubbed(both), both.root / "copied", grafts=[copy])
    with WheelArchive(wheel) as archive:
        plan = read_plan(archive)
    assert plan is not None
    assert [stub.soname for stub in plan.stubs] == [RCCL]
    assert inspect(wheel).name == "demo"
    assert saved_report(wheel)[0].stubs == plan.stubs
    alone = both.root / "relink.json"
    with zipfile.ZipFile(wheel) as opened:
        (name,) = (name for name in opened.namelist() if name.endswith("/relink.json"))
        alone.write_bytes(opened.read(name))
    assert saved_report(alone)[0].stubs == plan.stubs
    assert "RLK101" not in [found.code for found in verify_wheel(wheel, Options()).findings]


def test_a_plan_inside_that_names_other_members_removes_none(both: TwoPrefixes) -> None:
    """Whoever made the wheel wrote its plan: only what lies where relink puts it counts as relink's."""
    output = stubbed(both)
    with zipfile.ZipFile(output) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/relink.json"))
        stubs = json.loads(archive.read(name))["stubs"]
    evil = with_plan(output, both.root / "evil", stubs=[{**stubs[0], "path": "demo/a.so"}])
    shutil.copytree(both.second, both.root / "complete")
    options = both.options("x", prefixes=(str(both.root / "complete"),), dry_run=True)
    report = relink(evil, replace(options, verify_record=False))
    assert "demo/a.so" in {file.path for file in report.files}
