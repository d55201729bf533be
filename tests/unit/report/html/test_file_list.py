"""What reports say for the sake of the page: who asks for whom, and how far each file covers each architecture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from relink.gpu.amd.file_coverage import FileCoverage, matrix
from relink.gpu.amd.target_id import CodeTarget
from relink.gpu.coverage import TargetId
from relink.library import relink
from relink.planning.model.model import Load, plain
from relink.report.model import Report
from relink.system.bounded_json import typed
from relink.system.errors import UsageError
from tests.support.works import Works

ROOT = "$WHEEL/demo/a.so"


def asked(report: Report) -> dict[tuple[str, str], tuple[str | None, str]]:
    return {(Path(load.requester).name, load.soname): (load.resolved, load.origin) for load in report.loads}


def test_loads_follow_the_libraries_of_the_prefix(works: Works, tmp_path: Path) -> None:
    report = relink(works.small(tmp_path), replace(works.options(tmp_path / "dist"), dry_run=True))
    found = asked(report)
    for edge, library in (
        (("a.so", "libhip.so.7"), "libhip.so.7"),
        (("libhip.so.7", "libdeep.so.1"), "libdeep.so.1"),
    ):
        path, origin = found[edge]
        assert (Path(path or "").name, origin) == (library, "provider")
    assert len(set(report.loads)) == len(report.loads)
    assert {load.requester for load in report.loads if load.requester.startswith("$WHEEL")} == {ROOT}


def test_loads_say_what_nothing_serves(works: Works, tmp_path: Path) -> None:
    wheel = works.wheel(tmp_path, {"demo/lost.so": works.lost})
    report = relink(wheel, replace(works.options(tmp_path / "dist"), dry_run=True))
    assert asked(report)["lost.so", "libnowhere.so.1"] == (None, "missing")
    allowed = replace(works.options(tmp_path / "dist"), dry_run=True, allow_missing=("libnowhere*",))
    assert asked(relink(wheel, allowed))["lost.so", "libnowhere.so.1"] == (None, "assumed")


def covering(path: str, *targets: str) -> FileCoverage:
    codes = frozenset(CodeTarget(TargetId(target)) for target in targets)
    return FileCoverage(path, "raw", 1 if targets else 0, ((codes, 1),) if targets else (), targets, ())


def test_matrix() -> None:
    files = [covering("b.so", "gfx1100", "gfx908"), covering("none.so"), covering("a.so", "gfx1030")]
    assert matrix(files, [TargetId("gfx1031")]) == {
        "b.so": {"gfx908": "full", "gfx1030": "none", "gfx1031": "none", "gfx1100": "full"},
        "a.so": {"gfx908": "none", "gfx1030": "full", "gfx1031": "none", "gfx1100": "none"},
    }


def test_reading_passes_over_new_keys_only_if_told_to() -> None:
    load = Load("a", "b", None, None, "missing")
    data = {**plain(load), "new": 1}
    assert typed(Load, data, "load", strict=False) == load
    with pytest.raises(UsageError, match="new"):
        typed(Load, data, "load")
