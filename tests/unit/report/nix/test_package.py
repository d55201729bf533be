"""What a package takes from the wheel's name and METADATA, and what it is linked with, by the table of components alone."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.metadata import parse_email

from relink.elf.image import read_image
from relink.planning.options import Options
from relink.report.nix.package import (
    Package,
    is_sibling,
    newest_major,
    nixpkgs_names,
    read_dependencies,
    source,
)
from relink.runs.questions import nix_package
from relink.system.errors import UsageError
from relink.vendors.rocm.vendor import rocm
from relink.wheel.archive import WheelArchive
from tests.support.built import ROOT
from tests.support.cc import shared
from tests.support.wheels import make_wheel

SLOW = pytest.mark.slow(reason="runs, whose packages are printed; the others are of plans")


def packaged(
    directory: Path, *sonames: str, tag: str = "py3-none-linux_x86_64", name: str = "demo", **options: Any
) -> Package:
    """The package of a wheel with one library that needs these."""
    needed = [shared(directory / soname, "int a;") for soname in sonames]
    library = shared(directory / "a.so", "int b;", needed=needed, flags=["-Wl,--no-as-needed"])
    wheel = make_wheel(
        directory / "wheel", {"demo/__init__.py": b"", "demo/a.so": library}, name=name, tag=tag
    )
    return nix_package(wheel, Options(**options), "https://example.org/x.whl")


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
    assert [*package.inputs] == [
        "pkgs.numactl",
        "rocmPackages.clr",
        "rocmPackages.rocm-smi",
    ]
    assert package.unknown == ("libnowhere.so.1",)
    (found,) = [item for item in package.findings if item.code == "RLK711"]
    assert found.subject == "libnowhere.so.1"


@SLOW
def test_what_is_stubbed_or_may_be_missing_is_no_input(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "stub": ("librccl.so.1",),
        "allow_missing": ("libhipblas.so.*",),
        "gpus": ("gfx1030",),
    }
    package = packaged(tmp_path, "librccl.so.1", "libhipblas.so.3", "librocblas.so.5", **options)
    assert [*package.inputs] == ["rocmPackages.rocblas"]
    assert package.settings == {
        "relinkAllowMissing": ("libhipblas.so.*",),
        "relinkGpus": ("gfx1030",),
        "relinkStub": ("librccl.so.1",),
    }


def test_options_are_attributes_of_the_hook(tmp_path: Path) -> None:
    """A GPU by its product's name becomes a target: the build cannot ask who wrote the file, and has no GPU itself."""
    options: dict[str, Any] = {
        "substitute": ["libsmi.so.1=libsmi.so.7"],
        "assume_symbols": ["x_*"],
        "preload": ["libx.so.1"],
        "preload_known": False,
        "profile": "none",
        "gpus": ["RX 6750 XT", "gfx1031"],
    }
    assert packaged(tmp_path, "libamdhip64.so.7", **options).settings == {
        "relinkAssumeSymbols": ("x_*",),
        "relinkGpus": ("gfx1031",),
        "relinkPreload": ("libx.so.1",),
        "relinkSubstitute": ("libsmi.so.1=libsmi.so.7",),
        "relinkFlags": ("--profile=none", "--no-preload"),
    }
    with pytest.raises(UsageError, match="the build does not have this file"):
        packaged(tmp_path / "file", "libamdhip64.so.7", profile=str(profile_file(tmp_path)))
    with pytest.raises(UsageError, match="RX: no target id"):
        packaged(tmp_path / "gpu", "libamdhip64.so.7", gpus=["RX"])


def profile_file(directory: Path) -> Path:
    path = directory / "mine.toml"
    path.write_text('schema = "relink.profile/1"\nname = "mine"\ndistributions = ["demo"]\nsource = "here"\n')
    return path


def test_what_the_package_is_known_to_open_is_an_input_too(tmp_path: Path) -> None:
    """TensorFlow's DsoLoader opens names without a number."""
    package = packaged(tmp_path, "libamdhip64.so.7", name="tensorflow_rocm", forward=("auto",))
    attributes = [*package.inputs]
    assert {"rocmPackages.clr", "rocmPackages.rocblas", "rocmPackages.miopen"} <= {*attributes}
    assert package.settings == {"relinkForward": ("auto",)}


@pytest.mark.parametrize(
    ("tag", "exact"),
    [
        ("cp312-cp312-linux_x86_64", True),
        ("cp312-abi3-linux_x86_64", False),
        ("py3-none-linux_x86_64", False),
    ],
)
def test_a_wheel_for_one_python_says_which(tmp_path: Path, tag: str, exact: bool) -> None:
    """abi3 is a least one."""
    package = packaged(tmp_path, "libamdhip64.so.7", tag=tag)
    assert (len(package.pythons) == 1, package.pythons[0]) == (exact, 10 if tag.startswith("py3") else 12)


@SLOW
def test_the_rocm_that_it_was_linked_with(tmp_path: Path) -> None:
    assert packaged(tmp_path / "six", "libamdhip64.so.6").major == 6
    assert packaged(tmp_path / "none", "libstdc++.so.6").major is None


def test_what_nixpkgs_builds_itself_is_named(tmp_path: Path) -> None:
    package = packaged(tmp_path, "libamdhip64.so.7", name="bitsandbytes")
    (found,) = [item for item in package.findings if item.code == "RLK717"]
    assert (found.level, found.subject) == ("info", "bitsandbytes")


@pytest.mark.parametrize(
    ("tag", "python", "abi"),
    [
        ("cp312-cp312-manylinux_2_34_x86_64", "cp312", "cp312"),
        ("py2.py3-none-any", "py2.py3", "none"),
        ("7-cp312-abi3-manylinux_2_34_x86_64", "7-cp312", "abi3"),
    ],
)
def test_what_fetch_pypi_takes(tmp_path: Path, tag: str, python: str, abi: str) -> None:
    """nixpkgs makes the name of pname, version, python, abi and platform; a build tag is before the second of them."""
    with WheelArchive(make_wheel(tmp_path, {"demo.py": b""}, tag=tag)) as archive:
        found = source(archive, None, tmp_path)
    of = found.arguments
    assert (of["pname"], of["python"], of["abi"], of["dist"]) == (
        "demo",
        python,
        abi,
        python.removeprefix("7-"),
    )
    made = f"{of['pname']}-1.0-{of['python']}-{of['abi']}-{of['platform']}"
    assert f"{made}.whl" == f"demo-1.0-{tag}.whl"


@pytest.mark.parametrize(
    ("version", "tag", "reason"),
    [
        ("1.0", "cp310-cp310-linux_x86_64", "its platform is linux_x86_64"),
        ("1.0+rocm6.2", "py3-none-any", r"its version has a local label \(\+rocm6\.2\)"),
        ("1!1.0", "py3-none-any", "no file in a Nix store can have this name"),
    ],
)
def test_what_pypi_cannot_have_needs_an_address(tmp_path: Path, version: str, tag: str, reason: str) -> None:
    with WheelArchive(make_wheel(tmp_path, {"demo.py": b""}, tag=tag, version=version)) as archive:
        with pytest.raises(UsageError, match=rf"{reason}, so PyPI does not have it; .* --url URL"):
            source(archive, None, tmp_path)
        assert source(archive, "https://example.org/x.whl", tmp_path).fetcher == "fetchurl"


def test_a_file_is_named_from_where_the_package_is(tmp_path: Path) -> None:
    path = make_wheel(tmp_path / "wheels", {"demo.py": b""}, tag="py3-none-any")
    with WheelArchive(path) as archive:
        assert source(archive, str(path), tmp_path / "wheels").arguments == {"path": f"./{path.name}"}
        found = source(archive, str(path), tmp_path / "pkgs" / "demo")
        assert (found.fetcher, found.arguments) == (None, {"path": f"../../wheels/{path.name}"})
        with pytest.raises(UsageError, match="Nix has no path of these characters; rename the file"):
            source(archive, str(tmp_path / "a b" / path.name), tmp_path)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://example.org/demo-1.0-py3-none-any.whl", None),
        (
            "https://example.org/a/demo-1.0%2Brocm7-py3-none-any.whl?x=1#sha256=0",
            "demo-1.0+rocm7-py3-none-any.whl",
        ),
        ("https://example.org/download?file=demo.whl", "demo-1.0-py3-none-any.whl"),
        ("https://example.org/a%20b.whl", "demo-1.0-py3-none-any.whl"),
        (f"https://example.org/{'a' * 250}.whl", "demo-1.0-py3-none-any.whl"),
        ("https://example.org/.hidden.whl", "demo-1.0-py3-none-any.whl"),
    ],
)
def test_a_name_for_fetchurl(tmp_path: Path, url: str, name: str | None) -> None:
    with WheelArchive(make_wheel(tmp_path, {"demo.py": b""}, tag="py3-none-any")) as archive:
        found = source(archive, url, tmp_path)
    assert found.fetcher == "fetchurl"
    assert (found.arguments["url"], found.arguments.get("name")) == (url, name)


def test_a_wheel_that_no_python_of_nixpkgs_takes(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nixpkgs' sets of Python packages are for CPython 3 with the GIL"):
        packaged(tmp_path, tag="cp313-cp313t-manylinux_2_34_x86_64")


REQUIRES = """\
Requires-Dist: NumPy>=1.21
Requires-Dist: typing_extensions ; python_version < "3.12"
Requires-Dist: sympy ; extra == "symbolic"
Requires-Dist: colorama ; sys_platform == "win32"
Requires-Dist: both ; extra == "x" and python_version > "3"
Requires-Dist: jax-rocm7-pjrt==0.12.0
Requires-Dist: not a requirement!
"""
UNREADABLE = f"""\
Requires-Dist: a ; {"(" * 2000}python_version > "3"{")" * 2000}
Requires-Dist: b ; python_version > "{"9" * 5000}"
"""


def test_dependencies_that_nothing_reads() -> None:
    metadata = parse_email(f"Metadata-Version: 2.1\nName: x\nVersion: 1\n{UNREADABLE}\n".encode())[0]
    found, findings = read_dependencies(metadata["requires_dist"], [12], "x.whl")
    assert (found, [(item.code, item.level) for item in findings]) == ((), [("RLK713", "error")] * 2)


@pytest.mark.parametrize(
    ("minors", "typing"), [([12], None), ([11], {11}), ([10, 11, 12, 13], {10, 11}), ([15], None)]
)
def test_dependencies(minors: list[int], typing: set[int] | None) -> None:
    """A marker is evaluated for each Python that the package admits."""
    requires = f"{REQUIRES}Requires-Dist: rocm[libraries]==10.0.*\nRequires-Dist: rocm-bootstrap"
    metadata = parse_email(f"Metadata-Version: 2.1\nName: x\nVersion: 1\n{requires}\n".encode())[0]
    found, findings = read_dependencies(metadata["requires_dist"], minors, "x.whl")
    rows = {row.name: (row.attribute, set(row.pythons)) for row in found}
    expected = {name: (name, {*minors}) for name in ("jax-rocm7-pjrt", "numpy")}
    assert rows == expected | ({"typing-extensions": ("typing-extensions", typing)} if typing else {})
    assert is_sibling("jax-rocm7-pjrt")
    assert [item.code for item in findings] == ["RLK713"]


@pytest.mark.parametrize(
    "name",
    ["aria2", "config", "system", "lib", "pkgs", "3to2", "tensorflow-io-gcs-filesystem", "jax-rocm60-pjrt"],
)
def test_a_dependency_that_would_be_something_else(name: str) -> None:
    """callPackage passes a program, a set or a string for these, or nothing."""
    metadata = parse_email(f"Metadata-Version: 2.1\nName: x\nVersion: 1\nRequires-Dist: {name}\n\n".encode())[
        0
    ]
    (row,), (found,) = read_dependencies(metadata["requires_dist"], [12], "x.whl")
    assert (row.name, row.attribute, found.code, found.subject) == (name, None, "RLK713", name)
    assert found.level == "error"


def test_what_is_imported(tmp_path: Path) -> None:
    names = ("b/__init__.py", "a/__init__.py", "a/c/__init__.py", "3d/__init__.py", "d.py")
    wheel = make_wheel(tmp_path, dict.fromkeys(names, b""), tag="py3-none-any")
    assert nix_package(wheel, Options()).imports == ("a", "b")


def test_the_table_of_names_is_made_of_a_checkout(tmp_path: Path) -> None:
    """scripts/record-nixpkgs-names: attributes, names that differ, licences, and the commit."""
    packages = (
        "  absl-py = callPackage ../development/python-modules/absl-py { };\n\n"
        "  opencv4 = callPackage ../development/python-modules/cv {\n    inherit (pkgs) x;\n  };\n  inherit (x) y;\n"
    )
    files = {
        "pkgs/top-level/python-packages.nix": f"self: super: with self; {{\n{packages}}}\n",
        "pkgs/development/python-modules/cv/default.nix": '{ }: { pname = "OpenCV_Python"; }\n',
        "lib/licenses.nix": 'lib.mapAttrs mkLicense ({\n    mit = {\n      spdxId = "MIT";\n    };\n})\n',
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *words], check=True)
    command = [sys.executable, str(ROOT / "scripts/record-nixpkgs-names"), str(tmp_path)]
    made = tomllib.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert made.pop("source").startswith("commit ")
    names = {
        "names": ["absl-py", "opencv4"],
        "others": {"opencv-python": "opencv4"},
        "licenses": {"MIT": "mit"},
    }
    assert made == names
    assert nixpkgs_names().keys() == names.keys() | {"source"}


@pytest.mark.parametrize(
    ("sonames", "major"),
    [
        ((), None),
        (("libstdc++.so.6", "libamdhip64.so"), None),
        (("libamdhip64.so.6",), 6),
        (("libamdhip64.so.6", "libamdhip64.so.7"), 7),
        # Without the runtime, by a soname that one major alone has.
        (("librocblas.so.5",), 7),
        (("librccl.so.1",), None),
    ],
)
def test_by_the_runtime_or_by_what_one_major_alone_has(
    tmp_path: Path, sonames: tuple[str, ...], major: int | None
) -> None:
    needed = [shared(tmp_path / name, "int a;") for name in sonames]
    library = shared(tmp_path / "a.so", "int b;", needed=needed, flags=["-Wl,--no-as-needed"])
    assert newest_major([read_image(library.read_bytes(), "a.so")], rocm) == major
    assert newest_major([], rocm) is None
