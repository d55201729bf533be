"""What a package takes from a wheel's name and METADATA."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.metadata import parse_email

from relink.report.nix.metadata import About, Index, about, dependencies, imports, source
from relink.wheel.archive import WheelArchive
from tests.support.wheels import make_wheel


@pytest.mark.parametrize(
    ("tag", "index"),
    [
        ("cp312-cp312-linux_x86_64", ("cp312", "cp312", "cp312", "linux_x86_64")),
        ("py2.py3-none-any", ("py2.py3", "py2.py3", "none", "any")),
        ("7-cp312-abi3-linux_x86_64", ("cp312", "7-cp312", "abi3", "linux_x86_64")),
    ],
)
def test_what_fetch_pypi_takes(tmp_path: Path, tag: str, index: tuple[str, str, str, str]) -> None:
    """nixpkgs makes the name of pname, version, python, abi and platform; a build tag is before the second of them."""
    with WheelArchive(make_wheel(tmp_path, {"demo.py": b""}, tag=tag)) as archive:
        found = source(archive, None)
    assert found.index == Index("demo", "1.0", *index)
    of = found.index
    made = f"{of.pname}-{of.version}-{of.python}-{of.abi}-{of.platform}"
    assert f"{made}.whl" == found.name == f"demo-1.0-{tag}.whl"


@pytest.mark.parametrize(
    ("url", "name"),
    [
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
def test_a_name_for_fetchurl(tmp_path: Path, url: str, name: str) -> None:
    with WheelArchive(make_wheel(tmp_path, {"demo.py": b""}, tag="py3-none-any")) as archive:
        found = source(archive, url)
    assert (found.name, found.url, found.index) == (name, url, None)


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
    found, _, findings = dependencies(metadata, "3.12", "x.whl")
    assert (found, [item.code for item in findings]) == ((), ["RLK713", "RLK713"])


@pytest.mark.parametrize(
    ("python", "names", "left"),
    [("3.12", ("numpy",), 1), ("3.11", ("numpy", "typing-extensions"), 1), (None, ("numpy",), 2)],
)
def test_dependencies(python: str | None, names: tuple[str, ...], left: int) -> None:
    requires = f"{REQUIRES}Requires-Dist: rocm[libraries]==10.0.*\nRequires-Dist: rocm-bootstrap"
    metadata = parse_email(f"Metadata-Version: 2.1\nName: x\nVersion: 1\n{requires}\n".encode())[0]
    found, siblings, findings = dependencies(metadata, python, "x.whl")
    assert (found, siblings) == (names, ("jax-rocm7-pjrt",))
    assert [item.code for item in findings] == ["RLK713"] * left


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
        ("Summary: A demonstration.", About("Demonstration")),
        ("Summary: x: the kernels of X.", About("Kernels of X")),
        ("Summary: x is an extension for Python", About("Extension for Python")),
        ("Summary: X Engine is an engine.", About("X Engine is an engine")),
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


@pytest.mark.parametrize(
    ("name", "summary", "description"),
    [
        ("onnxruntime-rocm", "ONNX Runtime is a runtime accelerator", "Runtime accelerator"),
        ("tensorflow-rocm", "TensorFlow is an open source framework.", "Open source framework"),
        ("cupy-rocm-5-0", "CuPy: NumPy & SciPy for GPU", "NumPy & SciPy for GPU"),
        (
            "jax-rocm7-plugin",
            "JAX Plugin for AMD GPUs (ROCm:7.14.0)",
            "JAX Plugin for AMD GPUs (ROCm:7.14.0)",
        ),
        ("on", "ONNX Runtime is a runtime", "ONNX Runtime is a runtime"),
    ],
)
def test_a_description_begins_without_the_name(name: str, summary: str, description: str) -> None:
    text = f"Metadata-Version: 2.4\nName: {name}\nVersion: 1\nSummary: {summary}\n\n"
    assert about(parse_email(text.encode())[0]).description == description


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
