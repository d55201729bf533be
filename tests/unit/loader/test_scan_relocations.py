"""Relocations that write, read or jump outside of their object."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from relink.loader.target import find_target
from tests.support.elf_attacks import (
    FAR,
    asked,
    dynamic_entries,
    jumping,
    loader_words,
    moved,
    resegmented,
    resolving,
    rewritten,
    writing,
)
from tests.support.elf_builder import SUPPORTED, WHY_NOT
from tests.unit.loader.scanned import PAGE, own_slot, said

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)
KINDS = [
    "RELATIVE",
    "64",
    "GLOB_DAT",
    "JUMP_SLOT",
    "DTPOFF64",
    "TLSDESC",
    "IRELATIVE",
    "32",
    "RELR",
    "JMPREL",
]


@pytest.mark.slow(reason="the loader runs many times")
def test_one_relocation_makes_the_loader_jump_into_the_library(tmp_path: Path) -> None:
    """It overwrites a pointer to a function of the loader's own; the error about the next symbol then calls it."""
    target = find_target()
    library = jumping(tmp_path / "a.so", tmp_path / "canary")
    assert said(library) == ""
    python = str(target.python)
    assert "undefined symbol: nowhere" in asked(target.interpreter, python, library).stderr
    assert not (tmp_path / "canary").exists()
    words = [*loader_words(target.interpreter, python, library)]
    for word in words:
        (tmp_path / "a.so").write_bytes(moved(library, word))
        asked(target.interpreter, python, library)
        if (tmp_path / "canary").exists():
            break
    assert (tmp_path / "canary").exists(), f"none of {len(words)} words"
    assert "relocation 0 of DT_RELA: writes 8 bytes" in said(library)


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind != "TLSDESC"]
)  # of which the loader dies anyway here
def test_a_relocation_that_leaves_the_object_reaches_memory_there(tmp_path: Path, kind: str) -> None:
    """Nothing is mapped so far away, so the loader dies of it."""
    path = tmp_path / "x.so"
    path.write_bytes(writing(kind, own_slot()))
    interpreter = find_target().interpreter
    assert asked(interpreter, path).returncode >= 0
    assert said(path) == ""
    path.write_bytes(writing(kind, FAR << 16))
    assert asked(interpreter, path).returncode < 0
    assert "writes" in said(path)


def test_no_resolver_is_called_in_a_dry_run(tmp_path: Path) -> None:
    """So an IFUNC is no danger, and glibc's own libraries are full of them."""
    library = resolving(tmp_path / "a.so", tmp_path / "canary")
    target = find_target()
    for program, preload in ((library, None), (target.python, library)):
        asked(target.interpreter, str(program), preload)
    assert not (tmp_path / "canary").exists()
    assert said(library) == ""


# What is refused


@pytest.mark.parametrize("kind", [*KINDS, "DTPMOD64", "TPOFF64"])
@pytest.mark.parametrize("target", [FAR, -8, -(1 << 40), 1 << 63])
def test_a_target_outside(kind: str, target: int) -> None:
    assert "which is not inside of the object's own writable segments" in said(writing(kind, target))


def test_a_bitmap_that_leads_outside() -> None:
    """Each stands for the 63 words behind those of the one before it; without an address it is about no object."""
    words: tuple[int, ...]
    for words in ((own_slot(), 0b11), (own_slot(), 1, 1, 1)):
        assert said(rewritten(relr=words)) == "", words
    for words in ((own_slot(), 1, 1, 1, 0b11), (own_slot(), 1 << 63 | 1, 1, 1, 0b11)):
        assert "writes 8 bytes" in said(rewritten(relr=words)), words
    assert "is a bitmap with no address before it" in said(rewritten(relr=(0b11, own_slot())))


@pytest.mark.parametrize(("kind", "width"), [("RELATIVE", 8), ("TLSDESC", 16), ("RELR", 8), ("JMPREL", 8)])
def test_a_write_that_ends_outside(kind: str, width: int) -> None:
    """Its first bytes are the object's own, its last one is not; the memory behind what the file has is bigger by a page."""
    end = PAGE * 2
    for target, fine in ((end - width, True), (end - width + 2, False)):
        data = resegmented(writing(kind, target), 1, memory_size=end)
        assert (said(data) == "") is fine, hex(target)


def test_a_read_only_segment_unless_it_is_made_writable() -> None:
    data = resegmented(writing("RELATIVE", own_slot()), 1, flags=4)
    assert "writes 8 bytes" in said(data)
    textrel = rewritten(relocations=((own_slot() + 32, 8, 0, 0),), entries=((22, 0),))
    assert said(resegmented(textrel, 1, flags=4)) == ""
    assert said(resegmented(writing("RELATIVE", FAR), 1, flags=4))


def test_a_relocation_of_what_the_loader_has_yet_to_read() -> None:
    """With that the second relocation could be changed by the first, behind the scan's back."""
    plain = rewritten(relocations=((own_slot(), 8, 0, 0),))
    places = {tag: value for _, tag, value in dynamic_entries(plain)}
    (dynamic, *_), *_ = dynamic_entries(plain)
    for target in (places[7], places[7] + 24, places[7] - 7, dynamic, dynamic + 8, 64, 64 + 56):
        assert "has yet to read" in said(rewritten(relocations=((target, 8, 0, 0),))), hex(target)


def test_more_relative_relocations_than_there_are() -> None:
    assert "DT_RELACOUNT" in said(rewritten(entries=((0x6FFFFFF9, 3),)))
    assert said(rewritten(entries=((0x6FFFFFF9, 1),))) == ""
    # The first ones are taken for relative ones, whatever they say that they are.
    none = ((FAR, 0, 0, 0),)
    assert said(rewritten(imports=(), relocations=none)) == ""
    assert "writes" in said(rewritten(imports=(), relocations=none, entries=((0x6FFFFFF9, 1),)))


def test_a_copy_as_long_as_its_symbol_says() -> None:
    """The exported word is 8 bytes; with 1 << 40 it is all memory behind it."""
    data = bytearray(rewritten(relocations=((own_slot(), 5, 2, 0),)))
    assert said(bytes(data)) == ""
    symbols = next(value for _, tag, value in dynamic_entries(bytes(data)) if tag == 6)
    struct.pack_into("<Q", data, symbols + 2 * 24 + 16, 1 << 40)
    assert f"writes {1 << 40} bytes" in said(bytes(data))
    assert "is not in the file's part" in said(rewritten(relocations=((own_slot(), 5, 1 << 30, 0),)))


def test_a_resolver_outside_of_the_code() -> None:
    good = resegmented(rewritten(relocations=((own_slot(), 37, 0, 64),)), 1, flags=7)
    assert said(good) == ""
    bad = resegmented(rewritten(relocations=((own_slot(), 37, 0, FAR),)), 1, flags=7)
    assert "its resolver at 0x7f000000 is not in an executable segment" in said(bad)
