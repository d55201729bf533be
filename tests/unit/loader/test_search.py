"""Tokens and entries of search paths, and what is said of everything that was tried."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relink.loader.loading import trace
from relink.loader.search import Environment, expand, reject, split_path
from relink.loader.seen_files import Files
from relink.loader.target import Target
from tests.support.elf_builder import Library
from tests.unit.loader.opened import HEADER, candidate

TARGET = Target(
    interpreter="/lib64/ld-linux-x86-64.so.2",
    sysroot="/",
    header=HEADER,
    glibc="2.36",
    directories=("/usr/lib",),
    subdirectories=("glibc-hwcaps/x86-64-v3", "glibc-hwcaps/x86-64-v2", "tls"),
    lib="lib/x",
    platform="x86_64",
    cache=None,
    cache_path="/etc/ld.so.cache",
    python=None,
)


@pytest.mark.parametrize(
    ("entry", "expanded"),
    [
        ("$ORIGIN", "/o"),
        ("${ORIGIN}/../lib", "/o/../lib"),
        ("$ORIGIN$LIB", "/olib/x"),
        ("a${LIB}b", "alib/xb"),
        ("$ORIGIN_", "$ORIGIN_"),
        ("$ORIGINAL", "$ORIGINAL"),
        ("${ORIGIN", "${ORIGIN"),
        ("${ORIGINAL}", "${ORIGINAL}"),
        ("$origin", "$origin"),
        ("$$ORIGIN", "$/o"),
        ("$ORIGIN.d/$PLATFORM", "/o.d/x86_64"),
        ("$", "$"),
        ("", ""),
    ],
)
def test_expand(entry: str, expanded: str) -> None:
    assert expand(entry, origin="/o", target=TARGET) == expanded


def test_a_token_for_nothing_drops_the_entry() -> None:
    nameless = msgspec.structs.replace(TARGET, platform="")
    assert expand("/a/$PLATFORM", origin="/o", target=nameless) is None
    assert expand("$ORIGIN", origin=None, target=TARGET) is None
    assert split_path("$ORIGIN:/a/$PLATFORM:/b", origin=None, target=nameless) == [("/b", "/b")]


def test_split_path() -> None:
    assert split_path("", origin="/o", target=TARGET) == []
    assert split_path("/a:", origin="/o", target=TARGET) == [("/a", "/a"), ("", "")]
    assert split_path("/a///:/a:$ORIGIN/../a:/:///", origin="/o", target=TARGET) == [
        ("/a///", "/a"),
        ("$ORIGIN/../a", "/o/../a"),
        ("/", "/"),
    ]


@given(st.lists(st.text(alphabet="$ORIGN{}/.a", max_size=12), max_size=6))
def test_split_path_properties(entries: list[str]) -> None:
    pairs = split_path(":".join(entries), origin="/o", target=TARGET)
    directories = [directory for _, directory in pairs]
    assert len(directories) == len(set(directories))
    assert all(entry in entries for entry, _ in pairs)
    assert all(directory == "/" or not directory.endswith("/") for directory in directories)
    assert all("$ORIGIN/" not in directory for directory in directories)


@given(st.text(alphabet="abc/.-_", max_size=20))
def test_expand_leaves_plain_text_alone(text: str) -> None:
    assert expand(text, origin=None, target=TARGET) == text


def test_everything_tried_is_told(tmp_path: Path) -> None:
    world = tmp_path.resolve()
    Library(soname="liba.so", machine=183).write(world / "one/liba.so")
    (world / "two").mkdir()
    program = Library(needed=("liba.so",), runpath="$ORIGIN/one:$ORIGIN/two:/nonexistent:rel").write(
        world / "p.so"
    )
    files = Files(
        overlay={
            TARGET.interpreter: candidate(Library(soname="ld.so"), tmp_path).image or pytest.fail("no image")
        }
    )
    closure = trace(Environment(TARGET, files), str(program))
    (edge,) = closure.missing
    assert [(tried.path, tried.reason) for tried in edge.tried] == [
        (f"{world}/one/liba.so", "wrong machine: aarch64"),
        (f"{world}/two/liba.so", "no such file"),
        ("/nonexistent/liba.so", "no such directory"),
        ("rel/liba.so", "relative to the current directory"),
        ("/usr/lib/liba.so", "no such file"),
    ]
    assert str(edge.tried[0].found_by) == f"RUNPATH entry $ORIGIN/one of {program}"
    assert closure.missing == (edge,)


@pytest.mark.parametrize(
    ("library", "reason", "fatal"),
    [
        (Library(machine=183), "wrong machine: aarch64", False),
        (Library(machine=3, elf_class=32), "wrong ELF class: 32 bit", False),
        (Library(osabi=9), "ELF file OS ABI invalid (9)", True),
        (Library(osabi=9, machine=183), "ELF file OS ABI invalid (9)", True),
        (Library(abi_version=1), "ELF file ABI version invalid (1)", True),
        (Library(kind=1), "only ET_DYN and ET_EXEC can be loaded", True),
        (Library(kind=2), "cannot dynamically load executable", True),
        (Library(flags_1=0x08000000), "cannot dynamically load position-independent executable", True),
    ],
)
def test_reject(tmp_path: Path, library: Library, reason: str, fatal: bool) -> None:
    found = candidate(library, tmp_path)
    refused = reject(found, HEADER)
    assert refused is not None
    assert (refused.reason, refused.fatal) == (reason, fatal)
    if found.image is not None:  # a member of a wheel has no head, and is judged alike
        assert reject(msgspec.structs.replace(found, head=None), HEADER) == refused


def test_programs_are_taken_as_such(tmp_path: Path) -> None:
    for library in (Library(kind=2), Library(flags_1=0x08000000)):
        assert reject(candidate(library, tmp_path), HEADER, program=True) is None


def test_gnu_abi_versions(tmp_path: Path) -> None:
    assert reject(candidate(Library(osabi=3, abi_version=1), tmp_path), HEADER) is None


def test_the_highest_gnu_abi_version(tmp_path: Path) -> None:
    """Below LIBC_ABI_MAX (glibc libc-abis, dl-load.c's VALID_ELF_ABIVERSION), and of GNU's OSABI only."""
    assert reject(candidate(Library(osabi=3, abi_version=3), tmp_path), HEADER) is None
    for osabi, version in ((3, 4), (3, 255), (0, 1), (0, 3)):
        refused = reject(candidate(Library(osabi=osabi, abi_version=version), tmp_path), HEADER)
        assert refused is not None
        assert (refused.reason, refused.fatal) == (f"ELF file ABI version invalid ({version})", True)


def test_a_cut_foreign_library_is_passed_over_and_a_cut_own_one_is_fatal(tmp_path: Path) -> None:
    foreign = reject(candidate(Library(machine=183), tmp_path, 100), HEADER)
    own = reject(candidate(Library(), tmp_path, 100), HEADER)
    assert foreign is not None
    assert not foreign.fatal
    assert own is not None
    assert own.fatal
