"""relinked_input: a relinked wheel is done for this ROCm already, or the vendor's wheel is asked for; its plan is a claim."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import relink
from relink import Options
from relink.planning.model import read_plan
from relink.report.html import html_page
from relink.report.summary import verdict
from relink.runs.questions import nix_package, read_report
from relink.system.errors import RelinkError, UsageError
from relink.wheel.archive import WheelArchive
from tests.support.cc import shared
from tests.support.command import Run
from tests.support.old_wheels import INFO, with_delta, with_plan
from tests.support.wheels import changed
from tests.support.works import TAG, Works

OLD_PLAN = Path(__file__).parents[1] / "planning" / "relink-0.1.0.json"
WRITTEN = Path(__file__).parent / "written_by_0_2_0"
"""A vendor's wheel, and what release 0.2.0 made of it for a prefix that is not there any more."""
ANY = "py3-none-manylinux_2_34_x86_64.whl"
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


def test_the_sentence_names_the_vendors_wheel(pair: tuple[Path, Path], works: Works, tmp_path: Path) -> None:
    """For any prefix, also the one that the wheel was relinked for; and for all that makes or carries out a plan."""
    vendor, relinked = pair
    sentence = (
        f"{relinked.name} was relinked from {vendor.name} (SHA-256 {digest(vendor)}); relink that one, which "
        "`relink fetch demo==1.0` fetches where an index has it"
    )
    for prefix in (works.prefix, prefix_of(pair)):
        assert refused(relinked, options_of(prefix, tmp_path / "out")) == sentence
    plan = relink.plan(vendor, options_of(works.prefix, tmp_path))
    for attempt in (
        lambda: relink.plan(relinked, options_of(works.prefix, tmp_path)),
        lambda: relink.apply(plan, wheel=relinked, output_directory=tmp_path / "out"),
        lambda: nix_package(relinked, Options()),
    ):
        with pytest.raises(UsageError) as caught:
            attempt()
        assert caught.value.message == sentence


def test_an_unpacked_one_is_refused_as_well(pair: tuple[Path, Path], tmp_path: Path) -> None:
    """As the hook for Nix has it: a directory of installed packages."""
    with zipfile.ZipFile(pair[1]) as archive:
        archive.extractall(tmp_path / "site")
    with pytest.raises(
        UsageError, match=f"relink.json was relinked from {re.escape(pair[0].name)}"
    ) as caught:
        relink.relink_tree(tmp_path / "site", options_of(prefix_of(pair), tmp_path / "new"))
    assert digest(pair[0]) in caught.value.message
    assert not (tmp_path / "new").exists()


def test_the_exit_code_is_that_of_wrong_usage(pair: tuple[Path, Path], run: Run, tmp_path: Path) -> None:
    for words in (
        ("--prefix", prefix_of(pair), "-o", tmp_path / "out"),
        ("--prefix", prefix_of(pair), "--dry-run"),
    ):
        code, out, err = run(pair[1], *words)
        assert (code, out) == (2, "")
        assert "relink fetch demo==1.0" in err
    code, _, err = run("nix", pair[1], "-o", tmp_path / "out")
    assert code == 2
    assert "relink fetch demo==1.0" in err


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
    assert f"{forged.name} was relinked, but not from " in message
    assert "pip" not in message
    assert len(message) < 1000


@pytest.mark.parametrize("plan", [b"", b"{}", b"[1]", b'{"schema": "relink.plan/9"}', b"\xff"])
def test_a_plan_that_is_none(pair: tuple[Path, Path], tmp_path: Path, plan: bytes) -> None:
    forged = changed(pair[1], tmp_path / "forged", {f"{INFO}/relink.json": plan})
    with pytest.raises(RelinkError):
        relink.relink(forged, options_of(prefix_of(pair), tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_what_the_plan_in_it_says_is_quoted_in_part(pair: tuple[Path, Path], tmp_path: Path) -> None:
    forged = with_plan(pair[1], tmp_path / "forged", _is(path="x" * 1_000_000, sha256="y" * 1_000_000))
    message = refused(forged, options_of(prefix_of(pair), tmp_path / "out"))
    assert "but not from 'xxx" in message
    assert len(message) < 1000


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


@pytest.mark.few(1, reason="the same of other values")
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
        assert read_plan(archive) is not None
        assert (f"{INFO}/relink.delta" in archive.members) == (shape != "0.1.0")
    assert plan is not None
    assert plan.wheel.sha256 == digest(vendor)
    assert not [found for found in relink.inspect(old).findings if found.level == "error"]
    found = relink.verify(old)
    assert not [item for item in found.findings if item.level == "error"]
    assert {"demo/a.so"} == {*found.maps}
    report, is_plan = read_report(old)
    assert not is_plan
    assert report.wheel.sha256 == digest(vendor)
    assert f"{INFO}/relink.json" in relink.diff(vendor, old).added
    message = refused(old, options_of(prefix_of(pair), tmp_path / "out"))
    assert digest(vendor) in message


@pytest.mark.slow(reason="an installation and nine commands")
def test_an_environment_that_0_2_0_made(
    run: Run, works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its wheel is installed by pip and read by every command that changes nothing; --undo puts the vendor's files back."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    vendor, relinked = WRITTEN / f"demo-1.0-{ANY}", WRITTEN / "demo-1.0+relinked-py3-none-linux_x86_64.whl"
    python = tmp_path / "env/bin/python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    pip = [
        sys.executable,
        "-m",
        "pip",
        f"--python={python}",
        "install",
        "--no-deps",
        "--no-index",
        str(relinked),
    ]
    subprocess.run(pip, check=True, capture_output=True)
    for words, expected, text in (
        (("inspect", relinked), 0, "demo 1.0+relinked"),
        (("isa", relinked), 0, "no library with GPU code"),
        (("explain", relinked, "--prefix", works.prefix), 0, "libhip.so.7"),
        (("verify", relinked), 1, "RLK101 libhip.so.7"),
        (("diff", vendor, relinked), 0, "relink.json"),
        # Nothing of the package imports the library, so nobody is known to miss it.
        (("check", "--python", python), 0, "Works: 1 package with native code"),
        (("report", relinked, "-o", tmp_path / "page.html"), 0, "page.html"),
        ((relinked, "--prefix", tmp_path), 2, digest(vendor)),
        (("repair", "demo", "--undo", "--python", python, "--wheel", vendor), 0, "demo 1.0 is installed in"),
    ):
        code, out, err = run(*words)
        assert (code, text in " ".join((out + err).split())) == (expected, True), (words, out, err)
    (site,) = (tmp_path / "env/lib").glob("python3*/site-packages")
    with zipfile.ZipFile(vendor) as archive:
        assert (site / "demo/a.so").read_bytes() == archive.read("demo/a.so")


def test_the_page_of_a_relinked_wheel_has_a_verdict_and_gpu_code(pair: tuple[Path, Path]) -> None:
    """What the loader makes of it now is asked; a wheel for a loader that is not here has its plan only."""
    report, is_plan = read_report(pair[1])
    assert not is_plan
    assert verdict(report).text.startswith("Loads; checked by ld.so for 1 file")
    assert verdict(report).commands == (f"pip install {pair[1]}",)
    assert [file["path"] for file in (report.isa or {})["files"]] == ["demo/a.so"]
    page = html_page(report, plan=is_plan)
    assert "Loads; checked by ld.so" in page
    assert "GPU code" in page
    with pytest.raises(UsageError) as refused:
        read_report(pair[0])
    assert f"`relink {pair[0]} --report FILE.html`" in refused.value.message


# The attack


@pytest.mark.few(1, reason="the same of other values")
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
        refused(forged, options_of(prefix, out, verify_record=False))


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


@pytest.mark.slow(reason="a whole run and a check")
def test_verify_names_the_vendors_wheel_to_relink(works: Works, run: Run, tmp_path: Path) -> None:
    """A wheel that relink wrote is not relinked again."""
    shutil.copytree(works.prefix, tmp_path / "rocm")
    vendor = works.small(tmp_path / "vendor")
    report = relink.relink(vendor, options_of(tmp_path / "rocm", tmp_path / "out"))
    shutil.rmtree(tmp_path / "rocm")
    code, out, _ = run("verify", report.path or "")
    assert code == 1
    last = out.splitlines()[-1]
    assert last == f"Next: relink {vendor.name} for a prefix that has libhip.so.7 (--prefix DIR)"
