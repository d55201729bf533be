"""One dlopen after the other; tests/fuzz/test_process_agreement.py compares with real processes.

What dlopen refuses and no dry run shows: the rules against dlopen in this Python.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest
from msgspec.structs import replace

from relink.loader import tables
from relink.loader.binding import Symbol, by_symbol
from relink.loader.loading import RootRefusedError, load
from relink.loader.process import Dlopen, DlopenResult, Failure, Process, find_refused
from relink.loader.search import Environment
from relink.loader.seen_files import Files
from relink.loader.tables import Tables
from relink.loader.target import find_target
from relink.planning.options import Options
from relink.runs.questions import verify_wheel
from tests.support.cc import shared
from tests.support.elf_builder import SUPPORTED, WHY_NOT, Export, Import, Library
from tests.support.elf_patching import Elf, set_isa_needed
from tests.support.real_process import assert_agreement, build_programs, really_open, simulated_open
from tests.support.wheels import make_wheel

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)
GLOBAL = os.RTLD_NOW | os.RTLD_GLOBAL


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    return build_programs(tmp_path_factory.mktemp("programs"), "/nowhere")["plain"]


def process_of(environment: Environment, program: str, *preloads: str) -> Process:
    return Process(environment, Tables(environment.files, {}), program, preloads)


def opened(process: Process, *events: Dlopen | str) -> list[DlopenResult]:
    return [process.dlopen(Dlopen(event) if isinstance(event, str) else event) for event in events]


def bound_in(process: Process) -> dict[Symbol, int]:
    done = (result.bindings.bound for result in process.results if result.failure is None)
    return by_symbol(chain.from_iterable(done))


def names(process: Process) -> list[str]:
    return [Path(loaded.path).name for loaded in process.objects[2:] if "libc.so" not in loaded.path]


def agree(
    environment: Environment, program: str, events: list[Dlopen], preloads: tuple[str, ...] = ()
) -> None:
    """The real loader does the same."""
    tables = Tables(environment.files, {})
    real = really_open(environment, program, preloads, events, "/")
    # What the program itself binds to is not of interest.
    simulated = simulated_open(environment, program, preloads, events, "/", tables)
    assert_agreement(
        [dataclasses.replace(step, bound=frozenset()) for step in real[1:]],
        [dataclasses.replace(step, bound=frozenset()) for step in simulated[1:]],
    )


def test_what_was_opened_before_serves(lib: Path, environment: Environment, program: str) -> None:
    far, near = lib / "far", lib / "near"
    Library("libdep.so.1").write(far / "libdep.so.1")
    one = str(Library("one.so", ("libdep.so.1",), runpath=str(far)).write(lib / "one.so"))
    two = str(Library("two.so", ("libdep.so.1",)).write(lib / "two.so"))
    Library("libdep.so.1").write(near / "libdep.so.1")
    process = process_of(environment, program)
    first, second, third = opened(process, two, one, two)
    assert first.failure is not None
    assert first.failure.cause == "missing"
    assert [edge.soname for edge in first.failure.missing] == ["libdep.so.1"]
    assert first.closure.objects[first.mapped[0]].path == two
    assert (second.failure, third.failure) == (None, None)
    assert names(process) == ["one.so", "libdep.so.1", "two.so"]
    (edge,) = third.closure.edges
    assert edge.found_by is not None
    assert (edge.found_by.rule, edge.target) == ("loaded", process.index_of(f"{far}/libdep.so.1"))
    agree(environment, program, [Dlopen(two), Dlopen(one), Dlopen(two)])


@pytest.mark.parametrize("kind", ["rpath", "runpath"])
def test_a_name_is_searched_by_the_path_of_the_caller(
    lib: Path, environment: Environment, program: str, kind: str
) -> None:
    """A RUNPATH of the caller alone; a DT_RPATH of the caller, and of what loaded it."""
    Library("libplugin.so").write(lib / "plugins/libplugin.so")
    Library("libdep.so").write(lib / "plugins/libdep.so")
    Library("libother.so", ("libdep.so",)).write(lib / "plugins/libother.so")
    path = "$ORIGIN:$ORIGIN/plugins"
    rpath, runpath = (path, None) if kind == "rpath" else (None, path)
    top = Library("top.so", ("libcaller.so",), rpath=rpath, runpath=runpath)
    top_path = str(top.write(lib / "top.so"))
    caller = str(Library("libcaller.so").write(lib / "libcaller.so"))
    process = process_of(environment, program)
    by_nobody, by_caller, _, by_top, by_library = opened(
        process,
        "libplugin.so",
        Dlopen("libplugin.so", caller=caller),
        top_path,
        Dlopen("libplugin.so", caller=caller),
        Dlopen("libplugin.so", caller=top_path),
    )
    assert by_nobody.failure is not None
    assert by_caller.failure is not None
    assert (by_nobody.failure.cause, by_caller.failure.cause) == ("missing", "caller")
    assert (by_top.failure is None) == (kind == "rpath")
    assert by_library.failure is None
    assert process.objects[-1].path == f"{lib}/plugins/libplugin.so"
    # What is opened does not look where its caller does.
    (other,) = opened(process, Dlopen("libother.so", caller=top_path))
    assert other.failure is not None
    assert [edge.soname for edge in other.failure.missing] == ["libdep.so"]


def test_only_what_is_global_serves_the_imports_of_others(
    lib: Path, environment: Environment, program: str
) -> None:
    """A library that is mapped already is made global by one more dlopen."""
    base = str(Library("base.so", exports=(Export("f"),)).write(lib / "base.so"))
    user = str(Library("user.so", imports=(Import("f"),)).write(lib / "user.so"))
    process = process_of(environment, program)
    _, lost, _, found = opened(process, base, user, Dlopen(base, GLOBAL), user)
    assert lost.failure is not None
    assert lost.failure.cause == "symbols"
    assert [(symbol.path, symbol.name) for symbol in lost.failure.symbols] == [(user, "f")]
    assert found.failure is None
    assert bound_in(process)[found.mapped[0], "f", None] == process.index_of(base)
    agree(environment, program, [Dlopen(base), Dlopen(user), Dlopen(base, GLOBAL), Dlopen(user)])


def test_noload_opens_what_is_mapped_only(lib: Path, environment: Environment, program: str) -> None:
    path = str(Library("libx.so").write(lib / "libx.so"))
    (lib / "link.so").symlink_to("libx.so")
    noload = Dlopen(f"{lib}/link.so", os.RTLD_NOW | os.RTLD_NOLOAD)
    process = process_of(environment, program)
    before, _, after = opened(process, noload, path, noload)
    assert before.failure is not None
    assert before.failure.cause == "missing"
    assert after.failure is None
    assert names(process) == ["libx.so"]


def test_deepbind_turns_the_scope_round(lib: Path, environment: Environment, program: str) -> None:
    first = str(Library("first.so", exports=(Export("f"),)).write(lib / "first.so"))
    for name in ("plain.so", "deep.so"):
        Library(name, exports=(Export("f"),), imports=(Import("f"),)).write(lib / name)
    events = [
        Dlopen(first, GLOBAL),
        Dlopen(f"{lib}/plain.so"),
        Dlopen(f"{lib}/deep.so", os.RTLD_NOW | os.RTLD_DEEPBIND),
    ]
    process = process_of(environment, program)
    _, plain, deep = opened(process, *events)
    bound = bound_in(process)
    assert bound[plain.mapped[0], "f", None] == process.index_of(first)
    assert bound[deep.mapped[0], "f", None] == deep.mapped[0]
    # DT_SYMBOLIC counts for nothing then: what is opened comes before each of its libraries.
    symbolic = (16, 0)
    Library("libdep.so", exports=(Export("g"),), imports=(Import("g"),), entries=(symbolic,)).write(
        lib / "libdep.so"
    )
    top = str(
        Library("top.so", ("libdep.so",), runpath="$ORIGIN", exports=(Export("g"),)).write(lib / "top.so")
    )
    for flags, place in ((os.RTLD_NOW, 1), (os.RTLD_NOW | os.RTLD_DEEPBIND, 0)):
        (result,) = opened(process.fork(), Dlopen(top, flags))
        assert by_symbol(result.bindings.bound)[result.mapped[1], "g", None] == result.mapped[place]


def test_a_unique_symbol_is_that_of_the_first_that_looked_it_up(
    lib: Path, environment: Environment, program: str
) -> None:
    """Even where neither of two libraries is in the scope of the other."""
    for name in ("one.so", "two.so"):
        Library(name, exports=(Export("u", binding=10),), imports=(Import("u"),)).write(lib / name)
    process = process_of(environment, program)
    one, two = opened(process, f"{lib}/one.so", f"{lib}/two.so")
    bound = bound_in(process)
    assert bound[two.mapped[0], "u", None] == one.mapped[0]
    # Nor is it looked up by an import: a relocation names the library's own definition.
    names_itself = (232, 6, 1, 0)  # R_X86_64_GLOB_DAT of the first symbol, into the first slot
    Library("own.so", exports=(Export("o", binding=10),), relocations=(names_itself,)).write(lib / "own.so")
    Library("its.so", exports=(Export("o", binding=10),), imports=(Import("o"),)).write(lib / "its.so")
    own, its = opened(process, f"{lib}/own.so", f"{lib}/its.so")
    assert bound_in(process)[its.mapped[0], "o", None] == own.mapped[0]
    # A library that could not be loaded leaves no symbol behind.
    Library("lost.so", exports=(Export("v", binding=10),), imports=(Import("v"), Import("w"))).write(
        lib / "lost.so"
    )
    Library("last.so", exports=(Export("v", binding=10),), imports=(Import("v"),)).write(lib / "last.so")
    lost, _, last = opened(process, f"{lib}/lost.so", str(Library().write(lib / "any.so")), f"{lib}/last.so")
    assert lost.failure is not None
    assert bound_in(process)[last.mapped[0], "v", None] == last.mapped[0]


def test_a_name_stays_of_a_dlopen_that_failed(lib: Path, environment: Environment, program: str) -> None:
    """It found what is mapped under a new name before it failed; so the next one finds that by the name."""
    path = str(Library("librelink-x.so").write(lib / "a/librelink-x.so"))
    (lib / "b").mkdir()
    (lib / "b/librelink-y.so").symlink_to(path)
    failing = Library("fails.so", ("librelink-y.so", "libgone.so"), runpath=f"{lib}/b")
    late = Library("late.so", ("libgone.so", "librelink-y.so"), runpath=f"{lib}/b")
    user = str(Library("user.so", ("librelink-y.so",)).write(lib / "user.so"))
    for library, serves in ((late, False), (failing, True)):
        process = process_of(environment, program)
        _, failed, after = opened(process, path, str(library.write(lib / "it.so")), user)
        assert failed.failure is not None
        assert (after.failure is None) == serves
        agree(environment, program, [Dlopen(path), Dlopen(f"{lib}/it.so"), Dlopen(user)])
        environment = Environment(environment.target, type(environment.files)())


def test_preloads_and_the_library_path_are_those_of_the_process(
    lib: Path, environment: Environment, program: str
) -> None:
    Library("libdep.so", exports=(Export("f"),)).write(lib / "env/libdep.so")
    user = str(Library("user.so", imports=(Import("f"),)).write(lib / "user.so"))
    environment = replace(environment, library_path=(f"{lib}/env",))
    process = process_of(environment, program, "libnowhere.so", "libdep.so")
    assert process.results[0].failure is None
    assert names(process) == ["libdep.so"]
    assert process.objects[2].found_by.rule == "library-path"
    (result,) = opened(process, user)
    assert result.failure is None
    agree(environment, program, [Dlopen(user)], ("libnowhere.so", "libdep.so"))


def test_a_process_goes_on_in_two_ways(lib: Path, environment: Environment, program: str) -> None:
    paths = [
        str(Library(name, exports=(Export("f"),)).write(lib / name)) for name in ("a.so", "b.so", "c.so")
    ]
    process = process_of(environment, program)
    opened(process, paths[0])
    other = process.fork()
    (here,), (there,) = opened(process, paths[1]), opened(other, Dlopen(paths[2], GLOBAL))
    assert here.mapped == there.mapped
    assert names(process) == ["a.so", "b.so"]
    assert names(other) == ["a.so", "c.so"]
    assert len(process.results) == len(other.results) == 3


def test_after_an_assertion_of_the_loader_nothing_is_opened(
    lib: Path, environment: Environment, program: str
) -> None:
    """A version record that names a library that is not there (elf/dl-version.c, _dl_check_map_versions)."""
    record = Library("x.so", imports=(Import("f", "V", "libgone.so", 2),))
    process = process_of(environment, program)
    other = str(Library("y.so").write(lib / "y.so"))
    for result in opened(process, str(record.write(lib / "x.so")), other):
        assert result.failure is not None
        assert result.failure.cause == "aborts"
    assert names(process) == []


def test_what_a_library_that_fails_needs_is_not_mapped(
    lib: Path, environment: Environment, program: str
) -> None:
    for version in (6, 7):
        Library(f"libx.so.{version}").write(lib / f"libx.so.{version}")
        Library(f"user{version}.so", (f"libx.so.{version}",), runpath="$ORIGIN").write(
            lib / f"user{version}.so"
        )
    Library("fails.so", ("libx.so.7", "libgone.so"), runpath="$ORIGIN").write(lib / "fails.so")
    process = process_of(environment, program)
    opened(process, f"{lib}/user6.so", f"{lib}/fails.so")
    assert names(process) == ["user6.so", "libx.so.6"]
    opened(process, f"{lib}/user7.so")
    assert names(process) == ["user6.so", "libx.so.6", "user7.so", "libx.so.7"]


def test_one_dlopen_is_what_load_maps(world: Path, environment: Environment, program: str) -> None:
    Library("libgone.so").write(world / "libgone.so")
    closure = load(environment, [f"{world}/liba.so"], program)
    process = process_of(environment, program)
    (result,) = opened(process, f"{world}/liba.so")
    assert [item.path for item in process.objects] == [item.path for item in closure.objects]
    assert tuple(process.link_map.edges) == closure.edges
    assert result.closure.scope == closure.scope


def test_what_is_no_program_is_refused(lib: Path, environment: Environment) -> None:
    with pytest.raises(RootRefusedError):
        process_of(environment, f"{lib}/nothing")


def reasons(*paths: Path, glibc: str | None = None) -> list[str]:
    """Return what the rules say of the last of some libraries that a Python opens one after the other."""
    target = find_target(python=sys.executable)
    target = replace(target, glibc=glibc or target.glibc)
    files = Files()
    closure = load(Environment(target, files), [*map(str, paths)], target.python or "")
    return [why for _, why in find_refused(closure, Tables(files, {}), target)]


def said(*paths: Path) -> str:
    """Return what dlopen says of the last of them."""
    source = "import ctypes, sys\nfor path in sys.argv[1:]: ctypes.CDLL(path)"
    ended = subprocess.run(
        [sys.executable, "-c", source, *paths], capture_output=True, text=True, check=False
    )
    return ended.stderr


def with_tls(path: Path, size: int, model: str = "initial-exec", more: str = "") -> Path:
    source = f"__thread char block[{size}]{more}; char *g(void) {{ return block; }}"
    return shared(path, source, flags=[f"-ftls-model={model}"])


@pytest.mark.parametrize("size", [16, 1200, 1400, 1536, 1600, 1664, 1700, 1792, 2000, 4096, 1 << 16])
def test_the_room_for_static_tls(tmp_path: Path, size: int) -> None:
    library = with_tls(tmp_path / "lib.so", size)
    refused = "cannot allocate memory in static TLS block"
    assert (reasons(library) == [refused]) == (refused in said(library))
    assert reasons(with_tls(tmp_path / "dynamic.so", size, "global-dynamic")) == []


@pytest.mark.parametrize(
    ("flags", "divides"),
    [
        (["-ftls-model=initial-exec"], True),
        (["-ftls-model=global-dynamic", "-mtls-dialect=gnu2"], True),
        (["-ftls-model=global-dynamic"], False),
    ],
)
def test_a_tls_alignment_of_0(tmp_path: Path, flags: list[str], *, divides: bool) -> None:
    """dlopen divides by it where it looks for room; `verify` asks the loader about a copy with 1, which means the same."""
    source = "__thread char block[16]; char *g(void) { return block; }"
    library = shared(tmp_path / "lib.so", source, flags=flags)
    elf = Elf(bytearray(library.read_bytes()))
    header = elf.header(7)
    assert header is not None
    elf.put(header + 48, 0)
    library.write_bytes(elf.data)
    dies = subprocess.run(
        [sys.executable, "-c", "import ctypes, sys; ctypes.CDLL(sys.argv[1])", library], check=False
    ).returncode
    assert (dies == -8) == divides
    assert reasons(library) == (["the loader divides by its TLS alignment, which is 0"] if divides else [])
    wheel = make_wheel(tmp_path, {"demo/lib.so": library}, tag="py3-none-linux_x86_64")
    codes = [found.code for found in verify_wheel(wheel, Options(python=sys.executable)).findings]
    assert codes == (["RLK116"] if divides else [])


def test_what_was_opened_before_takes_room(tmp_path: Path) -> None:
    first, second = with_tls(tmp_path / "a.so", 1000), with_tls(tmp_path / "b.so", 1000)
    assert (reasons(first), reasons(second)) == ([], [])
    assert said(second) == ""
    assert len(reasons(first, second)) == 1
    assert "cannot allocate memory in static TLS block" in said(first, second)


def test_a_variable_of_another_library(tmp_path: Path) -> None:
    """The room is taken by the library that has the variable."""
    owner = with_tls(tmp_path / "libowner.so", 4096, "global-dynamic", " = {1}")
    source = "extern __thread char block[4096]; char *h(void) { return block; }"
    user = shared(
        tmp_path / "user.so", source, needed=[owner], flags=["-ftls-model=initial-exec", "-Wl,-rpath,$ORIGIN"]
    )
    assert (reasons(owner), said(owner)) == ([], "")
    assert len(reasons(user)) == 1
    assert "libowner.so: cannot allocate memory in static TLS block" in said(user)


@pytest.mark.parametrize("bits", [0, 1, 3, 7, 15, 16, 1 << 20])
def test_the_level_of_the_processor(tmp_path: Path, bits: int) -> None:
    library = shared(tmp_path / "lib.so", flags=["-Wl,-z,x86-64-baseline"])
    set_isa_needed(library, bits)
    refused = "CPU ISA level is lower than required"
    assert (reasons(library) == [refused]) == (refused in said(library))
    assert reasons(library, glibc="2.32") == []


def test_what_is_known_is_not_computed(
    lib: Path, environment: Environment, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dlopen that is known reads no symbols; one of a file that has changed is computed, with all before it."""
    known: dict[bytes, Failure | None] = {}
    exports = (Export("f", "V_1"),)
    Library("libone.so", exports=exports, versions=("V_1",)).write(lib / "libone.so")
    imports = (Import("f", "V_1", "libone.so"),)
    paths = [
        str(Library(name, ("libone.so",), runpath="$ORIGIN", imports=wanted).write(lib / name))
        for name, wanted in (("a.so", imports), ("b.so", (*imports, Import("lost", "V_1", "libone.so"))))
    ]

    def run() -> list[Failure | None]:
        files = Files()
        process = Process(replace(environment, files=files), Tables(files, {}), program, known=known)
        return [result.failure for result in opened(process, *paths)]

    first = run()
    assert first[0] is None
    assert first[1] is not None
    assert (first[1].cause, first[1].supplier) == ("symbols", "libone.so should have it")
    with monkeypatch.context() as patch:
        patch.setattr(tables, "read_symbols", None)
        assert run() == first
    Library("libone.so", exports=(Export("g"),)).write(lib / "libone.so")
    again = run()
    assert again[0] is not None
    assert [symbol.name for symbol in again[0].symbols] == ["f"]


def causes(process: Process, *paths: str) -> list[str | None]:
    results = opened(process, *(Dlopen(path, GLOBAL) for path in paths))
    return [None if result.failure is None else result.failure.cause for result in results]


@pytest.mark.parametrize("gone", ["one", "two"])
def test_what_served_once_is_looked_for_again(
    lib: Path, environment: Environment, program: str, gone: str
) -> None:
    """What was found of a library holds where all that served it is there; here one of two libraries is not."""
    for name in ("one", "two"):
        Library(f"{name}.so", exports=(Export(name),)).write(lib / f"{name}.so")
    both = Library("user.so", imports=(Import("one"), Import("two"))).write(lib / "user.so")
    process = Process(environment, Tables(environment.files, {}), program, known={})
    servers = [f"{lib}/one.so", f"{lib}/two.so"]
    for _ in range(2):
        assert causes(process.fork(), *servers, str(both)) == [None, None, None]
        left = [path for path in servers if gone not in path]
        assert causes(process.fork(), *left, str(both)) == [None, "symbols"]


def test_what_served_once_may_come_behind_what_stops_the_loader(
    lib: Path, environment: Environment, program: str
) -> None:
    """A library without versions that the version record names: glibc elf/dl-lookup.c, check_match, before 2.41."""
    environment = replace(environment, target=replace(environment.target, glibc="2.36"))
    for name, versions in (("a", "V"), ("b", None)):
        Library("libone.so", exports=(Export("f", versions),)).write(lib / f"{name}.so")
    Library("other.so", exports=(Export("f", "V"),)).write(lib / "other.so")
    imports = (Import("f", "V", "libone.so"),)
    user = str(Library("user.so", ("libone.so",), imports=imports).write(lib / "user.so"))
    process = Process(environment, Tables(environment.files, {}), program, known={})
    assert causes(process.fork(), f"{lib}/other.so", f"{lib}/a.so", user) == [None, None, None]
    assert causes(process.fork(), f"{lib}/b.so", f"{lib}/other.so", user) == [None, None, "aborts"]
