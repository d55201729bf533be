"""What a package is linked with, by the table of components alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from relink.planning.options import Options
from relink.report.nix.package import Package, newest_major
from relink.runs.questions import nix_package
from tests.support.cc import shared
from tests.support.wheels import make_wheel


def packaged(
    directory: Path, *sonames: str, tag: str = "py3-none-linux_x86_64", name: str = "demo", **options: Any
) -> Package:
    """The package of a wheel with one library that needs these."""
    needed = [shared(directory / soname, "int a;") for soname in sonames]
    library = shared(directory / "a.so", "int b;", needed=needed, flags=["-Wl,--no-as-needed"])
    wheel = make_wheel(
        directory / "wheel", {"demo/__init__.py": b"", "demo/a.so": library}, name=name, tag=tag
    )
    return nix_package(wheel, Options(**options), url="https://example.org/x.whl")


def test_each_library_leads_to_the_attribute_that_has_it(tmp_path: Path) -> None:
    """Under whatever version of its soname; AMD's own copies of system libraries lead to the system's."""
    package = packaged(
        tmp_path,
        *(
            "libamdhip64.so.7",
            "librocm_smi64.so.7",
            "librocm_sysdeps_numa.so.1",
            "libstdc++.so.6",
            "libnowhere.so.1",
        ),
    )
    assert [attribute for attribute, _ in package.inputs] == [
        "pkgs.numactl",
        "rocmPackages.clr",
        "rocmPackages.rocm-smi",
    ]
    assert package.unknown == ("libnowhere.so.1",)
    (found,) = [item for item in package.findings if item.code == "RLK711"]
    assert found.subject == "libnowhere.so.1"


def test_what_is_stubbed_or_may_be_missing_is_no_input(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "stub": ("librccl.so.1",),
        "allow_missing": ("libhipblas.so.*",),
        "gpus": ("gfx1030",),
    }
    package = packaged(tmp_path, "librccl.so.1", "libhipblas.so.3", "librocblas.so.5", **options)
    assert [attribute for attribute, _ in package.inputs] == ["rocmPackages.rocblas"]
    assert (package.stub, package.missing, package.gpus) == (
        ("librccl.so.1",),
        ("libhipblas.so.*",),
        ("gfx1030",),
    )


def test_what_the_package_is_known_to_open_is_an_input_too(tmp_path: Path) -> None:
    """TensorFlow's DsoLoader opens names without a number."""
    package = packaged(tmp_path, "libamdhip64.so.7", name="tensorflow_rocm", forward=("auto",))
    attributes = [attribute for attribute, _ in package.inputs]
    assert {"rocmPackages.clr", "rocmPackages.rocblas", "rocmPackages.miopen"} <= {*attributes}
    assert package.forward == ("auto",)


@pytest.mark.parametrize(
    ("tag", "python"),
    [
        ("cp312-cp312-linux_x86_64", "3.12"),
        ("cp312-abi3-linux_x86_64", None),
        ("py3-none-linux_x86_64", None),
    ],
)
def test_a_wheel_for_one_python_says_which(tmp_path: Path, tag: str, python: str | None) -> None:
    """abi3 is a least one, which relinkWheel knows by the file's name."""
    assert packaged(tmp_path, "libamdhip64.so.7", tag=tag).python == python


def test_the_rocm_that_it_was_linked_with() -> None:
    assert newest_major([]) is None
