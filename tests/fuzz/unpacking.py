"""Wheels with what makes readers differ: relink refuses one, or everybody unpacks what relink has read.

``python -m tests.fuzz.unpacking FIRST COUNT DIRECTORY [PROGRAM…]``: `installer` and `unzip`, or those of :data:`UNPACKERS`.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
import subprocess
import sys
import sysconfig
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import installer
import installer.destinations
import installer.sources

from relink.system.errors import RelinkError
from relink.wheel.archive import WheelArchive
from relink.wheel.schemes import ENTRY_POINTS, installed_path, read_script_names
from tests.support.outside import OFFLINE
from tests.support.works import open_wheel
from tests.unit.wheel.build import DIST_INFO, Entry, RawZip, good_entries

Tree = dict[str, bytes]
NAME: Final = "demo_pkg-1.0-py3-none-any.whl"
SITE: Final = f"lib/python3.{sys.version_info[1]}/site-packages"
_DATA: Final = "demo_pkg-1.0.data"
_WHEEL: Final = b"Wheel-Version: 1.0\nGenerator: maker (1)\nRoot-Is-Purelib: true\nTag: py3-none-any\n\n"
_NAMES: Final = (
    *(
        "demo_pkg/\u00fc.py",
        "demo_pkg/A.py",
        "demo_pkg/./b.py",
        "demo_pkg//c.py",
        "demo_pkg/../d.py",
        "/abs.py",
    ),
    *(
        "demo_pkg\\e.py",
        "demo_pkg/x y.py",
        "demo_pkg/a,b.py",
        "demo_pkg/new\nline",
        "demo_pkg/.hidden",
        "C:/x.py",
    ),
    *(
        "demo_pkg/a.py/b",
        "demo_pkg/dot.",
        f"demo_pkg/{'n' * 250}",
        "demo_pkg/sub/deep/x.py",
        "top.py",
        "demo_pkg/*",
    ),
    *(
        f"{_DATA}/{end}"
        for end in ("purelib/demo_pkg/p.py", "platlib/demo_pkg/q.py", "scripts/tool", "headers/h.h")
    ),
    *(
        f"{_DATA}/{end}"
        for end in ("purelib/demo_pkg/a.py", "data/etc/x", f"data/{SITE}/demo_pkg/a.py", "other/x")
    ),
    *("Demo_Pkg-1.0.data/data/y", "demo-pkg-1.0.data/data/z", f"{_DATA}/scripts/sub/tool", f"{_DATA}/top"),
    *(f"{DIST_INFO}/{end}" for end in ("licenses/LICENSE", "RECORD.jws", "INSTALLER", "direct_url.json")),
    *(
        "other-1.0.dist-info/METADATA",
        "demo_pkg-2.0.dist-info/METADATA",
        "demo_pkg/__pycache__/a.cpython-311.pyc",
    ),
)
_SCRIPTS: Final = ("tool", "other", "a b", "sub/tool", "../x", "Tool", "t\u00f6l", ".x", "python")


def _descriptor(entry: Entry, rng: random.Random) -> None:
    raw = zlib.compressobj(6, zlib.DEFLATED, -15)
    entry.compressed = raw.compress(entry.data) + raw.flush()
    facts = struct.pack("<3L", zlib.crc32(entry.data), len(entry.compressed), len(entry.data))
    entry.method, entry.flags, entry.descriptor = 8, 8, rng.choice((b"PK\x07\x08", b"")) + facts
    if rng.random() < 0.7:
        entry.local_crc = entry.local_size = entry.local_compressed_size = 0


_EXTRAS: Final = (
    struct.pack("<HHBL", 0x7075, 10, 1, 0) + b"other",
    struct.pack("<HHBL", 0x5455, 5, 1, 0),
    struct.pack("<HH", 0x7875, 11) + b"\x01\x04\0\0\0\0\x04\0\0\0\0",
    b"abc",
    struct.pack("<HHQ", 1, 8, 9),
)
_FIELDS: Final[Mapping[str, Callable[[random.Random], object]]] = {
    "method": lambda rng: rng.choice((0, 8, 12, 93)),
    "flags": lambda rng: rng.choice((1, 8, 0x800, 0x808, 2)),
    "crc": lambda rng: rng.choice((0, 1)),
    "size": lambda rng: rng.choice((0, 1, 9999)),
    "compressed_size": lambda rng: rng.choice((0, 1, 9999)),
    "attributes": lambda rng: (
        rng.choice((0, 0o100755, 0o120777, 0o104755, 0o40755, 0o10644, 0o100000, 0o644)) << 16
    ),
    "made_by": lambda rng: rng.choice((0, 20, 3 << 8, 10 << 8, 19 << 8)),
    "extra": lambda rng: rng.choice(_EXTRAS),
    "local_extra": lambda rng: rng.choice(_EXTRAS),
    "local_name": lambda rng: rng.choice((b"demo_pkg/z.py", b"demo_pkg/a.py", b"")),
    "local_method": lambda rng: rng.choice((0, 8)),
    "local_flags": lambda rng: rng.choice((0, 1, 8, 0x800)),
    "local_crc": lambda rng: rng.choice((0, 1)),
    "local_size": lambda rng: rng.choice((0, 1, 0xFFFFFFFF)),
    "local_compressed_size": lambda rng: rng.choice((0, 1, 0xFFFFFFFF)),
    "padding": lambda rng: rng.choice((b"\0" * 8, b"PK\x03\x04")),
    "name": lambda rng: rng.choice((b"demo_pkg/\xff.py", b"demo_pkg/\x81.py", b"demo_pkg/nul\0.py", b"")),
}
_ENDS: Final[Mapping[str, Callable[[random.Random], object]]] = {
    "prepended": lambda rng: rng.choice((b"#!/bin/sh\n", b"\0" * 99)),
    "before_end": lambda rng: rng.choice((b"\0", b"PK\x05\x06")),
    "trailing": lambda rng: rng.choice((b"\0", b"\n", b"PK\x05\x06")),
    "comment": lambda rng: rng.choice((b"made by", b"PK\x05\x06" + b"\0" * 18)),
    "zip64": lambda rng: rng.random() < 0.9,
}


def make(number: int) -> bytes:
    """Return a wheel with a few oddities; the same for the same number."""
    rng = random.Random(f"unpacked {number}")
    files = {
        "demo_pkg/a.py": b"a = 1\n" * 9,
        "demo_pkg/data": rng.randbytes(300),
        f"{DIST_INFO}/WHEEL": _WHEEL,
    }
    for name in rng.sample(_NAMES, rng.choice((0, 1, 1, 2, 3))):
        files[name] = b"#!python\nprint()\n" if "/scripts/" in name else name.encode()
    if rng.random() < 0.2:
        lines = (f"{name} = demo_pkg.a:main\n" for name in rng.sample(_SCRIPTS, 2))
        files[f"{DIST_INFO}/{ENTRY_POINTS}"] = f"[console_scripts]\n{''.join(lines)}".encode()
    raw = RawZip(good_entries(files))
    for entry in raw.entries:
        entry.flags |= 0 if entry.name.isascii() or rng.random() < 0.2 else 0x800
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        entry, kind = rng.choice(raw.entries), rng.randrange(6)
        if kind == 0:
            _descriptor(entry, rng)
        elif kind == 1:
            raw.entries.append(Entry(entry.name, rng.choice((entry.data, b"another"))))
        elif kind == 2:
            raw.entries.insert(
                0, Entry(b"demo_pkg/sub/", rng.choice((b"", b"", b"hidden")), attributes=0o40755 << 16)
            )
        elif kind == 3:
            name = rng.choice([*_ENDS])
            setattr(raw, name, _ENDS[name](rng))
        else:
            name = rng.choice([*_FIELDS])
            setattr(entry, name, _FIELDS[name](rng))
    return raw.build()


def read(wheel: Path) -> tuple[Tree, set[str]] | None:
    """Return the content of the members by name, and the scripts that an installer makes; None where relink refuses."""
    try:
        with ExitStack() as stack:
            if any(found.level == "error" for found in open_wheel(wheel, stack).findings):
                return None
        with WheelArchive(wheel) as archive:
            members = {n: archive.read(n) for n, member in archive.members.items() if not member.is_directory}
            return members, read_script_names(archive)
    except RelinkError:
        return None


def files_of(directory: Path) -> Tree:
    """Return the content of all files by path; of a link where it leads."""
    paths = (path for path in directory.rglob("*") if path.is_symlink() or not path.is_dir())
    return {
        str(path.relative_to(directory)): os.readlink(path).encode()
        if path.is_symlink()
        else path.read_bytes()
        for path in paths
    }


def by_installer(wheel: Path, directory: Path) -> None:
    base = {"base": str(directory), "platbase": str(directory)}
    paths = sysconfig.get_paths("posix_prefix", vars=base)
    schemes = {name: paths[name] for name in ("purelib", "platlib", "scripts", "data")}
    schemes["headers"] = f"{directory}/include/site/python3.{sys.version_info[1]}/demo_pkg"
    destination = installer.destinations.SchemeDictionaryDestination(
        schemes, interpreter="/usr/bin/python", script_kind="posix"
    )
    with installer.sources.WheelFile.open(wheel) as source:
        installer.install(source, destination, {})


def _run(*words: str | Path) -> None:
    subprocess.run(words, check=True, capture_output=True, stdin=subprocess.DEVNULL, env=os.environ | OFFLINE)


def by_pip(wheel: Path, directory: Path) -> None:
    pip = [sys.executable, "-m", "pip", "-q", "--isolated", "--disable-pip-version-check", "install"]
    _run(*pip, "--no-deps", "--no-compile", "--ignore-installed", "--prefix", directory, wheel)


def by_uv(wheel: Path, directory: Path) -> None:
    uv = str(Path(sys.executable).with_name("uv"))
    options = ["-q", "--no-config", "--no-cache", "--no-deps", "--reinstall", f"--python={sys.executable}"]
    _run(uv, "pip", "install", *options, "--prefix", directory, wheel)


UNPACKERS: Final[Mapping[str, Callable[[Path, Path], None]]] = {
    "unzip": lambda wheel, directory: _run("unzip", "-qq", "-o", wheel, "-d", directory),
    "bsdtar": lambda wheel, directory: _run("bsdtar", "-xf", wheel, "-C", directory),
    "installer": by_installer,
    "pip": by_pip,
    "uv": by_uv,
}
_NOTED: Final = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json")


def expected(members: Tree, scripts: set[str], found: Tree) -> tuple[Tree, Tree]:
    """Return what an installer leaves of these members, and what it left, without what it makes itself."""
    wanted = {installed_path(name, SITE): data for name, data in members.items()}
    wanted |= {f"bin/{name}": b"" for name in scripts}
    found = {
        path: b"" if path in {f"bin/{name}" for name in scripts} else data for path, data in found.items()
    }
    for tree in (wanted, found):
        for path in [*tree]:
            # The directory of headers has the name as METADATA spells it or another; `installer` leaves bytecode out.
            if path.startswith("include/"):
                tree["include/" + path.split("/", 4)[-1]] = tree.pop(path)
            elif (
                path == ".lock"
                or "/__pycache__/" in path
                or path.removeprefix(f"{SITE}/{DIST_INFO}/") in _NOTED
            ):
                del tree[path]
            elif path.startswith("bin/") and tree[path].startswith(b"#!"):
                tree[path] = tree[path].partition(b"\n")[2]
    return wanted, found


def compare(number: int, directory: Path, programs: Sequence[str], counted: Counter[str]) -> list[str]:
    """Unpack a wheel by these programs; returns a line for each whose tree is another one."""
    wheel = directory / NAME
    wheel.write_bytes(make(number))
    counted["wheels"] += 1
    if (accepted := read(wheel)) is None:
        return []
    counted["accepted"] += 1
    members, scripts = accepted
    lines = []
    for program in programs:
        place = directory / program
        place.mkdir()
        try:
            UNPACKERS[program](wheel, place)
        except Exception as error:  # noqa: BLE001 - whatever it is, it has not unpacked what relink accepts
            said = (
                error.stderr.decode(errors="replace")
                if isinstance(error, subprocess.CalledProcessError)
                else ""
            )
            lines.append(f"wheel {number}, {program}: {error!r} {said}")
        else:
            wanted, found = members, files_of(place)
            if program not in ("unzip", "bsdtar"):
                wanted, found = expected(members, scripts, found)
            wrong = [path for path in {*wanted, *found} if wanted.get(path) != found.get(path)]
            lines += [f"wheel {number}, {program}: {sorted(wrong)} differ"] if wrong else []
        shutil.rmtree(place)
    return lines


def main() -> None:
    first, count, directory = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    directory.mkdir(parents=True, exist_ok=True)
    counted: Counter[str] = Counter()
    for number in range(first, first + count):
        for line in compare(number, directory, sys.argv[4:] or ("installer", "unzip"), counted):
            counted["differ"] += 1
            sys.stdout.write(f"{line}\n")
    sys.stdout.write(f"{json.dumps(counted)}\n")


if __name__ == "__main__":
    main()
