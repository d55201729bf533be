"""What dlopen refuses and no dry run shows: the rules against dlopen in this Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from relink.loader.dlopen_limits import find_refused
from relink.loader.loading import load
from relink.loader.search import Environment
from relink.loader.seen_files import Files
from relink.loader.tables import Tables
from relink.loader.target import find_target
from relink.planning.options import Options
from relink.runs.questions import verify_wheel
from tests.support.cc import shared
from tests.support.elf_builder import SUPPORTED, WHY_NOT
from tests.support.elf_patching import Elf, set_isa_needed
from tests.support.wheels import make_wheel

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)


def reasons(*paths: Path, glibc: str | None = None) -> list[str]:
    """Return what the rules say of the last of some libraries that a Python opens one after the other."""
    target = find_target(python=sys.executable)
    target = replace(target, glibc=glibc or target.glibc)
    files = Files()
    closure = load(Environment(target, files), [*map(str, paths)], target.python or "")
    return [why for _, why in find_refused(closure, Tables(files, {}), target)]


def said(*paths: Path) -> str:
    """Return what dlopen says of the last of them."""
    source = "import ctypes, sys\nfor path in sys.argv[1:]: ctypes.CDLL(path)"
    ended = subprocess.run(
        [sys.executable, "-c", source, *paths], capture_output=True, text=True, check=False
    )
    return ended.stderr


def with_tls(path: Path, size: int, model: str = "initial-exec", more: str = "") -> Path:
    source = f"__thread char block[{size}]{more}; char *g(void) {{ return block; }}"
    return shared(path, source, flags=[f"-ftls-model={model}"])


@pytest.mark.parametrize("size", [16, 1200, 1400, 1536, 1600, 1664, 1700, 1792, 2000, 4096, 1 << 16])
def test_the_room_for_static_tls(tmp_path: Path, size: int) -> None:
    library = with_tls(tmp_path / "lib.so", size)
    refused = "cannot allocate memory in static TLS block"
    assert (reasons(library) == [refused]) == (refused in said(library))
    assert reasons(with_tls(tmp_path / "dynamic.so", size, "global-dynamic")) == []


@pytest.mark.parametrize(
    ("flags", "divides"),
    [
        (["-ftls-model=initial-exec"], True),
        (["-ftls-model=global-dynamic", "-mtls-dialect=gnu2"], True),
        (["-ftls-model=global-dynamic"], False),
    ],
)
def test_a_tls_alignment_of_0(tmp_path: Path, flags: list[str], *, divides: bool) -> None:
    """dlopen divides by it where it looks for room; `verify` asks the loader about a copy with 1, which means the same."""
    source = "__thread char block[16]; char *g(void) { return block; }"
    library = shared(tmp_path / "lib.so", source, flags=flags)
    elf = Elf(bytearray(library.read_bytes()))
    header = elf.header(7)
    assert header is not None
    elf.put(header + 48, 0)
    library.write_bytes(elf.data)
    dies = subprocess.run(
        [sys.executable, "-c", "import ctypes, sys; ctypes.CDLL(sys.argv[1])", library], check=False
    ).returncode
    assert (dies == -8) == divides
    assert reasons(library) == (["the loader divides by its TLS alignment, which is 0"] if divides else [])
    wheel = make_wheel(tmp_path, {"demo/lib.so": library}, tag="py3-none-linux_x86_64")
    codes = [found.code for found in verify_wheel(wheel, Options(python=sys.executable)).findings]
    assert codes == (["RLK116"] if divides else [])


def test_what_was_opened_before_takes_room(tmp_path: Path) -> None:
    first, second = with_tls(tmp_path / "a.so", 1000), with_tls(tmp_path / "b.so", 1000)
    assert (reasons(first), reasons(second)) == ([], [])
    assert said(second) == ""
    assert len(reasons(first, second)) == 1
    assert "cannot allocate memory in static TLS block" in said(first, second)


def test_a_variable_of_another_library(tmp_path: Path) -> None:
    """The room is taken by the library that has the variable."""
    owner = with_tls(tmp_path / "libowner.so", 4096, "global-dynamic", " = {1}")
    source = "extern __thread char block[4096]; char *h(void) { return block; }"
    user = shared(
        tmp_path / "user.so", source, needed=[owner], flags=["-ftls-model=initial-exec", "-Wl,-rpath,$ORIGIN"]
    )
    assert (reasons(owner), said(owner)) == ([], "")
    assert len(reasons(user)) == 1
    assert "libowner.so: cannot allocate memory in static TLS block" in said(user)


@pytest.mark.parametrize("bits", [0, 1, 3, 7, 15, 16, 1 << 20])
def test_the_level_of_the_processor(tmp_path: Path, bits: int) -> None:
    library = shared(tmp_path / "lib.so", flags=["-Wl,-z,x86-64-baseline"])
    set_isa_needed(library, bits)
    refused = "CPU ISA level is lower than required"
    assert (reasons(library) == [refused]) == (refused in said(library))
    assert reasons(library, glibc="2.32") == []
