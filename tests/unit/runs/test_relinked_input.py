"""relinked_input: a relinked wheel is done for this ROCm already, or the vendor's wheel is asked for; its plan is a claim."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import relink
from relink import Options
from relink.cli import main
from relink.loader.target import find_target
from relink.make.added_members import read_plan
from relink.report.html import html_page
from relink.report.summary import verdict
from relink.runs.questions import saved_report
from relink.runs.relinked_input import is_relinked
from relink.system.errors import RelinkError, UsageError
from relink.wheel.archive import WheelArchive
from tests.support.cc import shared
from tests.support.old_wheels import INFO, with_delta, with_plan
from tests.support.rocm_sdk import build, tiny_prefix, unpack
from tests.support.wheels import changed, make_wheel
from tests.support.works import TAG, Works

OLD_PLAN = Path(__file__).parents[1] / "planning" / "model" / "relink-0.1.0.json"
OTHER = "extern int hip(void); int g(void){return 99 + hip();}"


@pytest.fixture(scope="module")
def pair(works: Works, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A vendor's wheel, and that relinked. The prefix is a copy, which a test may change and put back."""
    place = tmp_path_factory.mktemp("relinked")
    shutil.copytree(works.prefix, place / "rocm")
    vendor = works.small(place / "vendor")
    report = relink.relink(vendor, options_of(place / "rocm", place / "out"))
    return vendor, Path(report.path or "")


def options_of(prefix: Path, output: Path, **more: Any) -> Options:
    return Options(prefixes=(str(prefix),), output_directory=output, **more)


def prefix_of(pair: tuple[Path, Path]) -> Path:
    return pair[1].parent.parent / "rocm"


def refused(wheel: Path, options: Options) -> str:
    """The message with which a wheel is refused; nothing is written."""
    with pytest.raises(UsageError) as caught:
        relink.relink(wheel, options)
    assert not options.output_place.exists()
    return caught.value.message


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_what_is_done_already(
    pair: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main([str(pair[1]), "--prefix", str(prefix_of(pair)), "-o", str(tmp_path / "out")])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    assert "Already relinked for this ROCm: nothing was written" in out
    assert "Next:" not in out
    assert not (tmp_path / "out").exists()
    assert relink.plan(pair[1], options_of(prefix_of(pair), tmp_path)).empty


def test_the_sentence_names_the_vendors_wheel(pair: tuple[Path, Path], works: Works, tmp_path: Path) -> None:
    """For another prefix."""
    vendor, relinked = pair
    message = refused(relinked, options_of(works.prefix, tmp_path / "out"))
    assert message.startswith(
        f"{relinked.name} was relinked from {vendor.name} (demo 1.0, SHA-256 {digest(vendor)}), for "
    )
    assert f"for {prefix_of(pair)}: relink that one" in message
    assert message.endswith("which `relink fetch demo==1.0` fetches where an index has it")
    assert "\n" not in message


@pytest.mark.slow(reason="a stand-in of pip's ROCm, and three plans")
def test_pips_rocm_in_another_environment_is_the_same(tmp_path: Path) -> None:
    """Search paths to it begin with $ORIGIN, so the result is for each environment that has the same packages."""
    prefix = tiny_prefix(tmp_path / "rocm")
    source = "extern int hipblasSgemm(void); int answer(void){return hipblasSgemm() + 1;}"
    member = shared(tmp_path / "a.so", source, needed=[prefix / "lib" / "libhipblas.so.3"])
    vendor = make_wheel(tmp_path, {"demo/__init__.py": b"", "demo/a.so": member}, tag=TAG)
    packages = build(prefix, tmp_path)
    sites = [tmp_path / name / "lib/python3/site-packages" for name in ("one", "two")]
    for site in sites:
        unpack(packages, site)
    made = Path(relink.relink(vendor, options_of(sites[0], tmp_path / "made")).path or "")
    for site in sites:
        assert relink.relink(made, options_of(site, tmp_path / "again")).output is None
    assert ", for $SITE: " in refused(made, options_of(prefix, tmp_path / "other"))


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"local_version": "mine"}, "with other options (none)"),
        ({"allow_missing": ("libx.so.1",)}, "with other options (none)"),
        ({"stub": ("auto",)}, "with other options (none)"),
        ({"preload_known": False}, "with other options (none)"),
        ({"requires": True}, "with other options (none)"),
        ({"interpreter": find_target().interpreter}, "for another loader or Python"),
    ],
)
def test_what_was_asked_for_was_something_else(
    pair: tuple[Path, Path], tmp_path: Path, more: Mapping[str, Any], reason: str
) -> None:
    assert f", {reason}: " in refused(pair[1], options_of(prefix_of(pair), tmp_path / "out", **more))


def test_a_library_of_the_prefix_has_changed(pair: tuple[Path, Path], tmp_path: Path) -> None:
    """Its digest tells, although the wheel still loads; so does a library that is gone, which is an error besides."""
    prefix = prefix_of(pair)
    library = prefix / "lib/libdeep.so.1"
    kept = library.read_bytes()
    try:
        shared(library, "int deep(void){return 40;} int deeper(void){return 1;}")
        assert ", and its ROCm has changed since: " in refused(pair[1], options_of(prefix, tmp_path / "out"))
    finally:
        library.write_bytes(kept)
    assert relink.relink(pair[1], options_of(prefix, tmp_path / "out")).ok


def test_errors_of_the_plan_in_it_count_as_nothing(
    pair: tuple[Path, Path], works: Works, tmp_path: Path
) -> None:
    """A wheel that does not load says of itself that it does: by the digests, and by a finding that allows what is missing."""
    lost = works.wheel(tmp_path / "lost", {"demo/__init__.py": b"", "demo/a.so": works.lost})
    report = relink.relink(lost, options_of(prefix_of(pair), tmp_path / "made", force=True))
    allowed = {"code": "RLK102", "level": "info", "subject": "libnowhere.so.1", "message": "", "remedy": ""}

    def forge(plan: dict[str, Any]) -> None:
        plan["findings"] = [allowed]

    forged = with_plan(Path(report.path or ""), tmp_path / "forged", forge)
    message = refused(forged, options_of(prefix_of(pair), tmp_path / "out"))
    assert ", and has errors now (RLK101 libnowhere.so.1): " in message


def test_files_that_are_not_those_that_were_written(pair: tuple[Path, Path], tmp_path: Path) -> None:
    """The vendor's file under the relinked name: it would have to be edited."""
    with zipfile.ZipFile(pair[0]) as archive:
        vendor = archive.read("demo/a.so")
    forged = changed(pair[1], tmp_path / "forged", {"demo/a.so": vendor})
    message = refused(forged, options_of(prefix_of(pair), tmp_path / "out"))
    assert re.search("would change once more|has errors now|has changed since", message)


def _is(**facts: str) -> Any:
    return lambda plan: plan["wheel"].update(facts)


@pytest.mark.parametrize(
    "edit",
    [
        _is(path=f"other-1.0-{TAG}.whl"),
        _is(path=f"demo-9.9-{TAG}.whl"),
        _is(path="demo; rm -r ~"),
        _is(path=""),
        _is(sha256="0" * 63),
        _is(sha256="g" * 64),
        _is(path=f"demo-1.0-{'.'.join('abcdefgh' * 20000)}.whl", sha256="0" * 1_000_000),
    ],
)
def test_a_plan_that_names_another_wheel(
    pair: tuple[Path, Path], works: Works, tmp_path: Path, edit: Any
) -> None:
    """No command is offered that fetches another package."""
    forged = with_plan(pair[1], tmp_path / "forged", edit)
    message = refused(forged, options_of(works.prefix, tmp_path / "out"))
    assert f"{forged.name} cannot be made of " in message
    assert "pip" not in message
    assert len(message) < 1000


@pytest.mark.parametrize("plan", [b"", b"{}", b"[1]", b'{"schema": "relink.plan/9"}', b"\xff"])
def test_a_plan_that_is_none(pair: tuple[Path, Path], tmp_path: Path, plan: bytes) -> None:
    forged = changed(pair[1], tmp_path / "forged", {f"{INFO}/relink.json": plan})
    with pytest.raises(RelinkError):
        relink.relink(forged, options_of(prefix_of(pair), tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_what_the_plan_in_it_says_is_quoted_in_part(pair: tuple[Path, Path], tmp_path: Path) -> None:
    forged = with_plan(
        pair[1], tmp_path / "forged", lambda plan: plan.update(options=["--stub", "x" * 1_000_000])
    )
    message = refused(forged, options_of(prefix_of(pair), tmp_path / "out"))
    assert ", with other options (--stub xxx" in message
    assert len(message) < 1500


# What earlier releases wrote


def _as_0_1_0(plan: dict[str, Any]) -> None:
    """Leave out the keys that a plan of 0.1.0 does not have."""

    def only(value: Any, model: Any) -> Any:
        if isinstance(value, dict) and isinstance(model, dict):
            return {key: only(item, model[key]) for key, item in value.items() if key in model}
        if isinstance(value, list) and isinstance(model, list) and model:
            return [only(item, model[0]) for item in value]
        return value

    old = only(plan, json.loads(OLD_PLAN.read_text()))
    plan.clear()
    plan.update(old)


def _as_before_delta_went(plan: dict[str, Any]) -> None:
    del plan["providers"][0]["digest"]
    plan |= {
        "grafts": [],
        "kept": ["demo.libs/relink-stubs/liba.so.1"],
        "dropped": ["demo/x"],
        "forgotten": ["X: y"],
    }


@pytest.mark.parametrize("shape", ["0.1.0", "with relink.delta"])
def test_what_earlier_releases_wrote_is_read(pair: tuple[Path, Path], tmp_path: Path, shape: str) -> None:
    vendor = pair[0]
    if shape == "0.1.0":
        old = with_plan(pair[1], tmp_path / "old", _as_0_1_0)
    else:
        old = with_plan(pair[1], tmp_path / "plan", _as_before_delta_went)
        old = with_delta(old, tmp_path / "old", vendor.read_bytes())
    with WheelArchive(old) as archive:
        plan = read_plan(archive)
        assert is_relinked(archive)
        assert (f"{INFO}/relink.delta" in archive.members) == (shape != "0.1.0")
    assert plan is not None
    assert plan.wheel.sha256 == digest(vendor)
    assert not [found for found in relink.inspect(old).findings if found.level == "error"]
    found = relink.verify(old)
    assert not [item for item in found.findings if item.level == "error"]
    assert {"demo/a.so"} == {*found.maps}
    report, is_plan = saved_report(old)
    assert not is_plan
    assert report.wheel.sha256 == digest(vendor)
    assert f"{INFO}/relink.json" in relink.diff(vendor, old).added
    message = refused(old, options_of(prefix_of(pair), tmp_path / "out"))
    assert ", by a relink that noted no digest of its ROCm: " in message
    assert digest(vendor) in message


def test_the_page_of_a_relinked_wheel_has_a_verdict_and_gpu_code(pair: tuple[Path, Path]) -> None:
    """What the loader makes of it now is asked; a wheel for a loader that is not here has its plan only."""
    report, is_plan = saved_report(pair[1])
    assert not is_plan
    assert verdict(report).text.startswith("Loads; checked by ld.so for 1 file")
    assert verdict(report).commands == (f"pip install {pair[1]}",)
    assert [file["path"] for file in (report.isa or {})["files"]] == ["demo/a.so"]
    page = html_page(report, plan=is_plan)
    assert "Loads; checked by ld.so" in page
    assert "GPU code" in page


# The attack


@pytest.mark.parametrize("version", ["9.9", "1.0"])
def test_delta_other_content(pair: tuple[Path, Path], works: Works, tmp_path: Path, version: str) -> None:
    """delta-other-content: a relinked wheel that pip, inspect and verify see as 1.0 has other code in its delta.

    The release that had deltas wrote that code: of 9.9, exit 0.
    """
    other = shared(tmp_path / "a.so", OTHER, needed=[works.prefix / "lib/libhip.so.7"])
    evil = works.wheel(tmp_path / "evil", {"demo/__init__.py": b"evil = 1", "demo/a.so": other})
    if version != "1.0":
        evil = _renamed(evil, version)
    facts = {"path": evil.name, "sha256": digest(evil), "version": version}
    planned = with_plan(pair[1], tmp_path / "planned", lambda plan: plan["wheel"].update(facts))
    forged = with_delta(planned, tmp_path / "forged", evil.read_bytes())
    assert relink.inspect(forged).version == "1.0+rocm7.2.4"
    assert not relink.verify(forged).findings
    with zipfile.ZipFile(forged) as archive:
        assert archive.read(f"{INFO}/relink.delta").endswith(evil.read_bytes())
    for prefix in (works.prefix, prefix_of(pair)):
        out = tmp_path / "out" / prefix.parent.name
        options = options_of(prefix, out, verify_record=False)
        if prefix == works.prefix:
            refused(forged, options)
        else:  # its own files are those that relink wrote, and nothing is done
            report = relink.relink(forged, options)
            assert (report.output, report.wheel.version) == (None, "1.0+rocm7.2.4")
            assert b"".join(file.path.encode() for file in report.files) == b"demo/a.so"
            assert not out.exists()


def _renamed(wheel: Path, version: str) -> Path:
    """The wheel as one of another version."""
    path = wheel.with_name(wheel.name.replace("-1.0-", f"-{version}-"))
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(path, "w") as new:
        for entry in old.infolist():
            data = old.read(entry).replace(b"demo-1.0.", f"demo-{version}.".encode())
            entry.filename = entry.filename.replace("demo-1.0.", f"demo-{version}.")
            if entry.filename.endswith("/METADATA"):
                data = data.replace(b"Version: 1.0", f"Version: {version}".encode())
            new.writestr(entry.filename, data)
    with zipfile.ZipFile(path) as archive:
        contents: dict[str, bytes | None] = {name: archive.read(name) for name in archive.namelist()}
    return changed(path, wheel.parent / version, contents)
