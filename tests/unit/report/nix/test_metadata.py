"""What a package takes from a wheel's name and METADATA."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.metadata import parse_email

from relink.report.nix.metadata import (
    About,
    about,
    dependencies,
    imports,
    is_sibling,
    pythons,
    source,
)
from relink.system.errors import UsageError
from relink.wheel.archive import WheelArchive
from relink.wheel.naming import parse_wheel_name
from tests.support.wheels import make_wheel


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
    assert f"{made}.whl" == found.name == f"demo-1.0-{tag}.whl"


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


@pytest.mark.parametrize(
    ("tags", "minors"),
    [
        ("cp312-cp312-manylinux_2_34_x86_64", [12]),
        ("cp38-cp38-linux_x86_64", [8]),
        ("cp312-abi3-manylinux_2_34_x86_64", [12, 13, 14, 15]),
        ("cp38-abi3-linux_x86_64", [10, 11, 12, 13, 14, 15]),
        ("py3-none-manylinux_2_34_x86_64", [10, 11, 12, 13, 14, 15]),
        ("py2.py3-none-any", [10, 11, 12, 13, 14, 15]),
        ("py313-none-any", [13, 14, 15]),
        ("cp312-none-linux_x86_64", [12]),
        ("cp311.cp312-cp311.cp312-linux_x86_64", [11, 12]),
        ("cp312-cp312-manylinux2014_x86_64.manylinux_2_17_x86_64", [12]),
        ("cp313-cp313t-manylinux_2_34_x86_64", None),
        ("pp310-pypy310_pp73-manylinux_2_17_x86_64", None),
        ("cp312-cp312-manylinux_2_34_aarch64", None),
        ("cp312-cp312-musllinux_1_2_x86_64", None),
        ("cp312-cp312-win_amd64", None),
    ],
)
def test_which_pythons_take_a_wheel(tags: str, minors: list[int] | None) -> None:
    name = parse_wheel_name(f"demo-1.0-{tags}.whl")
    if minors is None:
        with pytest.raises(
            UsageError, match="nixpkgs' sets of Python packages are for CPython 3 with the GIL"
        ):
            pythons(name)
    else:
        assert list(pythons(name)) == minors


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
    found, findings = dependencies(metadata, [12], "x.whl")
    assert (found, [(item.code, item.level) for item in findings]) == ((), [("RLK713", "error")] * 2)


@pytest.mark.parametrize(
    ("minors", "typing"), [([12], None), ([11], {11}), ([10, 11, 12, 13], {10, 11}), ([15], None)]
)
def test_dependencies(minors: list[int], typing: set[int] | None) -> None:
    """A marker is evaluated for each Python that the package admits."""
    requires = f"{REQUIRES}Requires-Dist: rocm[libraries]==10.0.*\nRequires-Dist: rocm-bootstrap"
    metadata = parse_email(f"Metadata-Version: 2.1\nName: x\nVersion: 1\n{requires}\n".encode())[0]
    found, findings = dependencies(metadata, minors, "x.whl")
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
    (row,), (found,) = dependencies(metadata, [12], "x.whl")
    assert (row.name, row.attribute, found.code, found.subject) == (name, None, "RLK713", name)
    assert found.level == "error"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("Summary: S\nHome-page: https://h\nLicense: MIT License", About("S", "https://h", "MIT")),
        (
            "License-Expression: apache-2.0\nProject-URL: HomePage, https://p",
            About("", "https://p", "Apache-2.0"),
        ),
        ("License: Copyright AMD, see LICENSE\nHome-page: UNKNOWN", About("", None, None)),
        ("License-Expression: MIT OR Apache-2.0", About("", None, "MIT OR Apache-2.0")),
        ("Summary: A demonstration\n  of it.", About("A demonstration of it")),
        ("License: Apache 2.0", About("", None, "Apache-2.0")),
        ("Classifier: License :: OSI Approved :: MIT License", About("", None, "MIT")),
        ("Classifier: License :: OSI Approved :: BSD License", About("", None, None)),
        ("Project-URL: Changelog, https://c", About("", changelog="https://c")),
        ("License-Expression: LicenseRef-AMD", About("", None, None)),
    ],
)
def test_about(lines: str, expected: About) -> None:
    assert (
        about(parse_email(f"Metadata-Version: 2.4\nName: x\nVersion: 1\n{lines}\n\nText\n".encode())[0])
        == expected
    )


def test_imports() -> None:
    members = [
        "b/__init__.py",
        "a/__init__.py",
        "a/c/__init__.py",
        "3d/__init__.py",
        "a-1.dist-info/METADATA",
        "d.py",
    ]
    assert imports(members) == ("a", "b")
