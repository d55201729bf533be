"""What the plan does not say is unexplained: each tampered byte, member, name and mode."""

from __future__ import annotations

import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from relink.comparison import diff
from relink.elf.gaps import find_gaps
from relink.elf.image import read_image
from relink.elf.sections import read_sections
from tests.support.wheels import changed
from tests.support.works import OUTPUT
from tests.unit.comparison.pairs import INFO, content, flipped


def in_text(data: bytes) -> bytes:
    return flipped(data, data.index(b"\xc3", data.index(b"\x7fELF") + 0x200))


def shorter(data: bytes) -> bytes:
    return data[:-64]


def another_path(data: bytes) -> bytes:
    at = data.rindex(b"/rocm/lib\0")
    return data[:at] + b"/rocm/lob\0" + data[at + 10 :]


@pytest.mark.few(6, reason="other members")
@pytest.mark.parametrize(
    ("member", "edit", "said"),
    [
        ("demo/plain.so", in_text, "changed, and the plan leaves it as it is"),
        ("demo/a.so", in_text, "demo/a.so: "),
        ("demo/a.so", another_path, "is '"),
        ("demo/a.so", shorter, "demo/a.so: "),
        ("demo/a.so", lambda data: data + b"x", "are not what patchelf"),
        ("demo/__init__.py", lambda data: data + b"import evil\n", "the plan does not name it"),
        (f"{INFO}/METADATA", lambda data: data + b"more", "more changed than name, version and tags"),
        (
            f"{INFO}/WHEEL",
            lambda data: data + b"Tag: py3-none-any\n",
            "more changed than name, version and tags",
        ),
        (f"{INFO}/sboms/relink.cdx.json", lambda data: data.replace(b"rocm-relink", b"other"), "is not what"),
        (f"{INFO}/sboms/relink.cdx.json", lambda _: b"[" * 100_000, "is not what this relink writes"),
        (f"{INFO}/sboms/relink.cdx.json", lambda _: None, "is not there"),
        (f"{INFO}/sboms/relink.cdx.json", lambda data: data + b" ", "is not what this relink writes"),
        (f"{INFO}/relink.json", lambda _: b"{}", "not a plan"),
        (f"{INFO}/relink.json", lambda data: data + b" ", "is not what this relink writes"),
        (
            f"{INFO}/relink.json",
            lambda data: data.replace(b'"output"', b'"output": "x", "output"', 1),
            "is not what this relink writes",
        ),
        (f"{INFO}/relink-store-paths", lambda _: b"/nix/store/x", "names no store path"),
        ("demo/evil.py", lambda _: b"", "demo/evil.py: added"),
        ("demo/plain.so", lambda _: None, "demo/plain.so: removed"),
        ("demo/bin/prog", None, "the plan changes it, and it has not changed"),
    ],
)
def test_what_the_plan_does_not_say(
    pair: tuple[Path, Path],
    tmp_path: Path,
    member: str,
    edit: Callable[[bytes], bytes | None] | None,
    said: str,
) -> None:
    with zipfile.ZipFile(pair[1]) as archive:
        data = archive.read(member) if member in archive.namelist() else b""
    new = content(pair[0], member) if edit is None else edit(data)
    found = diff(pair[0], changed(pair[1], tmp_path / "tampered", {member: new}))
    assert not found.ok
    assert any(member in text and said in text for text in found.unexplained), found.unexplained


def header(at: int) -> Callable[[bytes], int]:
    return lambda _: at


def inside(section: str, share: float) -> Callable[[bytes], int]:
    """The offset of a byte of a section, its first one at 0, its last at 1."""

    def place(data: bytes) -> int:
        found = next(item for item in read_sections(data, "x") if item.name == section)
        return found.offset + int(share * (found.file_size - 1))

    return place


def between(data: bytes) -> int:
    """The offset of a byte that is in no section and no table, and is mapped."""
    sections = sorted(
        item.offset + item.file_size for item in read_sections(data, "x") if item.name == ".text"
    )
    return sections[0] + 16


def in_table(table: int, row: int, field: int) -> Callable[[bytes], int]:
    """The offset of a byte of the table whose offset is at `table` in the ELF header."""
    return lambda data: struct.unpack_from("<Q", data, table)[0] + row + field


PROGRAM, SECTION = (32, 56), (40, 64)

PLACES: dict[str, Callable[[bytes], int]] = {
    "ABI version": header(8),
    "entry point": header(24),
    "flags": header(48),
    "flags of a segment": in_table(PROGRAM[0], PROGRAM[1], 4),
    "physical address of a segment": in_table(PROGRAM[0], PROGRAM[1], 24),
    "kind of a section": in_table(SECTION[0], 3 * SECTION[1], 4),
    "entry size of a section": in_table(SECTION[0], 3 * SECTION[1], 56),
    "between code and data": between,
    "the last byte": lambda data: len(data) - 1,
    **{
        f"{section} at {share}": inside(section, share)
        for section in (
            ".text",
            ".dynamic",
            ".dynsym",
            ".dynstr",
            ".symtab",
            ".strtab",
            ".shstrtab",
            ".comment",
        )
        for share in (0, 0.5, 1)
    },
}


@pytest.mark.few(4, reason="other places of the same file")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("member", ["demo/a.so", "demo/bin/prog"])
def test_no_byte_can_be_changed(pair: tuple[Path, Path], tmp_path: Path, member: str, place: str) -> None:
    """Neither what the loader reads nor what nobody does: the file is what patchelf makes of the old one, or it is told."""
    data = content(pair[1], member)
    at = PLACES[place](data)
    found = diff(pair[0], changed(pair[1], tmp_path / "tampered", {member: flipped(data, at)}))
    assert any(text.startswith(f"{member}: ") for text in found.unexplained), at
    assert any(f"bytes {at:#x}..{at + 1:#x}" in text for text in found.unexplained), found.unexplained


@pytest.mark.parametrize("share", [0, 0.5, 1])
def test_no_byte_can_be_changed_that_patchelf_does_not_see(
    large: tuple[Path, Path], tmp_path: Path, share: float
) -> None:
    data = content(large[1], "demo/big.so")
    (gap,) = find_gaps(data, read_image(data, "x"))
    at = gap.start + int(share * (len(gap) - 1))
    found = diff(large[0], changed(large[1], tmp_path / "tampered", {"demo/big.so": flipped(data, at)}))
    assert [text for text in found.unexplained if f"bytes {at:#x}..{at + 1:#x} (.data) are not" in text]
    assert diff(*large).verdict == "only what the plan says"


def test_patchelf_is_missing(pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    found = diff(*pair)
    assert not found.ok
    assert any(
        "demo/a.so: the edit cannot be made again to compare (patchelf is not" in text
        for text in found.unexplained
    )


def test_record_mode_and_name_are_held_to_account(pair: tuple[Path, Path], tmp_path: Path) -> None:
    stale = changed(pair[1], tmp_path / "record", {"demo/__init__.py": b"x = 2\n" * 100}, record=False)
    assert any("RECORD" in text and "demo/__init__.py" in text for text in diff(pair[0], stale).unexplained)
    moded = changed(pair[1], tmp_path / "mode", {}, modes={"demo/plain.so": 0o100777})
    assert any("the mode changed from 100755 to 100777" in text for text in diff(pair[0], moded).unexplained)
    named = changed(pair[1], tmp_path / "name", {}, name=OUTPUT.replace("linux_", "manylinux_2_17_"))
    assert any(
        text.startswith("the plan leads to demo-1.0+rocm") for text in diff(pair[0], named).unexplained
    )
    other = changed(pair[0], tmp_path / "other", {"demo/__init__.py": b""})
    assert any("the plan was made for another wheel" in text for text in diff(other, pair[1]).unexplained)
