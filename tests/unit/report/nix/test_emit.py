"""The text that is emitted, and the files that are written; tests/nix has the text evaluated by Nix."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from relink.report.nix.emit import (
    SHIPPED,
    nix_attribute,
    nix_comment,
    nix_list,
    nix_string,
    package_nix,
    write_package,
    write_plans,
)
from relink.report.nix.model import plan_json
from relink.system.errors import UsageError
from relink.system.shipped_files import shipped_directory
from tests.unit.report.nix.packages import PACKAGES, PLAIN

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", PACKAGES)
def test_golden(name: str) -> None:
    """RELINK_GOLDEN=1 writes the files anew."""
    for suffix, text in (("nix", package_nix([PACKAGES[name]])), ("json", plan_json(PACKAGES[name]))):
        path = GOLDEN / f"{name}.{suffix}"
        if os.environ.get("RELINK_GOLDEN"):
            path.write_text(text)
        assert path.read_text() == text


def test_what_is_written_replaces_what_is_there(tmp_path: Path) -> None:
    """A FIFO would keep whoever opens it waiting; a link would lead the text elsewhere."""
    os.mkfifo(tmp_path / "package.nix")
    (tmp_path / "other").write_text("kept")
    (tmp_path / "demo.json").symlink_to("other")
    expression, plan = write_package([PLAIN], tmp_path)
    assert expression.read_text() == package_nix([PLAIN])
    assert json.loads(plan.read_text()) == json.loads(plan_json(PLAIN))
    assert (tmp_path / "other").read_text() == "kept"
    for name in SHIPPED:
        assert (tmp_path / "relink" / name).read_bytes() == (shipped_directory("nix") / name).read_bytes()


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        UsageError, match=r"file/x: cannot be written to \(Not a directory\); name another by --output"
    ):
        write_package([PLAIN], tmp_path / "file" / "x")


def test_a_name_from_the_wheel_stays_in_its_comment() -> None:
    package = replace(PLAIN, libraries=(("extraLibraries.x", ("libx.so\n}: builtins.abort",)),))
    assert not [line for line in package_nix([package]).splitlines() if line.startswith("}: builtins")]


def test_a_dependency_that_is_no_identifier() -> None:
    """No argument of a function can have such a name, so it is asked for by the whole path."""
    text = package_nix([replace(PLAIN, dependencies=("3to2", "numpy"))])
    assert 'python.pkgs."3to2"' in text
    assert "  python,\n" in text
    assert "  numpy,\n" in text
    assert "with " not in text.partition("{")[2]


def test_one_release_for_several_pythons(tmp_path: Path) -> None:
    newer = replace(PLAIN, python="3.13", source=replace(PLAIN.source, name="demo-1.0-cp313-cp313-any.whl"))
    written = write_package([PLAIN, newer], tmp_path)
    assert [path.name for path in written] == ["package.nix", "demo-cp312.json", "demo-cp313.json"]
    text = written[0].read_text()
    assert '  plans = {\n    "3.12" = ./demo-cp312.json;\n    "3.13" = ./demo-cp313.json;\n  };\n' in text
    for other in (replace(PLAIN, version="2.0"), PLAIN):
        with pytest.raises(
            UsageError, match="one package takes the wheels of one release, one for each Python"
        ):
            write_package([PLAIN, other], tmp_path)


def test_plans_of_a_lock_file(tmp_path: Path) -> None:
    """A lock may have two releases of one package; each plan has a file of its own."""
    newer = replace(PLAIN, version="2.0+rocm7")
    written = write_plans([PLAIN, newer, replace(PLAIN, pname="other", python=None)], tmp_path)
    names = [path.name for path in written]
    assert names == ["demo-1.0-cp312.json", "demo-2.0+rocm7-cp312.json", "other.json"]
    assert json.loads(written[1].read_text())["version"] == "2.0+rocm7"
    with pytest.raises(UsageError, match="two wheels of one release for one Python; leave one out"):
        write_plans([PLAIN, PLAIN], tmp_path)


def test_without_relinks_functions(tmp_path: Path) -> None:
    """The overlay of relink's flake has them."""
    write_package([PLAIN], tmp_path / "new", vendor=False)
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["demo.json", "package.nix"]
    text = (tmp_path / "new" / "package.nix").read_text()
    assert "{\n  lib,\n  relinkWheel,\n" in text
    assert "callPackage" not in text


def test_packages_that_must_be_of_one_version() -> None:
    text = package_nix([replace(PLAIN, same_version=("jaxlib",), siblings=("jax-rocm7-pjrt",))])
    assert "  numpy,\n  packaging,\n  jaxlib,\n" in text
    assert "  sameVersion = [\n    jaxlib\n    jax-rocm7-pjrt\n  ];\n" in text


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


def test_lists() -> None:
    assert nix_list([], "  ") == "[ ]"
    assert nix_list(["a"], "  ") == "[ a ]"
    assert nix_list(["a", "b"], "  ") == "[\n    a\n    b\n  ]"
