"""The text that is emitted, and the file that is written; tests/nix has the text evaluated and built by Nix."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from relink.report.nix.emit import nix_attribute, nix_comment, nix_string, package_nix, write_package
from relink.report.nix.metadata import About, Index, Source
from relink.report.nix.package import Package
from relink.system.errors import UsageError

PLAIN = Package(
    release=("demo", "1.0"),
    source=Source(
        "demo-1.0-cp312-cp312-linux_x86_64.whl",
        "sha256-AAAA=",
        url="https://example.org/demo%2Brocm.whl",
    ),
    python="3.12",
    inputs=(("pkgs.numactl", ("libnuma.so.1",)), ("rocmPackages.clr", ("libamdhip64.so.7",))),
    about=About("Demonstration", "https://example.org", "MIT", "https://example.org/changes"),
    dependencies=("numpy", "packaging"),
    imports=("demo",),
    gpus=("gfx1030", "gfx1100"),
)
WRITTEN = """
{
  lib, fetchurl, relinkWheel, rocmPackages, pkgs, numpy, packaging,
}:

relinkWheel {
  src = fetchurl {
    url = "https://example.org/demo%2Brocm.whl"; name = "demo-1.0-cp312-cp312-linux_x86_64.whl";
    hash = "sha256-AAAA=";
  };
  buildInputs = with rocmPackages; [ clr ] ++ [ pkgs.numactl ];
  dependencies = [ numpy packaging ];
  gpus = [ "gfx1030" "gfx1100" ];
  pythonImportsCheck = [ "demo" ];

  meta = {
    description = "Demonstration";
    homepage = "https://example.org";
    changelog = "https://example.org/changes";
    license = lib.licenses.mit;
    maintainers = [ ];
  };
}
"""
INDEX = Source(
    "demo-1.0-py3-none-any.whl", "sha256-AAAA=", index=Index("demo", "1.0", "py3", "py3", "none", "any")
)


def test_what_is_written() -> None:
    head, _, rest = package_nix([PLAIN]).partition("\n")
    assert head.startswith("# Written by relink ")
    assert head.endswith(" from demo-1.0-cp312-cp312-linux_x86_64.whl.")
    assert f"\n{rest}" == WRITTEN


def test_what_is_written_replaces_what_is_there(tmp_path: Path) -> None:
    """A FIFO would keep whoever opens it waiting."""
    os.mkfifo(tmp_path / "package.nix")
    (written,) = write_package([PLAIN], tmp_path)
    assert written.read_text() == package_nix([PLAIN])
    assert os.listdir(tmp_path) == ["package.nix"]


def test_with_locks(tmp_path: Path) -> None:
    one, other = replace(PLAIN, lock="1\n"), replace(PLAIN, python="3.13", lock="2\n")
    assert [path.name for path in write_package([one], tmp_path, lock=True)] == [
        "package.nix",
        "demo.lock.json",
    ]
    assert "  lock = ./demo.lock.json;\n" in (tmp_path / "package.nix").read_text()
    _, _, second = write_package([one, other], tmp_path, lock=True)
    assert (second.name, second.read_text()) == ("demo-3.13.lock.json", "2\n")
    text = (tmp_path / "package.nix").read_text()
    assert '  lock = { "3.12" = ./demo-3.12.lock.json; "3.13" = ./demo-3.13.lock.json; };\n' in text


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        UsageError, match=r"file/x: cannot be written to \(Not a directory\); name another by --output"
    ):
        write_package([PLAIN], tmp_path / "file" / "x")


def test_a_name_from_the_wheel_stays_in_its_comment() -> None:
    package = replace(PLAIN, unknown=("libx.so\n}: builtins.abort",))
    assert not [line for line in package_nix([package]).splitlines() if line.startswith("}: builtins")]


@pytest.mark.parametrize(
    "name", ["3to2", "7zip", "lib", "pkgs", "python", "rocmPackages", "relinkWheel", "in"]
)
def test_a_dependency_that_is_no_argument(name: str) -> None:
    """It is no identifier, or is an argument already (Requires-Dist: lib beside a licence): Nix would refuse the function."""
    text = package_nix([replace(PLAIN, dependencies=(name, "numpy"))])
    formals = text.partition("{")[2].partition("}")[0].replace(",", " ").split()
    assert len(formals) == len(set(formals))
    assert "python" in formals
    assert f"dependencies = [ python.pkgs.{nix_attribute(name)} numpy ];" in text


def test_one_release_for_several_pythons() -> None:
    newer = replace(PLAIN, python="3.13", source=replace(PLAIN.source, name="demo-1.0-cp313-cp313-any.whl"))
    text = package_nix([PLAIN, newer])
    assert '  srcs = {\n    "3.12" = fetchurl {\n' in text
    assert '    "3.13" = fetchurl {\n' in text
    for other in (replace(PLAIN, release=("demo", "2.0")), PLAIN, replace(PLAIN, python=None)):
        with pytest.raises(
            UsageError, match="one package takes the wheels of one release, one for each Python"
        ):
            package_nix([PLAIN, other])


def test_of_the_package_index_with_all_that_can_be_said() -> None:
    more = replace(
        PLAIN,
        source=INDEX,
        inputs=(),
        siblings=("jax-rocm7-pjrt",),
        same_version=("jaxlib",),
        stub=("auto",),
        missing=("libx.so.*",),
        about=About('With "quotes"', license="MIT OR (Apache-2.0 AND 0BSD)"),
    )
    text = package_nix([more])
    for line in (
        "  lib, fetchPypi, relinkWheel, numpy, packaging, jax-rocm7-pjrt, jaxlib,",
        '    pname = "demo"; version = "1.0"; dist = "py3"; python = "py3"; abi = "none"; platform = "any";',
        '    format = "wheel"; hash = "sha256-AAAA=";',
        "  dependencies = [ numpy packaging jax-rocm7-pjrt ];",
        "  sameVersion = [ jaxlib jax-rocm7-pjrt ];",
        '  stub = [ "auto" ];',
        '  allowMissing = [ "libx.so.*" ];',
        '    description = "With \\"quotes\\"";',
    ):
        assert line in text.splitlines()
    assert (
        'license = [\n      lib.licenses.mit lib.licenses.asl20 (lib.getLicenseFromSpdxId "0BSD")\n    ];'
        in text
    )


def test_long_lists_are_filled() -> None:
    text = package_nix([replace(PLAIN, dependencies=tuple(f"dependency-{number}" for number in range(40)))])
    assert max(map(len, text.splitlines())) <= 100
    assert len(text.splitlines()) < 45


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        ("a", '"a"'),
        ('a"b\\c', r'"a\"b\\c"'),
        ("${builtins.abort 1}", r'"\${builtins.abort 1}"'),
        ("$$", r'"\$\$"'),
        ("a\n\r\t", r'"a\n\r\t"'),
    ],
)
def test_strings(text: str, literal: str) -> None:
    assert nix_string(text) == literal


@pytest.mark.parametrize("text", ["a\0b", "\udcff"])
def test_strings_that_nix_does_not_have(text: str) -> None:
    with pytest.raises(UsageError, match="cannot be said in Nix"):
        nix_string(text)


@pytest.mark.parametrize(
    ("name", "written"),
    [("_a-b'1", "_a-b'1"), ("rec", '"rec"'), ("1a", '"1a"'), ("a.b", '"a.b"'), ("a\n", r'"a\n"'), ("", '""')],
)
def test_attributes(name: str, written: str) -> None:
    assert nix_attribute(name) == written


def test_comments_are_one_line() -> None:
    assert nix_comment("a\nb\x1bé") == "a?b?é"
