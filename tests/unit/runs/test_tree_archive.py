"""trees.archive: a directory read as a wheel is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from relink.runs.tree_copy import TreeSource
from relink.system.errors import UsageError, WheelError
from relink.wheel.limits import WheelLimits
from tests.support.elf_builder import Library, build
from tests.unit.gpu.amd.build import code_object

ELF = build(Library("libx.so.1"))


def tree_of(root: Path) -> Path:
    (root / "t/lib").mkdir(parents=True)
    (root / "t/lib/libx.so.1.0").write_bytes(ELF)
    (root / "t/lib/libx.so.1").symlink_to("libx.so.1.0")
    (root / "t/z.so").write_bytes(ELF + b"more")
    (root / "t/text").write_text("text")
    (root / "t/kernels.hsaco").write_bytes(code_object())
    os.mkfifo(root / "t/pipe")
    (root / "t/up").symlink_to("..")
    return root / "t"


def test_members_are_the_elf_files(tmp_path: Path) -> None:
    archive = TreeSource(tree_of(tmp_path))
    assert {name: member.size for name, member in archive.members.items()} == {
        "z.so": len(ELF) + 4,
        "lib/libx.so.1.0": len(ELF),
    }
    assert archive.links == {"lib/libx.so.1": "libx.so.1.0", "up": ".."}
    assert set(archive.entries) == {
        "",
        "lib",
        "pipe",
        "text",
        "kernels.hsaco",
        *archive.members,
        *archive.links,
    }
    assert bytes(archive.read_into("z.so")) == ELF + b"more"
    assert archive.prefix("z.so", 4) == b"\x7fELF"
    assert archive.sha256() == TreeSource(tmp_path / "t").sha256()


def test_what_changes_while_it_is_read(tmp_path: Path) -> None:
    archive = TreeSource(tree_of(tmp_path))
    (tmp_path / "t/z.so").write_bytes(ELF)
    with pytest.raises(WheelError, match="has changed while it was read"):
        archive.read_into("z.so")
    (tmp_path / "t/z.so").write_bytes(ELF * 3)
    with pytest.raises(WheelError, match="has changed while it was read"):
        archive.read_into("z.so")
    (tmp_path / "t/z.so").unlink()
    with pytest.raises(WheelError, match="cannot be read"):
        archive.read_into("z.so")


def test_a_directory_that_becomes_a_link_meanwhile_leads_nowhere(tmp_path: Path) -> None:
    archive = TreeSource(tree_of(tmp_path))
    (tmp_path / "t/lib").rename(tmp_path / "outside")
    (tmp_path / "t/lib").symlink_to("../outside")
    with pytest.raises(WheelError, match="lies outside of"):
        archive.open_file("lib/libx.so.1.0")


def test_limits_and_nothing_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="more than 2 files"):
        TreeSource(tree_of(tmp_path), limits=WheelLimits(members=2))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no ELF file is in it"):
        TreeSource(tmp_path / "empty")
