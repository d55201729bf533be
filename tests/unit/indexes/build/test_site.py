"""index.site: what is published of which result. tests/unit/indexes/build/test_building.py has whole runs.

A site appears whole, and where something else is nothing is written. What leaves a site, and that the newest that works stays.

index.checking: a site that was tampered with is told where; tests/unit/cli/test_indexing.py has the command.

A wheel and what lies beside it appear together, once.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from packaging.requirements import Requirement

from relink.indexes.build.recipe import IndexTarget, Recipe
from relink.indexes.build.site import (
    BASIS,
    CELL_STATES,
    YOUNG,
    check_place,
    check_site,
    matrix_data,
    matrix_page,
    named_results,
    old_results,
    place_wheel,
    publish_site,
    publishing,
    remove_results,
    repair_site,
    state_of,
)
from relink.indexes.build.store import Store
from relink.indexes.install.installers import cache_directory
from relink.system.errors import UsageError
from tests.support.indexes import built, recipe_of
from tests.support.wheels import make_wheel
from tests.support.works import TAG, Works

SLOW = pytest.mark.slow(reason="several builds")

FACTS = {"prefixes": ["/opt/rocm"], "release": "rocm7.2.4", "fingerprint": "ab" * 32, "machine": "x86_64"}


def record(level: str = "info", gpus: dict[str, str] | None = None, *codes: str) -> dict[str, Any]:
    causes = [f"{code} warning: m (x and 2 more). r." for code in codes]
    return {"verdict": {"level": level, "text": "t"}, "causes": causes, "gpus": gpus or {}, "command": "c"}


GPUS = {"gfx1": "full", "gfx2": "slow", "gfx3": "none", "gfx4": "jit", "gfx5": "conditional"}


@pytest.mark.parametrize(
    ("status", "facts", "gpu", "expected"),
    [
        ("written", record(), None, "works"),
        ("original", record("warning"), None, "works"),
        ("refused", record("error"), None, "refused"),
        ("refused", record("error", GPUS), "gfx1", "refused"),
        ("failed", {"error": "x"}, "gfx1", "failed"),
        ("written", record("warning", GPUS, "RLK401"), "gfx1", "works"),  # the warning is about another GPU
        ("written", record("warning", GPUS), "gfx2", "part"),
        ("written", record("warning", GPUS), "gfx3", "lacks"),
        ("written", record("warning", GPUS), "gfx4", "compiles"),
        ("written", record("warning", GPUS), "gfx5", "part"),
        ("written", record(), "gfx9", "works"),
    ],
)
def test_states(status: str, facts: dict[str, Any], gpu: str | None, expected: str) -> None:
    assert state_of(status, facts, gpu) == expected
    assert expected in CELL_STATES


def test_data() -> None:
    targets = [IndexTarget("one", ("/x",), gpus=("RX 6750 XT", "gfx1100")), IndexTarget("two", ("/y",))]
    cells = [
        (
            {"filename": "demo-1.0-py3-none-any.whl", "target": name, "status": "written"},
            record("info", None, "RLK130"),
        )
        for name in ("one", "two")
    ]
    data = matrix_data(targets, {"one": FACTS, "two": FACTS}, cells, [{"time": 1.0, "after": "written"}])
    one, two = data["targets"]
    assert [gpu["id"] for gpu in one["gpus"]] == ["gfx1031", "gfx1100"]
    assert one["gpus"][0]["name"] == "RX 6750 XT"
    assert (two["gpus"], two["prefixes"], two["release"]) == ([], ["/opt/rocm"], "rocm7.2.4")
    assert "RX 7900 XTX" in data["products"]["gfx1100"]
    (row,) = data["rows"]
    assert [len(row["cells"][name]["states"]) for name in ("one", "two")] == [2, 1]
    assert row["cells"]["one"]["causes"] == row["cells"]["two"]["causes"]
    assert data["texts"][row["cells"]["one"]["causes"][0]] == "RLK130 warning: m (x and 2 more). r."
    assert data["changes"] == [{"time": 1.0, "after": "written"}]


HOSTILE = "</script><script>alert(1)</script><!--"


def test_a_hostile_text_ends_nothing() -> None:
    facts = record() | {"command": HOSTILE}
    cell = {"filename": "demo-1.0-py3-none-any.whl", "target": "one", "status": "written"}
    data = matrix_data([IndexTarget("one", (HOSTILE,))], {"one": FACTS}, [(cell, facts)], [])
    page = matrix_page(data)
    assert HOSTILE not in page
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert json.loads(text) == {**data, "up": ""}
    assert page.count("<script") == 2


def test_nothing_else_runs() -> None:
    page = matrix_page(matrix_data([IndexTarget("one", ("/x",))], {"one": FACTS}, [], []))
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page
    assert "default-src 'none'" in page
    assert "http://" not in page.replace("http-equiv", "")
    assert "https://" not in page


TARGET = IndexTarget("one", ("/x",))
SHA = "ab" * 32


def keep(store: Store, status: str, name: str = "demo-1.0") -> None:
    filename = f"{name}-py3-none-any.whl"
    wheel = {"url": f"https://x.test/{filename}", "requires_python": None, "size": 5}
    file: dict[str, Any] = {"filename": filename, "sha256": SHA, "size": 5, "requires_python": None}
    file |= {"metadata": SHA}
    facts = {"project": name.rpartition("-")[0].lower().replace("_", "-"), "version": name.rpartition("-")[2]}
    facts |= {
        "filename": filename,
        "target": "one",
        "input": SHA,
        "key": "key",
        "relink": "1",
        "status": status,
    }
    store.record_result(
        facts, 1, {**record(), "wheel": wheel, "file": None if status == "refused" else file}, None
    )


def recipe_with(originals: str = "mirror") -> Recipe:
    return Recipe(Path("x"), ((3, 12),), (), (TARGET,), originals=originals, superseded=0)


def addresses(tmp_path: Path, originals: str, status: str) -> list[str]:
    site = tmp_path / "site"
    with Store(site) as store:
        store.begin({"one": FACTS})
        keep(store, status)
        publish_site(store, site, recipe_with(originals))
    page = site / "one/simple/demo/index.json"
    return [file["url"] for file in json.loads(page.read_text())["files"]] if page.exists() else []


def test_what_an_index_has(tmp_path: Path) -> None:
    own = f"../../../files/ab/{SHA}/demo-1.0-py3-none-any.whl"
    assert addresses(tmp_path, "mirror", "written") == [own]
    assert addresses(tmp_path, "omit", "written") == [own]
    assert addresses(tmp_path, "mirror", "original") == [own]
    assert addresses(tmp_path, "link", "original") == ["https://x.test/demo-1.0-py3-none-any.whl"]
    assert addresses(tmp_path, "omit", "original") == []
    assert addresses(tmp_path, "mirror", "refused") == []


def test_changes_are_noted_once(tmp_path: Path) -> None:
    for _ in range(2):
        addresses(tmp_path, "mirror", "written")
    addresses(tmp_path, "mirror", "refused")
    changes = json.loads((tmp_path / "site/matrix.json").read_text())["changes"]
    assert [(one["before"], one["after"], one["text"]) for one in changes] == [
        ("written", "refused", "t"),
        (None, "written", "t"),
    ]


def test_a_large_site_has_a_page_for_each_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relink.indexes.build.site.ONE_PAGE", 2)
    site = tmp_path / "site"
    with Store(site) as store:
        store.begin({"one": FACTS})
        for name in ("demo-1.0", "demo-2.0", "Other_One-1.0"):
            keep(store, "refused", name)
        assert publish_site(store, site, recipe_with())
        assert not publish_site(store, site, recipe_with())
        assert store.count("refused", "failed") == 3
    data = json.loads((site / "matrix.json").read_text())
    assert data["projects"] == ["demo", "other-one"]
    assert [(row["project"], row["version"]) for row in data["rows"]] == [
        ("demo", "2.0"),
        ("other-one", "1.0"),
    ]
    own = json.loads((site / "projects/demo.json").read_text())
    assert [row["version"] for row in own["rows"]] == ["1.0", "2.0"]
    assert {change["project"] for change in own["changes"]} == {"demo"}
    page = (site / "projects/demo.html").read_text()
    assert 'href="demo.json"' in page
    assert check_site(site).problems == ()
    (site / "projects/demo.html").unlink()
    own["rows"].pop()
    (site / "projects/demo.json").write_text(json.dumps(own))
    assert check_site(site).problems == (
        "projects/demo.json: lacks what matrix.json has of it",
        "projects/demo.json: there is no page of it",
    )
    (site / "projects/demo.json").unlink()
    assert "projects/demo.json: cannot be read" in check_site(site).problems[0]
    data["projects"] = ["/etc/demo"]
    (site / "matrix.json").write_text(json.dumps(data))
    assert "name is invalid" in check_site(site).problems[0]


def publish(store: Store, site: Path, text: str) -> None:
    with publishing(store, site, text) as write:
        write("one/index.html", text.encode())


def test_old_or_new(tmp_path: Path) -> None:
    site = tmp_path / "site"
    with Store(site) as store:
        (store.files / "x").write_text("wheel")
        publish(store, site, "old")
        assert (site / "one/index.html").read_text() == "old"
        assert (site / "files/x").read_text() == "wheel"
        first = site.resolve()
        assert (site / BASIS).read_text() == "old"

        def interrupted() -> None:
            with publishing(store, site, "half") as write:
                write("one/index.html", b"half")
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert (site / "one/index.html").read_text() == "old"
        assert (site / BASIS).read_text() == "old"
        publish(store, site, "new")
        assert (site / "one/index.html").read_text() == "new"
        assert (first / "one/index.html").read_text() == "old"  # a web server may still read it
        publish(store, site, "newer")
        assert not first.exists()
        assert len(os.listdir(store.sites)) == 2
    (tmp_path / "moved").mkdir()
    for path in (site, site.with_name("site.relink")):
        path.rename(tmp_path / "moved" / path.name)
    assert (tmp_path / "moved/site/one/index.html").read_text() == "newer"  # links are relative


@pytest.mark.parametrize("what", ["file", "directory", "link"])
def test_something_else_is_left_alone(tmp_path: Path, what: str) -> None:
    site = tmp_path / "site"
    if what == "file":
        site.touch()
    elif what == "directory":
        site.mkdir()
    else:
        site.symlink_to("/nowhere")
    with pytest.raises(UsageError, match="is no site of relink"):
        check_place(site)


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    site = tmp_path / "site"
    with Store(site) as store:
        (store.directory / "next").mkdir()
        (store.directory / "next" / "x").touch()
        with pytest.raises(UsageError, match="the site cannot be written"):
            publish(store, site, "x")


def prune(recipe: Recipe, site: Path, keep: int) -> tuple[int, int, int]:
    return remove_results(recipe, site, partial(old_results, keep=keep), YOUNG)


def remove(recipe: Recipe, site: Path, requirement: str) -> tuple[int, int, int]:
    return remove_results(recipe, site, partial(named_results, requirement=Requirement(requirement)))


def versions(site: Path) -> list[str]:
    page = json.loads((site / "one/simple/demo/index.json").read_text())
    return [version.partition("+")[0] for version in page["versions"]]


@SLOW
def test_old_releases(works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("1.0", "1.1", "1.2"):
        make_wheel(tmp_path / "wheels", {"demo/a.so": works.library}, version=version, tag=TAG)
    make_wheel(tmp_path / "wheels", {"demo/a.so": works.lost}, version="2.0", tag=TAG)
    recipe, site = recipe_of(tmp_path, works), tmp_path / "site"
    built(recipe, site, monkeypatch)
    assert versions(site) == ["1.0", "1.1", "1.2"]
    assert prune(recipe, site, 3)[0] == 1
    assert versions(site) == ["1.1", "1.2"]
    gone = prune(recipe, site, 1)  # the newest, which was refused; and the newest that works
    assert gone[:2] == (1, 0)
    assert versions(site) == ["1.2"]
    files = site.with_name("site.relink") / "files"
    for directory in files.glob("??/*"):
        os.utime(directory, (0, 0))
    gone = prune(recipe, site, 1)
    assert gone[:2] == (0, 2)
    assert len(list(files.glob("*/*/*.whl"))) == 1
    for wheel in (tmp_path / "wheels").glob("demo-1.[01]*"):
        wheel.unlink()
    assert built(recipe, site, monkeypatch).ran == []
    with pytest.raises(UsageError, match="is no site"):
        prune(recipe, tmp_path / "other", 1)


@SLOW
def test_a_release_is_taken_out(works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files at once, those that were superseded, too; and it stays out where the recipe denies it."""
    for version in ("1.0", "1.1"):
        make_wheel(tmp_path / "wheels", {"demo/a.so": works.library}, version=version, tag=TAG)
    recipe, site = recipe_of(tmp_path, works), tmp_path / "site"
    built(recipe, site, monkeypatch)
    gone = remove(recipe, site, "Demo==1.0")
    assert gone[:2] == (1, 1)
    assert versions(site) == ["1.1"]
    assert check_site(site).problems == ()
    assert [row["version"] for row in json.loads((site / "matrix.json").read_text())["rows"]] == ["1.1"]
    denying = recipe_of(tmp_path, works, head='deny = ["demo<1.1"]')
    assert built(denying, site, monkeypatch).ran == []
    assert len(built(recipe, site, monkeypatch).ran) == 1  # the source still has it
    page = json.loads((site / "one/simple/demo/index.json").read_text())
    assert [file["filename"].split("-")[1] for file in page["files"]] == [
        "1.0+rocm7.2.4.2",
        "1.1+rocm7.2.4.1",
    ]
    built(denying, site, monkeypatch)
    assert versions(site) == ["1.1"]
    assert remove(recipe, site, "demo")[1] == 2
    assert not (site / "one/simple/demo").exists()


def test_a_prune_that_is_killed_leaves_directories_whole(
    works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel(tmp_path / "wheels", {"demo/a.so": works.library}, tag=TAG)
    recipe, site = recipe_of(tmp_path, works), tmp_path / "site"
    built(recipe, site, monkeypatch)
    files = site.with_name("site.relink") / "files"

    removed: list[object] = []
    unlink = os.unlink

    def killed(path: str, **more: int) -> None:
        """The first file of a wheel goes, and the second one does no more."""
        if os.fspath(path).endswith((".whl", ".metadata", ".json")):
            if removed:
                raise KeyboardInterrupt
            removed.append(path)
        unlink(path, **more)

    with monkeypatch.context() as patch:
        patch.setattr("os.unlink", killed)
        with contextlib.suppress(KeyboardInterrupt):
            remove(recipe, site, "demo")
    assert removed
    assert [path for path in files.glob("??/*") if len(list(path.iterdir())) != 4] == []


@pytest.fixture(scope="module")
def made(works: Works, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Recipe]:
    place = tmp_path_factory.mktemp("checked")
    make_wheel(place / "wheels", {"demo/a.so": works.library}, tag=TAG)
    make_wheel(place / "wheels", {"plain/p.so": works.plain}, name="plain", tag=TAG)
    recipe = recipe_of(place, works)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(place / "cache"))
        built(recipe, place / "site", patch)
    return place, recipe


@pytest.fixture
def site(made: tuple[Path, Recipe], tmp_path: Path) -> Path:
    shutil.copytree(made[0], tmp_path / "copy", symlinks=True)
    return tmp_path / "copy" / "site"


def wheel_of(site: Path, name: str) -> Path:
    (found,) = site.glob(f"files/*/*/{name}-*.whl")
    return found


def test_a_good_site(site: Path) -> None:
    found = check_site(site)
    assert (found.pages, found.files, found.problems) == (2, 2, ())


def cut(site: Path) -> None:
    wheel = wheel_of(site, "demo")
    wheel.write_bytes(wheel.read_bytes()[:-1])


def gone(site: Path) -> None:
    wheel_of(site, "plain").unlink()


def other_metadata(site: Path) -> None:
    wheel = wheel_of(site, "demo")
    wheel.with_name(f"{wheel.name}.metadata").write_text("Name: other")


def other_page(site: Path) -> None:
    page = site / "one/simple/demo/index.json"
    data = json.loads(page.read_text())
    data["files"][0]["yanked"] = True
    page.write_text(json.dumps(data))


def outside(site: Path) -> None:
    for name in ("html", "json"):
        page = site / f"one/simple/plain/index.{name}"
        page.write_text(page.read_text().replace("files/", "files/../../"))


def no_index(site: Path) -> None:
    shutil.rmtree(site / "one")


def no_page(site: Path) -> None:
    (site / "one/simple/demo/index.html").unlink()


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (cut, "its content is not that of its hash"),
        (gone, "cannot be read"),
        (other_metadata, "the metadata beside it is not that of the wheel"),
        (other_page, "do not say the same"),
        (outside, "lies outside of the site's files"),
        (no_index, "there is no index of it"),
        (no_page, "the pages cannot be read"),
    ],
)
def test_what_is_wrong_is_told(site: Path, harm: Callable[[Path], None], said: str) -> None:
    harm(site)
    problems = check_site(site).problems
    assert any(said in problem for problem in problems), problems


DEEP = "[" * 100_000


def no_directory(site: Path) -> None:
    (site / "two").mkdir()
    (site / "two" / "simple").write_text("no directory")


def odd_targets(site: Path) -> None:
    (site / "matrix.json").write_text('{"targets": [{"target": 5}, {"target": "\\u0000"}], "rows": []}')


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda site: (site / "matrix.json").write_text(DEEP), "matrix.json: cannot be read (nested too deep)"),
        (lambda site: (site / "matrix.json").write_bytes(b"\xff"), "matrix.json: cannot be read ("),
        (lambda site: (site / "one/simple/demo/index.json").write_text(DEEP), "one/simple/demo: the pages cannot be read"),
        (no_directory, None),
        (odd_targets, "5: the matrix has it, and there is no index of it"),
    ],
)  # fmt: skip
def test_json_recursion(site: Path, harm: Callable[[Path], object], said: str | None) -> None:
    harm(site)
    problems = check_site(site).problems
    assert any(said in problem for problem in problems) if said else problems == ()


def lost_metadata(site: Path) -> None:
    wheel = wheel_of(site, "plain")
    wheel.with_name(f"{wheel.name}.metadata").unlink()


def broken_record(site: Path) -> None:
    with closing(sqlite3.connect(site.with_name("site.relink") / "state.sqlite")) as database:
        database.execute("update records set body = '{' where body like '%demo%'")
        database.commit()


@pytest.mark.few(2, reason="the same of other values")
@pytest.mark.parametrize(
    ("harm", "said", "version"),
    [
        (cut, "is not what it was; the next build makes it again", 2),
        (gone, "is not what it was; the next build makes it again", 1),
        (other_metadata, ".metadata: is written again", 1),
        (lost_metadata, ".metadata: is written again", 1),
        (no_page, None, 1),
        (no_index, None, 1),
        (broken_record, "1 damaged records are removed", 2),
    ],
)
def test_a_damaged_site_is_repaired(
    site: Path,
    made: tuple[Path, Recipe],
    monkeypatch: pytest.MonkeyPatch,
    harm: Callable[[Path], None],
    said: str | None,
    version: int,
) -> None:
    """By repair and the next build. What was lost itself comes with the next number, as no name ever has two contents."""
    harm(site)
    repaired = repair_site(site)
    assert any(said in text for text in repaired) if said else repaired == ()
    built(made[1], site, monkeypatch)
    assert check_site(site).problems == ()
    newest = json.loads((site / "one/simple/demo/index.json").read_text())["files"][-1]
    assert f"+rocm7.2.4.{version}-" in newest["filename"]
    assert repair_site(site) == ()


def test_a_wheel_that_was_removed_is_made_again(
    site: Path, made: tuple[Path, Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without repair, too."""
    shutil.rmtree(wheel_of(site, "plain").parent)
    built(made[1], site, monkeypatch)
    assert check_site(site).problems == ()


def test_a_broken_record_is_no_fault_of_relink(
    site: Path, made: tuple[Path, Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken_record(site)
    with pytest.raises(UsageError, match=r"`relink index check .*site --repair` takes out what is"):
        built(replace(made[1], refused="fail", originals="omit"), site, monkeypatch)


def test_what_is_no_site(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no site"):
        check_site(tmp_path)
    with pytest.raises(UsageError, match="is no site"):
        repair_site(tmp_path / "site")
    assert not (tmp_path / "site.relink").exists()


def test_one_directory_for_one_content(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    wheel = make_wheel(tmp_path / "from", {"demo/x.py": b""}, tag="py3-none-any")
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    for place in (tmp_path / "one", tmp_path / "two"):
        place.mkdir()
        facts = place_wheel(wheel, files, place)
    final = files / sha256[:2] / sha256
    assert sorted(path.name for path in final.iterdir()) == [wheel.name, f"{wheel.name}.metadata"]
    assert (facts["sha256"], facts["size"]) == (sha256, wheel.stat().st_size)
    assert facts["metadata"] == hashlib.sha256((final / f"{wheel.name}.metadata").read_bytes()).hexdigest()
    assert final.stat().st_mode & 0o777 == 0o755
    assert (final / wheel.name).stat().st_nlink == 1  # a file of the user's may change later: it is copied
    wheel.write_bytes(b"changed")
    assert hashlib.sha256((final / wheel.name).read_bytes()).hexdigest() == sha256


def test_what_is_damaged_is_replaced(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    wheel = make_wheel(tmp_path / "from", {"demo/x.py": b""}, tag="py3-none-any")

    def placed(number: int) -> Path:
        (tmp_path / str(number)).mkdir()
        facts = place_wheel(wheel, files, tmp_path / str(number))
        return Path(files, facts["sha256"][:2], facts["sha256"], wheel.name)

    final = placed(0)
    for number, name in enumerate(("", ".metadata"), 1):
        path = final.with_name(f"{wheel.name}{name}")
        before = path.read_bytes()
        path.unlink()
        placed(2 * number)
        assert path.read_bytes() == before
        path.write_bytes(b"damaged")
        placed(2 * number + 1)
        assert path.read_bytes() == before


def test_a_file_of_the_cache_is_not_there_twice(tmp_path: Path) -> None:
    wheel = make_wheel(cache_directory() / "x", {"demo/x.py": b""}, tag="py3-none-any")
    (tmp_path / "files").mkdir()
    (tmp_path / "place").mkdir()
    place_wheel(wheel, tmp_path / "files", tmp_path / "place")
    assert wheel.stat().st_nlink == 2
