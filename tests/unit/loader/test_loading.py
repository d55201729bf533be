"""What is mapped for a program and for roots; which libraries are found is tests/loader_rules' and tests/fuzz's business."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from relink.elf.image import read_image
from relink.loader.closure import Closure
from relink.loader.loading import load, trace
from relink.loader.search import Environment
from relink.loader.seen_files import Files
from relink.system.errors import TargetError
from tests.support.elf_builder import SUPPORTED, WHY_NOT, Library, build
from tests.unit.loader.planted import sonames

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)


def test_load_knows_what_the_program_has(world: Path, environment: Environment) -> None:
    closure = load(environment, [f"{world}/libc1.so", f"{world}/liba.so"], f"{world}/prog")
    assert [closure.objects[index].path for index in closure.roots] == [
        f"{world}/libc1.so",
        f"{world}/liba.so",
    ]
    assert sonames(closure, closure.roots) == ["libc1.so", "liba.so"]
    # libc1.so is there already, found by libb's RUNPATH; liba.so is not, since libc1.so could not find it.
    assert closure.objects[closure.roots[0]].found_by.rule == "runpath"
    assert closure.objects[closure.roots[1]].found_by.rule == "root"


def test_load_without_a_program_is_a_trace(world: Path, environment: Environment) -> None:
    alone, traced = load(environment, [f"{world}/liba.so"]), trace(environment, f"{world}/liba.so")
    assert (alone.objects, alone.edges) == (traced.objects, traced.edges)


def test_the_first_of_two_sonames_answers(tmp_path: Path, environment: Environment) -> None:
    for name in ("lib1.so", "lib2.so"):
        Library("libsame.so").write(tmp_path / name)
    program = Library(needed=("lib1.so", "lib2.so", "libsame.so"), runpath="$ORIGIN").write(tmp_path / "prog")
    closure = trace(environment, str(program))
    assert [closure.objects[edge.target or 0].name for edge in closure.edges] == [
        "lib1.so",
        "lib2.so",
        "lib1.so",
    ]


@pytest.mark.parametrize("content", [None, b"text", b"\x7fELF", build(Library(machine=183))])
def test_roots_that_are_none(tmp_path: Path, environment: Environment, content: bytes | None) -> None:
    path = tmp_path / "libx.so"
    if content is not None:
        path.write_bytes(content)
    program = str(Library("libp.so").write(tmp_path / "prog"))
    attempts: list[Callable[[], Closure]] = [
        lambda: trace(environment, str(path)),
        lambda: trace(environment, program, [str(path)]),
        lambda: load(environment, [str(path)], program),
        lambda: load(environment, [], str(path)),
    ]
    for attempt in attempts:
        with pytest.raises(TargetError, match=r"libx\.so: cannot be loaded \("):
            attempt()


def test_members_are_loaded_from_the_overlay(tmp_path: Path, environment: Environment) -> None:
    """A wheel's members, at the place where they would be installed, with a provider on disk."""
    site, prefix = tmp_path / "site", tmp_path / "prefix"
    Library("libp.so.1").write(prefix / "libp.so.1")
    members = {
        f"{site}/pkg/ext.so": Library("ext.so", ("libm1.so",), runpath="$ORIGIN/../pkg.libs"),
        f"{site}/pkg.libs/libm1.so": Library("libm1.so", ("libp.so.1",), runpath=str(prefix)),
    }
    overlay = {path: read_image(build(library), path) for path, library in members.items()}
    environment = Environment(environment.target, Files(overlay=overlay))
    closure = load(environment, [f"{site}/pkg/ext.so"])
    assert (closure.fatal, closure.missing) == (None, ())
    assert [closure.objects[index].path for index in closure.scope] == [
        f"{site}/pkg/ext.so",
        f"{site}/pkg/../pkg.libs/libm1.so",
        f"{prefix}/libp.so.1",
    ]


@pytest.mark.parametrize(
    ("glibc", "loads"), [("2.36", True), ("2.40", True), ("2.41", False), ("2.44", False)]
)
def test_executable_stacks_are_refused_by_dlopen_since_2_41(
    tmp_path: Path, environment: Environment, glibc: str, loads: bool
) -> None:
    """Of what a library dlopens; relink.planning.checks.executable_stack tells it of what is loaded first."""
    program = str(Library("libp.so").write(tmp_path / "prog"))
    Library("libs.so", stack_flags=7).write(tmp_path / "libs.so")
    Library("libn.so", stack_flags=None).write(tmp_path / "libn.so")
    environment = Environment(msgspec.structs.replace(environment.target, glibc=glibc), Files())
    caller = str(Library("libu.so", runpath="$ORIGIN").write(tmp_path / "libu.so"))

    def dlopened(wanted: str) -> set[str]:
        found = load(
            environment, [caller], program, dlopens=lambda item: [wanted] if item.path == caller else []
        )
        return {item.name for item in found.objects}

    for name in ("libs.so", "libn.so"):
        user = str(Library("libd.so", (name,), runpath="$ORIGIN").write(tmp_path / f"d{name}"))
        for closure in (load(environment, [user], program), trace(environment, user)):
            assert (closure.fatal, closure.missing) == (None, ())
        assert (name in dlopened(name)) == loads
        assert (name in dlopened(f"d{name}")) == loads
    # A process whose program asks for such a stack has one already.
    Library("libp.so", stack_flags=7).write(program)
    environment = Environment(environment.target, Files())
    assert "libs.so" in dlopened("libs.so")


def test_the_rpath_of_a_library_that_is_traced_is_not_the_process_s(
    tmp_path: Path, environment: Environment
) -> None:
    """A library in the place of a program will be dlopened: what it opens does not inherit its DT_RPATH."""
    Library("libdep.so").write(tmp_path / "lib/libdep.so")
    Library("libgpu.so", needed=("libdep.so",)).write(tmp_path / "lib/libgpu.so")
    top = str(
        Library("libtop.so", needed=("libdep2.so",), rpath=f"{tmp_path}/lib").write(tmp_path / "libtop.so")
    )
    Library("libdep2.so").write(tmp_path / "lib/libdep2.so")
    closure = trace(environment, top, dlopens=lambda item: ["libgpu.so"] if item.path == top else [])
    (opened,) = closure.dlopened
    assert opened.target is not None
    assert [edge.soname for edge in closure.missing] == ["libdep.so"]
