"""The target: this system's own loader, and everything that is none."""

from __future__ import annotations

import os
import re
import shutil
import stat
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relink.loader.loading import load
from relink.loader.search import Environment
from relink.loader.seen_files import Files
from relink.loader.target import GLIBC_SONAMES, find_target, lookup, parse_cache
from relink.system.errors import TargetError
from tests.support.amount import amount
from tests.support.cc import cc
from tests.support.elf_builder import SUPPORTED, WHY_NOT, Library

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)


def test_this_system() -> None:
    target = find_target()
    assert target.python == os.path.realpath(f"/proc/{os.getpid()}/exe")
    assert target.glibc == os.confstr("CS_GNU_LIBC_VERSION").split()[1]  # type: ignore[union-attr]
    assert target.header.machine == 62
    assert target.directories
    assert not any(directory.endswith("/") for directory in target.directories)
    assert all(name.startswith("x86-64-v") for name in target.hwcaps)
    assert os.path.exists(os.path.join(target.libc_directory, "libc.so.6"))


def test_directories_are_those_of_the_loaders_own_help() -> None:
    target = find_target()
    run = subprocess.run([target.interpreter, "--help"], capture_output=True, text=True, check=True)
    told = [line.split()[0] for line in run.stdout.splitlines() if line.endswith("(system search path)")]
    assert list(target.directories) == told
    active = [line.split()[0] for line in run.stdout.splitlines() if line.endswith("(supported, searched)")]
    active = [
        name for name in active if name.startswith("x86-64-v")
    ]  # before 2.37 older kinds are listed too
    assert list(target.hwcaps) == active


def test_the_same_as_the_loader_lists() -> None:
    """What is read from the search trace is what ``--list-diagnostics`` says where a loader has it (glibc 2.33 and newer)."""
    target = find_target()
    run = subprocess.run(
        [target.interpreter, "--list-diagnostics"], env={}, capture_output=True, text=True, check=True
    )
    facts = dict(re.findall(r'^(\S+?)="(.*?)"$', run.stdout, re.MULTILINE))
    directories = [value.rstrip("/") for key, value in facts.items() if key.startswith("path.system_dirs")]
    assert (target.glibc, target.lib) == (facts["version.version"], facts["dl_dst_lib"])
    assert target.platform == facts.get("dl_platform", "")
    assert target.cache_path == facts["path.sysconfdir"] + "/ld.so.cache"
    assert list(target.directories) == directories


def test_what_is_asked_is_not_what_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = find_target()
    monkeypatch.setenv("LD_LIBRARY_PATH", "/somewhere:/else")
    monkeypatch.setenv("LD_DEBUG", "all")
    assert find_target() == plain


def test_named_python_and_named_loader() -> None:
    plain = find_target()
    assert find_target(python=sys.executable) == plain
    named = find_target(interpreter=plain.interpreter)
    assert named.python is None
    assert named.directories == plain.directories


def test_a_link_to_python_is_followed(tmp_path: Path) -> None:
    (tmp_path / "python").symlink_to(os.path.realpath(sys.executable))
    assert find_target(python=str(tmp_path / "python")).python == os.path.realpath(sys.executable)


@pytest.mark.parametrize("kind", ["missing", "text", "empty", "directory", "library", "other machine"])
def test_no_loader(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "ld.so"
    match kind:
        case "text":
            path.write_text("#!/bin/sh\necho hello\n")
        case "empty":
            path.write_bytes(b"")
        case "directory":
            path.mkdir()
        case "library":
            Library(soname="liba.so").write(path)
        case "other machine":
            Library(soname="ld.so", machine=183).write(path)
        case _:
            pass
    with pytest.raises(TargetError) as caught:
        find_target(interpreter=str(path))
    assert "ld.so" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "NIX_LD_LIBRARY_PATH",
            r"ld\.so is nix-ld, which starts another loader; name that one: --interpreter /nix/ld\.so",
        ),
        (
            "https://nix.dev/permalink/stub-ld",
            r"ld\.so is the stub that NixOS has where others have the loader",
        ),
    ],
)
def test_what_nixos_has_in_the_place_of_the_loader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    """Programs that do what those of nixpkgs do when they are called by themselves: they say something and fail."""
    monkeypatch.setenv("NIX_LD", "/nix/ld.so")
    program = f'extern int puts(const char *);\nint main(void) {{ puts("{text}"); return 127; }}'
    cc(program, tmp_path / "ld.so")
    with pytest.raises(TargetError, match=said):
        find_target(interpreter=str(tmp_path / "ld.so"))


def test_a_program_that_is_no_loader(tmp_path: Path) -> None:
    program = Library(needed=("libc.so.6",), interpreter=find_target().interpreter).write(tmp_path / "prog")
    with pytest.raises(TargetError, match="does not answer like glibc's loader"):
        find_target(interpreter=str(program))


@pytest.mark.parametrize("kind", ["missing", "fails", "silent", "no program"])
def test_no_python(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "python"
    if kind != "missing":
        path.write_text({"fails": "#!/bin/sh\nexit 3\n", "silent": "#!/bin/sh\n"}.get(kind, "text"))
        path.chmod(path.stat().st_mode | (stat.S_IXUSR if kind != "no program" else 0))
    with pytest.raises(TargetError, match="--python"):
        find_target(python=str(path))


def test_no_sysroot(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="no such directory"):
        find_target(sysroot=str(tmp_path / "none"))
    with pytest.raises(TargetError, match="no dynamic loader in it"):
        find_target(sysroot=str(tmp_path))


def test_sysroot(tmp_path: Path) -> None:
    """A sysroot that holds this loader: its cache is the one inside, and host paths below it are taken for inner ones."""
    plain = find_target()
    inner = tmp_path.resolve() / "lib64"
    inner.mkdir()
    shutil.copy2(os.path.realpath(plain.interpreter), inner / "ld-linux-x86-64.so.2")
    target = find_target(sysroot=str(tmp_path.resolve()))
    assert target.interpreter == "/lib64/ld-linux-x86-64.so.2"
    assert target.cache is None
    assert target.directories == plain.directories
    assert target.libc_directory == "/lib64"
    assert (
        find_target(sysroot=str(tmp_path.resolve()), interpreter=str(inner / "ld-linux-x86-64.so.2"))
        == target
    )


def test_the_process_of_python_itself() -> None:
    """What the simulation maps for the Python that runs is what /proc says is mapped in it."""
    target = find_target()
    assert target.python is not None
    program = subprocess.run(
        [target.python, "-S", "-c", "print(open('/proc/self/maps').read())"],
        capture_output=True,
        text=True,
        check=True,
        env={key: value for key, value in os.environ.items() if not key.startswith("LD_")},
    )
    mapped = {os.path.realpath(line.split()[5]) for line in program.stdout.splitlines() if ".so" in line}
    closure = load(Environment(target, Files()), [], target.python)
    assert (closure.fatal, closure.missing) == (None, ())
    simulated = {os.path.realpath(entry.path) for entry in closure.objects[1:]}
    assert simulated <= mapped
    extensions = {path for path in mapped - simulated if "/lib-dynload/" in path}
    assert mapped - simulated == extensions
    assert {entry.image.soname for entry in closure.objects} & GLIBC_SONAMES >= {"libc.so.6"}


Entry = tuple[str, str, int, int]  # soname, path, flags, hwcap
X86_64, I386, ELF, AARCH64 = 0x0303, 0x0003, 0x0001, 0x0A03
EXTENSION = 1 << 62
HOST_CACHE = Path("/etc/ld.so.cache")


def build_cache(entries: Sequence[Entry], hwcaps: Sequence[str] = (), *, old: bool = False) -> bytes:
    """Write a cache as ldconfig does (sysdeps/generic/dl-cache.h); with `old`, behind one of the old format."""
    strings = bytearray()
    base = 48 + 24 * len(entries)

    def put(text: str) -> int:
        strings.extend(text.encode() + b"\0")
        return base + len(strings) - len(text.encode()) - 1

    rows = b"".join(
        struct.pack("<iIIIQ", flags, put(name), put(path), 0, hwcap) for name, path, flags, hwcap in entries
    )
    offsets = [put(name) for name in hwcaps]
    extension = base + len(strings) + -(base + len(strings)) % 4
    body = bytearray(rows + strings)
    body.extend(bytes(extension - 48 - len(body)))
    if hwcaps:
        listed = extension + 8 + 16
        body += struct.pack("<IIIIII", 0xEAA42174, 1, 1, 0, listed, 4 * len(offsets))
        body += struct.pack(f"<{len(offsets)}I", *offsets)
    head = b"glibc-ld.so.cache1.1" + struct.pack(
        "<IIB3xI12x", len(entries), len(strings), 2, extension if hwcaps else 0
    )
    data = bytes(head + body)
    if old:
        first = b"ld.so-1.7.0\0" + struct.pack("<I", 1) + bytes(12)
        data = first + bytes(-len(first) % 8) + data
    return data


def find(
    data: bytes,
    name: str,
    *,
    machine: int = 62,
    elf_class: int = 64,
    hwcaps: tuple[str, ...] = ("x86-64-v3", "x86-64-v2"),
) -> str | None:
    return lookup(parse_cache(data), name, machine=machine, elf_class=elf_class, hwcaps=hwcaps)


@pytest.mark.parametrize("old", [False, True])
def test_entry_of_the_right_machine(old: bool) -> None:
    data = build_cache(
        [("liba.so.1", "/32/liba.so.1", I386, 0), ("liba.so.1", "/64/liba.so.1", X86_64, 0)], old=old
    )
    assert find(data, "liba.so.1") == "/64/liba.so.1"
    assert find(data, "liba.so.1", machine=3, elf_class=32) == "/32/liba.so.1"
    assert find(data, "liba.so.1", machine=183) is None
    assert find(data, "liba.so") is None


def test_first_of_equals() -> None:
    data = build_cache([("liba.so.1", f"/{place}/liba.so.1", X86_64, 0) for place in "xy"])
    assert find(data, "liba.so.1") == "/x/liba.so.1"


def test_best_active_hwcaps_win() -> None:
    names = ("x86-64-v2", "x86-64-v3", "x86-64-v4")
    rows = [("liba.so.1", f"/{name}", X86_64, EXTENSION | index) for index, name in enumerate(names)]
    data = build_cache([*rows, ("liba.so.1", "/plain", X86_64, 0)], names)
    assert find(data, "liba.so.1") == "/x86-64-v3"
    assert find(data, "liba.so.1", hwcaps=("x86-64-v2",)) == "/x86-64-v2"
    assert find(data, "liba.so.1", hwcaps=()) == "/plain"
    assert {entry.hwcaps for entry in parse_cache(data).entries["liba.so.1"]} == {*names, None}


def test_legacy_hwcaps_are_left_out() -> None:
    data = build_cache([("liba.so.1", "/haswell", X86_64, 1 << 50), ("liba.so.1", "/plain", X86_64, 0)])
    assert find(data, "liba.so.1") == "/plain"


def test_numbers_are_compared_as_numbers() -> None:
    """_dl_cache_libcmp (elf/dl-cache.c): digits count by value, so 01 is 1, but 10 is not 1."""
    data = build_cache([("liba-2.04.so.1", "/a", X86_64, 0), ("libb.so.10", "/b", X86_64, 0)])
    assert find(data, "liba-2.4.so.01") == "/a"
    assert find(data, "libb.so.10") == "/b"
    assert find(data, "libb.so.1") is None
    assert find(data, "liba-.04.so.1") is None


@pytest.mark.skipif(not HOST_CACHE.exists(), reason="this system has no ld.so.cache")
def test_the_cache_of_this_system() -> None:
    ldconfig = shutil.which("ldconfig") or shutil.which("ldconfig", path="/sbin:/usr/sbin")
    if ldconfig is None:
        pytest.skip("no ldconfig here")
    run = subprocess.run([ldconfig, "-p"], capture_output=True, text=True, check=True)
    listed = re.findall(r"^\t(\S+) \(.*\) => (\S+)$", run.stdout, re.MULTILINE)
    parsed = parse_cache(HOST_CACHE.read_bytes())
    assert len(listed) > 0
    assert sorted(listed) == sorted(
        (entry.name, entry.path) for entries in parsed.entries.values() for entry in entries
    )


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"ld.so-1.7.0\0",
        b"ld.so-1.7.0\0\xff\xff\xff\xff",
        b"glibc-ld.so.cache1.1",
        b"glibc-ld.so.cache1.2" + bytes(100),
        build_cache([("liba.so", "/liba.so", X86_64, 0)])[:60],
        build_cache([("liba.so", "/liba.so", X86_64, 0)])[:-8],
        b"#!/bin/sh\n" * 20,
    ],
)
def test_damage_is_reported(data: bytes) -> None:
    with pytest.raises(TargetError, match=r"ld\.so\.cache .*ldconfig"):
        parse_cache(data)


SAMPLE = build_cache(
    [
        ("liba.so.1", "/best/liba.so.1", X86_64, EXTENSION),
        ("liba.so.1", "/liba.so.1", X86_64, 0),
        ("libb.so.2", "/libb.so.2", ELF, 0),
    ],
    ("x86-64-v3",),
    old=True,
)


@settings(max_examples=amount(500), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, len(SAMPLE) - 1), st.integers(0, 255)), min_size=1, max_size=8),
    st.integers(0, len(SAMPLE)),
)
def test_flipped_bytes_never_escape(flips: list[tuple[int, int]], cut: int) -> None:
    data = bytearray(SAMPLE)
    for place, value in flips:
        data[place] = value
    for damaged in (bytes(data), bytes(data[:cut])):
        try:
            found = parse_cache(damaged)
        except TargetError:
            continue
        lookup(found, "liba.so.1", machine=62, elf_class=64, hwcaps=("x86-64-v3",))
