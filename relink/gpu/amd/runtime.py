"""What the HIP runtime of a prefix can load, read from its libraries without running them.

libamdhip64 hands bundles to libamd_comgr, which it dlopens (it is not in DT_NEEDED), and code objects to
libhsa-runtime64. What they can do shows in version definitions, names and strings. What does not show is "unknown".
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from relink.elf.source import ByteSource, FileSource
from relink.elf.symbol_reader import read_version_defs
from relink.gpu.amd.device_code import DeviceCode, read_file
from relink.gpu.amd.target_id import SPIRV, match, sort_key, table
from relink.gpu.coverage import RequestedGpu, TargetId
from relink.gpu.host_elf import HostElf, parse_host_elf, strings_at
from relink.system.errors import ElfError
from relink.system.safe_open import list_names, map_file, read_start

_READ_SIZE = 4 << 20
# Bytes; more than the longest text, so that none is lost between two pieces.
_OVERLAP = 256
_MAX_SEARCHED = 512 << 20
# SHT_PROGBITS, SHT_STRTAB.
_PROGBITS, _STRTAB = 1, 3
# SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR.
_WRITE, _ALLOC, _EXEC = 1, 2, 4
_READER_2 = b"Compressed bundle header size too small"  # clang 19 on
_READER_3 = (b"COMPRESSED_BUNDLE_FORMAT_VERSION", b"exceeds version 2")  # clang 20 on
# LLVM 23 on has the reader in libLLVM.
_READER_3_LLVM = b"exceeds version 2 unsigned 32-bit"
_DEVICE_LIBRARY = re.compile(rb"oclc_isa_version_([0-9]+(?:_[0-9]+)?[0-9a-f]*|[0-9_]+_generic)\.bc")

RUNTIME_WORDS = {
    "hip": "HIP runtime",
    "rocm": "ROCm",
    "comgr": "comgr interface",
    "ccob": "compressed bundles, up to version",
    "code_object": "code objects, up to version",
    "generic": "generic targets",
    "spirv": "SPIR-V code",
    "kpack": "kpack archives",
    "agents": "The HSA runtime knows it",
    "jit": "comgr compiles for it",
}
"""Key of :meth:`Capability.to_json` → what people call it; those of lists of processors are about one of them."""


class Capability(msgspec.Struct, frozen=True):
    """What a runtime can do; None (or an empty tuple, for lists) is "unknown".

    :ivar hip: (major, minor); `hip_build` the whole version from the file's real name or HIP's header.
    :ivar comgr_api: newest version definition of comgr, (2, 8) say.
    :ivar ccob: newest version of compressed bundles that can be read, 0 for none.
    :ivar code_object: newest code object version.
    :ivar rocm: the release of ROCm, which has a version of its own from 10.0 on; the caller knows it.
    :ivar kpack: HIP reads kpack archives: it NEEDs librocm_kpack.
    :ivar agents: processors that the HSA runtime has trap handlers for.
    :ivar jit: targets that comgr has device libraries for.
    """

    hip: tuple[int, int] | None = None
    hip_build: str = ""
    rocm: str = ""
    comgr_api: tuple[int, int] | None = None
    ccob: int | None = None
    code_object: int | None = None
    generic: bool | None = None
    spirv: bool | None = None
    kpack: bool | None = None
    agents: tuple[str, ...] = ()
    jit: tuple[str, ...] = ()
    paths: tuple[tuple[str, str], ...] = ()
    problems: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the report's ``isa.runtime``; what is unknown says "unknown"."""
        return {
            "hip": self.hip_build or ".".join(map(str, self.hip or ())) or "unknown",
            "rocm": self.rocm or "unknown",
            "comgr": ".".join(map(str, self.comgr_api or ())) or "unknown",
            **{
                name: "unknown" if getattr(self, name) is None else getattr(self, name)
                for name in ("ccob", "code_object", "generic", "spirv", "kpack")
            },
            "agents": list(self.agents) or "unknown",
            "jit": list(self.jit) or "unknown",
            "libraries": dict(self.paths),
            "problems": list(self.problems),
        }


def find_runtime(directories: Iterable[str | os.PathLike[str]], *, hip: str = "libamdhip64.so") -> Capability:
    """Find the three libraries in `directories`, in that order, and read them.

    `hip` is the soname that the wheel needs (``libamdhip64.so.7``), since several may lie side by side; without a
    version the newest is used.
    """
    folders = [os.fspath(directory) for directory in directories]
    hip_path = _newest(folders, hip)
    comgr_name = "libamd_comgr.so"
    if hip_path:
        with FileSource(hip_path) as source:
            places = _constants(source, parse_host_elf(source))
            found = _matches(source, places, re.compile(rb"libamd_comgr\.so(?:\.\d+)?"), 1)
            comgr_name = next(iter(found)).decode() if found else comgr_name
    return capability_of(
        hip=hip_path,
        comgr=_newest(folders, comgr_name),
        hsa=_newest(folders, "libhsa-runtime64.so"),
        directories=folders,
    )


def capability_of(
    *,
    hip: str | None,
    comgr: str | None,
    hsa: str | None,
    directories: Iterable[str] = (),
) -> Capability:
    """Read what these libraries can do. `directories` are where comgr's own NEEDED are looked for (libLLVM, libclang-cpp).

    Never raises: a library that is absent or cannot be read leaves its answers unknown, with a problem.
    """
    facts: dict[str, Any] = {}
    problems: list[str] = []
    paths = {"libamdhip64": hip, "libamd_comgr": comgr, "libhsa-runtime64": hsa}
    for name, path in paths.items():
        if path is None:
            problems.append(f"{name} was not found: what depends on it is unknown")
    folders = tuple(directories)
    for path, read in ((hip, _read_hip), (comgr, _read_comgr), (hsa, _read_hsa)):
        if path is None:
            continue
        try:
            with FileSource(path) as source:
                elf = parse_host_elf(source)
                if elf is None:
                    problems.append(f"{path} is no 64-bit ELF")
                    continue
                facts |= read(source, elf, path, folders)
        except OSError as error:
            problems.append(f"{path} cannot be read: {error.strerror}")
    hip_generic, hsa_generic = facts.pop("hip_generic", None), facts.pop("hsa_generic", None)
    hip_spirv, comgr_spirv = facts.pop("hip_spirv", None), facts.pop("comgr_spirv", None)
    facts["generic"] = _both(hip_generic, hsa_generic)
    facts["spirv"] = _both(hip_spirv, comgr_spirv)
    version = facts.get("hip")
    rows = [newest for first, newest in table().runtimes if version and version >= first]
    facts["code_object"] = 6 if facts["generic"] else max(rows, default=None)
    api = facts.get("comgr_api")
    if (version and version < (6, 2)) or (api and api < (2, 8)):
        # CLR knows CCOB from 6.2 on, and refuses it without comgr 2.8.
        facts["ccob"] = 0
    elif version is None or api is None:
        facts["ccob"] = None
    return Capability(**facts, paths=tuple((k, v) for k, v in paths.items() if v), problems=tuple(problems))


def _both(first: bool | None, second: bool | None) -> bool | None:
    if first is False or second is False:
        return False
    return None if first is None or second is None else True


def _read_hip(source: ByteSource, elf: HostElf, path: str, _: tuple[str, ...]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    real = re.search(r"\.so\.(\d{1,9})\.(\d{1,9})\.(\d{1,9})", os.path.basename(os.path.realpath(path)))
    versions = _versions(path, r"hip_(\d{1,9})\.(\d{1,9})")
    if real:
        facts["hip"], facts["hip_build"] = (int(real[1]), int(real[2])), ".".join(real.groups())
    elif header := _hip_header(path):  # a wheel's library has its soname for a name
        facts["hip"], facts["hip_build"] = header[:2], ".".join(map(str, header))
    elif versions:  # not each version of HIP has a node
        facts["hip"] = versions[-1]
    found = _literals(source, _constants(source, elf), (b"gfx11-generic", b"amdgcnspirv"))
    facts["hip_generic"] = b"gfx11-generic" in found
    facts["hip_spirv"] = b"amdgcnspirv" in found
    # CLR compares the magic HIPK and logs about kpack also where it was built without it, and then fails at the first kernel.
    facts["kpack"] = any(name.startswith("librocm_kpack.so") for name in strings_at(source, elf, 1))
    return facts


def _hip_header(library: str) -> tuple[int, int, int] | None:
    """Return HIP's version by the header of the prefix that a library lies in (``lib``, or ``lib/<multiarch>``), or None."""
    folder = os.path.dirname(os.path.realpath(library))
    for above in ("..", "../.."):
        try:
            text = read_start(os.path.join(folder, above, "include/hip/hip_version.h"), 65536)
        except OSError:
            continue
        found = dict(re.findall(rb"define\s+HIP_VERSION_(MAJOR|MINOR|PATCH)\s+(\d{1,9})\b", text))
        if len(found) == 3:
            return int(found[b"MAJOR"]), int(found[b"MINOR"]), int(found[b"PATCH"])
    return None


def _read_comgr(source: ByteSource, elf: HostElf, path: str, directories: tuple[str, ...]) -> dict[str, Any]:
    versions = _versions(path, r"amd_comgr_?(\d{1,9})\.(\d{1,9})")
    facts: dict[str, Any] = {"comgr_api": versions[-1] if versions else None}
    constants = _constants(source, elf)
    found = _literals(source, constants, (_READER_2, *_READER_3, b"amdgcnspirv"))
    names = _matches(source, constants, _DEVICE_LIBRARY, 200)
    texts = {name[len(b"oclc_isa_version_") : -3].decode().replace("_", "-") for name in names}
    facts["jit"] = tuple(sorted((f"gfx{text}" for text in texts), key=sort_key))
    needed = strings_at(source, elf, 1)
    places = (os.path.dirname(path), *directories)
    for name in sorted(
        (n for n in needed if n.startswith(("libclang-cpp.so", "libLLVM"))), reverse=True
    ):  # clang first
        other = next((p for place in places if os.path.isfile(p := os.path.join(place, name))), None)
        if other is None:
            continue
        try:
            with FileSource(other) as library:
                constants = _constants(library, parse_host_elf(library))
                if name.startswith("libclang-cpp.so"):
                    found |= _literals(library, constants, (_READER_2, *_READER_3))
                elif not found & {_READER_2, *_READER_3}:  # the reader is in clang itself up to LLVM 22
                    found |= _literals(library, constants, (_READER_3_LLVM,))
        except OSError:
            # What it holds stays unknown.
            continue
    facts["comgr_spirv"] = b"amdgcnspirv" in found
    if found & {*_READER_3, _READER_3_LLVM}:
        facts["ccob"] = 3
    elif _READER_2 in found:
        # A reader of version 1 leaves no mark: without any, it stays unknown.
        facts["ccob"] = 2
    return facts


def _read_hsa(source: ByteSource, elf: HostElf, path: str, _: tuple[str, ...]) -> dict[str, Any]:
    generic = bool(_literals(source, _constants(source, elf), (b"gfx11-generic",)))
    code = read_file(path, scan_limit=64 << 20)
    bare = (bundle for bundle in code.embedded if bundle.container == "code-object")
    names = {one.target.processor for bundle in bare for one in bundle.targets}
    return {"hsa_generic": generic, "agents": tuple(sorted(names, key=sort_key))}


def _constants(source: ByteSource, elf: HostElf | None) -> list[range]:
    """Return where a library's constants, and the names that it imports, lie; all of it where there are no sections."""
    if elf is None or not elf.sections:
        return [range(source.size)]
    return [
        range(section.offset, section.offset + section.file_size)
        for section in elf.sections
        if section.flags & (_ALLOC | _EXEC | _WRITE) == _ALLOC and section.type in (_PROGBITS, _STRTAB)
    ]


def _pieces(source: ByteSource, places: Iterable[range]) -> Iterator[bytes | memoryview]:
    """Yield the bytes at `places`, 512 MiB of them at most, in pieces that overlap."""
    left = _MAX_SEARCHED
    for place in places:
        for start in range(place.start, min(place.stop, place.start + left), _READ_SIZE):
            yield source.read_at(start, min(_READ_SIZE + _OVERLAP, place.stop - start))
        left -= min(len(place), left)


def _literals(source: ByteSource, places: Iterable[range], texts: Iterable[bytes]) -> set[bytes]:
    """Return those of `texts` that are there."""
    left, found = set(texts), set[bytes]()
    for piece in _pieces(source, places):
        data = bytes(piece)
        found |= {text for text in left if text in data}
        left -= found
        if not left:
            break
    return found


def _matches(
    source: ByteSource, places: Iterable[range], pattern: re.Pattern[bytes], enough: int
) -> set[bytes]:
    """Return the distinct matches, at most `enough` of them."""
    found: set[bytes] = set()
    for piece in _pieces(source, places):
        for hit in pattern.finditer(piece):
            found.add(bytes(hit[0]))
            if len(found) >= enough:
                return found
    return found


def _versions(path: str, pattern: str) -> list[tuple[int, int]]:
    """Return the numbers of a library's version definitions whose names match, in order; none if they cannot be read."""
    try:
        with map_file(path) as buffer:
            found = [re.fullmatch(pattern, node.name) for node in read_version_defs(buffer)]
    except ElfError:
        return []
    return sorted((int(match[1]), int(match[2])) for match in found if match)


def _newest(directories: list[str], name: str) -> str | None:
    """Return the first directory's newest file whose name is `name` or `name` and a version."""
    for directory in directories:
        names = [n for n in list_names(directory) if n == name or n.startswith(name + ".")]
        named = [
            n
            for n in names
            if re.fullmatch(r".*\.so(\.\d+)*", n) and os.path.isfile(os.path.join(directory, n))
        ]
        if name in named and re.search(r"\.so\.\d", name):
            return os.path.join(directory, name)
        if named:
            best = max(named, key=lambda n: [int(part) for part in n.partition(".so")[2].split(".") if part])
            return os.path.join(directory, best)
    return None


class DeviceCodeNeeds(msgspec.Struct, frozen=True):
    """What device code asks of the runtime: newest CCOB and code object version (0: none), and the special forms."""

    ccob: int = 0
    code_object: int = 0
    generic: bool = False
    spirv: bool = False
    kpack: bool = False
    gpus: tuple[str, ...] = ()


class Requirement(msgspec.Struct, frozen=True):
    """One comparison of what the runtime must be able to do with what it can do: `verdict` is ok, no or unknown.

    :ivar files: the files that ask for it.
    :ivar gpu: the GPU that it is asked for, where it concerns one only.
    """

    what: str
    needed: str
    available: str
    verdict: str
    files: tuple[str, ...] = ()
    gpu: RequestedGpu | None = None


def needs_of(codes: Iterable[DeviceCode], gpus: Iterable[TargetId] = ()) -> DeviceCodeNeeds:
    """Return what the runtime must be able to do to load this device code: on `gpus`, or all of it without any.

    A GPU takes native code before generic code before SPIR-V, so a bundle with both does not need the latter.
    """
    codes, gpus = tuple(codes), tuple(gpus)
    bundles = [bundle for code in codes for bundle in (*code.bundles, *code.embedded)]
    versions = [int(b.container[-1]) for b in bundles if b.container.startswith("ccob-v")]
    sets = {b.targets for b in bundles}
    if gpus:
        kinds = {kind for targets in sets for gpu in gpus for kind in match(targets, gpu).via}
    else:
        names = {t.target.processor for targets in sets for t in targets}
        kinds = {
            "spirv" if name == SPIRV else "generic"
            for name in names
            if name == SPIRV or name in table().generics
        }
    return DeviceCodeNeeds(
        ccob=max(versions, default=0),
        code_object=max((c.version for code in codes for c in code.code_objects if c.version), default=0),
        generic="generic" in kinds,
        spirv="spirv" in kinds,
        kpack=any(code.kpack is not None for code in codes),
        gpus=tuple(gpu.processor for gpu in gpus),
    )


def check(needs: DeviceCodeNeeds, has: Capability) -> tuple[Requirement, ...]:
    """Compare. Only what the code really needs is listed; an unknown capability is never ok."""
    found = []

    def compare(what: str, needed: int, available: int | None) -> None:
        if needed:
            verdict = "unknown" if available is None else "ok" if available >= needed else "no"
            shown = "unknown" if available is None else f"up to {available}" if available else "none"
            found.append(Requirement(what, f"version {needed}", shown, verdict))

    def flag(what: str, available: bool | None) -> None:
        shown, verdict = {None: ("unknown", "unknown"), True: ("yes", "ok"), False: ("no", "no")}[available]
        found.append(Requirement(what, "yes", shown, verdict))

    compare("compressed bundles (CCOB)", needs.ccob, has.ccob)
    compare("code objects", needs.code_object, has.code_object)
    for name in ("generic", "spirv", "kpack"):
        if getattr(needs, name):
            flag(RUNTIME_WORDS[name], getattr(has, name))
    for processor in dict.fromkeys(needs.gpus):
        flag(f"{processor} in the HSA runtime", processor in has.agents if has.agents else None)
    return tuple(found)
