"""relink diff: what differs between two wheels, and whether the plan says so."""

from __future__ import annotations

import json
import random
import shutil
import struct
import subprocess
import sys
import time
import zipfile
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest

from relink.comparison import diff
from relink.comparison.content import Ranges, differing_blocks, open_both
from relink.comparison.elf import elf_changes, named_ranges
from relink.elf.gaps import find_gaps
from relink.elf.image import read_image
from relink.elf.sections import read_sections
from relink.errors import WheelError
from relink.library import relink
from relink.report.diff_text import WheelDiff, to_json, to_text
from relink.wheel.archive import WheelArchive
from tests.support.cc import shared
from tests.support.forking import run as forked
from tests.support.wheels import changed, make_wheel
from tests.support.works import OUTPUT, TAG, VENDOR_PATH, Works

INFO = "demo-1.0+rocm7.2.4.dist-info"


@pytest.fixture(scope="module")
def pair(works: Works, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    directory = tmp_path_factory.mktemp("pair")
    vendor = works.wheel(directory)
    report = relink(vendor, works.options(directory / "out"))
    assert report.output is not None
    return vendor, Path(report.output.path)


def content(wheel: Path, member: str) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(member)


def shown(found: WheelDiff) -> str:
    return "\n".join(line.plain for line in to_text(found))


def test_only_what_the_plan_says(pair: tuple[Path, Path]) -> None:
    found = diff(*pair)
    assert found.unexplained == ()
    assert (found.verdict, found.ok, found.planned) == ("only what the plan says", True, True)
    assert found.renamed == (
        ("demo-1.0.dist-info", INFO),
        ("demo-1.0.data", "demo-1.0+rocm7.2.4.data"),
    )
    assert found.added == (f"{INFO}/relink.json", f"{INFO}/sboms/relink.cdx.json")
    assert found.removed == ()
    assert [change.path for change in found.changed] == [
        "demo/a.so",
        "demo/bin/prog",
        "demo-1.0+rocm7.2.4.data/scripts/demo-prog",
        f"{INFO}/METADATA",
        f"{INFO}/WHEEL",
        f"{INFO}/RECORD",
    ]
    assert found.unchanged == 2


def test_the_facts_of_a_changed_library(pair: tuple[Path, Path], works: Works) -> None:
    change = next(change for change in diff(*pair).changed if change.path == "demo/a.so")
    old, new = (content(wheel, "demo/a.so") for wheel in pair)
    assert (change.size_before, change.size_after) == (len(old), len(new))
    assert change.elf is not None
    assert "- RUNPATH /opt/rocm-0.0.0/lib:" in change.elf.dynamic
    assert any(
        line.startswith("+ RPATH") and str(works.prefix / "lib") in line for line in change.elf.dynamic
    )
    sections = {item.name: item.how for item in change.elf.sections}
    assert "resized" in sections[".dynstr"]
    assert ".text" not in sections
    different = {at for at in range(min(len(old), len(new))) if old[at] != new[at]}
    different |= set(range(min(len(old), len(new)), max(len(old), len(new))))
    covered = {at for item in change.ranges for at in range(item.start, item.stop)}
    assert different <= covered
    assert all(item.start in different and item.stop - 1 in different for item in change.ranges)
    assert all(a.stop + 16 <= b.start for a, b in zip(change.ranges, change.ranges[1:], strict=False))
    assert change.ranges[0].where == "the ELF header"
    assert any(".dynstr" in item.where for item in change.ranges)


def test_a_wheel_and_itself(pair: tuple[Path, Path], tmp_path: Path) -> None:
    assert diff(pair[0], pair[0]).verdict == "identical"
    again = changed(pair[0], tmp_path / "again", {}, record=False)
    found = diff(pair[0], again)
    assert found.old.sha256 != found.new.sha256
    assert (found.verdict, found.ok, found.unexplained) == ("same content", True, ())


def test_any_two_wheels(works: Works, tmp_path: Path) -> None:
    one = make_wheel(
        tmp_path / "1", {"demo/x.py": b"x = 1\n", "demo/gone.py": b"", "demo/a.so": works.library}, tag=TAG
    )
    two = make_wheel(
        tmp_path / "2",
        {"demo/x.py": b"x = 22\n", "demo/new.py": b"", "demo/a.so": works.lost},
        tag=TAG,
        version="2.0",
    )
    found = diff(one, two)
    assert not found.ok
    assert not found.planned
    assert (found.added, found.removed) == (("demo/new.py",), ("demo/gone.py",))
    assert found.renamed == (("demo-1.0.dist-info", "demo-2.0.dist-info"),)
    changes = {change.path: change for change in found.changed}
    assert [(item.start, item.stop) for item in changes["demo/x.py"].ranges] == [(4, 7)]
    assert changes["demo/a.so"].elf is not None
    assert "+ NEEDED libnowhere.so.1" in changes["demo/a.so"].elf.dynamic
    text = shown(found)
    assert "the new wheel has no plan that was made for the old one" in text
    assert "unexplained: demo/x.py: changed" in text
    assert json.loads(json.dumps(to_json(found)))["schema"] == "relink.comparison/1"


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def in_text(data: bytes) -> bytes:
    return flipped(data, data.index(b"\xc3", data.index(b"\x7fELF") + 0x200))


def shorter(data: bytes) -> bytes:
    return data[:-64]


def another_path(data: bytes) -> bytes:
    at = data.rindex(b"/rocm/lib\0")
    return data[:at] + b"/rocm/lob\0" + data[at + 10 :]


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


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("member", ["demo/a.so", "demo/bin/prog"])
def test_no_byte_can_be_changed(pair: tuple[Path, Path], tmp_path: Path, member: str, place: str) -> None:
    """Neither what the loader reads nor what nobody does: the file is what patchelf makes of the old one, or it is told."""
    data = content(pair[1], member)
    at = PLACES[place](data)
    found = diff(pair[0], changed(pair[1], tmp_path / "tampered", {member: flipped(data, at)}))
    assert any(text.startswith(f"{member}: ") for text in found.unexplained), at
    assert any(f"bytes {at:#x}..{at + 1:#x}" in text for text in found.unexplained), found.unexplained


@pytest.fixture(scope="module")
def large(works: Works, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A pair with a library of which patchelf sees only a part."""
    directory = tmp_path_factory.mktemp("large")
    stub = shared(directory / "libhip.so.7", "int hip(void){return 0;}")
    source = "extern int hip(void); int g(void){return hip();} char big[1 << 22] = {1};"
    library = shared(directory / "big.so", source, needed=[stub], flags=[VENDOR_PATH])
    vendor = works.wheel(directory, {"demo/big.so": library})
    report = relink(vendor, works.options(directory / "out"))
    assert report.output is not None
    return vendor, Path(report.output.path)


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


def test_more_ranges_than_are_told_apart(large: tuple[Path, Path], tmp_path: Path) -> None:
    data = bytearray(content(large[1], "demo/big.so"))
    (gap,) = find_gaps(data, read_image(data, "x"))
    places = range(gap.start, gap.stop, 256)
    for at in places:
        data[at] ^= 1
    found = diff(large[0], changed(large[1], tmp_path / "tampered", {"demo/big.so": bytes(data)}))
    change = next(change for change in found.changed if change.path == "demo/big.so")
    assert len(change.ranges) == 10_000
    assert change.ranges[-1].stop > places[-1]
    assert any("more ranges of bytes are not" in text for text in found.unexplained)
    assert len(found.unexplained) < 20


def test_store_paths_are_the_plans(pair: tuple[Path, Path], works: Works, tmp_path: Path) -> None:
    """A plan that names a Nix store goes with a member that lists its paths; relinked elsewhere, the next one has none."""
    listed = changed(
        pair[0], tmp_path / "listed", {"demo-1.0.dist-info/relink-store-paths": b"/nix/store/x\n"}
    )
    report = relink(listed, works.options(tmp_path / "out"))
    assert report.output is not None
    found = diff(listed, Path(report.output.path))
    assert found.removed == ("demo-1.0.dist-info/relink-store-paths",)
    assert found.verdict == "only what the plan says"


def test_patchelf_is_missing(pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    found = diff(*pair)
    assert not found.ok
    assert any(
        "demo/a.so: the edit cannot be made again to compare (patchelf is not" in text
        for text in found.unexplained
    )


def test_sections_without_end(works: Works) -> None:
    """65,000 sections of one name, each the whole file: told in no time."""
    data = works.library.read_bytes()
    rows = 65_000
    start = len(data) + -len(data) % 8
    row = struct.pack("<IIQQQQIIQQ", 1, 1, 0, 0, 0, start, 0, 0, 1, 0)
    table = bytearray(data) + bytes(start - len(data)) + bytes(64) + row * (rows - 1)
    struct.pack_into("<Q", table, 40, start)
    struct.pack_into("<HHH", table, 58, 64, rows, 0)
    old, new = bytes(table), bytearray(table)
    for at in range(0x400, start, 64):
        new[at] ^= 1
    began = time.monotonic()
    images = read_image(old, "x"), read_image(new, "x")
    sections = read_sections(old, "x"), read_sections(new, "x")
    ranges = Ranges()
    deque(differing_blocks([(0, old, bytes(new))], ranges), 0)
    with memoryview(old) as a, memoryview(new) as b:
        facts = elf_changes(a, b, images, sections, ranges)
        places = named_ranges(ranges, b, images[1], sections[1])
    assert len(facts.sections) == rows - 1
    assert len(places) == len(ranges.found) > 100
    assert time.monotonic() - began < 10


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


def test_a_damaged_library(works: Works, tmp_path: Path) -> None:
    data = works.library.read_bytes()
    one = make_wheel(tmp_path / "1", {"demo/a.so": data}, tag=TAG)
    two = make_wheel(tmp_path / "2", {"demo/a.so": data[:100]}, tag=TAG)
    (change, _) = diff(one, two).changed
    assert change.elf is None
    assert "damaged" in change.unexplained[0]
    assert [(item.start, item.stop) for item in change.ranges] == [(100, len(data))]


def test_unreadable(pair: tuple[Path, Path], tmp_path: Path) -> None:
    broken = tmp_path / pair[0].name
    broken.write_bytes(pair[0].read_bytes()[:-1])
    with pytest.raises(WheelError):
        diff(broken, pair[1])
    data = bytearray(pair[1].read_bytes())
    with zipfile.ZipFile(pair[1]) as archive:
        item = archive.getinfo("demo/a.so")
    data[item.header_offset + 30 + len(item.filename) + item.compress_size // 2] ^= 0xFF
    bad = tmp_path / OUTPUT
    bad.write_bytes(data)
    with pytest.raises(WheelError, match=r"demo/a\.so"):
        diff(pair[0], bad)


def test_both_contents_are_whole_whatever_pieces_they_come_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They share the pages that are the same, and a piece may end in the middle of one that is not."""
    monkeypatch.setattr("relink.wheel.deflate.stream.COMPRESSED_CHUNK", 5000)
    before = random.Random(1).randbytes(300_000) * 5
    after = bytearray(before)
    for at in range(100, len(after), 50_001):
        after[at] ^= 1
    one = make_wheel(tmp_path / "1", {"demo/data": before}, tag=TAG)
    two = make_wheel(tmp_path / "2", {"demo/data": bytes(after)}, tag=TAG)
    with (
        WheelArchive(one) as first,
        WheelArchive(two) as second,
        open_both(first, second, ("demo/data", "demo/data"), ranges := Ranges()) as (old, new),
    ):
        assert bytes(old) == before
        assert bytes(new) == after
    assert ranges.differing == len(range(100, len(after), 50_001))


@pytest.mark.slow(reason="deflates and reads 320 MB")
def test_memory_is_that_of_one_file(tmp_path: Path) -> None:
    """Two wheels of 24 x 16 MB of libraries: less than 3 of them at once, and those of other kinds in pieces."""
    library = shared(tmp_path / "big.so", "char big[1 << 24] = {1};").read_bytes()
    files = {f"demo/{number}.so": library for number in range(6)}
    one = make_wheel(tmp_path / "1", {**files, "demo/data": bytes(1 << 26)}, tag=TAG)
    edited = {name: flipped(data, len(data) // 2) for name, data in files.items()}
    two = make_wheel(tmp_path / "2", {**edited, "demo/data": bytes((1 << 26) - 1) + b"x"}, tag=TAG)
    script = """
import sys
from pathlib import Path
from relink.comparison import diff
from tests.support.memory import peak
before = peak()
found = diff(Path(sys.argv[1]), Path(sys.argv[2]))
assert [change.differing for change in found.changed][:-1] == [1] * 7, found
print((peak() - before) >> 10)
"""
    run = subprocess.run(
        [sys.executable, "-c", script, str(one), str(two)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
    )
    assert int(run.stdout) < 3 << 14  # KiB


def test_the_command(pair: tuple[Path, Path], works: Works, tmp_path: Path) -> None:
    def said(*words: str | Path) -> tuple[int, str, str]:
        run = forked("diff", *words)
        return run.returncode, run.stdout, run.stderr

    code, out, _ = said(*pair)
    last = (
        "only what the plan inside of NEW says (6 changed, 2 added, 0 removed, 2 unchanged); whoever made NEW wrote that plan: "
        "look at what it brings in, or compare with a plan of your own by --plan FILE or --prefix DIR"
    )
    assert (code, out.splitlines()[-1]) == (0, last)
    code, out, _ = said(*pair, "--prefix", str(works.prefix))
    last = "only what the plan says (6 changed, 2 added, 0 removed, 2 unchanged); the plan is made anew for "
    assert (code, out.splitlines()[-1]) == (0, f"{last}{works.prefix}")
    code, out, err = said(*pair, "--prefix", str(works.prefix), "--plan", pair[1])
    assert (code, out) == (2, "")
    assert "two plans to compare with" in err
    code, out, _ = said(*pair, "--json")
    assert code == 0
    assert json.loads(out)["verdict"] == "only what the plan says"
    code, out, _ = said(pair[1], pair[0])
    assert code == 1
    assert "differences that no plan explains" in out
    code, out, err = said(pair[0], tmp_path / "none.whl")
    assert (code, out) == (2, "")
    assert err.startswith("relink: ")
    code, _, err = said(*pair, "--limit", "members=2")
    assert code == 2
    assert "the limit is 2" in err
