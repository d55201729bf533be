"""Kernel files beside ROCm libraries, and what they mean for an architecture. Names are read, contents hardly ever.

rocBLAS and hipBLASLt: Tensile libraries. MIOpen: tuning data, and libraries of convolutions for one GPU
(libMIOpenCKGroupedConv_gfx942.so); its other kernels are compiled on first use, as are those of rocFFT, whose cache of compiled
kernels is not read. aotriton: one directory an architecture. rocSOLVER and rocSPARSE have none: their .hip_fatbin is all.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path

import msgspec

from relink.gpu.amd.device_code import read_file
from relink.gpu.amd.target_id import CodeTarget, match, parse_target_id, sort_key, table
from relink.gpu.coverage import TargetId
from relink.system.errors import UsageError, raise_if_machine_fault

KERNEL_DIRECTORIES = (
    *("rocblas", "hipblaslt", "aotriton.images"),
    *("../.kpack", "../share/miopen/db", "../../share/miopen/db"),
)
"""Where :func:`side_files_of` and kpack archives are looked for, relative to the library's directory."""

_MAX_FILES = 200_000
_TENSILE = re.compile(
    r"[_-](gfx[0-9a-f]+(?:-[0-9]+)*(?:-generic)?)((?:-(?:sramecc|xnack)[+-])*)\.(co|hsaco|dat|dat\.gz|dat\.zlib|yaml)\Z"
)
_CONVOLUTIONS = re.compile(r"libMIOpenCK\w+?_(gfx[0-9a-f]+)\.so")
_OF_ONE_GPU = re.compile(r"gfx[0-9a-f]+(?:-strict)?")
_AOTRITON = re.compile(r"amd-(gfx[0-9a-fx]+(?:-generic)?)(?:_mod\d+)?\Z", re.IGNORECASE)


class SideFiles(msgspec.Struct, frozen=True):
    """The side files of one library in one directory.

    :ivar kind: rocblas, hipblaslt, miopen or aotriton.
    :ivar version: of the directory where several lie side by side (``5``, ``4.4.1``), else "".
    :ivar targets: what is there for each target id, by kind. tuned: kernels; fallback: untuned ones; data: tuning data without
        kernels; index: without it rocBLAS aborts, and hipBLASLt fails.
    :ivar common: rocBLAS's index for all architectures (``TensileLibrary.dat``) is there.
    """

    kind: str
    directory: str
    version: str
    targets: Mapping[TargetId, AbstractSet[str]]
    files: int
    common: bool = False
    problems: tuple[str, ...] = ()

    def state(self, agent: TargetId) -> str:
        """Return tuned, fallback, absent, jit or partly (only with xnack on, say) for a GPU.

        absent: rocBLAS aborts, hipBLASLt and aotriton have no kernels. jit: compiled on first use.
        """
        if self.kind == "miopen":
            return "jit"

        def has(*kinds: str) -> int:
            there = (target for target, found in self.targets.items() if not found.isdisjoint(kinds))
            found = match(map(CodeTarget, there), agent)
            return 2 if len(found.served) == found.total else 1 if found.served else 0

        indexed = self.kind == "aotriton" or self.common or has("index") > 0
        tuned, any_kernel = has("tuned"), has("tuned", "fallback")
        if not indexed or any_kernel == 0:
            return "absent"
        if any_kernel == 1:
            return "partly"
        return "tuned" if tuned == 2 else "fallback"

    def processors(self) -> tuple[str, ...]:
        """The processors that are named, those of generic targets spelt out."""
        generics, named = table().generics, {target.processor for target in self.targets}
        names = {one for name in named for one in (generics[name].members if name in generics else [name])}
        return tuple(sorted(names, key=sort_key))


def find_side_files(prefix: str | os.PathLike[str]) -> tuple[SideFiles, ...]:
    """Return all side files of a prefix (``/opt/rocm``, ``/usr``): in lib, lib64, lib/<multiarch> and share."""
    root = os.fspath(prefix)
    found: list[SideFiles] = []
    for directory in library_directories(root):
        for kind in ("rocblas", "hipblaslt", "aotriton.images"):
            found += _below(os.path.join(directory, kind), kind.partition(".")[0])
    if os.path.isdir(database := os.path.join(root, "share", "miopen", "db")):
        found.append(_miopen(database, library_directories(root)))
    return tuple(found)


def side_files_of(library: str | os.PathLike[str], soname: str | None = None) -> tuple[SideFiles, ...]:
    """Return the side files that this library would use: relative to its own directory, of its own version.

    Of ``rocblas/5`` and ``rocblas/4.4.1`` librocblas.so.5 uses the first.
    """
    path = Path(library)
    name = soname or path.name
    role = table().library(name)
    if role is None or role.side is None:
        return ()
    folder = os.path.dirname(os.path.abspath(path))
    if role.side == "miopen":
        above = (os.path.dirname(folder), os.path.dirname(os.path.dirname(folder)))
        places = [os.path.join(top, "share", "miopen", "db") for top in above]
        return tuple(_miopen(place, (folder,)) for place in places if os.path.isdir(place))[:1]
    inner = "aotriton.images" if role.side == "aotriton" else role.side
    found = _below(os.path.join(folder, inner), role.side)
    version = name.partition(".so.")[2]
    own = [s for s in found if s.version == version or s.version.startswith(version + ".")]
    return tuple(own or [s for s in found if not s.version])


def library_directories(prefix: str) -> tuple[str, ...]:
    """Return the directories of a prefix that hold libraries, each once: lib, lib64, lib/<multiarch>."""
    found: dict[tuple[int, int], str] = {}
    for name in ("lib", "lib64"):
        top = os.path.join(prefix, name)
        below = [name for name in sorted(_names(top, [])) if name.endswith("-linux-gnu")]
        for path in (top, *(os.path.join(top, name) for name in below)):
            try:
                stat = os.stat(path)
            except OSError as error:
                raise_if_machine_fault(error, path)
                continue
            if os.path.isdir(path):
                found.setdefault((stat.st_dev, stat.st_ino), path)
    return tuple(found.values())


def _below(directory: str, kind: str) -> list[SideFiles]:
    """Read ``<directory>/library`` and ``<directory>/<version>/library``, or their equals for the other kinds."""
    if kind == "aotriton":
        if not os.path.isdir(directory):
            return []
        problems: list[str] = []
        names = _names(directory, problems)
        found = {processor for name in names for processor in _aotriton_processors(name)}
        targets: dict[TargetId, set[str]] = {TargetId(one): {"tuned"} for one in sorted(found, key=sort_key)}
        return [SideFiles("aotriton", directory, "", targets, len(names), problems=tuple(problems))]
    versions = ["", *(name for name in sorted(_names(directory, [])) if name[:1].isdigit())]
    places = ((version, os.path.join(directory, version, "library")) for version in versions)
    return [_tensile(path, kind, version) for version, path in places if os.path.isdir(path)]


def _names(directory: str, problems: list[str]) -> list[str]:
    """Return the names in a directory; one that cannot be read, or is huge, is a problem."""
    names: list[str] = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if len(names) >= _MAX_FILES:
                    problems.append(f"{directory}: more than {_MAX_FILES} files, the rest is not counted")
                    break
                names.append(entry.name)
    except OSError as error:
        raise_if_machine_fault(error, directory)
        problems.append(f"{directory} cannot be read: {error.strerror}")
    return names


def _tensile(directory: str, kind: str, version: str) -> SideFiles:
    problems: list[str] = []
    names = _names(directory, problems)
    for name in [name for name in names if _OF_ONE_GPU.fullmatch(name)]:  # hipBLASLt since 10.0
        names += _names(os.path.join(directory, name), problems)
    kinds: dict[TargetId, set[str]] = {}
    for target, what in count_tensile_files(names, kind):
        kinds.setdefault(target, set()).add(what)
    if kind == "hipblaslt" and "hipblasltTransform.hsaco" in names:
        # Named for no architecture, so it is opened; its kernels only convert layouts, so it is data here.
        code = read_file(os.path.join(directory, "hipblasltTransform.hsaco"))
        problems += [f"hipblasltTransform.hsaco: {text}" for text in code.problems]
        for target in {t.target for bundle in code.bundles for t in bundle.targets}:
            kinds.setdefault(target, set()).add("data")
    featured = {target.processor for target in kinds if target.features}
    indexes = {target.processor for target, there in kinds.items() if "index" in there}
    # The index then serves those with features.
    targets = {
        target: {*kinds[target], "index"} if target.processor in indexes else kinds[target]
        for target in sorted(kinds, key=sort_key)
        if kinds[target] != {"index"} or target.processor not in featured
    }
    common = any(name in names for name in ("TensileLibrary.dat", "TensileLibrary.yaml"))
    return SideFiles(kind, directory, version, targets, len(names), common, tuple(problems))


def count_tensile_files(names: Iterable[str], kind: str) -> Counter[tuple[TargetId, str]]:
    """Count the files in a directory of `kind` by the target that each is named for, and by kind (:attr:`SideFiles.targets`)."""
    counts = Counter[tuple[TargetId, str]]()
    for found in filter(None, map(_TENSILE.search, names)):
        features = found[2].replace("-", ":", 1).replace("+-", "+:").replace("--", "-:")
        with suppress(UsageError):
            counts[parse_target_id(found[1] + features), _tensile_file(found.string, found, kind)] += 1
    return counts


def find_named_targets(path: str) -> tuple[str, tuple[TargetId, ...]] | None:
    """Return the directory of kernels that a file is in, and the targets that its name says it is for; None for others."""
    folder, _, name = path.rpartition("/")
    if found := re.search(r"(?:^|/)(?:rocblas|hipblaslt)(?=/|\Z)", folder):
        counted = count_tensile_files([name], "")
        return (folder[: found.end()], tuple(target for target, _ in counted)) if counted else None
    if folder.endswith("share/miopen/db"):
        processor = miopen_processor(name)
        return (folder, (TargetId(processor),)) if processor else None
    if found := re.search(r"(?:^|/)aotriton\.images/([^/]+)", path):
        named = _aotriton_processors(found[1])
        return (path[: found.start(1)], tuple(map(TargetId, named))) if named else None
    return None


def _tensile_file(name: str, found: re.Match[str], kind: str) -> str:
    if found[3] in ("dat", "dat.gz", "dat.zlib", "yaml"):
        return "index" if name.startswith(("TensileLibrary_lazy_gfx", "TensileLibrary_gfx")) else "data"
    if name.startswith("extop_") or (kind == "hipblaslt" and name.startswith("Kernels.so")):
        # Helpers without a matrix product in them.
        return "data"
    if found[3] == "hsaco" or "_fallback_" in name or name.startswith("Kernels.so"):
        return "fallback"
    return "tuned"


def miopen_processor(name: str) -> str | None:
    """Return the processor of a file of MIOpen's database: its name, then the number of compute units.

    Up to 64 units it is ``_`` and decimal, above it is hexadecimal without a separator: ``gfx90a68`` is gfx90a with 104.
    """
    base = name.partition(".")[0]
    best: str | None = None
    for processor in table().processors:
        rest = base[len(processor) :]
        if not base.startswith(processor) or (best is not None and len(processor) <= len(best)):
            continue
        if rest == "" or rest.startswith("_") or (re.fullmatch("[0-9a-f]{2,3}", rest) and int(rest, 16) > 64):
            best = processor
    return best


def _miopen(directory: str, libraries: Iterable[str]) -> SideFiles:
    """Read the database, and the names of the libraries with convolutions of one GPU that MIOpen opens where they are there."""
    problems: list[str] = []
    names = _names(directory, problems)
    convolutions = [
        found
        for folder in libraries
        for name in _names(folder, problems)
        if (found := _CONVOLUTIONS.fullmatch(name))
    ]
    processors = {*filter(None, map(miopen_processor, names)), *(found[1] for found in convolutions)}
    targets: dict[TargetId, set[str]] = {TargetId(one): {"data"} for one in sorted(processors, key=sort_key)}
    files = len(names) + len(convolutions)
    return SideFiles("miopen", directory, "", targets, files, problems=tuple(problems))


def _aotriton_processors(name: str) -> list[str]:
    """Return the processors that a directory of images is for, where it is one."""
    if (mark := _AOTRITON.match(name)) is None:
        return []
    pattern = mark[1].lower().replace("x", "[0-9a-f]").replace("gf[0-9a-f]", "gfx", 1)
    return [p for p in table().processors if re.fullmatch(pattern, p)] or [mark[1].lower()]
