"""A package from the table of components alone; tests/nix builds what is made so."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

import pytest

from relink.elf.symbol_reader import read_symbols
from relink.planning.options import Options
from relink.report.nix.model import File, Package, PathEntry, Replaced, RunPath
from relink.runs.questions import nix_package
from tests.support.cc import shared
from tests.support.elf_builder import SUPPORTED, WHY_NOT, Library, build
from tests.support.wheels import make_wheel
from tests.support.works import TAG

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)


def made(
    directory: Path, files: dict[str, Library], *, major: int | None = None, **options: object
) -> Package:
    contents: dict[str, bytes | Path] = {name: build(library) for name, library in files.items()}
    wheel = make_wheel(directory, {"demo/__init__.py": b"", **contents}, tag=TAG)
    return nix_package(wheel, Options(**options), major=major)  # type: ignore[arg-type]


def codes(package: Package) -> list[str]:
    return [item.code for item in package.findings if item.code.startswith("RLK7")]


def test_each_needed_is_an_attribute(tmp_path: Path) -> None:
    needed = ("libamdhip64.so.7", "librocblas.so.5", "libb.so", "libc.so.6", "libnobody-has-it.so.3")
    package = made(
        tmp_path,
        {
            "demo/liba.so": Library("liba.so", needed, runpath="$ORIGIN:/opt/rocm/lib"),
            "demo/libb.so": Library("libb.so"),
        },
    )
    assert (package.rocm, package.proved) == (7, False)
    entries = (
        PathEntry(text="$ORIGIN"),
        PathEntry(attribute="rocmPackages.clr"),
        PathEntry(attribute="rocmPackages.rocblas"),
        PathEntry(attribute="extraLibraries.nobody-has-it"),
    )
    (file,) = package.files
    assert file.sha256 is not None
    assert replace(file, sha256=None) == File("site-packages", "demo/liba.so", RunPath("runpath", entries))
    assert dict(package.libraries) == {
        "extraLibraries.nobody-has-it": ("libnobody-has-it.so.3",),
        "rocmPackages.clr": ("libamdhip64.so.7",),
        "rocmPackages.rocblas": ("librocblas.so.5",),
    }
    assert codes(package) == ["RLK710", "RLK711", "RLK712"]


def test_a_library_of_another_python_package(tmp_path: Path) -> None:
    """An extension of PyTorch finds torch/lib, and the package depends on torch, though METADATA does not say so."""
    needed = ("libc10.so", "libtorch.so", "libamdhip64.so.7")
    contents: dict[str, bytes | Path] = {
        "demo/__init__.py": b"import torch\n",
        "demo/a.so": build(Library("a.so", needed, runpath="/mnt/build")),
    }
    package = nix_package(make_wheel(tmp_path, contents, tag=TAG), Options())
    torch = PathEntry(attribute="pythonPackages.torch", directory="torch/lib")
    (file,) = package.files
    assert file.search_path == RunPath("runpath", (torch, PathEntry(attribute="rocmPackages.clr")))
    assert dict(package.libraries)["pythonPackages.torch"] == ("libc10.so", "libtorch.so")
    assert package.dependencies == ("torch",)
    contents["demo/__init__.py"] = b""  # nothing says that torch is there then
    (tmp_path / "other").mkdir()
    package = nix_package(make_wheel(tmp_path / "other", contents, tag=TAG), Options())
    assert package.dependencies == ()
    assert "extraLibraries.torch" in dict(package.libraries)


def test_the_other_soname_of_one_abi_takes_its_place(tmp_path: Path) -> None:
    package = made(tmp_path, {"demo/liba.so": Library("liba.so", ("librocm_smi64.so.7",))}, major=7)
    (file,) = package.files
    assert file.replace == (Replaced("librocm_smi64.so.7", "librocm_smi64.so.1"),)
    assert dict(package.libraries) == {"rocmPackages.rocm-smi": ("librocm_smi64.so.1",)}
    assert "RLK714" in codes(package)


def test_another_soname_without_evidence_stays_and_is_told(tmp_path: Path) -> None:
    package = made(tmp_path, {"demo/liba.so": Library("liba.so", ("librocblas.so.4",))}, major=7)
    (file,) = package.files
    assert file.replace == ()
    (told,) = [item for item in package.findings if item.code == "RLK715"]
    assert told.subject == "librocblas.so.4"
    assert "rocmPackages.rocblas of ROCm 7 has librocblas.so.5" in told.message


def test_what_may_be_missing_asks_for_nothing(tmp_path: Path) -> None:
    library = {"demo/liba.so": Library("liba.so", ("librocblas.so.5", "libcuda.so.1"))}
    package = made(tmp_path, library, allow_missing=("libcuda*",))
    assert dict(package.libraries) == {"rocmPackages.rocblas": ("librocblas.so.5",)}
    assert package.missing == ("libcuda*",)


def test_a_file_that_needs_nothing_is_left_as_it_is(tmp_path: Path) -> None:
    files = {
        "demo/liba.so": Library("liba.so", ("libc.so.6",)),
        "demo/libb.so": Library("libb.so", runpath="$ORIGIN"),
    }
    assert made(tmp_path, files).files == ()


@pytest.mark.parametrize("stated", [(), ("numpy",)])
def test_what_a_package_needs_whose_metadata_says_nothing(tmp_path: Path, stated: tuple[str, ...]) -> None:
    """AMD's onnxruntime_rocm requires nothing by its METADATA; its profile knows better."""
    wheel = make_wheel(tmp_path, {}, name="onnxruntime_rocm", tag=TAG, requires=stated)
    known = ("coloredlogs", "flatbuffers", "numpy", "packaging", "protobuf", "sympy")
    assert nix_package(wheel, Options()).dependencies == (stated or known)


def with_rccl(directory: Path, source: str, *stub: str) -> Package:
    old = [
        shared(directory / "old/librccl.so.1", "int ncclGetVersion(int *p){return 0;} int ncclState = 1;"),
        shared(directory / "old/libamdhip64.so.7", "int hip(void){return 0;}"),
        shared(directory / "old/libm.so.6", "int sum(void){return 0;}"),
    ]
    library = shared(directory / "a.so", source, needed=old, flags=["-Wl,--no-as-needed"])
    other = shared(directory / "b.so", "int ncclHere(void){return 1;}")
    members: dict[str, bytes | Path] = {"demo/__init__.py": b"", "demo/a.so": library, "demo/b.so": other}
    return nix_package(make_wheel(directory / "wheel", members, tag=TAG), Options(stub=stub))


CALLS = """int ncclGetVersion(int *), hip(void), ncclHere(void), ncclMaybe(void) __attribute__((weak));
int g(void){return ncclGetVersion(0) + hip() + ncclHere() + (ncclMaybe ? ncclMaybe() : 0);}"""
"""ncclHere is another member's, and without ncclMaybe it loads."""


@pytest.mark.parametrize("wanted", ["auto", "librccl.so.1"])
def test_a_stub_stands_behind_the_attribute(tmp_path: Path, wanted: str) -> None:
    """Which functions it has is known from the imports; whether the package set has the library is not."""
    package = with_rccl(tmp_path, CALLS, wanted)
    (stub,) = package.stubs
    assert stub.path == "demo.libs/relink-stubs/librccl.so.1"
    assert read_symbols(base64.b64decode(stub.content)).exports.keys() == {"ncclGetVersion"}
    (file,) = package.files
    entries = (
        PathEntry(attribute="rocmPackages.rccl"),
        PathEntry(attribute="rocmPackages.clr"),
        PathEntry(text="$ORIGIN/../demo.libs/relink-stubs"),
    )
    assert file.search_path is not None
    assert sorted(file.search_path.entries[:2], key=str) == sorted(entries[:2], key=str)
    assert file.search_path.entries[2:] == entries[2:]
    assert dict(package.libraries)["rocmPackages.rccl"] == ("librccl.so.1",)
    assert package.again == f"--stub {wanted}"
    assert [found.code for found in package.findings if found.code.startswith("RLK12")] == ["RLK125"]


@pytest.mark.parametrize(
    ("source", "wanted", "why"),
    [
        ("extern int ncclState; int g(void){return ncclState;}", "auto", "ncclState may be data"),
        (CALLS, "libm.so.6", "no member of the wheel misses"),
        (CALLS, "libamdhip64.so.7.9", "no member of the wheel misses"),
    ],
)
def test_what_has_no_stub(tmp_path: Path, source: str, wanted: str, why: str) -> None:
    package = with_rccl(tmp_path, source, wanted)
    assert package.stubs == ()
    (found,) = [found for found in package.findings if found.code == "RLK126"]
    assert why in found.message


def test_no_stub_without_being_asked_for(tmp_path: Path) -> None:
    package = with_rccl(tmp_path, CALLS)
    assert package.stubs == ()
    assert "relink-stubs" not in str(package.files)
