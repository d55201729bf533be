"""A C compiler for tests: ``cc`` if there is one, else the one inside the ``ziglang`` package."""

from __future__ import annotations

import functools
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


@functools.cache
def compiler() -> tuple[str, ...]:
    """Return the compiler's command line, as a prefix of arguments."""
    found = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if found:
        return (found,)
    if importlib.util.find_spec("ziglang"):
        return (sys.executable, "-m", "ziglang", "cc")
    raise RuntimeError("no C compiler: install gcc, or run the tests through `make test`, which brings one")


def cc(source: str, output: Path, *flags: str, needed: Sequence[Path | str] = ()) -> Path:
    """Compile C `source` into `output`.

    `flags` go before the source (``-shared``, ``-Wl,-soname,…``), `needed` (libraries, ``-lfoo``) after it.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    command = [*compiler(), *flags, "-x", "c", "-", "-x", "none", *map(str, needed), "-o", str(output)]
    run = subprocess.run(command, input=source, text=True, capture_output=True, check=False)
    if run.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{run.stderr}")
    return output


def shared(
    output: Path,
    source: str = "",
    *,
    soname: str | None = None,
    needed: Sequence[Path | str] = (),
    flags: Sequence[str] = (),
) -> Path:
    """Compile a shared library without the C library: small, fast, and it needs exactly what is named.

    `soname` is the file's name unless given; an empty string leaves DT_SONAME out.
    """
    name = output.name if soname is None else soname
    link = [f"-Wl,-soname,{name}"] if name else []
    base = ("-shared", "-fPIC", "-nostdlib", "-O1", "-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined")
    return cc(source, output, *base, *link, *flags, needed=needed)
