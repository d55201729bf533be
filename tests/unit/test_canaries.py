"""A canary in every kind of place that could run: no command of relink makes one of them, with a sandbox and without.

Each makes a file of its name. :func:`test_each_canary_fires` runs or loads each of them, as a program would that trusts it.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from relink.elf import patchelf
from relink.loader.target import find_target
from tests.support.cc import cc, shared
from tests.support.command import Run
from tests.support.elf_attacks import asked
from tests.support.wheels import changed
from tests.support.works import OUTPUT, VENDOR_PATH, Works

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the canaries are system calls of x86-64"
)

_MAKE = r"""
static long call(long n, long a, long b, long c) {
    long r;
    __asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return r;
}
static void canary(void) { call(2, (long)"@", 0101, 0644); }
"""
_CONSTRUCTOR = "__attribute__((constructor)) static void begin(void) { canary(); }\n"
_RESOLVER = r"""
static int plain(void) { return 1; }
static void *pick(void) { canary(); return plain; }
int chosen(void) __attribute__((ifunc("pick")));
static int own(void) __attribute__((ifunc("pick")));
int use(void) { return chosen() + own(); }
"""
_AUDIT = "unsigned la_version(unsigned v) { canary(); return v; }\n"
_MAIN = "int main(void) { return 0; }"
_ON_PATH = (
    *("patchelf", "ld.so", "ld-linux-x86-64.so.2", "ldd", "nix", "nix-build", "nix-instantiate", "nix-store"),
    *("python3", "python", "hipconfig", "rocminfo", "rocm_agent_enumerator", "rocm-smi", "amd-smi"),
    *("sh", "bash", "env", "unzip", "strip", "readelf", "objdump", "cc", "git", "uname", "lspci"),
)
"""Programs that relink, or a part of Python that it uses, could look for on PATH. Not bwrap, which is taken from there."""


@dataclass(frozen=True)
class Nest:
    """What has canaries in it.

    :ivar made: the directory that canaries make their files in; `fire`: by canary, what loads or runs it.
    :ivar wheels: one that goes all the way to an output, and one whose files the static scan refuses.
    """

    made: Path
    fire: dict[str, Callable[[], object]]
    wheels: tuple[Path, Path]
    prefix: Path
    path: Path
    audit: Path
    preload: Path
    libraries: Path
    python: Path
    current: Path
    interpreter: Path

    def fired(self) -> set[str]:
        return {*os.listdir(self.made)}

    def disarm(self) -> None:
        for name in self.fired():
            (self.made / name).unlink()


def _script(path: Path, made: Path, *, said: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n: > {made}/{path.name}\n{said}\n")
    path.chmod(0o755)
    return path


def _module(made: Path, name: str) -> bytes:
    return f"open({str(made / name)!r}, 'w').close()\n".encode()


@pytest.fixture(scope="module")
def nest(works: Works, tmp_path_factory: pytest.TempPathFactory) -> Nest:
    root = tmp_path_factory.mktemp("canaries")
    made, build, current = root / "made", root / "build", root / "current"
    made.mkdir()
    fire: dict[str, Callable[[], object]] = {}

    def source(name: str, code: str) -> str:
        return _MAKE.replace("@", str(made / name)) + code

    def ran(*command: str | Path, **environment: str) -> Callable[[], object]:
        return lambda: subprocess.run(
            [str(word) for word in command],
            env=os.environ | environment,
            cwd=current,
            capture_output=True,
            check=False,
        )

    def loaded(path: Path, needs: str = "") -> Callable[[], object]:
        code = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"
        return ran(sys.executable, "-c", code, path, LD_BIND_NOW="1", LD_LIBRARY_PATH=needs)

    # The files of the wheels
    hip, lib = works.prefix / "lib" / "libhip.so.7", str(works.prefix / "lib")
    constructor = shared(
        build / "constructor.so", source("constructor", _CONSTRUCTOR), needed=[hip], flags=[VENDOR_PATH]
    )
    resolver = shared(build / "resolver.so", source("resolver", _RESOLVER), needed=[hip], flags=[VENDOR_PATH])
    interpreter = cc(source("interpreter", "void _start(void) { canary(); call(60, 0, 0, 0); }"),
                     build / "interpreter", "-static", "-nostdlib", "-nostartfiles")  # fmt: skip
    named = cc(_MAIN, build / "named", f"-Wl,--dynamic-linker,{interpreter}")
    beside = cc(_MAIN, build / "beside", "-Wl,--dynamic-linker,demo/bin/interpreter")
    audited = {}
    for tag, option in (("DT_AUDIT", "--audit"), ("DT_DEPAUDIT", "--depaudit")):
        code = source(tag, _AUDIT + _CONSTRUCTOR)
        library = shared(build / tag / "libaud.so", code)
        flags = (f"-Wl,{option},libaud.so", "-Wl,-rpath,$ORIGIN", "-Wl,--no-as-needed")
        audited[tag] = (cc(_MAIN, build / tag / "prog", *flags), library)
    fire |= {
        "constructor": loaded(constructor, lib),
        "resolver": loaded(resolver, lib),
        "interpreter": ran(named),
    }
    loader = find_target().interpreter
    for tag, (program, _) in audited.items():
        fire[tag] = lambda program=program: asked(loader, program)  # type: ignore[misc]
    python = {
        name: _module(made, name)
        for name in ("__init__", "entry", "pth", "sitecustomize", "usercustomize", "os", "json")
    }
    files: dict[str, bytes | Path] = {
        "demo/__init__.py": python["__init__"],
        "demo/main.py": b"def main():\n    " + python["entry"],
        "demo.pth": b"import sys; " + python["pth"],
        "demo/constructor.so": constructor,
        "demo/resolver.so": resolver,
        "demo/a.so": works.library,
        "demo/bin/interpreter": interpreter,
        "demo/bin/named": named,
        "demo/bin/beside": beside,
        "demo/bin/patchelf": _script(build / "member-patchelf", made),
        "demo-1.0.data/scripts/demo-script": _script(build / "script", made),
        "demo-1.0.dist-info/entry_points.txt": b"[console_scripts]\ndemo = demo.main:main\n",
    }
    refused = {f"demo/{tag}/{path.name}": path for tag, paths in audited.items() for path in paths}
    plain = works.wheel(root / "plain", files)
    wheels = (plain, works.wheel(root / "refused", files | refused))
    unpacked = root / "unpacked"
    with zipfile.ZipFile(plain) as archive:
        archive.extractall(unpacked)
    code = "import site, sys; site.addsitedir(sys.argv[1]); sys.argv[2:] and __import__('demo.main', fromlist='x').main()"
    fire |= {
        "pth": ran(sys.executable, "-c", code, unpacked),
        "__init__": ran(sys.executable, "-c", code, unpacked, "x"),
        "entry": ran(sys.executable, "-c", code, unpacked, "x"),
        "script": ran(build / "script"),
        "member-patchelf": ran(build / "member-patchelf"),
    }

    # What lies around
    shutil.copytree(works.prefix, root / "rocm")
    for name in ("prefix-hipconfig", "prefix-rocminfo", "prefix-clang"):
        script = _script(root / "rocm" / "bin" / name, made)
        shutil.copy(script, script.with_name(name.removeprefix("prefix-")))
        fire[name] = ran(script)
    path = root / "path"
    for name in _ON_PATH:
        fire[name] = ran(_script(path / name, made))
    audit = shared(root / "libaudit.so", source("LD_AUDIT", _AUDIT))
    preload = shared(root / "libpreload.so", source("LD_PRELOAD", _CONSTRUCTOR))
    fire["LD_AUDIT"] = ran("/bin/true", LD_AUDIT=str(audit))
    fire["LD_PRELOAD"] = ran("/bin/true", LD_PRELOAD=str(preload))
    libraries = root / "libraries"
    for name in ("libhip.so.7", "libdeep.so.1"):
        shared(libraries / name, source(f"LD_LIBRARY_PATH {name}", _CONSTRUCTOR))
        fire[f"LD_LIBRARY_PATH {name}"] = loaded(libraries / name)
    modules = root / "python"
    modules.mkdir()
    for name in ("sitecustomize", "usercustomize"):
        (modules / f"{name}.py").write_bytes(python[name])
        fire[name] = ran(sys.executable, "-c", f"import {name}", PYTHONPATH=str(modules))
    startup = modules / "startup.py"
    startup.write_bytes(_module(made, "PYTHONSTARTUP"))
    fire["PYTHONSTARTUP"] = lambda: exec(startup.read_text())  # noqa: S102 - an interactive Python alone would do it
    current.mkdir()
    for name in ("os", "json"):
        (current / f"{name}.py").write_bytes(python[name])
        # `os` is in memory when a Python starts; another one takes it from the current directory.
        fire[name] = ran(sys.executable, current / f"{name}.py")
    _script(current / "current-patchelf", made)
    shutil.copy(current / "current-patchelf", current / "patchelf")
    fire["current-patchelf"] = ran(current / "patchelf")
    (current / "demo" / "bin").mkdir(parents=True)
    shutil.copy(interpreter, current / "demo" / "bin" / "interpreter")
    named_in_plan = _script(root / "named-in-plan", made)
    fire["named-in-plan"] = ran(named_in_plan)
    return Nest(
        made, fire, wheels, root / "rocm", path, audit, preload, libraries, modules, current, named_in_plan
    )


def test_each_canary_fires(nest: Nest) -> None:
    """Or the next test would show nothing."""
    for name, fire in nest.fire.items():
        nest.disarm()
        fire()
        assert name in nest.fired(), f"{name}: what runs it does not make it"
    nest.disarm()


@pytest.fixture
def around(nest: Nest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Nest:
    """The canaries are in the environment and in the current directory, and what relink remembers of both is forgotten."""
    nest.disarm()
    patchelf.ask_version.cache_clear()
    variables = {
        "PATH": f"{nest.path}:{os.environ['PATH']}",
        "LD_PRELOAD": str(nest.preload),
        "LD_AUDIT": str(nest.audit),
        "LD_LIBRARY_PATH": str(nest.libraries),
        "PYTHONPATH": str(nest.python),
        "PYTHONSTARTUP": str(nest.python / "startup.py"),
        "GCONV_PATH": str(nest.libraries),
        "LOCPATH": str(nest.libraries),
        "GLIBC_TUNABLES": "glibc.malloc.check=3",
        "MALLOC_CHECK_": "3",
        "TMPDIR": str(tmp_path / "tmp"),
    }
    (tmp_path / "tmp").mkdir()
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tempfile, "tempdir", None)
    return nest


def commands(nest: Nest, relinked: Path, place: Path) -> list[list[str | Path]]:
    """Every command that is given a wheel, a prefix, or what came of them."""
    prefix: tuple[str | Path, ...] = ("--prefix", nest.prefix)
    wheel, refused = nest.wheels
    profile, report = place / "p.toml", place / "r.json"
    found: list[list[str | Path]] = [
        ["inspect", wheel],
        ["inspect", refused],
        ["isa", "--scan", *nest.wheels, nest.prefix],
        ["doctor", *prefix],
        *(["explain", path, *prefix] for path in nest.wheels),
        ["diff", wheel, relinked],
        ["diff", wheel, relinked, *prefix],
        *(["nix", path, *prefix, "-o", place / "nix", "--force"] for path in nest.wheels),
        ["profile", "new", wheel, "-o", profile],
        ["profile", "check", profile, "--wheel", refused],
        ["report", report, "-o", place / "r.html"],
    ]
    for mode in ("auto", "off"):
        for target in ((), ("--interpreter", find_target().interpreter), ("--python", sys.executable)):
            more = ("--sandbox", mode, *target)
            found += [["verify", path, *more] for path in (*nest.wheels, relinked)]
            found += [["run", path, *prefix, "-o", place / "out", "--force", *more] for path in nest.wheels]
    return found


@pytest.fixture
def relinked(nest: Nest, run: Run, tmp_path: Path) -> Path:
    """The good wheel relinked, and its plan changed: it names a program as loader and as Python."""
    code, out, err = run(
        nest.wheels[0], "--prefix", nest.prefix, "-o", tmp_path / "made", "--json", "--no-verify"
    )
    assert code == 0, out + err
    (tmp_path / "r.json").write_text(out)
    path = tmp_path / "made" / OUTPUT
    with zipfile.ZipFile(path) as archive:
        name = next(item for item in archive.namelist() if item.endswith("/relink.json"))
        plan = json.loads(archive.read(name))
    plan["target"] |= {"interpreter": str(nest.interpreter), "python": str(nest.interpreter)}
    return changed(path, tmp_path / "tampered", {name: json.dumps(plan).encode()})


def drive(
    nest: Nest, run: Run, relinked: Path, place: Path, chosen: Callable[[list[str | Path]], bool]
) -> int:
    ended: list[int] = []
    os.chdir(nest.current)
    for command in commands(nest, relinked, place):
        if chosen(command):
            code, out, err = run(*command)
            assert nest.fired() == set(), f"{command}\n{out}{err}"
            assert code in (0, 1, 2)
            assert "Traceback" not in out + err
            ended.append(code)
    return len(ended)


@pytest.mark.slow(reason="every command once")
def test_no_canary_fires(around: Nest, run: Run, relinked: Path, tmp_path: Path) -> None:
    """Every command once; the loader and patchelf are run with the sandbox and without."""
    (tmp_path / "out").mkdir()

    def few(command: list[str | Path]) -> bool:
        return "--interpreter" not in command and "--python" not in command

    assert drive(around, run, relinked, tmp_path, few) >= 20
    assert os.listdir(tmp_path / "out"), "nothing was written, so patchelf was not run"


@pytest.mark.slow(reason="the same with other targets; the canaries are the same")
def test_no_canary_fires_with_a_loader_or_a_python(
    around: Nest, run: Run, relinked: Path, tmp_path: Path
) -> None:
    def other(command: list[str | Path]) -> bool:
        return "--interpreter" in command or "--python" in command

    assert drive(around, run, relinked, tmp_path, other) == 20
