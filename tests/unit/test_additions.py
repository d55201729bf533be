"""additions: what an earlier run added to a wheel, when that wheel is relinked again."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import pytest

from relink.elf.image import read_image
from relink.library import relink
from relink.options import Options
from relink.plans.files import link_facts
from relink.report.model import Report
from tests.support.donors import HELP, HIP, RCCL, Donors, build_donors
from tests.support.elf_builder import SUPPORTED, WHY_NOT
from tests.support.wheels import repacked

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)


@pytest.fixture
def donors(tmp_path: Path) -> Donors:
    return build_donors(tmp_path)


def written(report: Report) -> Path:
    assert report.ok, report.findings
    assert report.output is not None
    return Path(report.output.path)


@pytest.mark.slow(reason="two relinks or more")
def test_relinking_for_another_prefix_forgets_the_copies(donors: Donors) -> None:
    output = written(relink(donors.wheel, donors.options("out")))
    second = donors.root / "complete"
    shutil.copytree(donors.donor, second)
    shutil.copy(donors.prefix / "lib" / HIP, second / "lib" / HIP)
    report = relink(
        repacked(output, donors.root / "repacked"),
        Options(prefixes=(str(second),), output_directory=donors.root / "other"),
    )
    final = written(report)
    assert report.grafts == ()
    with zipfile.ZipFile(final) as archive:
        assert not [name for name in archive.namelist() if "relink-grafts" in name]
    (found,) = (found for found in report.findings if found.code == "RLK144")
    assert (found.level, found.subject) == ("info", output.name)
    # The same as from the vendor's wheel, but for what says where it comes from.
    direct = written(
        relink(donors.wheel, Options(prefixes=(str(second),), output_directory=donors.root / "direct"))
    )
    with zipfile.ZipFile(final) as one, zipfile.ZipFile(direct) as other:
        facts = [link_facts(read_image(wheel.read("demo/a.so"), "a")) for wheel in (one, other)]
    assert facts[0] == facts[1]


@pytest.mark.slow(reason="two relinks")
def test_a_library_that_has_changed_is_copied_anew(donors: Donors) -> None:
    output = written(relink(donors.wheel, donors.options("out")))
    before = zipfile.ZipFile(output).namelist()
    donors.put(HELP, "int collect(void){return 500;}")
    report = relink(output, donors.options("anew"))
    with zipfile.ZipFile(written(report)) as archive:
        names = archive.namelist()
    old = {name for name in before if "relink-grafts-" in name and ".libs/" in name}
    new = {name for name in names if "relink-grafts-" in name and ".libs/" in name}
    assert len(old) == len(new) == 2
    assert not old & new
    twice = relink(written(report), donors.options("twice"))
    assert written(twice).read_bytes() == written(report).read_bytes()


def test_a_plan_inside_that_names_other_members_removes_none(donors: Donors, tmp_path: Path) -> None:
    """Whoever made the wheel wrote its plan: only what lies where relink puts it counts as relink's."""
    output = written(relink(donors.wheel, donors.options("out")))
    evil = tmp_path / "evil" / output.name
    evil.parent.mkdir()
    with zipfile.ZipFile(output) as old, zipfile.ZipFile(evil, "w") as new:
        for item in old.infolist():
            data = old.read(item)
            if item.filename.endswith("/relink.json"):
                plan = json.loads(data)
                plan["grafts"][0]["path"] = "demo/a.so"
                data = json.dumps(plan).encode()
            new.writestr(item, data)
    second = donors.root / "complete"
    shutil.copytree(donors.donor, second)
    shutil.copy(donors.prefix / "lib" / HIP, second / "lib" / HIP)
    report = relink(
        evil,
        Options(prefixes=(str(second),), output_directory=tmp_path / "x", dry_run=True, verify_record=False),
    )
    assert {"demo/a.so"} <= {file.path for file in report.files}
    assert not [found for found in report.findings if found.code == "RLK144"]


def test_what_nothing_misses_any_more_is_left_out(donors: Donors) -> None:
    """The prefix has got the library since: the wheel links to it, under the same options."""
    output = written(relink(donors.wheel, donors.options("out")))
    for name in (RCCL, HELP):
        shutil.copy(donors.donor / "lib" / name, donors.prefix / "lib" / name)
    report = relink(output, donors.options("later", dry_run=True))
    assert report.ok
