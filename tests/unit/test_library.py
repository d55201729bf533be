"""What ``import relink`` offers: seven functions, and a plan that is carried out on another day or refused."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

import relink
from relink.system.errors import UsageError
from tests.support.works import OUTPUT, Works

SLOW = pytest.mark.slow(reason="a process, or runs after every module is imported")

FUNCTIONS = (
    "apply",
    "diff",
    "explain",
    "inspect",
    "plan",
    "relink",
    "relink_tree",
    "verify",
)


def test_the_public_names() -> None:
    for name in relink.__all__:
        assert getattr(relink, name) is not None
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = relink.nothing_like_it


def test_importing_relink_imports_nothing_else() -> None:
    program = "import sys, relink; print(*(name for name in sys.modules if name.startswith('relink')))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["relink"]


@SLOW
def test_no_module_hides_a_function(works: Works, tmp_path: Path) -> None:
    """With every submodule imported, all of them can still be called."""
    for module in pkgutil.walk_packages(relink.__path__, "relink."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in FUNCTIONS:
        assert inspect.isfunction(getattr(relink, name)), name
    wheel = works.small(tmp_path)
    options = works.options(tmp_path / "out")
    made = relink.plan(wheel, options)
    report = relink.relink(wheel, options)
    assert relink.apply(made, output_directory=tmp_path / "applied").ok
    assert report.path is not None
    assert relink.inspect(wheel).name == "demo"
    assert relink.explain(wheel, options)
    verified = relink.verify(report.path, options)
    assert (verified.findings, verified.ok) == ((), True)
    assert relink.diff(wheel, report.path).verdict == "not judged"
    assert relink.diff(wheel, report.path, options).verdict == "only what the plan says"
    assert relink.diff(wheel, report.path, plan=made).ok


def test_a_plan_is_data(works: Works, tmp_path: Path) -> None:
    made = relink.plan(str(works.small(tmp_path)), works.options(tmp_path))
    (need,) = (need for file in made.files for need in file.needed if need.soname == "libhip.so.7")
    assert (need.resolved, need.found_by) == (f"{works.prefix}/lib/libhip.so.7", need.found_by)
    assert made.ok
    made.save(tmp_path / "plan.json")
    again = relink.Plan.load(tmp_path / "plan.json")
    assert again.basis is not None
    assert all(library.sha256 for library in again.basis.libraries)
    assert replace(again, basis=None) == replace(made, basis=None)


@SLOW
def test_a_saved_plan_is_applied_by_another_process(works: Works, tmp_path: Path) -> None:
    wheel = works.small(tmp_path)
    expected = relink.relink(wheel, works.options(tmp_path / "expected"))
    relink.plan(wheel, works.options(tmp_path)).save(tmp_path / "plan.json")
    program = (
        "import relink, sys\n"
        "plan = relink.Plan.load(sys.argv[1])\n"
        "print(relink.apply(plan, output_directory=sys.argv[2]).path)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "plan.json"), str(tmp_path / "applied")]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == str(tmp_path / "applied" / OUTPUT)
    assert expected.path is not None
    assert (tmp_path / "applied" / OUTPUT).read_bytes() == Path(expected.path).read_bytes()


def copied(works: Works, tmp_path: Path) -> tuple[Path, str]:
    """A prefix of one's own, and the library of it that the small wheel needs."""
    prefix = tmp_path / "prefix"
    subprocess.run(["cp", "-r", str(works.prefix), str(prefix)], check=True)
    return prefix, str(prefix / "lib" / "libhip.so.7")


@pytest.mark.parametrize("saved", [False, True])
def test_a_changed_symbol_is_refused(works: Works, tmp_path: Path, saved: bool) -> None:
    prefix, library = copied(works, tmp_path)
    wheel = works.small(tmp_path)
    made = relink.plan(wheel, dataclasses.replace(works.options(tmp_path), prefixes=(str(prefix),)))
    if saved:
        made.save(tmp_path / "plan.json")
        made = relink.Plan.load(tmp_path / "plan.json")
    content = Path(library).read_bytes()
    at = content.index(b"\0hip\0")  # in .dynstr
    Path(library).write_bytes(content[: at + 1] + b"hop" + content[at + 4 :])
    with pytest.raises(UsageError, match="does not hold any more") as caught:
        relink.apply(made, output_directory=tmp_path / "out")
    assert caught.value.issues == (f"{library} is not the file that the plan was made with",)
    assert not (tmp_path / "out").exists()


def test_any_byte_of_a_library_counts_where_the_plan_was_saved(works: Works, tmp_path: Path) -> None:
    prefix, library = copied(works, tmp_path)
    made = relink.plan(
        works.small(tmp_path), dataclasses.replace(works.options(tmp_path), prefixes=(str(prefix),))
    )
    made.save(tmp_path / "plan.json")
    content = bytearray(Path(library).read_bytes())
    content[-1] ^= 1  # of the section headers, which linking does not read
    Path(library).write_bytes(content)
    assert relink.apply(made, output_directory=tmp_path / "out").ok
    with pytest.raises(UsageError, match="does not hold any more"):
        relink.apply(relink.Plan.load(tmp_path / "plan.json"), output_directory=tmp_path / "other")


def test_another_wheel_is_refused(works: Works, tmp_path: Path) -> None:
    made = relink.plan(works.small(tmp_path / "a"), works.options(tmp_path))
    other = works.wheel(tmp_path / "b")
    with pytest.raises(UsageError) as caught:
        relink.apply(made, wheel=other, output_directory=tmp_path / "out")
    assert caught.value.issues == (f"{other} is not the wheel that the plan was made from",)
    without = replace(made, basis=None)
    with pytest.raises(UsageError, match="pass the wheel's path"):
        relink.apply(without)


def test_a_plan_with_errors_is_refused(works: Works, tmp_path: Path) -> None:
    (tmp_path / "empty" / "lib").mkdir(parents=True)
    options = dataclasses.replace(works.options(tmp_path), prefixes=(str(works.prefix),), allow_missing=[])
    made = relink.plan(works.small(tmp_path), options)
    bad = replace(made, findings=(replace(made.findings[0], level="error"),) if made.findings else ())
    if not bad.findings:
        pytest.fail("the small wheel gives no finding")
    with pytest.raises(UsageError, match="a finding of the plan is an error"):
        relink.apply(bad)


def test_the_plan_in_a_wheel_names_no_place_of_this_machine(works: Works, tmp_path: Path) -> None:
    made = relink.plan(works.small(tmp_path), works.options(tmp_path))
    report = relink.apply(made, output_directory=tmp_path / "out")
    assert report.path is not None
    unpacked = subprocess.run(
        [sys.executable, "-m", "zipfile", "-e", report.path, str(tmp_path / "unpacked")], check=True
    )
    assert unpacked.returncode == 0
    (embedded,) = (tmp_path / "unpacked").rglob("relink.json")
    assert json.loads(embedded.read_text())["basis"] is None
    assert os.fspath(tmp_path / "demo") not in embedded.read_text()
