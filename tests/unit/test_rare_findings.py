"""Findings that no other test has a case for, each from compiled libraries or a whole wheel."""

from __future__ import annotations

import os
import shutil
import sys
import zipfile
from pathlib import Path

import pytest
from msgspec.structs import replace

from relink.loader.target import find_target
from relink.planning.options import Options
from relink.planning.resolve.decide import decide
from relink.runs.questions import inspect, nix_package
from relink.system.findings.model import Finding, causes
from tests.support.cc import cc, shared
from tests.support.wheels import changed, make_wheel
from tests.support.works import MACHINE, PYTHON_TAG, Works
from tests.unit.planning.resolve.scenes import Scene

USES_F = "extern int f(void); int g(void){return f();}"


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def only(findings: tuple[Finding, ...], code: str) -> Finding:
    (found,) = (found for found in findings if found.code == code)
    return found


def test_a_prefix_with_a_part_of_another_c_library(scene: Scene) -> None:
    """The directory that serves libhip.so.1 would serve libanl.so.1, too."""
    own = Path(find_target().libc_directory) / "libanl.so.1"
    scene.provide("lib/libhip.so.1")
    shutil.copy(own, scene.prefix / "lib")
    scene.member("demo/a.so", ["libhip.so.1", "libanl.so.1"], USES_F)
    found = only(scene.decide().findings, "RLK107")
    assert (found.level, found.subject) == ("error", "libanl.so.1")
    assert f"served by {scene.prefix}/lib/libanl.so.1" in found.message
    assert str(own.parent) in found.message


def test_a_python_and_a_loader_that_do_not_belong_together(scene: Scene) -> None:
    """The Python's own C library is another loader's: one cause, and what that C library lacks follows from it."""
    target = find_target()
    other = scene.root / "other"
    other.mkdir()
    for name in ("libc.so.6", Path(target.interpreter).name):
        shutil.copy(Path(target.libc_directory) / name, other)
    stub = shared(
        scene.root / "newer" / "libc.so.6",
        "int newer(void){return 1;}",
        flags=[scene.versions("GLIBC_9.99:newer")],
    )
    shared(
        scene.prefix / "lib" / "libhip.so.1",
        "extern int newer(void); int f(void){return newer();}",
        needed=[stub],
    )
    scene.member("demo/a.so", ["libhip.so.1", "libc.so.6"], USES_F)
    target = replace(
        target,
        interpreter=str(other / Path(target.interpreter).name),
        python=os.path.realpath(sys.executable),
    )
    findings = decide(replace(scene.context(), target=target)).findings
    errors = [found for found in findings if found.level == "error"]
    assert {found.code for found in errors} == {"RLK107", "RLK301", "RLK302"}
    (cause,) = causes(errors)
    assert cause.code == "RLK107"
    assert f"{target.python}, run by {target.interpreter}, maps " in cause.message
    assert f"not the C library of that loader, which is in {other}" in cause.message
    assert "without --interpreter the loader is that Python's own" in cause.remedy


def test_what_python_has_loaded_shadows_the_prefix(scene: Scene) -> None:
    scene.provide("lib/libtool.so.1")
    own = scene.library(scene.root / "own" / "libtool.so.1", source="int f(void){return 3;}")
    program = "extern int f(void); int main(void){return f();}"
    python = cc(program, scene.root / "python", f"-Wl,-rpath,{own.parent}", needed=[own])
    scene.member("demo/a.so", ["libtool.so.1"], USES_F)
    context = replace(scene.context(), target=replace(find_target(), python=str(python)))
    found = only(decide(context).findings, "RLK108")
    assert (found.level, found.subject) == ("warning", "libtool.so.1")
    assert f"served by {own}, although the prefix has {scene.prefix}/lib/libtool.so.1" in found.message


def test_an_older_library_of_pythons_own_environment(scene: Scene) -> None:
    """A Python of conda maps its own libstdc++.so.6; another loader changes nothing about that."""
    old, new = (f"int f(void){{return {number};}}" for number in range(2))
    own = scene.library(
        scene.root / "conda" / "lib" / "libtool.so.1", source=old, flags=[scene.versions("T_1:f")]
    )
    newer = scene.library(scene.root / "new" / "libtool.so.1", source=new, flags=[scene.versions("T_2:f")])
    program = "extern int f(void); int main(void){return f();}"
    scene.provide("lib/libhip.so.1")
    (scene.root / "conda" / "bin").mkdir()
    python = cc(program, scene.root / "conda" / "bin" / "python", f"-Wl,-rpath,{own.parent}", needed=[own])
    scene.member("demo/a.so", [], USES_F, flags=[str(newer)])
    context = replace(scene.context(), target=replace(find_target(), python=str(python)))
    found = only(decide(context).findings, "RLK301")
    assert f"{scene.root}/conda has its own libtool.so.1: install one there" in found.remedy


def test_a_library_of_the_system(scene: Scene) -> None:
    scene.provide("lib/libhip.so.1")
    system = scene.library(scene.root / "system" / "libtool.so.1", source="int f(void){return 3;}").parent
    scene.member("demo/a.so", ["libtool.so.1"], USES_F)
    target = find_target()
    target = replace(target, directories=(*target.directories, str(system)))
    found = only(decide(replace(scene.context(), target=target)).findings, "RLK110")
    assert (found.level, found.subject) == ("info", "libtool.so.1")
    assert str(system) in found.message


def test_a_copy_that_no_search_path_avoids(scene: Scene) -> None:
    """The loader looks into the subdirectory for this processor first."""
    subdirectory = next(
        (name for name in find_target().subdirectories if name.startswith("glibc-hwcaps/")), None
    )
    if subdirectory is None:
        pytest.skip("this processor has no glibc-hwcaps")
    scene.provide("lib/libhip.so.1")
    other = scene.library(
        scene.prefix / "lib" / subdirectory / "libhip.so.1", source="int f(void){return 3;}"
    )
    scene.member("demo/a.so", ["libhip.so.1"], USES_F)
    found = only(scene.decide().findings, "RLK111")
    assert (found.level, found.subject) == ("error", "libhip.so.1")
    assert f"served by {other}" in found.message


def _appended(wheel: Path, name: str) -> Path:
    """Put a member into a wheel that its RECORD does not list."""
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr(name, "x")
    return wheel


def test_a_file_that_record_does_not_list(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, {"demo/__init__.py": b""}, tag="py3-none-any")
    found = only(inspect(_appended(wheel, "demo/extra.py")).findings, "RLK502")
    assert found.level == "error"
    assert "demo/extra.py" in found.message


def test_a_record_of_another_version(tmp_path: Path) -> None:
    """A tool renamed *.dist-info and left RECORD: one line has two fields, one file has another hash, others another name."""
    lines = "demo/__init__.py,,\ndemo-0.9.dist-info/METADATA,sha256=00\ndemo-0.9.dist-info/WHEEL,,1\n"
    lines += f"demo-1.0.dist-info/WHEEL,sha256={'A' * 43},\n"
    edits = {"demo-1.0.dist-info/RECORD": lines.encode()}
    made = make_wheel(tmp_path, {"demo/__init__.py": b""}, tag="py3-none-any")
    wheel = changed(made, tmp_path / "renamed", edits, record=False)
    found = only(inspect(wheel).findings, "RLK502")
    assert found.level == "warning"
    for part in (
        "4 lines about *.dist-info are stale: line 2: 2 fields instead of 3",
        "demo-0.9.dist-info/WHEEL is listed and not in the wheel",
        "demo-1.0.dist-info/METADATA is in the wheel and not listed",
        "demo-1.0.dist-info/WHEEL is not the file that RECORD lists",
    ):
        assert part in found.message
    more = changed(wheel, tmp_path / "more", {"demo/extra.py": b"x"}, record=False)
    errors = [item for item in inspect(more).findings if item.level == "error"]
    assert ["demo/extra.py" in item.message for item in errors] == [
        True
    ]  # what is no metadata stays an error


def test_a_signature(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, {"demo/__init__.py": b""}, tag="py3-none-any")
    found = only(inspect(_appended(wheel, "demo-1.0.dist-info/RECORD.jws")).findings, "RLK503")
    assert (found.level, found.subject) == ("info", "demo-1.0.dist-info/RECORD.jws")


def test_a_tag_that_promises_too_much(works: Works, tmp_path: Path) -> None:
    tag = f"{PYTHON_TAG}-{PYTHON_TAG}-manylinux_2_17_{MACHINE}"
    wheel = works.wheel(tmp_path, {"demo/bin/prog": works.program}, tag=tag)
    found = only(inspect(wheel).findings, "RLK504")
    assert (found.level, found.subject) == ("info", wheel.name)
    assert f"manylinux_2_17_{MACHINE}" in found.message


def test_metadata_of_another_wheel(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, {"demo/__init__.py": b""}, tag="py3-none-any")
    content = wheel.read_bytes().replace(b"demo-1.0.dist-info", b"demo-2.0.dist-info")
    renamed = tmp_path / wheel.name.replace("1.0", "2.0")
    renamed.write_bytes(content)
    found = next(found for found in inspect(renamed).findings if found.code == "RLK509")
    assert found.level == "error"
    assert "1.0" in found.message


@pytest.fixture
def from_table(scene: Scene, tmp_path: Path) -> tuple[Finding, ...]:
    """What is said of a package for Nix."""
    files: dict[str, bytes | Path] = {
        "demo/a.so": scene.member("demo/a.so", ["librocblas.so.4", "libunheard.so.1"]),
    }
    requires = ("nowhere", "packaging")
    wheel = make_wheel(tmp_path, files, tag=f"py3-none-manylinux_2_34_{MACHINE}", requires=requires)
    return nix_package(wheel, Options()).findings


def test_what_the_table_does_not_know(from_table: tuple[Finding, ...]) -> None:
    found = only(from_table, "RLK711")
    assert (found.level, found.subject) == ("warning", "libunheard.so.1")


def test_an_address_that_is_derived(from_table: tuple[Finding, ...]) -> None:
    assert only(from_table, "RLK712").level == "info"


def test_a_dependency_that_nixpkgs_is_not_known_to_have(from_table: tuple[Finding, ...]) -> None:
    assert only(from_table, "RLK713").subject == "nowhere"


def test_files_past_the_schemes(works: Works, tmp_path: Path) -> None:
    name = "demo-1.0.data/data/lib/python3.12/site-packages/demo/b.so"
    wheel = works.wheel(tmp_path, {"demo/a.so": works.library, name: works.plain})
    found = only(inspect(wheel).findings, "RLK515")
    assert (found.level, found.subject) == ("warning", name)
