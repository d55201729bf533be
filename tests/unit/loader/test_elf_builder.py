"""What tests.support.elf_builder writes is what the real loader takes and binds, versions and all."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from relink.loader.target import find_target
from tests.support.elf_builder import DF_1_PIE, SUPPORTED, WEAK, WHY_NOT, Export, Import, Library

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)


def undefined(path: Path) -> set[str]:
    """What ``ldd -r`` complains of."""
    run = subprocess.run(
        [find_target().interpreter, str(path)],
        env={**os.environ, "LD_TRACE_LOADED_OBJECTS": "1", "LD_WARN": "yes", "LD_BIND_NOW": "yes"},
        capture_output=True,
        text=True,
        check=True,
    )
    said = run.stdout + run.stderr
    found = re.findall(r"undefined symbol: (\S+?)(?:, version (\S+))?\t", said)
    missing = re.findall(r"(weak )?version `(\S+)' not found", said)
    return {"@".join(filter(None, pair)) for pair in found} | {f"{weak}{name}" for weak, name in missing}


@pytest.mark.parametrize("table", ["gnu", "sysv", "both"])
def test_symbols_and_versions(tmp_path: Path, table: str) -> None:
    many = tuple(Export(f"s{index}", "V1") for index in range(40))
    Library(
        "liba.so",
        exports=(Export("f", "V1"), Export("f", "V0", hidden=True), Export("plain"), *many),
        versions=("V9",),
        hash=table,
    ).write(tmp_path / "liba.so")
    imports = (
        *(Import("f", version, "liba.so") for version in ("V0", "V1", "V9")),
        *(Import(export.name, "V1", "liba.so") for export in many),
        *(Import("plain"), Import("gone"), Import("weakly", binding=WEAK), Import("f", relocation=1)),
    )
    user = Library("libb.so", ("liba.so",), runpath="$ORIGIN", imports=imports, hash=table)
    assert undefined(user.write(tmp_path / "libb.so")) == {"f@V9", "gone"}
    weak = Library("libw.so", ("liba.so",), runpath="$ORIGIN", weak_versions=(("liba.so", "VW"),))
    assert undefined(weak.write(tmp_path / "libw.so")) == {"weak VW"}
    strong = Library("libs.so", ("liba.so",), runpath="$ORIGIN", imports=(Import("x", "VX", "liba.so"),))
    assert undefined(strong.write(tmp_path / "libs.so")) == {"VX", "x@VX"}


def test_dlopen_finds_the_exports(tmp_path: Path) -> None:
    Library("liba.so", exports=(Export("number", "V1"),)).write(tmp_path / "liba.so")
    user = Library("libb.so", ("liba.so",), runpath="$ORIGIN", imports=(Import("number", "V1", "liba.so"),))
    code = "import ctypes, sys; print(ctypes.c_long.in_dll(ctypes.CDLL(sys.argv[1]), 'number').value)"
    run = subprocess.run(
        [sys.executable, "-c", code, str(user.write(tmp_path / "libb.so"))],
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == "0"


def test_a_program_runs(tmp_path: Path) -> None:
    Library("liba.so").write(tmp_path / "liba.so")
    program = Library(
        needed=("liba.so",), runpath="$ORIGIN", flags_1=DF_1_PIE, interpreter=find_target().interpreter
    )
    path = program.write(tmp_path / "program")
    assert subprocess.run([str(path)], check=False).returncode == 0
    (tmp_path / "liba.so").unlink()
    assert subprocess.run([str(path)], check=False, capture_output=True).returncode == 127


@pytest.mark.skipif(shutil.which("readelf") is None, reason="no readelf here")
def test_readelf_agrees(tmp_path: Path) -> None:
    library = Library("liba.so", ("libx.so", "liby.so"), rpath="$ORIGIN", runpath="/a:", filters=("libf.so",))
    path = library.write(tmp_path / "liba.so")
    run = subprocess.run(["readelf", "-dW", path], capture_output=True, text=True, check=True)
    assert not run.stderr
    assert re.findall(r"\((\w+)\).*\[(.*)\]", run.stdout) == [
        ("NEEDED", "libx.so"),
        ("NEEDED", "liby.so"),
        ("FILTER", "libf.so"),
        ("SONAME", "liba.so"),
        ("RPATH", "$ORIGIN"),
        ("RUNPATH", "/a:"),
    ]
