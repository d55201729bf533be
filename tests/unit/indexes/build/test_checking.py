"""index.checking: a site that was tampered with is told where; tests/unit/cli/test_indexing.py has the command.

A wheel and what lies beside it appear together, once.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from relink.indexes.build.checking import check_site, place_wheel, repair_site
from relink.indexes.build.recipe import Recipe
from relink.indexes.install.cache import cache_directory
from relink.system.errors import UsageError
from tests.support.indexes import built, recipe_of
from tests.support.wheels import make_wheel
from tests.support.works import TAG, Works


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
