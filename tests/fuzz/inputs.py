"""Damaged and made-up inputs of every kind that relink reads, each from a random generator alone: its number gives it again."""

from __future__ import annotations

import random
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from relink.loader.target import Target
from relink.system.shipped_files import shipped_directory
from tests.support.elf_builder import Export, Import, Library, build
from tests.support.wheels import changed
from tests.support.works import Works
from tests.unit.gpu.amd.build import ccob, code_object, entries_of, kpack_archive, library, raw
from tests.unit.wheel.build import DIST_INFO, FILENAME, Entry, RawZip, good_entries

NUMBERS: Final = (
    0, 1, 2, 3, 7, 8, 15, 16, 24, 127, 255, 4095, 4096, 65534, 65535, 65536, (1 << 31) - 1, 1 << 31, (1 << 32) - 1,
    1 << 32, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1,
)  # fmt: skip


@dataclass(frozen=True)
class Scene:
    """What every input of a kind is checked in: the good parts around the damaged one."""

    works: Works
    scratch: Path
    target: Target
    pair: tuple[Path, Path]

    def seeds(self, *names: str) -> list[bytes]:
        return [getattr(self.works, name).read_bytes() for name in names]


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Flip, cut, repeat, exchange and overwrite a few places, most of them where the structure is."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        if not changed:
            changed += b"\0"
        near = min(len(changed), 512)
        place = rng.choice(
            (rng.randrange(len(changed)), rng.randrange(near), len(changed) - 1 - rng.randrange(near))
        )
        length = rng.choice((1, 1, 2, 4, 8, 8, 24, 64))
        match rng.randrange(8):
            case 0:
                changed[place] ^= 1 << rng.randrange(8)
            case 1:
                changed[place] = rng.randrange(256)
            case 2 | 3 | 4:
                form = rng.choice(("<H", "<I", "<Q", "<Q"))
                size = struct.calcsize(form)
                place -= place % size
                changed[place : place + size] = struct.pack(form, rng.choice(NUMBERS) & ((1 << 8 * size) - 1))
            case 5:
                del changed[place : place + length if rng.random() < 0.7 else len(changed)]
            case 6:
                changed[place:place] = changed[place : place + length] or rng.randbytes(length)
            case _:
                other = rng.randrange(len(changed))
                changed[place : place + length] = changed[other : other + length]
    return bytes(changed)


def edited_text(data: bytes, rng: random.Random) -> bytes:
    """Damage made for text: lines moved, words from the format itself put anywhere."""
    words = (
        b",", b'"', b"\n", b"\r", b"\r\n", b"\0", b"=", b"sha256=", b"md5=", b"../", b"/", b"\xff", b"\xc3\xa9", b":",
        b"Version: 2\n", b"Name: x\n", b"Tag: py3-none-any\n", b" ", b"9" * 30, b"-1", b"1e9", b"null", b"[]", b"{}",
        b"[" * 50, b'"\\ud800"', b"NaN", b"true", b"\xe2\x80\xae", b"\x1b[2J", b"[[releases]]\n", b"a.b.c=1\n",
    )  # fmt: skip
    lines = data.splitlines(keepends=True) or [b""]
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(lines))
        match rng.randrange(6):
            case 0:
                lines[at] = b""
            case 1:
                lines.insert(at, rng.choice(lines))
            case 2:
                other = rng.randrange(len(lines))
                lines[at], lines[other] = lines[other], lines[at]
            case _:
                cut = rng.randrange(len(lines[at]) + 1)
                after = cut + rng.choice((0, 0, 1, 5))
                lines[at] = lines[at][:cut] + rng.choice(words) + lines[at][after:]
    return b"".join(lines) if rng.random() < 0.8 else damaged(b"".join(lines), rng)


# Wheels


def make_bytes(scene: Scene, rng: random.Random) -> bytes:
    if rng.random() < 0.5:
        return damaged(scene.works.small(scene.scratch / "seed").read_bytes(), rng)
    return damaged(RawZip(good_entries(), zip64=rng.random() < 0.5).build(), rng)


def make_fields(__: Scene, rng: random.Random) -> bytes:
    """A ZIP file whose fields lie, one or two of them."""
    entries = good_entries({"demo_pkg/a.py": b"a = 1\n" * 9, "demo_pkg/b.so": b"\x7fELF" * 9})
    archive = RawZip(entries, zip64=rng.random() < 0.3)
    numbers = ("crc", "compressed_size", "size", "offset", "disk", "flags", "method", "attributes", "made_by")
    names = (b"/etc/x", b"../x", b"C:x", b"a\\b", b"a\0b", b"", b"/", b"demo_pkg/A.py", b"x/../../y", b"\xff.py", b"a/",
             b"demo_pkg", b"other-1.0.dist-info/RECORD", b"CON", b"x" * 70000, b"demo_pkg/a.py", b"\xc3\xa9")  # fmt: skip
    for _ in range(rng.choice((1, 1, 2, 3))):
        entry = rng.choice(entries)
        number = min(rng.choice(NUMBERS), 0xFFFFFFFF)
        match rng.randrange(9):
            case 0 | 1:
                name = rng.choice(numbers)
                mask = (
                    0xFFFFFFFF
                    if name in ("crc", "compressed_size", "size", "offset", "attributes")
                    else 0xFFFF
                )
                setattr(entry, name, number & mask)
            case 2 | 3:
                name = rng.choice(("crc", "compressed_size", "size", "flags", "method"))
                mask = 0xFFFF if name in ("flags", "method") else 0xFFFFFFFF
                setattr(entry, f"local_{name}", number & mask)
            case 4:
                entry.name = rng.choice(names)[:65535]
            case 5:
                entry.local_name = rng.choice(names)[:65535]
            case 6:
                kind = rng.choice((1, 0x7075, 0x9999))
                body = rng.randbytes(rng.choice((0, 4, 8, 16, 28)))
                setattr(
                    entry, rng.choice(("extra", "local_extra")), struct.pack("<HH", kind, len(body)) + body
                )
            case 7:
                setattr(
                    entry, rng.choice(("descriptor", "padding")), rng.randbytes(rng.choice((12, 16, 20, 24)))
                )
                entry.flags |= rng.choice((0, 8))
            case _:
                name = rng.choice(("prepended", "before_end", "trailing", "comment", "count", "directory_size",
                                   "directory_offset", "disk", "zip64_count", "zip64_offset"))  # fmt: skip
                value: object = rng.randbytes(5)
                if name in ("count", "disk"):
                    value = number & 0xFFFF
                elif name not in ("prepended", "before_end", "trailing", "comment"):
                    value = number
                setattr(archive, name, value)
    if rng.random() < 0.1:
        entries.append(Entry(rng.choice(names)[:60000], b"x", method=rng.choice((0, 8, 12, 14, 99))))
    return archive.build()


def make_record(scene: Scene, rng: random.Random) -> bytes:
    data = scene.works.library.read_bytes()
    entries = {entry.name.decode(): entry.data for entry in good_entries({"demo_pkg/a.so": data})}
    return edited_text(entries[f"{DIST_INFO}/RECORD"], rng)


def make_name(_: Scene, rng: random.Random) -> bytes:
    return edited_text(FILENAME.encode(), rng)


# ELF files and device code


def make_elf(scene: Scene, rng: random.Random) -> bytes:
    built = build(
        Library(
            "libx.so",
            ("libhip.so.7", "libb.so"),
            rpath="$ORIGIN",
            exports=(Export("f", "V1"), Export("g")),
            imports=(Import("h", "V2", "libhip.so.7"),),
            hash=rng.choice(("both", "gnu", "sysv")),
        )
    )
    return damaged(rng.choice([built, *scene.seeds("library", "lost", "program")]), rng)


_TAGS: Final = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 17, 18, 20, 22, 23, 25, 27, 30, 35, 36, 37, 0x6FFFFEF5, 0x6FFFFEF7,
    0x6FFFFEFA, 0x6FFFFEFB, 0x6FFFFEFC, 0x6FFFFFF0, 0x6FFFFFF9, 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF)  # fmt: skip
_RELOCATIONS: Final = (0, 1, 5, 6, 7, 8, 10, 16, 17, 18, 36, 37, 99)


def make_structured_elf(scene: Scene, rng: random.Random) -> bytes:
    """An ELF file in which program headers, dynamic entries, relocations and symbols say something else."""

    def number() -> int:
        near = rng.randrange(0x4000)
        far = rng.choice(NUMBERS) + rng.choice((0, -8, 8, 24))
        return rng.choice((near, near & ~7, far)) & ((1 << 64) - 1)

    words = tuple(rng.choice((number() & ~1, number() | 1, 1, 3)) for _ in range(rng.randrange(5)))
    rows = ((number(), rng.choice(_RELOCATIONS), rng.randrange(6), number()) for _ in range(rng.randrange(6)))
    built = build(
        Library(
            "libx.so",
            ("libhip.so.7",),
            exports=(Export("f", "V1"), Export("g")),
            imports=(Import("h", "V2", "libhip.so.7"),),
            hash=rng.choice(("both", "gnu", "sysv")),
            relocations=tuple(rows) if rng.random() < 0.5 else (),
            relr=words if rng.random() < 0.3 else (),
        )
    )
    data = bytearray(rng.choice([built, built, *scene.seeds("library", "lost", "program")]))
    start, (count,) = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)
    headers = [start + 56 * index for index in range(count)]
    segments = {struct.unpack_from("<I", data, at)[0]: at for at in headers}
    (dynamic,) = struct.unpack_from("<Q", data, segments[2] + 8)
    (size,) = struct.unpack_from("<Q", data, segments[2] + 32)
    entries = dict(struct.iter_unpack("<QQ", bytes(data[dynamic : dynamic + size])))
    for _ in range(rng.choice((0, 1, 1, 2, 4))):
        match rng.randrange(6):
            case 0 | 1:
                at = rng.choice(headers) + rng.choice((8, 16, 16, 32, 40, 48))
                struct.pack_into("<Q", data, at, number())
            case 2:
                at = rng.choice(headers) + rng.choice((0, 4))
                struct.pack_into("<I", data, at, rng.choice((0, 1, 2, 3, 4, 5, 6, 7, 0x6474E551, 0x6474E552)))
            case 3:
                at = dynamic + 16 * rng.randrange(size // 16)
                struct.pack_into("<Q", data, at, rng.choice(_TAGS))
            case 4:
                at = dynamic + 16 * rng.randrange(size // 16) + 8
                struct.pack_into("<Q", data, at, number())
            case _:
                table = entries.get(rng.choice((4, 5, 6, 7, 36, 0x6FFFFEF5, 0x6FFFFFFC, 0x6FFFFFFE)), 0)
                at = min(table + 4 * rng.randrange(24), len(data) - 8)
                struct.pack_into(
                    *(
                        ("<Q", data, at, number())
                        if rng.random() < 0.5
                        else ("<I", data, at, number() & 0xFFFFFFFF)
                    )
                )
    return bytes(data)


def make_member(scene: Scene, rng: random.Random) -> bytes:
    return make_elf(scene, rng) if rng.random() < 0.8 else make_bundle(scene, rng)


def make_prefix(scene: Scene, rng: random.Random) -> bytes:
    if rng.random() < 0.1:
        return edited_text(
            b"/* GNU ld script */\nGROUP ( /usr/lib/libhip.so.7 AS_NEEDED ( libx.so ) )\n", rng
        )
    return damaged((scene.works.prefix / "lib" / "libhip.so.7").read_bytes(), rng)


def make_bundle(_: Scene, rng: random.Random) -> bytes:
    seeds = (
        lambda: raw(entries_of("gfx1100", "gfx90a:xnack-")),
        lambda: ccob(
            raw(entries_of("gfx1100", "gfx1030")), rng.choice((1, 2, 3)), rng.choice(("zstd", "zlib"))
        ),
        lambda: library(
            [raw(entries_of("gfx1100")), ccob(raw(entries_of("gfx1030")))],
            relocation=rng.choice(("rela", "rela-in-place", "relr", "none")),
            sections=rng.random() < 0.7,
        ),
        lambda: library(kpack=b"\x82\xabkernel_name\xa1x\xb2kpack_search_paths\x91\xa1y", kpack_wrappers=3),
        lambda: kpack_archive({"a#0": ["gfx1100"]}),
        code_object,
    )
    return damaged(rng.choice(seeds)(), rng)


# Data


def make_plan(scene: Scene, rng: random.Random) -> bytes:
    return edited_text((scene.scratch.parent / "plan.json").read_bytes(), rng)


def make_profile(_: Scene, rng: random.Random) -> bytes:
    paths = sorted(shipped_directory("profiles").glob("packages/*.toml"))
    return edited_text(rng.choice(paths).read_bytes(), rng)


def make_cache(scene: Scene, rng: random.Random) -> bytes:
    return damaged((scene.scratch.parent / "ld.so.cache").read_bytes(), rng)


def make_pair(scene: Scene, rng: random.Random) -> bytes:
    """A relinked wheel that was tampered with: contents with a RECORD that is right again, or the file itself."""
    wheel = scene.pair[1]
    if rng.random() < 0.2:
        return damaged(wheel.read_bytes(), rng)
    with zipfile.ZipFile(wheel) as archive:
        name = rng.choice([item for item in archive.namelist() if not item.endswith("RECORD")])
        data = archive.read(name)
    edit = damaged if name.endswith(".so") or rng.random() < 0.2 else edited_text
    return changed(wheel, scene.scratch / "tampered", {name: edit(data, rng)}).read_bytes()
