"""Real Nix with a store of its own below a directory, with a set of packages; a test that cannot have them skips."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import installer
import pytest

from relink.elf.patchelf import find_patchelf
from relink.loader.target import find_target
from tests.support.cc import compiler, shared

ROOT = Path(__file__).parents[2]
SET = Path(__file__).parent / "set"
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"

C_CXX = "int cxx(void){return 1;}"
C_GCC = "int unwind(void){return 1;}"
C_CLR = "int hip_init(void){return 40;}"
ROCM: dict[str, Any] = {
    "clr": {"libamdhip64.so.7": {"source": C_CLR, "needs": ["rocm-runtime"]}},
    "rocm-runtime": {"libhsa-runtime64.so.1": {"source": "int hsa(void){return 1;}", "needs": []}},
    "rocm-smi": {"librocm_smi64.so.1": {"source": "int rsmi_init(void){return 2;}", "needs": []}},
    "rocblas": {"librocblas.so.5": {"source": "int blas(void){return 3;}", "needs": ["clr"]}},
}
"""The stub packages: clr finds rocm-runtime by its own RUNPATH, as nixpkgs' does."""


@dataclass(frozen=True)
class Nix:
    """A relocated store.

    :ivar environment: what makes Nix use it.
    """

    root: Path
    environment: dict[str, str]
    tools: dict[str, Any] = field(default_factory=dict)

    def run(self, *command: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **self.environment}
        run = subprocess.run(
            [str(word) for word in command],
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if check and run.returncode != 0:
            raise AssertionError(f"{' '.join(map(str, command))}\n{run.stdout}{run.stderr}")
        return run

    def eval(self, expression: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.run("nix-instantiate", "--eval", "--strict", "--json", "--expr", expression, check=check)

    def value(self, expression: str) -> Any:
        return json.loads(self.eval(expression).stdout)

    def with_tools(self, **more: Any) -> Nix:
        """The same store with other packages in the set."""
        return replace(self, tools=self.tools | more)

    def packages(self, more: str = "_: { }") -> str:
        """The set of Python packages as an expression; `more` are packages, a function of the scope."""
        text = json.dumps(self.tools)
        tools = self.root / f"tools-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
        tools.write_text(text)
        given = f"tools = builtins.fromJSON (builtins.readFile {tools}); packages = {more};"
        return f"(import {SET} {{ set = {self.root}/set; {given} }})"

    def log(self, expression: str, *options: str, fails: bool = False) -> str:
        """What a build says, which has to fail or not."""
        run = self.run("nix-build", "--no-out-link", *options, "--expr", expression, check=not fails)
        assert (run.returncode != 0) == fails, run.stderr
        return run.stderr

    def build(self, expression: str, *options: str) -> Path:
        found = self.run("nix-build", "--no-out-link", *options, "--expr", expression).stdout.split()
        return Path(found[-1])

    def references(self, path: Path) -> set[str]:
        return set(self.run("nix-store", "-q", "--references", path).stdout.split()) - {str(path)}


def sources(*names: str) -> Path:
    """RELINK_NIX_SOURCES, the directory with checkouts that are no part of this repository, or a skip that says what is lacking.

    `corepkgs` and `nix-lib` of ekala-project: the set and its lib; `nixpkgs.lib` of nix-community; `uv2nix` and `pyproject.nix`.
    """
    given = os.environ.get("RELINK_NIX_SOURCES")
    if not given:
        pytest.skip("RELINK_NIX_SOURCES is not set: no nixpkgs-derived set here")
    if lacking := [name for name in names if not (Path(given) / name).is_dir()]:
        pytest.skip(f"RELINK_NIX_SOURCES has no {', '.join(lacking)}")
    return Path(given)


def python_home(version: str) -> str:
    """An installation of Python that can be copied into the store (pyenv's, python-build-standalone's)."""
    found = os.environ.get(f"RELINK_PYTHON_{version.replace('.', '_')}") or shutil.which(f"python{version}")
    found = sys.executable if version == PYTHON else found
    if found is None:
        pytest.skip(f"RELINK_PYTHON_{version.replace('.', '_')} names no interpreter")
    ask = [found, "-c", "import sys; print(sys.base_prefix)"]
    run = subprocess.run(ask, capture_output=True, text=True, check=False)
    home = run.stdout.strip()
    if not Path(home, "lib", f"libpython{version}.so").exists():
        pytest.skip(f"{found}: its installation has no shared libpython, so it cannot be copied")
    return home


def tools_of(directory: Path) -> dict[str, Any]:
    """What the set is made of; `directory` is for the libraries that stand for those of the compiler."""
    unwind = shared(directory / "libgcc_s.so.1", C_GCC)
    cxx = shared(directory / "libstdc++.so.6", C_CXX)
    target = find_target()
    libc = [
        Path(target.interpreter),
        *(Path(target.libc_directory, name) for name in ("libc.so.6", "libm.so.6")),
    ]
    patchelf = find_patchelf()
    return {
        "cc": " ".join(compiler()),
        "patchelf": patchelf.path,
        "patchelfVersion": str(patchelf.version),
        "python": PYTHON,
        "home": python_home(PYTHON),
        "installer": str(Path(installer.__file__).parent),
        # This one, whichever is installed: the hook takes PYTHONPATH away.
        "relink": f"/usr/bin/env PYTHONPATH={ROOT} {sys.executable} -P -m relink",
        "libc": {path.name: str(path) for path in libc},
        "gcc": {path.name: str(path) for path in (cxx, unwind)},
        "rocm": ROCM,
        "rocmVersion": "7.2.4",
        "copied": {},
        "extra": {},
        "without": [],
        "link": "",
    }


def make_store(root: Path) -> Nix:
    for program in ("nix-build", "nix-store", "nix-instantiate"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed (apt-get install nix-bin)")
    given = sources("corepkgs", "nix-lib")
    # A copy of the set that takes its lib from beside it, instead of fetching it.
    shutil.copytree(given / "corepkgs", root / "set", symlinks=True, ignore=shutil.ignore_patterns(".git"))
    (root / "set" / "pins.nix").write_text(f"{{ lib = {given / 'nix-lib'}; }}\n")
    configuration = root / "conf"
    configuration.mkdir(parents=True)
    (configuration / "nix.conf").write_text(
        "experimental-features = nix-command flakes\nbuild-users-group =\nsandbox = false\nsubstituters =\nflake-registry =\n"
    )
    places = {
        "NIX_STORE_DIR": "store",
        "NIX_STATE_DIR": "var/nix",
        "NIX_LOG_DIR": "log",
        "NIX_DATA_DIR": "data",
    }
    environment = {name: str(root / place) for name, place in places.items()}
    environment |= {"NIX_CONF_DIR": str(configuration), "HOME": str(root), "NIX_REMOTE": "", "NIX_PATH": ""}
    return Nix(root, environment, tools_of(root))


def remove_store(root: Path) -> None:
    for directory, _, _ in os.walk(root):
        os.chmod(directory, 0o700)
    shutil.rmtree(root)


@contextmanager
def confined(*more: str) -> Iterator[list[str]]:
    """The options that have Nix confine its builds, with the machine's programs and `more` inside; a skip where it cannot."""
    places = {
        "/usr",
        "/bin",
        "/lib",
        "/lib64",
        "/etc/alternatives",
        sys.base_prefix,
        sys.prefix,
        str(ROOT),
        *more,
    }
    paths = " ".join(sorted(place for place in places if os.path.exists(place)))
    settings = {"sandbox": "true", "sandbox-fallback": "false", "sandbox-paths": paths}
    try:
        yield [word for name, value in settings.items() for word in ("--option", name, value)]
    except AssertionError as error:
        # Behind the command, which says "sandbox" itself.
        said = str(error).partition("\n")[2]
        if "required for sandboxing" in said or "cloning builder process" in said:
            pytest.skip(f"Nix cannot confine a build here: {said[-200:]}")
        raise
