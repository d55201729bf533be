"""A vendor's wheel and what relink makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from relink.library import relink
from tests.support.cc import shared
from tests.support.works import VENDOR_PATH, Works


@pytest.fixture(scope="session")
def pair(works: Works, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    directory = tmp_path_factory.mktemp("pair")
    vendor = works.wheel(directory)
    report = relink(vendor, works.options(directory / "out"))
    assert report.output is not None
    return vendor, Path(report.output.path)


@pytest.fixture(scope="session")
def large(works: Works, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A pair with a library of which patchelf sees only a part."""
    directory = tmp_path_factory.mktemp("large")
    stub = shared(directory / "libhip.so.7", "int hip(void){return 0;}")
    source = "extern int hip(void); int g(void){return hip();} char big[1 << 22] = {1};"
    library = shared(directory / "big.so", source, needed=[stub], flags=[VENDOR_PATH])
    vendor = works.wheel(directory, {"demo/big.so": library})
    report = relink(vendor, works.options(directory / "out"))
    assert report.output is not None
    return vendor, Path(report.output.path)
