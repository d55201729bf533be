"""Real Nix with a store of its own below a temporary directory; where there is no Nix the tests skip and say so."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from relink.elf.patchelf import find_patchelf
from relink.loader.target import find_target
from relink.providers import nix_store
from tests.support.cc import compiler, shared
from tests.support.wheels import make_wheel
from tests.support.works import PYTHON_TAG, TAG

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
STANDIN = HERE / "standin"
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
        """The same store with other packages in the stand-in."""
        return replace(self, tools=self.tools | more)

    def packages(self, **more: str) -> str:
        """The stand-in as an expression; `more` are arguments, as Nix expressions."""
        text = json.dumps(self.tools)
        tools = self.root / f"tools-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
        tools.write_text(text)
        given = "".join(f"{name} = {value}; " for name, value in more.items())
        return f"(import {STANDIN} {{ tools = builtins.fromJSON (builtins.readFile {tools}); {given}}})"

    def build(self, expression: str, *options: str) -> Path:
        found = self.run("nix-build", "--no-out-link", *options, "--expr", expression).stdout.split()
        return Path(found[-1])

    def references(self, path: Path) -> set[str]:
        return set(self.run("nix-store", "-q", "--references", path).stdout.split()) - {str(path)}


def standin_tools(directory: Path, **more: Any) -> dict[str, Any]:
    """What the stand-in is made of; `directory` is for the library that stands for libstdc++."""
    unwind = shared(directory / "libgcc_s.so.1", C_GCC)
    cxx = shared(directory / "libstdc++.so.6", C_CXX)
    target = find_target()
    libc = [
        Path(target.interpreter),
        *(Path(target.libc_directory, name) for name in ("libc.so.6", "libm.so.6")),
    ]
    return {
        "cc": " ".join(compiler()),
        "patchelf": find_patchelf().path,
        "python": PYTHON,
        "index": "/nowhere",
        "libc": {path.name: str(path) for path in libc},
        "gcc": {path.name: str(path) for path in (cxx, unwind)},
        "rocm": ROCM,
        "copied": {},
        "extra": {},
        **more,
    }


def need_nix() -> None:
    for program in ("nix-build", "nix-store", "nix-instantiate", "unzip"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed (apt-get install nix-bin unzip)")


def make_store(root: Path) -> Nix:
    need_nix()
    configuration = root / "conf"
    configuration.mkdir(parents=True)
    (configuration / "nix.conf").write_text(
        "experimental-features = nix-command flakes\nbuild-users-group =\nsandbox = false\nsubstituters =\n"
    )
    places = {
        "NIX_STORE_DIR": "store",
        "NIX_STATE_DIR": "var/nix",
        "NIX_LOG_DIR": "log",
        "NIX_DATA_DIR": "data",
    }
    environment = {name: str(root / place) for name, place in places.items()}
    environment |= {"NIX_CONF_DIR": str(configuration), "HOME": str(root), "NIX_REMOTE": "", "NIX_PATH": ""}
    return Nix(root, environment, standin_tools(root))


@pytest.fixture(scope="session")
def nix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nix]:
    root = Path(os.path.realpath(tmp_path_factory.mktemp("nix")))
    made = make_store(root)
    yield made
    for directory, _, _ in os.walk(root):
        os.chmod(directory, 0o700)


@pytest.fixture
def in_store(nix: Nix, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nix]:
    """The same store for relink in this process."""
    for name, value in nix.environment.items():
        monkeypatch.setenv(name, value)
    nix_store.store_directory_by_nix.cache_clear()
    yield nix
    nix_store.store_directory_by_nix.cache_clear()


@pytest.fixture(scope="session")
def vendor_files(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """A library that the vendor linked with ROCm 7, libstdc++, and rocm-smi under the other of its two sonames."""
    root = tmp_path_factory.mktemp("vendor")
    hip = shared(root / "libamdhip64.so.7", C_CLR)
    smi = shared(root / "librocm_smi64.so.7", "int rsmi_init(void){return 2;}")
    cxx = shared(root / "libstdc++.so.6", C_CXX)
    source = "extern int hip_init(void), rsmi_init(void), cxx(void); int g(void){return hip_init() + rsmi_init() + cxx();}"
    path = "-Wl,--enable-new-dtags,-rpath,$ORIGIN:/opt/rocm/lib"
    library = shared(root / "a.so", source, needed=[hip, smi, cxx], flags=[path])
    return {"demo/a.so": library, "demo/plain.so": shared(root / "plain.so", "int p(void){return 1;}")}


@pytest.fixture
def vendor_wheel(vendor_files: Mapping[str, Path], tmp_path: Path) -> Path:
    return make_wheel(
        tmp_path / "wheel", {"demo/__init__.py": b"", **vendor_files}, tag=TAG, requires=("numpy",)
    )


__all__ = ["PYTHON_TAG", "Nix"]
