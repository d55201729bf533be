"""Generated wheels of many members and of many extension modules, and an environment that has packages installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.torch_shape import Shape, make_prefix
from benchmarks.wheel_file import NAME, WheelFile
from tests.support.cc import shared
from tests.support.elf_builder import Export, Import, Library, build

_LIBRARIES = 8
_MODULES_OF_A_PACKAGE = 8


def one_library(place: Path, prefix: Path) -> Path:
    """Compile a library that needs the last one of a ROCm of :func:`benchmarks.torch_shape.make_prefix`."""
    source = "extern int roc0_call0(void); int g(void) { return roc0_call0(); }"
    needed = [prefix / "lib" / "libroc0.so.1"]
    return shared(place / "a.so", source, needed=needed, flags=["-Wl,-rpath,/opt/rocm/lib"])


def write_members(place: Path, prefix: Path, count: int) -> None:
    """Write a wheel of one small ELF file among so many Python modules."""
    with WheelFile(place / NAME) as file:
        file.add("demo/a.so", one_library(place, prefix))
        for number in range(count):
            file.add(f"demo/m{number}.py", f"x = {number}\n".encode() * 9)


def make_members(place: Path, count: int) -> Path:
    """Make that wheel, and the ROCm for it; returns the prefix."""
    prefix = make_prefix(place, Shape(libraries=1))
    write_members(place, prefix, count)
    return prefix


def make_libraries(place: Path) -> Path:
    """Write a ROCm of eight libraries that bring each other; returns the prefix."""
    for number in range(_LIBRARIES):
        needed = tuple(map(_soname, range(number + 1, min(number + 3, _LIBRARIES))))
        exports = tuple(Export(f"f{number}_{item}") for item in range(30))
        library = Library(_soname(number), needed, runpath="$ORIGIN", exports=exports)
        library.write(place / "rocm" / "lib" / _soname(number))
    return place / "rocm"


def write_modules(place: Path, count: int) -> None:
    """Write a wheel of so many extension modules, each of which needs one library of the ROCm."""
    with WheelFile(place / NAME) as file:
        for number in range(count):
            file.add(f"demo/m{number}.so", build(_module(number, "/opt/rocm/lib")))


def make_modules(place: Path, count: int) -> Path:
    """Make that wheel and its ROCm; returns the prefix."""
    prefix = make_libraries(place)
    write_modules(place, count)
    return prefix


def make_environment(place: Path, count: int) -> Path:
    """Make a virtual environment with so many packages of eight extension modules, and their ROCm; returns the prefix."""
    prefix = make_libraries(place)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place / "venv")], check=True)
    (site,) = (place / "venv" / "lib").glob("python*/site-packages")
    for package in range(count):
        names = [f"demo{package}/m{number}.so" for number in range(_MODULES_OF_A_PACKAGE)]
        for number, name in enumerate(names):
            (site / name).parent.mkdir(exist_ok=True)
            (site / name).write_bytes(build(_module(number, str(prefix / "lib"))))
        information = site / f"demo{package}-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: demo{package}\nVersion: 1.0\n")
        (information / "RECORD").write_text("".join(f"{name},,\n" for name in names))
    return prefix


def _soname(number: int) -> str:
    return f"libgen{number}.so.1"


def _module(number: int, runpath: str) -> Library:
    library = number % _LIBRARIES
    return Library(
        needed=(_soname(library),),
        runpath=runpath,
        imports=tuple(Import(f"f{library}_{item}") for item in range(5)),
        exports=(Export(f"PyInit_m{number}"),),
    )
