"""The target: the dynamic loader that will run the result, and what it says of itself.

Nothing about its directories is assumed: the loader is asked (``--version``, and the search trace of LD_DEBUG=libs, which each
glibc has; ``--list-diagnostics`` would tell as much, but came with 2.33 and reads every CPUID leaf, 0.2 s in a virtual machine).
Its ``/etc/ld.so.cache`` is read as ldconfig writes the file and ld.so reads it (glibc elf/cache.c, elf/dl-cache.c,
sysdeps/generic/dl-cache.h).
"""

from __future__ import annotations

import functools
import os
import posixpath
import re
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from relink.elf.image import Header, read_header, read_image
from relink.loader.python import NIXOS_STUB, PythonFacts, active_python, ask_python
from relink.loader.seen_files import resolve_inside
from relink.system.errors import ElfError, TargetError, raise_if_machine_fault
from relink.system.safe_open import map_file, read_bytes, read_start
from relink.system.text import group_pairs

_OLD_MAGIC = b"ld.so-1.7.0\0"
_NEW_MAGIC = b"glibc-ld.so.cache1.1"
_EXTENSION_MAGIC = 0xEAA42174
_TAG_GLIBC_HWCAPS = 1
# DL_CACHE_HWCAP_EXTENSION: the low half is an index into the glibc-hwcaps names.
_HWCAP_EXTENSION = 1 << 62
# Bytes of a string with its NUL: PATH_MAX of Linux.
_MAX_STRING = 4096
_ISA_LEVEL_MASK = ((1 << 10) - 1) << 32

# sysdeps/generic/ldconfig.h: FLAG_ELF_LIBC6 (3) with the architecture's own flag, by (e_machine, class).
_FLAGS = {
    (62, 64): 0x0303,
    (3, 32): 0x0003,
    (183, 64): 0x0A03,
    (62, 32): 0x0803,
    (243, 64): 0x1003,
    (258, 64): 0x1203,
}


class CacheEntry(msgspec.Struct, frozen=True):
    """One line of ``ldconfig -p``: a soname, the path it stands for, and for which processors it is.

    :ivar hwcaps: the glibc-hwcaps subdirectory the entry came from (``x86-64-v3``), or None.
    :ivar legacy_hwcap: the bit mask of pre-2.37 hardware capabilities; 0 for an ordinary entry.
    """

    name: str
    path: str
    flags: int
    hwcaps: str | None = None
    legacy_hwcap: int = 0


class LoaderCache(msgspec.Struct, frozen=True):
    """The entries by soname, each list in the order of the file.

    :ivar by_number: the same for the names in which a number is written with leading zeros, by the name without them.
    """

    entries: Mapping[str, Sequence[CacheEntry]]
    by_number: Mapping[str, Sequence[CacheEntry]] = msgspec.field(default_factory=dict)


def parse_cache(data: bytes) -> LoaderCache:
    """Read a cache in the new format, or in the old one with the new one appended.

    :raises TargetError: it is neither, or its tables point outside of it.
    """
    try:
        start = 0
        if data.startswith(_OLD_MAGIC):
            (count,) = struct.unpack_from("<I", data, 12)
            start = -(-(16 + count * 12) // 8) * 8  # ALIGN_CACHE
        if data[start : start + len(_NEW_MAGIC)] != _NEW_MAGIC:
            raise TargetError(
                "ld.so.cache is in a format that relink does not read; run ldconfig to write it anew"
            )
        return _parse(data[start:])
    except (struct.error, ValueError, IndexError) as error:
        raise TargetError(f"ld.so.cache is damaged ({error}); run ldconfig to write it anew") from error


def _parse(data: bytes) -> LoaderCache:
    count, _strings, _flags, extension = struct.unpack_from("<IIB3xI", data, 20)
    names = _hwcaps_names(data, extension) if extension else ()
    table = struct.Struct("<iIIIQ")
    if 48 + count * table.size > len(data):
        raise ValueError(f"{count} entries do not fit")
    entries: dict[str, list[CacheEntry]] = {}
    # Characters of all strings together: ldconfig lets strings share their ends, and no more.
    left = 2 * len(data)
    for flags, key, value, _osversion, hwcap in table.iter_unpack(data[48 : 48 + count * table.size]):
        subdirectory = None
        legacy = hwcap
        # dl_cache_hwcap_extension: in the high half only the level of the processor may stand beside this bit.
        if hwcap & _HWCAP_EXTENSION and not (hwcap >> 32) & ~((_HWCAP_EXTENSION | _ISA_LEVEL_MASK) >> 32):
            subdirectory = names[hwcap & 0xFFFFFFFF]
            legacy = 0
        name = _string(data, key)
        path = _string(data, value)
        left -= len(name) + len(path)
        if left < 0:
            raise ValueError("its strings overlap")
        entries.setdefault(name, []).append(CacheEntry(name, path, flags, subdirectory, legacy))
    numbered = ((_plain(name), entry) for name in entries if _ZEROS.search(name) for entry in entries[name])
    return LoaderCache(entries, group_pairs(numbered))


_ZEROS = re.compile(r"(?<![0-9])0+(?=[0-9])")


def _plain(name: str) -> str:
    """Drop leading zeros: names are compared with their numbers by value (_dl_cache_libcmp)."""
    return _ZEROS.sub("", name)


def _hwcaps_names(data: bytes, extension: int) -> tuple[str, ...]:
    magic, count = struct.unpack_from("<II", data, extension)
    if magic != _EXTENSION_MAGIC:
        raise ValueError("no extension magic")
    for index in range(count):
        tag, _flags, offset, size = struct.unpack_from("<IIII", data, extension + 8 + index * 16)
        if tag == _TAG_GLIBC_HWCAPS:
            return tuple(
                _string(data, at) for (at,) in struct.iter_unpack("<I", data[offset : offset + size])
            )
    return ()


def _string(data: bytes, offset: int) -> str:
    end = data.find(b"\0", offset, offset + _MAX_STRING)
    if end < 0:
        raise ValueError(f"the string at {offset} does not end")
    return data[offset:end].decode("utf-8", "surrogateescape")


def lookup(
    cache: LoaderCache, name: str, *, machine: int, elf_class: int, hwcaps: tuple[str, ...]
) -> str | None:
    """Return the path that ld.so takes for `name`, or None (glibc elf/dl-cache.c, search_cache).

    :param hwcaps: the active glibc-hwcaps subdirectory names, best first. Entries for other processors are passed over;
        of the rest the one with the best subdirectory wins, an ordinary entry last.
    """
    wanted = _FLAGS.get((machine, elf_class))
    best: tuple[int, str] | None = None
    plain = _plain(name)
    for entry in (*cache.entries.get(plain, ()), *cache.by_number.get(plain, ())):
        # _dl_cache_check_flags takes 1 (FLAG_ELF) on every machine; glibc 2.37 has given up the legacy capabilities.
        if entry.flags not in (wanted, 1) or entry.legacy_hwcap:
            continue
        if entry.hwcaps is not None and entry.hwcaps not in hwcaps:
            continue
        rank = len(hwcaps) if entry.hwcaps is None else hwcaps.index(entry.hwcaps)
        if best is None or rank < best[0]:
            best = (rank, entry.path)
    return best[1] if best else None


GLIBC_SONAMES = frozenset(
    {
        *(
            "ld-linux-x86-64.so.2",
            "ld-linux.so.2",
            "ld-linux-aarch64.so.1",
            "libc.so.6",
            "libm.so.6",
            "libmvec.so.1",
        ),
        *("libpthread.so.0", "libdl.so.2", "librt.so.1", "libutil.so.1", "libresolv.so.2", "libnsl.so.1"),
        *("libanl.so.1", "libthread_db.so.1", "libBrokenLocale.so.1", "libc_malloc_debug.so.0"),
    }
)
"""The sonames of glibc itself: built together, they must all come from where the loader comes from."""

# Seconds for a loader that is asked about itself; it answers in milliseconds.
_TIMEOUT = 30
# Bytes that are searched of a program in the loader's place; nix-ld has less than one million.
_STAND_IN_LIMIT = 16 << 20
# Bytes of ld.so.cache; that of a system with 4,000 libraries has a third of one MiB.
_CACHE_LIMIT = 8 << 20
_PROBE = "/relink-probe-directory"
_AFTER = "/relink-probe-after"
_LIB = "/relink-probe-lib/"
_PLATFORM = "/relink-probe-platform/"
# A file that is there in any case, relative to /, in which the loader is run.
_FILE = "proc/version"
# Every process has this symbolic link to /.
_LINK = "/proc/self/root"
_DEFAULT_INTERPRETER = {62: "/lib64/ld-linux-x86-64.so.2", 183: "/lib/ld-linux-aarch64.so.1"}


class Target(msgspec.Struct, frozen=True):
    """What the simulation has to know of a loader.

    :ivar interpreter: its path as the target sees it.
    :ivar sysroot: the directory that the target sees as ``/``; ``/`` itself for this system.
    :ivar glibc: its version, ``"2.36"``.
    :ivar directories: the default search directories, in order, without a trailing slash.
    :ivar subdirectories: what is tried inside of every directory before the directory itself, in order
        (``glibc-hwcaps/x86-64-v3``; before glibc 2.37 also ``tls/x86_64`` and the like).
    :ivar lib: what ``$LIB`` stands for; `platform`: what ``$PLATFORM`` stands for.
    :ivar cache: its ld.so.cache, or None where it has none.
    :ivar python: the executable file of the Python that will load the result (symbolic links resolved, since $ORIGIN of a
        program is where the kernel found it), or None when only a loader was named.
    :ivar canonical_program: whether this loader, run as ``ld.so program``, resolves the program's own path before it takes
        $ORIGIN from it (newer ones do, as the kernel does).
    :ivar passes_over_files: whether a relative entry that is a file is passed over (newer loaders) or ends the search of its
        list (open_path and ENOTDIR; glibc 2.36 does that).
    :ivar python_facts: what that Python says of itself; None where it was not asked, since it is of another root directory.
    """

    interpreter: str
    sysroot: str
    header: Header
    glibc: str
    directories: tuple[str, ...]
    subdirectories: tuple[str, ...]
    lib: str
    platform: str
    cache: LoaderCache | None
    cache_path: str
    python: str | None
    canonical_program: bool = False
    passes_over_files: bool = True
    python_facts: PythonFacts | None = None

    @property
    def hwcaps(self) -> tuple[str, ...]:
        """The active glibc-hwcaps names, best first."""
        prefix = "glibc-hwcaps/"
        return tuple(name.removeprefix(prefix) for name in self.subdirectories if name.startswith(prefix))

    @property
    def version(self) -> tuple[int, ...]:
        """The version of its glibc in numbers."""
        return tuple(int(part) for part in self.glibc.split(".") if part.isdigit())

    @property
    def refuses_stacks(self) -> bool:
        """Whether dlopen refuses what asks for an executable stack, in a process that has none (NEWS of glibc 2.41)."""
        return self.version >= (2, 41)

    @property
    def libc_directory(self) -> str:
        """The directory of the loader's own C library: where its file really lies."""
        return _real_directory(self.sysroot, self.interpreter)


# Cached, since it is asked for at every edge to the C library.
@functools.lru_cache(maxsize=16)
def _real_directory(root: str, path: str) -> str:
    """Return the directory in which the file of a target's `path` really lies."""
    real = os.path.realpath(resolve_inside(root, path))
    if root != "/":
        real = "/" + os.path.relpath(real, os.path.realpath(root))
    return posixpath.dirname(real)


def find_target(
    *,
    python: str | None = None,
    interpreter: str | os.PathLike[str] | None = None,
    sysroot: str | None = None,
) -> Target:
    """Describe the loader that will run the result.

    :param python: a Python whose loader it is; by default that of the active virtual environment ($VIRTUAL_ENV), or else the one
        that runs relink, unless `interpreter` or `sysroot` is given.
    :param interpreter: the loader's own path, for a C library that lies elsewhere.
    :param sysroot: a directory that is ``/`` to the target; the other paths are as seen inside.
    :raises TargetError: there is no such loader, it is not glibc's, or it cannot be run here to be asked.
    """
    root = posixpath.abspath(sysroot) if sysroot else "/"
    if root != "/" and not os.path.isdir(root):
        raise TargetError(f"--sysroot {sysroot}: no such directory; name the root of an unpacked system")
    named_by, facts = "--python", None
    if interpreter is None and python is None and root == "/":
        active = active_python(os.environ)
        named_by, python = ("VIRTUAL_ENV:", active) if active else (named_by, sys.executable)
    if python is not None and root == "/":
        facts = ask_python(python, named_by)
        python = facts.file
    elif python is not None:  # a Python of another root directory is not run
        python = _inside(python, root)
        real = os.path.realpath(resolve_inside(root, python))
        python = "/" + os.path.relpath(real, os.path.realpath(root)) if os.path.exists(real) else python
    if interpreter is None:
        interpreter = interpreter_of(python, root)
    interpreter = _inside(os.fspath(interpreter), root)
    host = resolve_inside(root, interpreter)
    header = _header(host, interpreter)
    if python is not None and _header(resolve_inside(root, python), python).machine != header.machine:
        raise TargetError(
            f"{python} and {interpreter} are for different machines; name a loader and a Python that match"
        )
    return replace(_ask(interpreter, host, root, header, python), python_facts=facts)


def _inside(path: str, root: str) -> str:
    """Return `path` as the target sees it; a host path below the sysroot is taken for what it is inside."""
    absolute = posixpath.abspath(path)
    if root != "/" and absolute.startswith(root + "/"):
        return absolute[len(root) :]
    return absolute


def interpreter_of(python: str | None, root: str = "/") -> str:
    """Return the loader that a Python names for itself; without a Python, the usual one of a root directory.

    :raises TargetError: there is none, or the Python cannot be read.
    """
    if python is not None:
        host = resolve_inside(root, python)
        try:
            with map_file(host) as buffer:
                interpreter = read_image(buffer, python).interpreter
        except (OSError, ElfError) as error:
            raise TargetError(
                f"{python}: cannot be read as a program ({error}); name a Python by --python"
            ) from error
        if interpreter is None:
            raise TargetError(f"{python} is statically linked and has no loader; name one by --interpreter")
        return interpreter
    for path in _DEFAULT_INTERPRETER.values():
        if os.path.exists(resolve_inside(root, path)):
            return path
    raise TargetError(f"{root}: no dynamic loader in it; name one by --interpreter")


def _header(host: str, shown: str) -> Header:
    try:
        return read_header(read_start(host, 64), shown)
    except OSError as error:
        raise TargetError(
            f"{shown}: cannot be read ({error.strerror}); name the loader by --interpreter"
        ) from error
    except ElfError as error:
        raise TargetError(f"{error.message}; name the loader by --interpreter") from error


def _run(host: str, arguments: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [host, *arguments],
            # Nothing else is passed on: LD_* of this process would change the answer.
            env=environment,
            cwd="/",
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise_if_machine_fault(error, f"{host}: this loader cannot be run here")
        raise TargetError(
            f"{host}: this loader cannot be run here ({error}); relink asks the real loader, so the machine must be able to"
        ) from error


def _ask(interpreter: str, host: str, root: str, header: Header, python: str | None) -> Target:
    """Let the loader look for a library that does not exist, and read where it looks (LD_DEBUG=libs).

    The program's path leads through a symbolic link that is there always, and so $ORIGIN tells whether links are resolved.
    Whether the directory behind a file is looked at tells whether files are passed over. What stands for $LIB and $PLATFORM is
    read from entries that end in them; an entry whose $PLATFORM has no value is left out (elf/dl-load.c, _dl_dst_substitute).
    """
    entries = f"{_PROBE}:$ORIGIN:{_FILE}:{_AFTER}:{_LIB}$LIB:{_PLATFORM}$PLATFORM"
    trace = {"LD_DEBUG": "libs", "LD_LIBRARY_PATH": entries, "LD_PRELOAD": "librelink-probe.so"}
    run = _run(host, ["--list", _LINK + os.path.realpath("/proc/self/exe")], trace)
    paths = re.findall(r"search path=(\S*)\t+\((.*?)\)", run.stderr)
    given = next((path for path, kind in paths if kind == "LD_LIBRARY_PATH"), _PROBE).split(":")
    subdirectories = tuple(
        dict.fromkeys(path.removeprefix(_PROBE + "/") for path in given if path.startswith(_PROBE + "/"))
    )
    system = next((path for path, kind in paths if kind == "system search path"), "").split(":")
    cache = re.search(r"search cache=(\S+)", run.stderr)
    cache_path = cache[1] if cache else "/etc/ld.so.cache"
    endings = tuple("/" + name for name in subdirectories)
    directories = [path.rstrip("/") or "/" for path in system if path and not path.endswith(endings)]
    version = re.search(
        r"\(?(?:GNU libc|GLIBC)[^)]*\)?.*?version (\d+\.\d+)", _run(host, ["--version"], {}).stdout
    )
    if not version or not directories:
        other = "does not answer like glibc's loader; relink knows glibc's rules only"
        raise TargetError(f"{interpreter} {_stand_in(host) or other}")
    return Target(
        interpreter=interpreter,
        sysroot=root,
        header=header,
        glibc=version[1],
        directories=tuple(directories),
        subdirectories=subdirectories,
        lib=_value(given, _LIB),
        platform=_value(given, _PLATFORM),
        cache=_read_cache(resolve_inside(root, cache_path), root),
        cache_path=cache_path,
        python=python,
        canonical_program=not any(path.startswith(_LINK) for path in given),
        passes_over_files=f"trying file={_AFTER}/" in run.stderr,
    )


def _stand_in(host: str) -> str | None:
    """Say what a program of NixOS in the loader's place is, and what to name instead; None for any other.

    Source: nixpkgs, stub-ld and nix-ld, by the texts that they have in them.
    """
    try:
        content = read_bytes(host, _STAND_IN_LIMIT)
    except OSError:
        return None
    if b"NIX_LD_LIBRARY_PATH" in content:
        given = os.environ.get("NIX_LD", "/run/current-system/sw/share/nix-ld/lib/ld.so")
        return f"is nix-ld, which starts another loader; name that one: --interpreter {given}"
    return f"is {NIXOS_STUB}" if b"stub-ld" in content else None


def _value(searched: list[str], entry: str) -> str:
    """Return what stands behind `entry` in the directories that were searched; its subdirectories are longer."""
    return min((path.removeprefix(entry) for path in searched if path.startswith(entry)), key=len, default="")


def _read_cache(host: str, root: str) -> LoaderCache | None:
    try:
        return parse_cache(read_bytes(host, _CACHE_LIMIT, root=root))
    except OSError:
        return None
