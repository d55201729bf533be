"""The main job on a real wheel: AMD's onnxruntime-migraphx, relinked to the ROCm of this machine, or to a stand-in for one.

Run by ``make demo`` and ``relink demo``. Exit code 0: everything held; 1: something did not; 2: there was nothing to work with
(the package index, a compiler or a tool is missing).
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from rich.console import Console

from relink.elf.image import Image, is_elf, read_image
from relink.elf.symbol_reader import read_symbols
from relink.elf.symbols import SymbolTable
from relink.loader.python import ask_python
from relink.loader.target import Target, find_target
from relink.planning.checks.tags import accepts_wheel
from relink.providers.prefix import open_prefix
from relink.report.lines import Line, align_rows, show
from relink.system.errors import RelinkError
from relink.system.safe_open import map_file
from relink.vendors.rocm.places import find_places, release_of
from relink.wheel.archive import WheelArchive
from relink.wheel.naming import parse_wheel_name
from relink.wheel.source import read_prefix

_HERE = Path(__file__).resolve().parent


def _sibling(name: str) -> ModuleType:
    """Import the module `name` that lies beside this file, wherever that is."""
    spec = importlib.util.spec_from_file_location(f"relink_demo_{name}", _HERE / f"{name}.py")
    if spec is None or spec.loader is None:
        raise RelinkError(f"{_HERE / name}.py: cannot be imported; install relink again")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)
    return module


if TYPE_CHECKING:
    from examples.demo import standin
else:
    standin = _sibling("standin")

DISTRIBUTION, VERSION = "onnxruntime-migraphx", "1.27.1"
PROVIDER = "onnxruntime/capi/libonnxruntime_providers_migraphx.so"
SHARED = "onnxruntime/capi/libonnxruntime_providers_shared.so"  # onnxruntime loads it before any provider
EXECUTION_PROVIDER = "MIGraphXExecutionProvider"
PLATFORM = "manylinux_2_34_x86_64"

_MARK = ".relink-demo"  # in a work directory: what lies in it may be deleted

_LINE = re.compile(r"^\t(?:(?P<name>.+?) => )?(?P<path>.+?)(?: \(0x[0-9a-f]+\))?$")
_console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)


class DemoError(RelinkError):
    """The demo cannot go on. `code` is its exit code: 1, something did not hold; 2, nothing to work with."""

    def __init__(self, message: str, code: int, issues: Sequence[str] = ()) -> None:
        super().__init__(message, issues)
        self.code = code


@dataclass(frozen=True, slots=True)
class Vendor:
    """The vendor's wheel, with its ELF members unpacked below `directory`."""

    wheel: Path
    directory: Path
    images: Mapping[str, Image]
    tables: Mapping[str, SymbolTable]


@dataclass(frozen=True, slots=True)
class LoaderMap:
    """What the real loader says: name → path or ``not found``, in load order; and what else it complains of."""

    objects: Mapping[str, str]
    complaints: tuple[str, ...]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; returns its exit code."""
    options = _options(arguments)
    start = time.perf_counter()
    try:
        with _work_directory(options.work) as work:
            _demo(work, options.wheel, options.prefix)
    except DemoError as error:
        _fail(error)
        return error.code
    except (RelinkError, OSError) as error:
        _fail(error)
        return 2
    _console.print(f"\n[bold green]Everything held[/], in {time.perf_counter() - start:.0f} s.")
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="relink demo", description="Relink AMD's onnxruntime-migraphx, install and import it."
    )
    parser.add_argument(
        "--wheel", type=Path, metavar="PATH", help=f"{DISTRIBUTION} for this Python, instead of a download"
    )
    parser.add_argument(
        "--prefix", metavar="DIR", help="a ROCm; without it one of this machine, or a stand-in"
    )
    parser.add_argument("--work", type=Path, metavar="DIR", help="where to work and leave the results")
    return parser.parse_args(arguments)


@contextmanager
def _work_directory(named: Path | None) -> Iterator[Path]:
    """The named directory, ``.cache/demo`` of a checkout of relink, or else a temporary directory."""
    checkout = _HERE.parents[1]
    if named is None and _HERE.parts[-2:] == ("examples", "demo") and (checkout / "pyproject.toml").is_file():
        named = checkout / ".cache/demo"
    if named is not None:
        named.mkdir(parents=True, exist_ok=True)
        if os.listdir(named) and not (named / _MARK).exists():
            raise DemoError(f"{named} has files that are not the demo's; name an empty or a new directory", 2)
        (named / _MARK).touch()
        yield named.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="relink-demo-") as directory:
        yield Path(directory).resolve()


def _demo(work: Path, wheel: Path | None, prefix: str | None) -> None:
    if wheel is not None:
        wheel = wheel.resolve()
    if platform.machine() != "x86_64":
        raise DemoError(
            f"AMD builds {DISTRIBUTION} for x86_64 only, and this machine is {platform.machine()}", 2
        )
    if wheel is not None:
        _check_tags(wheel)
    if prefix is None and not find_places(find_target(), os.environ):
        standin.compiler()  # before anything is downloaded: without a ROCm one is compiled
    for name in ("vendor", "rocm", "relinked", "venv"):
        shutil.rmtree(work / name, ignore_errors=True)
    python = _make_venv(work)
    _heading(1, f"AMD's wheel: {DISTRIBUTION} {VERSION}")
    vendor = _unpack(wheel or _download(python, work), work / "vendor")
    target = find_target()
    _heading(2, "A ROCm to link it to")
    rocm = _find_rocm(vendor, target, work, prefix)
    _heading(3, "Relink")
    relinked = _relink(vendor.wheel, rocm, work)
    _heading(4, "Install into a fresh venv, import")
    _install(python, relinked, work)
    _import(python, work)
    _heading(5, f"What the loader makes of {Path(PROVIDER).name}, before and after")
    _compare(vendor, _site_packages(python), rocm, target, work)


def _check_tags(wheel: Path) -> None:
    """Refuse a wheel that pip would refuse at the end: the demo installs into an environment of the Python that runs it."""
    name, own = parse_wheel_name(wheel.name), ask_python(sys.executable)
    if not accepts_wheel(own, name, platform.machine()):
        raise DemoError(
            f"{wheel.name} is tagged {name.python}-{name.abi}, which {own.shown} does not install; pass a wheel for {own.shown}, "
            "or run the demo with a Python that installs this one (PYTHON -m relink demo)",
            2,
        )


def _make_venv(work: Path) -> Path:
    """Make a fresh venv and return its Python; its pip does the downloading too, as the one that runs relink may have none."""
    run = subprocess.run(
        [sys.executable, "-m", "venv", str(work / "venv")], capture_output=True, text=True, check=False
    )
    if run.returncode != 0:
        raise DemoError(
            f"python -m venv ended with {run.returncode}; install your system's venv package (python3-venv)",
            2,
        )
    return work / "venv/bin/python"


def _download(python: Path, work: Path) -> Path:
    """Fetch the wheel for the running Python with pip, unless an earlier run did."""
    wheels = work / "wheels"
    version = sysconfig.get_python_version()
    abi = f"cp{version.replace('.', '')}{getattr(sys, 'abiflags', '')}"
    name = f"{DISTRIBUTION.replace('-', '_')}-{VERSION}-cp{version.replace('.', '')}-{abi}-{PLATFORM}.whl"
    if (wheels / name).is_file():
        _say(f"wheels/{name}, from an earlier run")
        return wheels / name
    asked = [
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--platform",
        PLATFORM,
        "--python-version",
        version,
    ]
    run = _pip(python, [*asked, "--abi", abi, "-d", "wheels", f"{DISTRIBUTION}=={VERSION}"], work)
    if run.returncode == 0:
        return wheels / name
    if _unreachable(run.stderr):
        raise DemoError(
            "The package index cannot be reached: try again with a network, or name a wheel by --wheel PATH.",
            2,
        )
    raise DemoError(f"The package index has no {DISTRIBUTION} {VERSION} for Python {version} ({abi}).", 2)


def _pip(python: Path, arguments: Sequence[str], work: Path) -> subprocess.CompletedProcess[str]:
    _command(["pip", *arguments])
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input", "--retries", "2", "--timeout", "20"]
    command = [str(python), "-m", "pip", arguments[0], *quiet, *arguments[1:]]
    return subprocess.run(command, cwd=work, env=_environment(), capture_output=True, text=True, check=False)


def _unreachable(complaints: str) -> bool:
    """Whether pip failed for want of a network. It says "no matching distribution" even then, after its retries."""
    return bool(
        re.search(
            r"Retrying|ConnectionError|NewConnection|Max retries|timed out|name resolution|ProxyError",
            complaints,
        )
    )


def _unpack(wheel: Path, directory: Path) -> Vendor:
    """Write the wheel's ELF members to disk, where the loader can be asked about them, and read them."""
    images: dict[str, Image] = {}
    tables: dict[str, SymbolTable] = {}
    with WheelArchive(wheel) as archive:
        _say(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, sha256 {archive.sha256()[:16]}…")
        for name, member in archive.members.items():
            if member.is_directory or not is_elf(read_prefix(archive, name, 4)):
                continue
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as sink:
                sink.writelines(archive.chunks(name))
            with map_file(str(path)) as buffer:
                images[name], tables[name] = read_image(buffer, name), read_symbols(buffer)
    if PROVIDER not in images:
        raise DemoError(f"{wheel.name} has no {PROVIDER}: this is another wheel than {DISTRIBUTION}", 2)
    return Vendor(wheel, directory, images, tables)


def _find_rocm(vendor: Vendor, target: Target, work: Path, named: str | None) -> Path:
    """Return a prefix that has what the wheel needs: one of this machine, or a stand-in."""
    sonames = standin.foreign_sonames(vendor.images)
    _say(f"It needs {', '.join(sonames)}, and looks in {vendor.images[PROVIDER].search_path}")
    places = (place.path for place in find_places(target, os.environ))
    for prefix in (named,) if named else places:
        try:
            provider = open_prefix(prefix, target)
        except RelinkError as error:
            _say(*str(error).split("\n"))
            continue
        lacking = [soname for soname in sonames if provider.find(soname) is None]
        if not lacking:
            found = release_of(provider)
            release = found.release if found else "of an unknown release"
            what = "a STAND-IN for ROCm" if (Path(prefix) / standin.NOTICE).exists() else "ROCm"
            _say(f"{prefix} has them all: {what} {release}")
            return Path(prefix).absolute()
        _say(f"{prefix} does not serve: it has no {', '.join(lacking)}")
    return _stand_in(vendor, target, work)


def _stand_in(vendor: Vendor, target: Target, work: Path) -> Path:
    release = re.search(r"/rocm-([\d.]+)/", vendor.images[PROVIDER].search_path or "")
    version = release[1] if release else "7.2.4"
    paths = [vendor.directory / name for name in vendor.images]
    elsewhere = standin.process_exports(paths, target)
    prefix = standin.build_standin(vendor.images, vendor.tables, work / "rocm", version, elsewhere=elsewhere)
    notice = (
        "NO ROCm THAT SERVES WAS FOUND. WHAT FOLLOWS USES A STAND-IN.",
        "The C compiler made it of the symbols and versions that the wheel imports. Every function in it",
        "does nothing and returns 0. It shows how relink links; it is not a ROCm and computes nothing.",
    )
    _say(*notice, style="bold yellow")
    rows: list[tuple[str, ...]] = [("stand-in library", "symbols", "version nodes", "needs")]
    for library in standin.standin_libraries(vendor.images, vendor.tables, elsewhere):
        needs = ", ".join(library.needed) + (" (its RUNPATH misses it)" if library.runpath else "")
        place = f"{library.directory}/{library.soname}"
        rows.append((place, str(len(library.symbols)), " ".join(library.versions) or "-", needs or "-"))
    show(_console, *align_rows(rows))
    return prefix


def _relink(wheel: Path, rocm: Path, work: Path) -> Path:
    """Run the public command and return the wheel that it wrote."""
    arguments = [_short(wheel, work), "--prefix", _short(rocm, work), "-o", "relinked"]
    _command(["relink", *arguments])
    (work / "relinked").mkdir()
    run = subprocess.run([sys.executable, "-m", "relink", *arguments], cwd=work, check=False)
    written = list((work / "relinked").glob("*.whl"))
    if run.returncode != 0 or len(written) != 1:
        raise DemoError(f"relink ended with {run.returncode} and wrote {len(written)} wheels", 1)
    return written[0]


def _install(python: Path, wheel: Path, work: Path) -> None:
    run = _pip(python, ["install", _short(wheel, work)], work)
    if run.returncode == 0:
        return
    if _unreachable(run.stderr):
        raise DemoError(
            "The package index cannot be reached, and onnxruntime needs numpy from it to be imported.", 2
        )
    raise DemoError(f"pip does not install {wheel.name}", 1, run.stderr.strip().splitlines()[-5:])


def _import(python: Path, work: Path) -> None:
    code = "import onnxruntime; print(onnxruntime.get_available_providers())"
    _command(["python", "-c", code])
    run = subprocess.run(
        [str(python), "-c", code], cwd=work, env=_environment(), capture_output=True, text=True, check=False
    )
    if run.returncode != 0:
        raise DemoError("onnxruntime cannot be imported", 1, run.stderr.strip().splitlines()[-5:])
    _say(*run.stdout.strip().split("\n"))
    if EXECUTION_PROVIDER not in ast.literal_eval(run.stdout.strip().splitlines()[-1]):
        raise DemoError(f"onnxruntime does not list {EXECUTION_PROVIDER}", 1)


def _compare(vendor: Vendor, installed: Path, rocm: Path, target: Target, work: Path) -> None:
    """Print the loader's map of the provider in the vendor's wheel beside that of the installed one, and check the latter."""
    roots = (vendor.directory, installed)
    before, after = (_ask_the_loader(root, target) for root in roots)
    asked = ["LD_TRACE_LOADED_OBJECTS=1", "LD_BIND_NOW=1", "LD_WARN=1", f"LD_PRELOAD=…/{Path(SHARED).name}"]
    _command([*asked, target.interpreter, f"…/{Path(PROVIDER).name}"])
    rows: list[tuple[str | Line, ...]] = [("soname", "before", "after")]
    for name in {**after.objects, **before.objects}:
        maps = zip((before, after), roots, strict=True)
        rows.append((name, *(_cell(found.objects.get(name), (root, work)) for found, root in maps)))
    show(_console, *align_rows(rows))
    wrong = [f"{name}: not found" for name, path in after.objects.items() if path == "not found"]
    for soname in standin.foreign_sonames(vendor.images):
        path = after.objects.get(soname, "not asked for")
        if path != "not found" and not path.startswith(f"{rocm}/"):
            wrong.append(f"{soname}: {path}, not from {rocm}")
    wrong += after.complaints
    if wrong:
        raise DemoError("The loader is not content with the relinked library", 1, wrong[:8])
    lost = sum(path == "not found" for path in before.objects.values())
    _console.print(
        f"before: {lost} not found, {len(before.complaints)} symbols and versions open; after: none."
    )


def _ask_the_loader(root: Path, target: Target) -> LoaderMap:
    """Let the real loader map the provider below `root` without running any of it (ld.so(8), LD_TRACE_LOADED_OBJECTS)."""
    asked = {"LD_TRACE_LOADED_OBJECTS": "1", "LD_WARN": "1", "LD_BIND_NOW": "1", "LC_ALL": "C"}
    asked["LD_PRELOAD"] = str(root / SHARED)
    command = [target.interpreter, str(root / PROVIDER)]
    run = subprocess.run(
        command, env=_environment() | asked, cwd="/", capture_output=True, text=True, check=False
    )
    objects: dict[str, str] = {}
    for line in run.stdout.splitlines():
        match = _LINE.match(line)
        if match and ("/" in match["path"] or match["path"] == "not found"):
            objects[Path(match["name"] or match["path"]).name] = match["path"]
    if not objects:
        raise DemoError(f"{target.interpreter} printed no map", 1, run.stderr.strip().splitlines()[:5])
    return LoaderMap(objects, tuple(line.strip() for line in run.stderr.splitlines() if line.strip()))


def _cell(path: str | None, roots: Sequence[Path]) -> Line:
    if path is None:
        return Line("-", style="dim")
    if path == "not found":
        return Line(path, style="bold red")
    for root in roots:
        if Path(path).is_relative_to(root):
            return Line(_short(Path(path), root), style="green")
    return Line(path, style="dim")


def _site_packages(python: Path) -> Path:
    code = "import sysconfig; print(sysconfig.get_path('platlib'))"
    run = subprocess.run(
        [str(python), "-c", code], env=_environment(), capture_output=True, text=True, check=True
    )
    return Path(run.stdout.strip())


def _environment() -> dict[str, str]:
    """The user's environment without what would lead the loader or Python elsewhere."""
    return {
        key: value for key, value in os.environ.items() if not key.startswith("LD_") and key != "PYTHONPATH"
    }


def _short(path: Path, root: Path) -> str:
    """A path below `root` as seen from there; any other as it is."""
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


def _heading(number: int, text: str) -> None:
    _console.print(f"\n[bold]{number}. {text}[/]")


def _say(*lines: str, style: str = "") -> None:
    for line in lines:
        _console.print(Line(line, style), soft_wrap=True)


def _command(words: Sequence[str]) -> None:
    shown = " ".join(word if re.fullmatch(r"[\w./=:…+-]+", word) else shlex.quote(word) for word in words)
    _say(f"$ {shown}", style="cyan")
    sys.stdout.flush()


def _fail(error: Exception) -> None:
    sys.stdout.flush()
    for line in f"relink demo: {error}".split("\n"):
        Console(stderr=True, highlight=False).print(Line(line, "bold red"), soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
