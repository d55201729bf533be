"""The members of small wheels, `relink` as a command, and a machine whose package lists are empty."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.command import run
from tests.support.works import Works, build_works

__all__ = ["run", "works"]


@pytest.fixture(scope="session")
def works(tmp_path_factory: pytest.TempPathFactory) -> Works:
    return build_works(tmp_path_factory.mktemp("works"))


@pytest.fixture(scope="session")
def empty_lists(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("lists") / "apt-cache"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return program.parent


@pytest.fixture(autouse=True)
def _lists(empty_lists: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test depends on what apt knows here, which it takes a second of processor time to say."""
    monkeypatch.setenv("PATH", f"{empty_lists}:{os.environ['PATH']}")
