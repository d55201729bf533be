"""The files a loader sees: sysroots with absolute links, and members laid over the disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from relink.elf.image import Image, read_image
from relink.loader.seen_files import Files, resolve_inside
from tests.support.elf_builder import Library, build


def member(name: str) -> Image:
    return read_image(build(Library(soname=name)), name)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A sysroot: /usr/lib, /lib -> /usr/lib, /opt/rocm -> /opt/rocm-7, /alt -> /etc/alt -> ../usr/lib."""
    tmp_path = tmp_path.resolve()
    Library(soname="liba.so").write(tmp_path / "usr/lib/liba.so.1")
    (tmp_path / "usr/lib/liba.so").symlink_to("liba.so.1")
    (tmp_path / "usr/lib/abs.so").symlink_to("/usr/lib/liba.so.1")
    (tmp_path / "lib").symlink_to("/usr/lib")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/alt").symlink_to("../usr/lib")
    (tmp_path / "alt").symlink_to("/etc/alt")
    (tmp_path / "out").symlink_to("../../../../../../usr/lib")
    (tmp_path / "loop").symlink_to("/loop")
    return tmp_path


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("/usr/lib/liba.so.1", "usr/lib/liba.so.1"),
        ("/lib/liba.so.1", "usr/lib/liba.so.1"),
        ("/lib/abs.so", "usr/lib/liba.so.1"),
        ("/alt/../x", "usr/x"),
        ("/out/liba.so", "usr/lib/liba.so.1"),
        ("/../../usr/./lib//none", "usr/lib/none"),
        ("/", ""),
    ],
)
def test_resolve_inside(root: Path, path: str, inside: str) -> None:
    assert resolve_inside(str(root), path) == os.path.join(str(root), inside).rstrip("/") or inside == ""


@pytest.mark.parametrize("path", ["/lib/\0", "/\ud800"])
def test_resolve_inside_of_what_no_file_is_called(root: Path, path: str) -> None:
    with pytest.raises(OSError, match=r"null (byte|character)|surrogates not allowed"):
        resolve_inside(str(root), path)


def test_resolve_inside_of_the_system_is_the_path_itself() -> None:
    assert resolve_inside("/", "/a/../b") == "/a/../b"


def test_a_loop_is_an_error(root: Path) -> None:
    with pytest.raises(OSError, match="symbolic links") as caught:
        resolve_inside(str(root), "/loop/x")
    assert caught.value.errno == errno.ELOOP
    assert Files(str(root)).open("/loop").error == errno.ELOOP
    assert not Files(str(root)).is_directory("/loop")


def test_open_in_a_sysroot(root: Path) -> None:
    files = Files(str(root))
    found = [files.open(path) for path in ("/lib/liba.so.1", "/usr/lib/abs.so", "/alt/liba.so")]
    assert len({candidate.identity for candidate in found}) == 1
    assert all(candidate.image and candidate.image.soname == "liba.so" for candidate in found)
    assert files.is_directory("/lib")
    assert not files.is_directory("/usr/lib/liba.so")
    assert files.open("/usr/lib").problem == "not a regular file"
    assert files.open("/nowhere").error == errno.ENOENT


def test_what_cannot_be_read_keeps_its_head(root: Path) -> None:
    (root / "usr/lib/text.so").write_text("INPUT(x)")
    found = Files(str(root)).open("/usr/lib/text.so")
    assert found.exists
    assert found.image is None
    assert found.head == b"INPUT(x)"


def test_a_pipe_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert Files().open(str(tmp_path / "pipe")).problem == "not a regular file"


def test_overlay(tmp_path: Path) -> None:
    site = tmp_path.resolve() / "site"
    Library(soname="liby.so").write(site / "other/liby.so")
    path = f"{site}/pkg/lib/libx.so"
    files = Files(overlay={path: member("libx.so")})
    assert files.open(path).image == files.open(f"{site}/pkg//lib/../lib/./libx.so").image
    assert files.open(path).identity == files.open(f"{site}/pkg/lib/../lib/libx.so").identity
    assert files.is_directory(f"{site}/pkg")
    assert files.is_directory(f"{site}/pkg/lib/")
    assert not files.is_directory(path)
    assert files.open(f"{site}/pkg/none/libx.so").error == errno.ENOENT
    # The way leads through a directory that only the overlay has, to a file on disk; and .. out of nothing leads nowhere.
    assert files.open(f"{site}/pkg/lib/../../other/liby.so").exists
    assert files.open(f"{site}/pkg/none/../../other/liby.so").error == errno.ENOENT
    assert not files.open(f"{site}/pkg/none/../lib/libx.so").exists


def test_overlay_replaces_a_file_on_disk(tmp_path: Path) -> None:
    path = Library(soname="old.so").write(tmp_path.resolve() / "libx.so")
    new = Files(overlay={str(path): member("new.so")}).open(str(path)).image
    assert new is not None
    assert new.soname == "new.so"


def test_overlay_is_reached_through_links_on_disk(tmp_path: Path) -> None:
    """A venv's lib64 is a link to lib; the kernel follows it, whatever lies behind."""
    venv = tmp_path.resolve()
    (venv / "lib/site").mkdir(parents=True)
    (venv / "lib64").symlink_to("lib")
    for given in ("lib", "lib64"):
        files = Files(overlay={f"{venv}/{given}/site/pkg/libx.so": member("libx.so")})
        found = [files.open(f"{venv}/{way}/site/pkg/libx.so") for way in ("lib", "lib64", "lib64/../lib64")]
        assert all(candidate.image for candidate in found)
        assert len({candidate.identity for candidate in found}) == 1
        assert files.canonical(f"{venv}/lib64/site/../site/pkg") == f"{venv}/lib/site/pkg"


def test_overlay_in_a_sysroot(root: Path) -> None:
    files = Files(str(root), {"/lib/pkg/libx.so": member("libx.so")})
    assert files.open("/usr/lib/pkg/libx.so").exists
    assert files.open("/alt/pkg/libx.so").exists
    assert files.canonical("/alt/pkg") == "/usr/lib/pkg"


def test_another_overlay_keeps_what_was_read(root: Path) -> None:
    files = Files(str(root))
    before = files.open("/usr/lib/liba.so")
    over = files.with_overlay({"y": "/x/liby.so"}, {"y": member("liby.so")})
    assert over.open("/usr/lib/liba.so") == before
    assert not files.open("/x/liby.so").exists


def test_one_image_of_an_overlay_is_another_one() -> None:
    """What is known of directories is shared by overlays with the same paths only."""
    files = Files()
    images = {"a": member("one"), "b": member("b")}
    one = files.with_overlay({"a": "/relink.invalid/x/liba.so", "b": "/relink.invalid/x/libb.so"}, images)
    two = one.with_image("a", member("two"))
    other = one.with_overlay({"a": "/relink.invalid/y/liba.so"}, {"a": member("three")})
    for found, path in ((one, "one"), (two, "two")):
        opened = found.open("/relink.invalid/x/../x/liba.so")
        assert opened.identity == ("member", path)
        assert found.open("/relink.invalid/x/libb.so").identity == ("member", "b")
        assert not found.is_directory("/relink.invalid/y")
    assert other.open("/relink.invalid/y/liba.so").identity == ("member", "three")
    assert other.is_directory("/relink.invalid/y")
    assert not other.is_directory("/relink.invalid/x")
    images["b"] = member("later")
    assert two.open("/relink.invalid/x/libb.so").identity == ("member", "later")
