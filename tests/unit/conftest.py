from __future__ import annotations

import pytest

from tests.support.command import run
from tests.support.works import Works, build_works

__all__ = ["run", "works"]


@pytest.fixture(scope="session")
def works(tmp_path_factory: pytest.TempPathFactory) -> Works:
    return build_works(tmp_path_factory.mktemp("works"))
