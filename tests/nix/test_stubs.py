"""Stubs in a package for Nix: written by the build where nobody has the library, and found by the loader."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from relink.elf.image import read_image
from relink.loader.target import find_target
from relink.system.safe_open import map_file
from tests.nix.conftest import PYTHON, Nix
from tests.nix.test_build import package, stores, write
from tests.nix.test_flake import hooked
from tests.support.cc import shared
from tests.support.wheels import make_wheel
from tests.support.works import TAG

SONAME = "librccl.so.1"
STUB = f"demo.libs/relink-stubs/{SONAME}"
C_RCCL = "int ncclGetVersion(int *p){return 0;}"
SYSTEM_ERROR = 2
"""What RCCL's functions return in a stub (profiles/rocm/rocm.toml)."""
CALL = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).many())"


@pytest.fixture
def wheel(vendor_files: Mapping[str, Path], tmp_path: Path) -> Path:
    rccl = shared(tmp_path / "old" / SONAME, C_RCCL)
    source = "int ncclGetVersion(int *); int many(void){return ncclGetVersion(0);}"
    flags = ["-Wl,--enable-new-dtags,-rpath,/opt/rocm/lib"]
    many = shared(tmp_path / "many.so", source, needed=[rccl], flags=flags)
    return make_wheel(tmp_path / "wheel", {**vendor_files, "demo/many.so": many}, tag=TAG)


def site(built: Path) -> Path:
    return built / f"lib/python{PYTHON}/site-packages"


def found_by_the_loader(nix: Nix, built: Path) -> str:
    """Where the loader of the stand-in's C library finds the library."""
    (libc,) = stores(nix, "libc")
    loader = Path(libc, "lib", Path(find_target().interpreter).name)
    command: list[str | Path] = [loader, "--inhibit-cache", "--list", site(built) / "demo/many.so"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (line,) = [line for line in listed.splitlines() if f"{SONAME} =>" in line]
    return str(Path(line.split("=> ")[1].split(" (")[0]).resolve())


def check_stub(nix: Nix, built: Path) -> None:
    """It is found, it answers, and RECORD has it with its digest and its size, once."""
    stub = site(built) / STUB
    assert found_by_the_loader(nix, built) == str(stub)
    library = str(site(built) / "demo/many.so")
    called = subprocess.run([sys.executable, "-c", CALL, library], capture_output=True, text=True, check=True)
    assert int(called.stdout) == SYSTEM_ERROR
    content = stub.read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    rows = list(csv.reader((site(built) / "demo-1.0.dist-info/RECORD").read_text().splitlines()))
    assert [row for row in rows if row[0] == STUB] == [[STUB, f"sha256={digest}", str(len(content))]]


def entries(built: Path) -> list[str]:
    with map_file(str(site(built) / "demo/many.so")) as buffer:
        return (read_image(buffer, "many.so").search_path or "").split(":")


def test_proved_without_the_library(in_store: Nix, wheel: Path, tmp_path: Path) -> None:
    clr, smi = stores(in_store, "rocmPackages.clr", "rocmPackages.rocm-smi")
    options = ["--prefix", clr, "--prefix", smi]
    assert "RLK101" in write(wheel, tmp_path / "refused", *options, code=1)
    output = write(wheel, tmp_path / "out", *options, "--stub", "auto")
    assert f"RLK125 {SONAME}" in output
    assert f"# {SONAME}: where nobody has it" in (tmp_path / "out/package.nix").read_text()
    built = in_store.build(package(in_store, tmp_path / "out"))
    check_stub(in_store, built)
    assert entries(built) == ["$ORIGIN/../demo.libs/relink-stubs"]
    in_store.run("nix-build", "--no-out-link", "--check", "--expr", package(in_store, tmp_path / "out"))


@pytest.mark.parametrize("wanted", ["auto", SONAME])
def test_the_package_set_decides(in_store: Nix, wheel: Path, tmp_path: Path, wanted: str) -> None:
    """From the table nobody knows what the set has: without the library the stub serves, with it the library does."""
    write(wheel, tmp_path / "out", "--stub", wanted)
    expression = package(in_store, tmp_path / "out")
    said = in_store.eval(f"({expression}).drvPath").stderr
    assert f"there is no rocmPackages.rccl, so stubs stand in for {SONAME}" in " ".join(said.split())
    built = in_store.build(expression)
    check_stub(in_store, built)
    rocm = in_store.tools["rocm"] | {"rccl": {SONAME: {"source": C_RCCL, "needs": []}}}
    nix = in_store.with_tools(rocm=rocm)
    assert "stubs stand in" not in nix.eval(f"({package(nix, tmp_path / 'out')}).drvPath").stderr
    real = nix.build(package(nix, tmp_path / "out"))
    (rccl,) = stores(nix, "rocmPackages.rccl")
    assert found_by_the_loader(nix, real) == f"{rccl}/lib/{SONAME}"
    assert entries(real) == [f"{rccl}/lib", "$ORIGIN/../demo.libs/relink-stubs"]
    none = nix.build(package(nix, tmp_path / "out", "{ extraLibraries.rccl = null; }"))
    check_stub(nix, none)


def test_by_the_hook(in_store: Nix, wheel: Path, tmp_path: Path) -> None:
    """A derivation of one's own; another RECORD line of the stub goes."""
    write(wheel, tmp_path / "out", "--stub", "auto")
    record = f"$out/lib/python{PYTHON}/site-packages/demo-1.0.dist-info/RECORD"
    plan = (
        f"relinkPlan = hook.plan {{ plan = {tmp_path}/out/demo.json; }}; "
        f"preFixup = ''echo '{STUB},sha256=AA,1' >> {record}'';"
    )
    built = in_store.build(hooked(in_store, wheel, plan))
    check_stub(in_store, built)


def test_a_stub_that_is_not_the_plans_fails_the_build(in_store: Nix, wheel: Path, tmp_path: Path) -> None:
    write(wheel, tmp_path / "out", "--stub", "auto")
    plan = tmp_path / "out" / "demo.json"
    data: dict[str, Any] = json.loads(plan.read_text())
    content = bytearray(base64.b64decode(data["stubs"][0]["content"]))
    content[-1] ^= 1
    data["stubs"][0]["content"] = base64.b64encode(content).decode()
    plan.write_text(json.dumps(data))
    run = in_store.run(
        "nix-build", "--no-out-link", "--expr", package(in_store, tmp_path / "out"), check=False
    )
    assert run.returncode != 0
    assert f"the plan has a stub {STUB} whose bytes are not those of its sha256" in run.stderr


def test_a_stub_that_something_else_touches_is_told(in_store: Nix, wheel: Path, tmp_path: Path) -> None:
    write(wheel, tmp_path / "out", "--stub", "auto")
    stub = f"$out/lib/python{PYTHON}/site-packages/{STUB}"
    plan = f"relinkPlan = hook.plan {{ plan = {tmp_path}/out/demo.json; }}; preDist = ''echo >> {stub}'';"
    expression = hooked(in_store, wheel, plan)
    run = in_store.run("nix-build", "--no-out-link", "--expr", expression, check=False)
    assert run.returncode != 0
    assert f"{STUB} was changed after relink's edits" in run.stderr


def test_the_dry_run_binds_to_the_stub(in_store: Nix, wheel: Path, tmp_path: Path) -> None:
    """A stub without the function that the wheel imports: the build stops, and it says which."""
    write(wheel, tmp_path / "out", "--stub", "auto")
    plan = tmp_path / "out" / "demo.json"
    data: dict[str, Any] = json.loads(plan.read_text())
    other = shared(tmp_path / "other" / SONAME, "int other(void){return 0;}").read_bytes()
    data["stubs"][0] |= {
        "content": base64.b64encode(other).decode(),
        "sha256": hashlib.sha256(other).hexdigest(),
    }
    plan.write_text(json.dumps(data))
    run = in_store.run(
        "nix-build", "--no-out-link", "--expr", package(in_store, tmp_path / "out"), check=False
    )
    assert run.returncode != 0
    assert "relink: demo/many.so: undefined symbol: ncclGetVersion" in run.stderr
