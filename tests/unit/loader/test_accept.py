"""Files that ld.so accepts, skips, or gives up at."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from relink.loader.accept import reject
from tests.support.elf_builder import Library
from tests.unit.loader.opened import HEADER, candidate


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
        assert reject(dataclasses.replace(found, head=None), HEADER) == refused


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
