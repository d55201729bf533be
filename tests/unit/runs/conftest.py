from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from relink import library
from relink.planning.options import Options
from relink.report.model import Report
from relink.runs.comparison import Reference, make_again
from tests.support.cc import shared
from tests.support.wheels import make_wheel
from tests.support.works import TAG, VENDOR_PATH, Works
from tests.unit.runs.build_trees import make_vendor_tree
from tests.unit.runs.pairs import Pair


@pytest.fixture(scope="session")
def vendor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_vendor_tree(tmp_path_factory.mktemp("vendor"))


@pytest.fixture
def tree(vendor: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(vendor, tmp_path / "tree", symlinks=True))


@pytest.fixture(scope="session")
def pair(works: Works, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    directory = tmp_path_factory.mktemp("pair")
    vendor = works.wheel(directory)
    report = library.relink(vendor, works.options(directory / "out"))
    assert report.output is not None
    return vendor, Path(report.output.path)


@pytest.fixture(scope="session")
def stubbed(works: Works, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A pair of a wheel with much of what wheels have, and of the other with a stub."""
    root = tmp_path_factory.mktemp("stubbed")
    versions = root / "versions"
    versions.write_text("MANY_1 { global: many; };")
    many = shared(
        root / "libmany.so.1", "int many(void){return 0;}", flags=[f"-Wl,--version-script={versions}"]
    )
    source = "extern int hip(void), many(void); int e(void){return hip() + many();}"
    flags = [VENDOR_PATH, "-Wl,--allow-shlib-undefined"]
    ext = shared(root / "ext.so", source, needed=[works.prefix / "lib" / "libhip.so.7", many], flags=flags)
    files: dict[str, bytes | Path] = {
        "demo/__init__.py": b"x = 1\n" * 100,
        "demo/a.so": works.library,
        "demo/ext.so": ext,
        "demo/plain.so": works.plain,
        "demo/data.bin": bytes(range(256)) * 8,
        "demo/bin/prog": works.program,
        "demo-1.0.data/scripts/demo-prog": works.program,
        "demo-1.0.dist-info/entry_points.txt": b"[console_scripts]\ndemo = demo:main\n",
    }
    vendor = make_wheel(root, files, tag=TAG, requires=("numpy",))
    options = works.options(root / "out", stub=("libmany.so.1",))
    report = library.relink(vendor, options)
    assert report.output is not None, report.findings
    return Pair(vendor, Path(report.output.path), options)


@pytest.fixture(scope="session")
def reference(stubbed: Pair) -> Iterator[Reference]:
    """What relink makes of the old wheel, once for all."""

    def make(options: Options) -> Report:
        return library.relink(stubbed.old, options)

    with make_again(stubbed.old, stubbed.new, stubbed.options, make, "made anew") as made:
        yield made
