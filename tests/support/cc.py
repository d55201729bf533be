"""The C compiler of the tests, gcc or clang: zig's leaves out data that nothing refers to, which is what tests look for.

What was compiled once is taken from ``.cache/cc`` afterwards: a test run asks for the same few libraries hundreds of times.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "cc"
NO_COMPILER = "no C compiler is here, and the tests compile small libraries: install gcc (Debian: apt install gcc libc6-dev)"
LARGEST = 8 << 20  # bytes of a result that is kept
_SCRIPT = re.compile(r"-Wl,--version-script[,=](/[^,]+)")
_PATH = re.compile(r"/[^\s,:;=()\"'\\]+")
_SYSTEM = ("/usr/", "/lib", "/etc/", "/dev/", "/proc/")


@functools.cache
def compiler() -> tuple[str, ...]:
    """Return the compiler's command line, as a prefix of arguments."""
    found = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if found:
        return (found,)
    raise RuntimeError(NO_COMPILER)


@functools.cache
def _versions() -> bytes:
    """Return what tells this compiler and linker from another; both are part of every key."""
    asked = [
        subprocess.run([*compiler(), flag], capture_output=True, check=False).stdout
        for flag in ("--version", "-dumpmachine", "-Wl,--version")
    ]
    return repr((compiler(), asked)).encode()


def _names_a_file(word: str) -> bool:
    """Whether a file or directory that a test made is named in `word`: what is compiled may depend on what is in it."""
    paths = [path for path in _PATH.findall(word) if not path.startswith(_SYSTEM)]
    return any(
        os.path.exists(path) or (os.path.dirname(path) != "/" and os.path.exists(os.path.dirname(path)))
        for path in paths
    )


def _key(source: str, flags: Sequence[str], needed: Sequence[Path | str]) -> str | None:
    """Return a name for the result, or None where it depends on files that only the source or a flag names.

    Of a version script only the content is in the result.
    """
    scripts = [Path(match[1]).read_bytes() for flag in flags if (match := _SCRIPT.fullmatch(flag))]
    flags = ["" if _SCRIPT.fullmatch(flag) else flag for flag in flags]
    if any(
        _names_a_file(word) for word in (source, *flags, *(word for word in needed if isinstance(word, str)))
    ):
        return None
    digest = hashlib.sha256(_versions())
    digest.update(repr((source, flags, scripts, len(needed))).encode())
    for item in needed:
        digest.update(hashlib.sha256(item.read_bytes() if isinstance(item, Path) else item.encode()).digest())
    return digest.hexdigest()


def _keep(result: Path, name: str, needed: Sequence[Path | str]) -> None:
    """Put a result into the cache, unless a path is in it: a library without DT_SONAME is needed by its path."""
    if result.stat().st_size > LARGEST:
        return
    data = result.read_bytes()
    if any(os.fsencode(item) in data for item in needed if isinstance(item, Path)):
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=CACHE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    os.replace(temporary, CACHE / name)


def _run(command: Sequence[str], source: str) -> None:
    run = subprocess.run(command, input=source, text=True, capture_output=True, check=False)
    if run.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{run.stderr}")


def _object(source: str, flags: Sequence[str]) -> Path | None:
    """Return the object file of `source`, which is compiled once for all that is linked of it; to compile takes most of the time.

    None where it depends on other files, or nothing is linked.
    """
    words = [flag for flag in flags if not flag.startswith("-Wl,")]
    if "-c" in words or any(map(_names_a_file, (source, *words))):
        return None
    digest = hashlib.sha256(_versions() + repr((source, words)).encode()).hexdigest()
    result = CACHE / f"{digest}.o"
    if not result.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as place:
            made = Path(place, "made.o")
            _run([*compiler(), *words, "-c", "-x", "c", "-", "-o", str(made)], source)
            made.replace(result)
    return result


def cc(source: str, output: Path, *flags: str, needed: Sequence[Path | str] = ()) -> Path:
    """Compile C `source` into `output`, or copy what the same compiler made of the same before.

    `flags` go before the source (``-shared``, ``-Wl,-soname,…``), `needed` (libraries, ``-lfoo``) after it.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    name = _key(source, flags, needed)
    if name and (CACHE / name).exists():
        # A copy, not a link: tests change what they compiled.
        output.unlink(missing_ok=True)
        shutil.copyfile(CACHE / name, output)
        umask = os.umask(0)
        os.umask(umask)
        output.chmod(0o777 & ~umask)
        return output
    compiled = _object(source, flags)
    given = [str(compiled)] if compiled else ["-x", "c", "-", "-x", "none"]
    _run([*compiler(), *flags, *given, *map(str, needed), "-o", str(output)], source)
    if name:
        _keep(output, name, needed)
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


def shared_without(path: Path, soname: str) -> Path:
    """Build a library that imports a function of one which is nowhere; returns its path."""
    gone = shared(path.parent / "gone" / soname, "int gone(void){return 1;}")
    built = shared(path, "extern int gone(void); int use(void){return gone();}", needed=[gone])
    gone.unlink()
    return built
