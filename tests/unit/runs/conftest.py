from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.unit.runs.build_trees import make_vendor_tree


@pytest.fixture(scope="session")
def vendor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_vendor_tree(tmp_path_factory.mktemp("vendor"))


@pytest.fixture
def tree(vendor: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(vendor, tmp_path / "tree", symlinks=True))
