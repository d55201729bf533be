"""The target of this machine with nothing read yet, and directories with libraries."""

from __future__ import annotations

from pathlib import Path

import pytest

from relink.loader.search import Environment
from relink.loader.seen_files import Files
from relink.loader.target import Target, find_target
from tests.support.elf_builder import Library


@pytest.fixture(scope="session")
def this_target() -> Target:
    return find_target()


@pytest.fixture
def environment(this_target: Target) -> Environment:
    return Environment(this_target, Files())


@pytest.fixture
def lib(tmp_path: Path) -> Path:
    return tmp_path.resolve()


@pytest.fixture
def world(tmp_path: Path) -> Path:
    here = tmp_path.resolve()
    Library("liba.so", ("libb.so", "libc1.so"), runpath="$ORIGIN").write(here / "liba.so")
    Library("libb.so", ("libc1.so", "libgone.so"), runpath="$ORIGIN").write(here / "libb.so")
    Library("libc1.so", ("liba.so",)).write(here / "libc1.so")
    Library("libprog.so", ("libb.so",), runpath="$ORIGIN").write(here / "prog")
    return here
