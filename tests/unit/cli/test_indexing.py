"""cli.indexing: the commands, from a recipe to a site that is checked, compared and pruned; with real processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command import Run
from tests.support.indexes import recipe_of
from tests.support.wheels import make_wheel
from tests.support.works import TAG, Works
from tests.unit.test_json_documents import valid


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_recipe_that_is_wrong(run: Run, tmp_path: Path) -> None:
    (tmp_path / "index.toml").write_text("pythons = 3\n")
    code, _, err = run("index", "build", "index.toml", "-o", "site")
    assert code == 2
    assert "index.toml:1: pythons: a list of Python versions was expected, not 3" in err
    code, _, err = run("index", "build", "index.toml", "-o", "site", "--metrics", "m.prom")
    assert code == 2
    assert "relink_index_ok 0" in (tmp_path / "m.prom").read_text()
    code, _, err = run("index", "check", "site")
    assert code == 2
    assert "is no site" in err


def test_from_a_recipe_to_a_site(run: Run, works: Works, tmp_path: Path) -> None:
    for version in ("1.0", "1.1"):
        make_wheel(tmp_path / "wheels", {"demo/a.so": works.library}, version=version, tag=TAG)
    recipe_of(tmp_path, works)
    build = ("index", "build", "index.toml", "-o", "site")
    code, out, err = run(*build, "--json", "--jobs", "2", "--log", "log.jsonl", "--metrics", "m.prom")
    assert (code, err) == (0, "")
    assert (valid(out)["written"], valid(out)["schema"]) == (2, "relink.indexes.build-summary/1")
    events = [json.loads(line)["event"] for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert events == ["budget", "fetched", "fetched", "result", "result", "published"] or sorted(
        events
    ) == sorted(["budget", "fetched", "result", "fetched", "result", "published"])
    assert "relink_index_written 2" in (tmp_path / "m.prom").read_text()
    code, out, err = run(*build)
    assert code == 0
    assert out.startswith("0 of 2 tasks in ")
    assert out.endswith("the site is as it was.\n")
    assert "2 wheels, 2 tasks, 2 of them done" in err
    code, out, _ = run("index", "check", "site")
    assert (code, out) == (0, "1 pages, 2 files; 0 problems\n")
    (tmp_path / "wheels" / f"demo-1.0-{TAG}.whl").unlink()
    make_wheel(tmp_path / "wheels", {"demo/a.so": works.lost}, version="1.2", tag=TAG)
    code, out, err = run(*build)
    assert (code, "refused: " in err) == (0, True)
    code, out, _ = run("index", "prune", "index.toml", "-o", "site", "--keep", "1")
    assert (code, out) == (0, "1 results and 0 files removed, 0 MiB\n")
    (wheel,) = (tmp_path / "site").glob("files/*/*/demo-1.1+*.whl")
    wheel.write_bytes(b"")
    code, out, _ = run("index", "check", "site", "--json")
    assert (code, valid(out)["ok"], valid(out)["schema"]) == (1, False, "relink.site/1")
    code, out, _ = run("index", "remove", "index.toml", "demo==1.1", "-o", "site")
    assert (code, out) == (0, "1 results and 2 files removed, 0 MiB\n")
    assert not [*(tmp_path / "site").glob("files/*/*/demo-1.1+*.whl")]
