"""Stand-ins for ROCm as AMD builds it today (TheRock: 7.14, 10.0, 10.1): small libraries with the real names in the real layout.

AMD's files could not be had, so nothing here is a copy. What is as there, by TheRock's packaging (build_tools/packaging,
docs/packaging) and reports of users: sonames and real names, NEEDED, search paths, directories, where a release is written, the
links of ``/opt/rocm``, names and requirements of pip's distributions. What is not: each library has a few functions, which return
a number; its device code is of two GPUs, and empty. Nothing of relink is imported.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import shutil
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.cc import shared
from tests.support.kpack_elf import reference, split
from tests.unit.gpu.amd.build import ccob, code_object, entries_of, kpack_archive, raw

GPUS = ("gfx942", "gfx1100")
HIP = {"7.2.4": "7.2.26015", "7.14.0": "7.14.60850", "10.0.0": "7.15.26333", "10.1.0": "7.16.26385"}
"""ROCm's release → HIP's version and build, which are numbered apart from 10.0 on."""
FAMILIES = {"gfx942": "gfx942", "gfx1100": "gfx11"}
"""The device package that has a GPU's code: its own, or its family's."""
PAGE = 4096
WHEEL_TAG = "py3-none-linux_x86_64"


@dataclass(frozen=True)
class Part:
    """One library: `stem` and `number` are its soname; `needs` are stems of others; `node` is the version of its functions."""

    stem: str
    number: str
    functions: tuple[str, ...]
    needs: tuple[str, ...] = ()
    place: str = "lib"
    node: str = ""
    device: bool = False

    @property
    def soname(self) -> str:
        return f"{self.stem}.{self.number}" if self.number else self.stem


SYSDEPS, HOST_MATH, LLVM = "lib/rocm_sysdeps/lib", "lib/host-math/lib", "lib/llvm/lib"
SYSDEPS_NODE = "AMDROCM_SYSDEPS_1.0"
_RUNTIME = ("libamdhip64.so",)


def parts(release: str) -> tuple[Part, ...]:
    """Return the libraries of a release, each behind what it needs."""
    therock = not release.startswith("7.2")
    numa = "librocm_sysdeps_numa.so" if therock else "libnuma.so"
    smi = "27" if int(release.partition(".")[0]) >= 10 else "26"
    rows = [
        Part(numa, "1", ("numa_available",), (), SYSDEPS, SYSDEPS_NODE if therock else "libnuma_1.1"),
        Part("librocprofiler-register.so", "0", ("rocprofiler_register_library_api_table",)),
        Part("libhsa-runtime64.so", "1", ("hsa_init",), (numa, "librocprofiler-register.so"), node="ROCR_1"),
        Part("libamd_comgr.so", "3", ("amd_comgr_get_version",), (), node="amd_comgr_2.8"),
    ]
    hip_needs = ["libamd_comgr.so", "libhsa-runtime64.so", "librocprofiler-register.so"]
    if therock:
        rows += [
            Part("librocm_sysdeps_liblzma.so", "5", ("lzma_code",), (), SYSDEPS, SYSDEPS_NODE),
            Part("librocm_kpack.so", "0", ("kpack_open", "kpack_get_kernel")),
            Part("librocm-openblas.so", "0", ("cblas_sgemm",), (), HOST_MATH),
        ]
        hip_needs.append("librocm_kpack.so")
    rows += [
        Part("libamdhip64.so", "7", ("hipMalloc", "hipLaunchKernel"), tuple(hip_needs), node="hip_4.2"),
        Part("libhiprtc.so", "7", ("hiprtcCompileProgram",), ("libamd_comgr.so",), node="hiprtc_9.0"),
        Part("librocm-core.so", "1", ("getROCmVersion",)),
        Part("libroctx64.so", "4", ("roctxMarkA",)),
        Part("libroctracer64.so", "4", ("roctracer_version_major",)),
        Part("librocprofiler-sdk.so", "1", ("rocprofiler_get_version",)),
        Part("librocprofiler-sdk-roctx.so", "1", ("roctxProfilerPause",)),
        Part("librocm_smi64.so", "1", ("rsmi_init",)),
        Part("libamd_smi.so", smi, ("amdsmi_init",)),
        Part("librocblas.so", "5", ("rocblas_sgemm",), _RUNTIME, device=True),
        Part("librocsolver.so", "0", ("rocsolver_sgetrf",), ("librocblas.so",), device=True),
        Part("libhipblaslt.so", "1", ("hipblasLtMatmul",), _RUNTIME),
        Part("libhipblas.so", "3", ("hipblasSgemm",), ("librocblas.so", "librocsolver.so")),
        Part("librocfft.so", "0", ("rocfft_execute",), _RUNTIME, device=True),
        Part("libhipfft.so", "0", ("hipfftExecC2C",), ("librocfft.so",)),
        Part("librocrand.so", "1", ("rocrand_generate",), _RUNTIME, device=True),
        Part("libhiprand.so", "1", ("hiprandGenerate",), ("librocrand.so",)),
        Part("librocsparse.so", "1", ("rocsparse_spmv",), _RUNTIME, device=True),
        Part("libhipsparse.so", "4", ("hipsparseSpMV",), ("librocsparse.so",)),
        Part("libhipsparselt.so", "0", ("hipsparseLtMatmul",), ("libhipsparse.so",)),
        Part("libhipsolver.so", "1", ("hipsolverSgetrf",), ("librocsolver.so",)),
        Part("librccl.so", "1", ("ncclAllReduce",), ("libamdhip64.so", "librocm_smi64.so"), device=True),
        Part("libMIOpen.so", "1", ("miopenCreate",), ("librocblas.so", "libamd_comgr.so")),
    ]
    if therock:
        rows.append(Part("libhipdnn_backend.so", "", ("hipdnnBackendExecute",), _RUNTIME))
    if release != "7.2.4":
        rows.append(Part("libhipfile.so", "0", ("hipFileRead",), _RUNTIME))
    return tuple(rows)


def by_stem(release: str) -> dict[str, Part]:
    """Return the libraries of a release by their soname without its number."""
    return {part.stem: part for part in parts(release)}


def source_of(part: Part, known: Mapping[str, Part], *, gpus: Sequence[str] = GPUS) -> str:
    """Return the C source of a library: its functions call the first one of each library that it needs."""
    needed = [known[stem].functions[0] for stem in part.needs]
    lines = [f"extern int {name}(void);" for name in needed]
    total = " + ".join(["1", *(f"{name}()" for name in needed)])
    lines += [f"int {name}(void) {{ return {total}; }}" for name in part.functions]
    if part.device:
        lines.append(device_code(gpus))
    if part.stem == "libamdhip64.so":  # what HIP's binary holds shows what it can load
        texts = ["gfx11-generic", "amdgcnspirv", "HIPK", "libamd_comgr.so.3"]
        lines.append(f"const char *const relink_texts[] = {{{', '.join(map(_quoted, texts))}}};")
    if part.stem == "libhsa-runtime64.so":
        lines.append('const char *const relink_texts[] = {"gfx11-generic"};')
        for number, gpu in enumerate(gpus):  # its trap handlers
            lines.append(f"const unsigned char relink_agent_{number}[] = {{{_listed(code_object(gpu))}}};")
    if part.stem == "libamd_comgr.so":
        texts = [f"oclc_isa_version_{gpu.removeprefix('gfx')}.bc" for gpu in gpus]
        texts += ["COMPRESSED_BUNDLE_FORMAT_VERSION", "exceeds version 2", "amdgcnspirv"]
        lines.append(f"const char *const relink_texts[] = {{{', '.join(map(_quoted, texts))}}};")
    return "\n".join(lines)


def device_code(gpus: Sequence[str]) -> str:
    """Return C source of one bundle with code for `gpus`, as hipcc embeds it; whole pages, which the splitter takes out."""
    data = ccob(raw(entries_of(*gpus)))
    size = -(-len(data) // PAGE) * PAGE
    return (
        f'static const unsigned char fatbin[{size}] __attribute__((section(".hip_fatbin"), aligned({PAGE}), used))'
        f" = {{{_listed(data)}}};\n"
        "struct wrapper { unsigned magic, version; const void *code; unsigned long number; };\n"
        'struct wrapper wrappers[] __attribute__((section(".hipFatBinSegment"), visibility("hidden"), used))'
        " = {{0x48495046, 1, fatbin, 0}};"
    )


def _listed(data: bytes) -> str:
    return ",".join(map(str, data))


def _quoted(text: str) -> str:
    return f'"{text}"'


def compile_parts(
    directory: Path,
    release: str,
    *,
    place_of: Callable[[Part], str] = lambda part: part.place,
    search_path: Callable[[Part], str] | None = None,
    real_names: bool = True,
    kpack: str | None = None,
    gpus: Sequence[str] = GPUS,
) -> dict[str, Path]:
    """Compile the libraries of a release below `directory`; returns stem → path.

    :param place_of: the directory of a library, relative to `directory`.
    :param search_path: its DT_RPATH; None: it has none.
    :param real_names: under their real names with links for soname and linker; else under the sonames alone, as in a wheel.
    :param kpack: the search path of archives, relative to a library; device code leaves the libraries. None: it stays.
    :param gpus: which the device code is for.
    """
    known = by_stem(release)
    made: dict[str, Path] = {}
    for part in parts(release):
        path = directory / place_of(part) / part.soname
        flags = []
        if part.node:
            script = directory / "versions.map"
            directory.mkdir(parents=True, exist_ok=True)
            nodes = [part.node] + (["hip_6.0", "hip_7.2"] if part.node == "hip_4.2" else [])
            script.write_text(
                "".join(f"{n} {{ {'global: *;' if n == part.node else ''} }};\n" for n in nodes)
            )
            flags.append(f"-Wl,--version-script,{script}")
        if search_path is not None and (entries := search_path(part)):
            flags.append(f"-Wl,--disable-new-dtags,-rpath,{entries}")
        shared(
            path, source_of(part, known, gpus=gpus), needed=[made[stem] for stem in part.needs], flags=flags
        )
        if part.device and kpack is not None:
            name = f"lib/{part.soname}"
            path.write_bytes(split(path.read_bytes(), reference(name, [kpack])))
        made[part.stem] = path
    for path in made.values() if real_names else ():
        _give_real_name(path, release)
    (directory / "versions.map").unlink(missing_ok=True)
    return made


def _give_real_name(path: Path, release: str) -> None:
    """``libamdhip64.so.7.16.26385`` ← ``libamdhip64.so.7`` ← ``libamdhip64.so``."""
    numbers = [int(number) for number in release.split(".")]
    packed = numbers[0] * 10000 + numbers[1] * 100 + numbers[2]
    stem, _, number = path.name.partition(".so.")
    if not number:
        return
    real = {
        "libamdhip64": f"libamdhip64.so.{HIP[release]}",
        "libhiprtc": f"libhiprtc.so.{HIP[release]}",
        "librocm-core": f"librocm-core.so.1.0.{packed}",
    }.get(stem, f"{path.name}.{numbers[1]}")
    path.rename(path.with_name(real))
    path.symlink_to(real)
    (path.parent / f"{stem}.so").symlink_to(path.name)


def archive_of(release: str, gpu: str) -> bytes:
    """Return the archive of one GPU for all libraries of a release that had device code."""
    contents = {f"lib/{part.soname}#0": [gpu] for part in parts(release) if part.device}
    return kpack_archive(contents, [gpu], format_version=1, group_name="rocm", gfx_arch_family=gpu)


def write_device_files(root: Path, release: str, gpu: str) -> None:
    """Put the code of one GPU below the directory that has ``lib``: an archive, Tensile's and MIOpen's files, MIOpen's CK."""
    files: dict[str, bytes] = {
        f".kpack/rocm_{gpu}.kpack": archive_of(release, gpu),
        f"lib/rocblas/library/Kernels.so-000-{gpu}.hsaco": code_object(gpu),
        f"lib/rocblas/library/TensileLibrary_lazy_{gpu}.dat": b"tensile",
        f"lib/hipblaslt/library/{gpu}/Kernels.so-000-{gpu}.hsaco": code_object(gpu),
        f"lib/hipblaslt/library/{gpu}/TensileLibrary_lazy_{gpu}.dat.zlib": b"x\x9c\x03\x00\x00\x00\x00\x01",
        f"share/miopen/db/{gpu}_304.HIP.fdb.txt": b"",
    }
    for relative, data in files.items():
        path = root / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    shared(root / f"lib/libMIOpenCKGroupedConv_{gpu}.so", "int ck(void) { return 1; }\n" + device_code([gpu]))


def native_search_path(part: Part) -> str:
    """DT_RPATH of a library in a tarball or a package: deb and rpm turn RUNPATH into DT_RPATH."""
    up = "/".join([".."] * part.place.count("/"))
    base = f"$ORIGIN/{up}".rstrip("/")
    return ":".join(
        ["$ORIGIN", *(f"{base}/{place.removeprefix('lib/')}" for place in (SYSDEPS, HOST_MATH, LLVM))]
    )


def tarball(directory: Path, release: str, gpus: Sequence[str] = GPUS) -> Path:
    """Make what AMD's tarball of a release unpacks to: everything in one directory, and every place a release is written in."""
    kpack = None if release.startswith("7.2") else "../.kpack/rocm_@GFXARCH@.kpack"
    compile_parts(directory, release, search_path=native_search_path, kpack=kpack)
    for gpu in gpus:
        write_device_files(directory, release, gpu)
    for relative, text in evidence(release).items():
        path = directory / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return directory


def evidence(release: str) -> dict[str, str]:
    """Return the files that say which release it is, or which HIP: relative path → content."""
    major, minor, patch = release.split(".")
    hip_major, hip_minor, hip_build = HIP[release].split(".")
    rocm_header = {"MAJOR": major, "MINOR": minor, "PATCH": patch}
    hip_header = {"MAJOR": hip_major, "MINOR": hip_minor, "PATCH": hip_build}
    return {
        ".info/version": f"{release}\n",
        "include/rocm-core/rocm_version.h": "".join(
            f"#define ROCM_VERSION_{k} {v}\n" for k, v in rocm_header.items()
        ),
        "include/hip/hip_version.h": "".join(f"#define HIP_VERSION_{k} {v}\n" for k, v in hip_header.items()),
        "share/therock/therock_manifest.json": json.dumps(
            {"rocm_package_version": release, "rocm_version": release, "flags": {}}
        ),
    }


def native(root: Path, *releases: str) -> Path:
    """Make ``opt/rocm`` as AMD's packages leave it: ``core-X.Y`` for each release, and links to the last one through
    ``etc/alternatives``. The links are relative, so that the tree works wherever it is; AMD's are absolute."""
    for release in releases:
        tarball(root / "opt" / "rocm" / f"core-{release.rpartition('.')[0]}", release)
    chosen = f"core-{releases[-1].rpartition('.')[0]}"
    alternatives = root / "etc" / "alternatives"
    alternatives.mkdir(parents=True, exist_ok=True)
    links = {"core": "", f"core-{releases[-1].partition('.')[0]}": ""}
    links |= {name: f"/{name}" for name in ("bin", "lib", "include", "libexec", "share")}
    links |= {"llvm": "/lib/llvm", "amdgcn": "/lib/llvm/amdgcn"}
    for name, below in links.items():
        (alternatives / f"rocm-{name}").symlink_to(f"../../opt/rocm/{chosen}{below}")
        (root / "opt" / "rocm" / name).symlink_to(f"../../etc/alternatives/rocm-{name}")
    return root / "opt" / "rocm"


def pip_directory(part: Part) -> str:
    """The directory that a library has in site-packages."""
    math = ("blas", "solver", "fft", "rand", "sparse", "rccl", "MIOpen", "hipdnn")
    package = "_rocm_sdk_libraries" if any(word in part.stem for word in math) else "_rocm_sdk_core"
    return f"_rocm_sdk_core/{part.place}" if part.place != "lib" else f"{package}/lib"


def pip_search_path(part: Part) -> str:
    """DT_RPATH of a library of pip's ROCm: it leads from one package to the other."""
    up = "/".join([".."] * (pip_directory(part).count("/") + 1))
    core = f"$ORIGIN/{up}/_rocm_sdk_core"
    return ":".join(["$ORIGIN", *(f"{core}/{place}" for place in ("lib", HOST_MATH, LLVM, SYSDEPS))])


def pip(directory: Path, release: str, gpus: Sequence[str] = GPUS) -> list[Path]:
    """Make the wheels of pip's ROCm, device packages by family, and what torch requires besides; returns their paths."""
    site = directory / "site"
    compile_parts(
        site, release, place_of=pip_directory, search_path=pip_search_path, real_names=False,
        kpack="../.kpack/rocm_@GFXARCH@.kpack",
    )  # fmt: skip
    core = site / "_rocm_sdk_core"
    for relative, text in evidence(release).items():
        if relative in (".info/version", "include/hip/hip_version.h"):
            path = core / relative
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    wheels = [
        pack(directory, "rocm-sdk-core", release, _files(site, "_rocm_sdk_core")),
        pack(directory, "rocm-sdk-libraries", release, _files(site, "_rocm_sdk_libraries")),
        pack(directory, "rocm-bootstrap", release, {"rocm_bootstrap/__init__.py": b""}, tag="py3-none-any"),
        *(pack(directory, name, "3.8.0", {"triton/__init__.py": b""}) for name in ("triton", "triton-rocm")),
    ]
    devices = []
    for family in dict.fromkeys(FAMILIES[gpu] for gpu in gpus):
        files: dict[str, bytes] = {}
        for gpu in (gpu for gpu in gpus if FAMILIES[gpu] == family):
            write_device_files(directory / family / "_rocm_sdk_libraries", release, gpu)
        files |= _files(directory / family, "_rocm_sdk_libraries")
        files[f"_rocm_sdk_libraries/.devel_links/{family}.json"] = b"{}"
        devices.append(f"rocm-sdk-device-{family}")
        wheels.append(
            pack(directory, devices[-1], release, files, requires=[f"rocm-sdk-libraries=={release}"])
        )
        shutil.rmtree(directory / family)
    requires = [f"rocm-sdk-core=={release}", f'rocm-sdk-libraries=={release} ; extra == "libraries"']
    requires += [f'{name}=={release} ; extra == "{name.removeprefix("rocm-sdk-")}"' for name in devices]
    requires += [f'{name}=={release} ; extra == "device-all"' for name in devices]
    module = {
        "rocm_sdk/__init__.py": _ROCM_SDK.encode(),
        "rocm_sdk/_dist_info.py": f"__version__ = {release!r}\n".encode(),
    }
    extras = ["libraries", "device-all", *(name.removeprefix("rocm-sdk-") for name in devices)]
    wheels.append(
        pack(directory, "rocm", release, module, requires=requires, extras=extras, tag="py3-none-any")
    )
    shutil.rmtree(site)
    return wheels


_ROCM_SDK = '''"""Where pip's ROCm lies, and what maps its libraries."""
import ctypes
import glob
import os

from ._dist_info import __version__

_SITE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def find_libraries(*shortnames):
    """Return the path of each library, as its real name or soname sorts first."""
    paths = []
    for name in shortnames:
        stem = "MIOpen" if name == "miopen" else "hipdnn_backend" if name == "hipdnn" else name
        pattern = os.path.join(_SITE, "_rocm_sdk_*", "lib", "**", f"lib{stem}.so*")
        matches = sorted(glob.glob(pattern, recursive=True))
        if not matches:
            raise ModuleNotFoundError(f"no library {name} in the packages of ROCm")
        paths.append(matches[0])
    return paths


def initialize_process(*, preload_shortnames=(), check_version=None, fail_on_version_mismatch=False):
    """Map libraries, their symbols for all."""
    for path in find_libraries(*preload_shortnames):
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
'''


def _files(root: Path, below: str) -> dict[str, bytes]:
    paths = sorted(path for path in (root / below).rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


def pack(
    directory: Path,
    name: str,
    version: str,
    files: Mapping[str, bytes],
    *,
    requires: Iterable[str] = (),
    extras: Iterable[str] = (),
    tag: str = WHEEL_TAG,
    hexadecimal: bool = False,
) -> Path:
    """Write a wheel; `hexadecimal`: digests in RECORD are as AMD's splitter writes them, which no specification allows."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    lines = ["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}"]
    lines += [f"Provides-Extra: {extra}" for extra in extras]
    lines += [f"Requires-Dist: {requirement}" for requirement in requires]
    contents = dict(files)
    contents[f"{info}/METADATA"] = ("\n".join(lines) + "\n").encode()
    contents[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: stand-in\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    )
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    for path, data in contents.items():
        digest = hashlib.sha256(data)
        shown = (
            digest.hexdigest()
            if hexadecimal
            else base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()
        )
        rows.writerow([path, f"sha256={shown}", len(data)])
    rows.writerow([f"{info}/RECORD", "", ""])
    contents[f"{info}/RECORD"] = text.getvalue().encode()
    wheel = directory / f"{name.replace('-', '_')}-{version}-{tag}.whl"
    directory.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in contents.items():
            entry = zipfile.ZipInfo(path, (2026, 10, 5, 0, 0, 0))
            entry.external_attr = (0o100755 if ".so" in os.path.basename(path) else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return wheel
