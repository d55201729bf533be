"""A small ROCm and the files of a wheel that was built against another one: compiled once, wheels of them made at will."""

from __future__ import annotations

import platform
import subprocess
import sys
import venv
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from relink.loader.target import Target, find_target
from relink.planning.contents import Contents
from relink.planning.options import Options
from relink.planning.reading import Wheel, read_wheel
from tests.support.cc import cc, shared
from tests.support.wheels import make_wheel

MACHINE = platform.machine()
PYTHON_TAG = f"cp{sys.version_info[0]}{sys.version_info[1]}"
TAG = f"{PYTHON_TAG}-{PYTHON_TAG}-manylinux_2_34_{MACHINE}"
OUTPUT = f"demo-1.0+rocm7.2.4-{PYTHON_TAG}-{PYTHON_TAG}-linux_{MACHINE}.whl"
VENDOR_PATH = "-Wl,--enable-new-dtags,-rpath,/opt/rocm-0.0.0/lib:"

_PROGRAM = r"""
#include <stdio.h>
extern int hip(void);
int main(void) { printf("%d\n", hip()); return 0; }
"""


@dataclass(frozen=True)
class Works:
    """The prefix has libhip.so.7, which needs libdeep.so.1 and cannot find it by itself.

    :ivar library: needs libhip.so.7; ``g()`` is 42. `plain` needs nothing, `lost` needs libnowhere.so.1.
    :ivar program: prints 41; its interpreter does not exist.
    """

    root: Path
    prefix: Path
    library: Path
    plain: Path
    lost: Path
    program: Path

    def wheel(self, directory: Path, files: Mapping[str, bytes | Path] | None = None, **more: str) -> Path:
        """A vendor's wheel; without `files` one of a library, a program in the package and one in the scripts."""
        usual: dict[str, bytes | Path] = {
            "demo/__init__.py": b"x = 1\n" * 100,
            "demo/a.so": self.library,
            "demo/plain.so": self.plain,
            "demo/bin/prog": self.program,
            "demo-1.0.data/scripts/demo-prog": self.program,
        }
        return make_wheel(directory, usual if files is None else files, tag=more.get("tag", TAG))

    def small(self, directory: Path) -> Path:
        """One library that has to be relinked, and a module."""
        return self.wheel(directory, {"demo/__init__.py": b"", "demo/a.so": self.library})

    def options(self, output: Path, **more: object) -> Options:
        return Options(prefixes=(str(self.prefix),), output_directory=output, **more)  # type: ignore[arg-type]


def build_works(root: Path) -> Works:
    stub = shared(root / "stubs" / "libdeep.so.1")
    nowhere = shared(root / "stubs" / "libnowhere.so.1", "int nowhere(void){return 0;}")
    prefix = root / "rocm"
    shared(prefix / "lib" / "libdeep.so.1", "int deep(void){return 40;}")
    source = "extern int deep(void); int hip(void){return deep() + 1;}"
    hip = shared(prefix / "lib" / "libhip.so.7", source, needed=[stub])
    (prefix / ".info").mkdir()
    (prefix / ".info" / "version").write_text("7.2.4-1\n")
    members = root / "members"
    using_hip = "extern int hip(void); int g(void){return hip() + 1;}"
    lost = "extern int hip(void), nowhere(void); int g(void){return hip() + nowhere();}"
    flags = ["-Wl,--dynamic-linker,/nowhere/ld.so", "-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined"]
    return Works(
        root,
        prefix,
        shared(members / "a.so", using_hip, needed=[hip], flags=[VENDOR_PATH]),
        shared(members / "plain.so", "int p(void){return 1;}"),
        shared(members / "lost.so", lost, needed=[hip, nowhere], flags=[VENDOR_PATH]),
        cc(_PROGRAM, members / "prog", *flags, needed=[hip]),
    )


def copy_glibc(directory: Path, *names: str) -> Path:
    """Copy the host's loader and libraries of its C library into `directory`; returns the loader's copy."""
    target = find_target()
    source = Path(target.libc_directory)
    directory.mkdir(parents=True, exist_ok=True)
    for name in names:
        (directory / name).write_bytes((source / name).read_bytes())
    loader = directory / Path(target.interpreter).name
    loader.write_bytes(Path(target.interpreter).read_bytes())
    loader.chmod(0o755)
    return loader


def install(python: Path, *wheels: str | Path) -> None:
    """Install wheels, and nothing that they require, for a Python: with uv, which takes a twentieth of pip's time."""
    uv = Path(sys.executable).with_name("uv")
    options = ["--quiet", "--offline", "--no-cache", "--no-index", "--no-deps", "--no-config"]
    command = [uv, "pip", "install", *options, f"--python={python}", *wheels]
    subprocess.run(command, check=True)


def installed(wheel: Path, directory: Path) -> Path:
    """Install a wheel into a fresh virtual environment; returns its Python."""
    venv.create(directory, symlinks=True)
    python = directory / "bin" / "python"
    install(python, wheel)
    return python


def open_wheel(path: Path, stack: ExitStack, target: Target | None = None) -> Wheel:
    """Open a wheel and read its members; `stack` closes the file."""
    return read_wheel(stack.enter_context(Contents(path)), target)
