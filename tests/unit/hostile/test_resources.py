"""Files made to take all time or all memory, through the command line: each is answered at once, in little memory.

What each took before it was bounded stands beside it: a wait without end, or ten times the bounds of this test and more.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from relink.elf.image import read_image
from relink.system.errors import ElfError
from tests.support.elf_builder import SUPPORTED, WHY_NOT, Library, build
from tests.support.hostile_counts import (
    kpack_lists,
    kpack_paths,
    plan_of,
    scattered_wrappers,
    sections_of_wrappers,
)
from tests.support.limited import limited
from tests.support.wheels import make_wheel
from tests.support.works import TAG, Works
from tests.unit.gpu.amd.build import kpack_archive
from tests.unit.wheel.build import DIST_INFO
from tests.unit.wheel.build import make_wheel as made_wheel

CPU = 8.0  # seconds; the answers take less than one, and what is answered without end reaches any number
MEMORY = 400 << 20  # bytes; a run holds 30 to 100 MiB

Make = Callable[[Works, Path], Sequence[str | Path]]


@dataclass(frozen=True)
class Case:
    """How an input is made, as the words of a command; the exit code, and what is said."""

    make: Make
    code: int
    said: str


def prefix_of(works: Works, here: Path) -> Path:
    prefix = here / "rocm"
    shutil.copytree(works.prefix, prefix, symlinks=True)
    return prefix


def instead(name: str, kind: str) -> Callable[[Path], Path]:
    """Put what is no file in place of one: a FIFO, a device without end, or a file of 64 GiB that are not there."""

    def make(top: Path) -> Path:
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        if kind == "fifo":
            os.mkfifo(path)
        elif kind == "device":
            path.symlink_to("/dev/zero")
        else:
            path.touch()
            os.truncate(path, 1 << 36)
        return path

    return make


KINDS = ("fifo", "device", "sparse")


def in_prefix(name: str, kind: str, *words: str) -> Make:
    def make(works: Works, here: Path) -> Sequence[str | Path]:
        prefix = prefix_of(works, here)
        (prefix / ".info/version").unlink()  # or nothing else would be asked
        instead(name, kind)(prefix)
        return (*words, prefix)

    return make


def named(name: str, kind: str, *words: str) -> Make:
    return lambda _, here: (*words, instead(name, kind)(here))


def text(name: str, content: Callable[[], str], *words: str) -> Make:
    def make(_: Works, here: Path) -> Sequence[str | Path]:
        (here / name).write_text(content(), encoding="utf-8")
        return (*words, here / name)

    return make


def wheel_with(files: Callable[[Works], dict[str, bytes | Path]], *words: str) -> Make:
    return lambda works, here: (*words, make_wheel(here, files(works), tag=TAG))


def dry(files: Callable[[Works], dict[str, bytes | Path]]) -> Make:
    return lambda works, here: (
        make_wheel(here, files(works), tag=TAG), "--dry-run", "--prefix", works.prefix
    )  # fmt: skip


def long_names(works: Works) -> dict[str, bytes | Path]:
    return {f"evil/{number}/" + "x/" * 32_700 + "a.so": works.plain for number in range(8)}


def deep_names(works: Works) -> dict[str, bytes | Path]:
    return {f"evil/{number}/" + "x/" * 1500 + "a.so": works.plain for number in range(400)}


def many_lookups(_: Works) -> dict[str, bytes | Path]:
    """Each of 4,000 libraries is to be looked for in 20,000 directories."""
    needed = tuple(f"lib{number}.so" for number in range(4000))
    runpath = ":".join(f"/nowhere/{number}" for number in range(20_000))
    return {"demo/a.so": build(Library("liba.so", needed, runpath=runpath))}


def notes_upon_each_other(works: Works) -> dict[str, bytes | Path]:
    """3,000 PT_NOTE segments that are one: a MiB of a dlopen note."""
    data = bytearray(works.plain.read_bytes())
    json = b"[" + b'{"soname":"a"},' * 69_000 + b'{"soname":"a"}]'
    note = len(data)
    data += struct.pack("<III4s", 4, len(json), 0x407C0C0A, b"FDO\0") + json
    table = len(data) + -len(data) % 8
    data += bytes(table - len(data))
    (start,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    data += data[start : start + size * count]
    data += struct.pack("<IIQQQQQQ", 4, 4, note, 0, 0, 16 + len(json), 0, 4) * 3000
    struct.pack_into("<Q", data, 32, table)
    struct.pack_into("<H", data, 56, count + 3000)
    with pytest.raises(ElfError, match="69001 libraries"):  # once, whatever the number of segments
        read_image(bytes(data), "x")
    return {"demo/a.so": bytes(data)}


def kpack_hang(_: Works) -> dict[str, bytes | Path]:
    """50 libraries, each with 3,500 search paths, in a directory of 5,000 files."""
    library = kpack_paths(3500)
    return {
        **{f"demo/{number}.so": library for number in range(50)},
        **{f"demo/{n}": b"" for n in range(5000)},
    }


def kpack_toc_hang(_: Works) -> dict[str, bytes | Path]:
    """Archives of 100 million objects together."""
    return {f"demo/{number}.kpack": kpack_lists(990_000) for number in range(100)}


def dlopen_notes_hang(works: Works) -> dict[str, bytes | Path]:
    return {
        f"demo/{number}.so": data for number in range(5) for data in notes_upon_each_other(works).values()
    }


def plan_size_hang(_: Works) -> dict[str, bytes | Path]:
    return {"demo/a.py": b"", "demo-1.0.dist-info/relink.json": plan_of(300_000).encode()}


def device_code(data: Callable[[int], bytes], count: int) -> Make:
    def make(_: Works, here: Path) -> Sequence[str | Path]:
        (here / "a.so").write_bytes(data(count))
        return ("isa", here / "a.so")

    return make


def info(member: str, line: bytes, size: int) -> Make:
    """A file of the dist-info that is the same line again and again."""

    def make(_: Works, here: Path) -> Sequence[str | Path]:
        data = line * (size // len(line))
        return ("inspect", made_wheel(here, {"demo_pkg/a.py": b"", f"{DIST_INFO}/{member}": data}))

    return make


def link(target: str) -> Make:
    def make(works: Works, here: Path) -> Sequence[str | Path]:
        prefix = prefix_of(works, here)
        (prefix / "lib/elsewhere").symlink_to(target)
        return ("isa", prefix)

    return make


def too_long(_: Works, here: Path) -> Sequence[str | Path]:
    (here / "a").symlink_to("a" * 300)
    return ("isa", here / "a")


def packed(_: Works, here: Path) -> Sequence[str | Path]:
    """An archive whose table of contents is 32 MiB of empty lists."""
    data = kpack_archive({"a#0": ["gfx1100"]})
    count = 32 << 20
    toc = b"\x81\xa3toc\xdd" + struct.pack(">I", count) + b"\x90" * count
    (here / "a.kpack").write_bytes(data[:8] + struct.pack("<Q", len(data)) + data[16:] + toc)
    return ("isa", here / "a.kpack")


def dots() -> str:
    return ".".join("a" * 50_000) + " = 1\n"


CASES: dict[str, Case] = {
    **{
        f"doctor: .info/version is a {kind}": Case(
            in_prefix(".info/version", kind, "doctor", "--prefix"), 1, ""
        )
        for kind in KINDS
    },
    **{
        f"doctor: hip_version.h is a {kind}": Case(
            in_prefix("include/hip/hip_version.h", kind, "doctor", "--prefix"), 1, ""
        )
        for kind in KINDS
    },
    **{
        f"isa: a kernel file is a {kind}": Case(in_prefix("lib/a.hsaco", kind, "isa"), 0, "no library")
        for kind in KINDS
    },
    **{f"isa: the file is a {kind}": Case(named("a.so", kind, "isa"), 0, "") for kind in KINDS},
    "isa: a link to /": Case(link("/"), 0, "lead out of it"),
    "isa: a link to /proc": Case(link("/proc"), 0, "lead out of it"),
    "isa: a link to the processes' memory": Case(link("/proc/kcore"), 0, ""),
    "isa: a link to a name that is too long": Case(too_long, 2, "no such file"),
    "isa: a packed archive": Case(packed, 0, "more objects than are read"),
    "kpack-hang": Case(dry(kpack_hang), 1, "no kpack archive"),
    "kpack-toc-hang": Case(wheel_with(kpack_toc_hang, "isa"), 0, "100 kernel files"),
    "dlopen-notes-hang": Case(dry(dlopen_notes_hang), 1, "69001 libraries in its dlopen notes"),
    "plan-size-hang": Case(wheel_with(plan_size_hang, "report"), 2, "a list of 300000"),
    "isa: 20,000 wrappers, each alone": Case(
        device_code(scattered_wrappers, 20_000), 0, "1 bundles cannot be read"
    ),
    "isa: 20,000 wrappers in 20,000 sections": Case(
        device_code(sections_of_wrappers, 20_000), 0, "no bundle"
    ),
    **{
        f"profile: a {kind}": Case(named("mine.toml", kind, "profile", "check"), 2, "cannot be read")
        for kind in KINDS
    },
    **{
        f"profile show: a {kind}": Case(named("mine.toml", kind, "profile", "show"), 2, "cannot be read")
        for kind in KINDS
    },
    "profile: 50,000 dots in a key": Case(text("mine.toml", dots, "profile", "check"), 2, "nested too deep"),
    "profile: 50,000 dots in a header": Case(
        text("mine.toml", lambda: f"[{'.'.join('a' * 50_000)}]\n", "profile", "check"), 2, "nested too deep"
    ),
    "profile: dots behind a string": Case(
        text("mine.toml", lambda: f'x = [""" """", {{{dots().strip()}}}] # "\n', "profile", "check"),
        2,
        ":1: ",
    ),
    "profile: 50 MB": Case(
        text("mine.toml", lambda: "".join(f"k{n}=1\n" for n in range(5_000_000)), "profile", "check"),
        2,
        "larger than 256 KiB",
    ),
    "profile: 30,000 keys that there are not": Case(
        text("mine.toml", lambda: "".join(f"k{n}=1\n" for n in range(30_000)), "profile", "check"),
        2,
        "no such key",
    ),
    "profile: 50,000 equal items": Case(
        text("mine.toml", lambda: f"variants = [{'1, ' * 50_000}]", "profile", "check"),
        2,
        "stands there twice",
    ),
    "profile: 25,000 items": Case(
        text(
            "mine.toml",
            lambda: "imports = [" + "".join(f"'{n}'," for n in range(25_000)) + "]",
            "profile",
            "check",
        ),
        2,
        "was expected",
    ),
    "profile: brackets": Case(
        text("mine.toml", lambda: f"x = {'[' * 900}{']' * 900}\n" * 100, "profile", "check"),
        2,
        "nested too deep",
    ),
    "profile: strings without end": Case(
        text("mine.toml", lambda: '\\"""\n' * 50_000, "profile", "check"), 2, "not TOML"
    ),
    "profile: an integer of 50,000 digits": Case(
        text("mine.toml", lambda: f"x = {'9' * 50_000}", "profile", "check"), 2, "write a smaller number"
    ),
    "profile: an integer of 200,000 hexadecimal digits": Case(
        text("mine.toml", lambda: f"imports = 0x{'f' * 200_000}", "profile", "check"), 2, "a large number"
    ),
    **{f"report: a {kind}": Case(named("a.json", kind, "report"), 2, "cannot be read") for kind in KINDS},
    "report: lists in lists": Case(text("a.json", lambda: "[" * 999_000, "report"), 2, "too deep"),
    "report: 13 million lists": Case(
        text(
            "a.json", lambda: '{"schema": "relink.report/1", "a": [' + "[]," * 10_000_000 + "[]]}", "report"
        ),
        2,
        "lists and objects",
    ),
    "report: 60 MB": Case(
        text("a.json", lambda: '{"a": "' + "x" * 60_000_000 + '"}', "report"), 2, "larger than 32 MiB"
    ),
    "report: an integer of 100,000 digits": Case(
        text("a.json", lambda: f'{{"schema": {"9" * 100_000}}}', "report"), 2, "a number that nothing holds"
    ),
    **{
        f"diff --plan: a {kind}": Case(
            lambda works, here, kind=kind: (  # type: ignore[misc]
                *(
                    "diff",
                    works.small(here),
                    works.small(here / "b"),
                    "--plan",
                    instead("a.json", kind)(here),
                ),
            ),
            2,
            "cannot be read",
        )
        for kind in KINDS
    },
    **{
        f"--interpreter: a {kind}": Case(
            lambda works, here, kind=kind: (works.small(here), "--interpreter", instead("ld.so", kind)(here)),  # type: ignore[misc]
            2,
            "ld.so",
        )
        for kind in KINDS
    },
    "names of 65,000 bytes": Case(dry(long_names), 2, "a path has 4095 at most"),
    "names of 1,500 directories": Case(dry(deep_names), 2, "directories; at most"),
    "4,000 NEEDED in 20,000 directories": Case(dry(many_lookups), 1, "RLK506"),
    "3,000 notes that are one": Case(wheel_with(notes_upon_each_other, "inspect"), 0, "demo 1.0"),
    "RECORD of 20 million lines": Case(info("RECORD", b"a\n", 60_000_000), 2, "RECORD has more than"),
    "METADATA of 20 million fields": Case(info("METADATA", b"a:\n", 60_000_000), 2, "METADATA has"),
    "relink.json of 60 MB": Case(
        wheel_with(
            lambda works: {
                "demo/a.so": works.plain,
                "demo-1.0.dist-info/relink.json": b"[" + b"[]," * 20_000_000 + b"[]]",
            },
            "verify",
        ),
        2,
        "",
    ),
}


ALIKE = pytest.mark.slow(reason="a process each; the same places with a FIFO are tried always")


@pytest.mark.few(10, reason="other ways to the same limits")
@pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=ALIKE) if case.endswith(("device", "sparse")) else case for case in CASES],
)
def test_an_answer_at_once(
    works: Works,
    tmp_path: Path,
    case: str,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    monkeypatch.chdir(tmp_path)
    expected = CASES[case]
    ended = limited(*expected.make(works, tmp_path))
    said = ended.out + ended.err
    record_property("exit", f"{ended.code}, {ended.cpu:.2f} s, {ended.peak >> 20} MiB")
    assert "Traceback" not in said
    assert "fault of relink" not in said
    assert "not enough memory" not in said
    assert (ended.code, expected.said in said) == (expected.code, True), said[:2000]
    assert ended.cpu < CPU
    assert ended.peak < MEMORY
