"""index.building: done work is never done again, a changed prefix redoes what depends on it, and a site is old or new."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import zipfile
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from packaging.requirements import Requirement

import relink
from relink.indexes.build.building import find_wheels, fits, plan_tasks, target_key
from relink.indexes.build.recipe import IndexTarget, Recipe, WheelSource
from relink.indexes.build.running import BuildOptions
from relink.indexes.build.site import old_results, remove_results
from relink.indexes.build.store import Store
from relink.indexes.build.web import ListedWheel, PipSettings, Web
from relink.indexes.build.work import TargetState
from relink.python.facts_cache import FactsCache
from relink.system.errors import UsageError
from relink.wheel.naming import parse_wheel_name
from tests.support.cc import shared
from tests.support.indexes import built, recipe_of
from tests.support.web_server import Answer, WebServer
from tests.support.wheels import make_wheel
from tests.support.works import MACHINE, TAG, Works

SLOW = pytest.mark.slow(reason="several runs; test_a_changed_library_redoes_its_dependents has such")

X86 = "x86_64"
FILES = [
    *(
        f"demo-{version}-cp31{minor}-cp31{minor}-manylinux_2_28_x86_64.whl"
        for version in ("1.0", "1.1", "2.0rc1")
        for minor in (1, 2)
    ),
    "demo-1.2-cp312-cp312-manylinux_2_28_x86_64.whl",
    "demo-0.9-py3-none-any.whl",
    "demo-1.2-cp312-cp312-manylinux_2_28_aarch64.whl",
    "demo-1.2-cp312-cp312-win_amd64.whl",
    "demo-1.2.tar.gz",
]


@dataclass
class Listing:
    """The wheels, and what was told of the rest."""

    wheels: list[ListedWheel] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def of(*requirements: str, latest: int | None = None, kind: str = "index", place: str = "pip") -> WheelSource:
    return WheelSource(kind, place, tuple(map(Requirement, requirements)), latest)


def found(
    *sources: WheelSource,
    indexes: tuple[str, ...] = (),
    links: tuple[str, ...] = (),
    deny: tuple[str, ...] = (),
) -> Listing:
    denied = tuple(map(Requirement, deny))
    recipe = Recipe(
        Path("index.toml"), ((3, 11), (3, 12)), sources, (IndexTarget("x", ("/x",)),), deny=denied
    )
    listing = Listing()
    told = {"note": listing.notes, "source": listing.failures}
    settings = PipSettings(indexes=indexes, find_links=links)
    for some in find_wheels(
        recipe, Web(settings), FactsCache(None), (X86,), lambda kind, text: told[kind].append(text)
    ):
        listing.wheels += some
    return listing


def names(listing: Listing) -> list[str]:
    return [
        wheel.filename.removesuffix(".whl").replace("-manylinux_2_28_x86_64", "") for wheel in listing.wheels
    ]


@pytest.fixture
def index(server: WebServer) -> str:
    files: list[object] = [
        {
            "filename": name,
            "url": f"/f/{name}",
            "hashes": {},
            "yanked": "bad" if name.startswith("demo-1.1") else False,
        }
        for name in FILES
    ]
    page = json.dumps({"meta": {"api-version": "1.0"}, "files": files}).encode()
    server.answers["/simple/demo/"] = Answer(page, "application/vnd.pypi.simple.v1+json")
    return f"{server.url}/simple/"


@pytest.mark.parametrize(
    ("requirement", "latest", "expected"),
    [
        ("demo==1.0", None, ["demo-1.0-cp311-cp311", "demo-1.0-cp312-cp312"]),
        ("demo==1.0; python_version >= '3.12'", None, ["demo-1.0-cp312-cp312"]),
        ("demo; sys_platform == 'win32'", None, []),
        ("demo>=2.0rc1", None, ["demo-2.0rc1-cp311-cp311", "demo-2.0rc1-cp312-cp312"]),
        ("demo", 1, ["demo-1.2-cp312-cp312"]),
        ("demo<1.2", 1, ["demo-1.0-cp311-cp311", "demo-1.0-cp312-cp312"]),
        ("demo<1", None, ["demo-0.9-py3-none-any"]),
    ],
)
def test_requirements(index: str, requirement: str, latest: int | None, expected: list[str]) -> None:
    listing = found(of(requirement, latest=latest), indexes=(index,))
    assert names(listing) == expected
    assert listing.failures == []


def test_a_yanked_release_is_carried(index: str) -> None:
    wheels = found(of("demo==1.1"), indexes=(index,)).wheels
    assert [wheel.yanked for wheel in wheels] == ["bad", "bad"]


def test_indexes_that_lack_it(index: str, server: WebServer) -> None:
    other = f"{server.url}/other"
    assert names(found(of("demo<1"), indexes=(other, index))) == ["demo-0.9-py3-none-any"]
    (said,) = found(of("none"), indexes=(other, index)).failures
    assert said.startswith("none: no index has it")
    server.answers["/other/demo/"] = Answer(status=500)
    listing = found(of("demo<1"), indexes=(other, index))
    assert len(listing.wheels) == 1
    assert "the server answers 500" in listing.failures[0]
    assert found(of("demo<1", place=index)).failures == []


def test_a_directory(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, {"demo/x.py": b""}, tag="py3-none-any")
    make_wheel(tmp_path, {"demo/x.py": b""}, tag="cp39-cp39-linux_x86_64")
    (tmp_path / "other.txt").touch()
    source = of(kind="directory", place=str(tmp_path))
    (one,) = found(source).wheels
    assert one.url == wheel.as_uri()
    assert (one.sha256, one.size) == (hashlib.sha256(wheel.read_bytes()).hexdigest(), wheel.stat().st_size)
    assert found(of("demo>1", kind="directory", place=str(tmp_path))).wheels == []
    assert found(source, source).wheels == [one]
    with pytest.raises(UsageError, match="cannot be read"):
        found(of(kind="directory", place=str(tmp_path / "none")))


def test_a_source_gives_nothing_that_only_another_one_wants(tmp_path: Path) -> None:
    for place, name in (("one", "demo"), ("one", "more"), ("two", "more")):
        make_wheel(tmp_path / place, {"x.py": place.encode()}, name=name, tag="py3-none-any")
    one, two = (str(tmp_path / place) for place in ("one", "two"))
    listing = found(of("demo", kind="directory", place=one), of("more", kind="directory", place=two))
    assert [wheel.url.split("/")[-2:] for wheel in listing.wheels] == [
        ["one", "demo-1.0-py3-none-any.whl"],
        ["two", "more-1.0-py3-none-any.whl"],
    ]
    assert listing.notes == []


def test_an_odd_name_is_passed_over(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, {"demo/x.py": b""}, tag="py3-none-any")
    (tmp_path / "foo.whl").touch()
    listing = found(of(kind="directory", place=str(tmp_path)))
    assert [one.filename for one in listing.wheels] == [wheel.name]
    assert "foo.whl: is passed over: " in listing.notes[0]


def test_the_find_links_of_pip(tmp_path: Path, server: WebServer) -> None:
    """A directory, a page of the web, a page in a file; and an index need not have what is there."""
    for version in ("1.0", "2.0"):
        make_wheel(tmp_path, {"demo/x.py": b""}, version=version, tag="py3-none-any")
    other, third = ("other-1.0-py3-none-any.whl", "third-1.0-py3-none-any.whl")
    server.answers["/links"] = Answer(f'<a href="/f/{other}">{other}</a>'.encode())
    (tmp_path / "links.html").write_text(f'<a href="http://127.0.0.1/f/{third}">{third}</a>')
    links = (tmp_path.as_uri(), f"{server.url}/links", str(tmp_path / "links.html"))
    wanted = of("demo<2", "other", "third")
    listing = found(wanted, links=links, indexes=(f"{server.url}/simple",))
    assert names(listing) == [f"{name}-1.0-py3-none-any" for name in ("demo", "other", "third")]
    assert listing.failures == []
    assert "no index has it" in found(of("demo", place=f"{server.url}/simple"), links=links).failures[0]
    assert "none" in found(wanted, links=("/none",)).failures[0]


def test_what_a_recipe_denies(tmp_path: Path) -> None:
    for version in ("1.0", "2.0rc1"):
        make_wheel(tmp_path, {"demo/x.py": b""}, version=version, tag="py3-none-any")
    source = of(kind="directory", place=str(tmp_path))
    assert names(found(source, deny=("Demo>1",))) == ["demo-1.0-py3-none-any"]
    assert found(source, deny=("demo",)).wheels == []


def test_a_lock_file(tmp_path: Path) -> None:
    rows = [
        f'{{ url = "https://x.test/{name}", hash = "sha256:{"ab" * 31}{number:02}" }},'
        for number, name in enumerate((FILES[0], FILES[8], "odd%2Fname.whl"))
    ]
    lock = tmp_path / "uv.lock"
    lock.write_text(f'version = 1\n[[package]]\nname = "demo"\nwheels = [{"".join(rows)}]\n')
    (one,) = found(of(kind="lock", place=str(lock))).wheels
    assert (one.filename, one.sha256) == (FILES[0], "ab" * 31 + "00")


@pytest.mark.parametrize(
    ("requires", "expected"), [(">=3.11.4", True), (">=3.12", False), (None, True), ("<3.11", False)]
)
def test_requires_python(requires: str | None, expected: bool) -> None:
    wheel = ListedWheel(parse_wheel_name(FILES[0]), "file:///x", requires_python=requires)
    assert fits(wheel, (3, 11), X86) is expected


@pytest.fixture
def own(works: Works, tmp_path: Path) -> Works:
    """A copy of the prefix that a test may change."""
    prefix = tmp_path / "rocm"
    shutil.copytree(works.prefix, prefix)
    return dataclasses.replace(works, prefix=prefix)


def wheels_of(works: Works, directory: Path) -> None:
    """One to relink, one that needs no relinking, and one that cannot work."""
    make_wheel(directory, {"demo/__init__.py": b"", "demo/a.so": works.library}, tag=TAG)
    make_wheel(directory, {"plain/p.so": works.plain}, name="plain", tag=TAG, requires=("demo",))
    make_wheel(directory, {"lost/l.so": works.lost}, name="lost", tag=TAG)


def page(site: Path, index: str, project: str) -> list[dict[str, Any]]:
    files: list[dict[str, Any]] = json.loads((site / index / "simple" / project / "index.json").read_text())[
        "files"
    ]
    return files


def relinked_for(ran: list[Any]) -> list[str]:
    return sorted(f"{task.wheel.name.distribution} {own.target.name}" for task in ran for own in task.targets)


@SLOW
def test_a_site(own: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels_of(own, tmp_path / "wheels")
    site = tmp_path / "site"
    recipe = recipe_of(tmp_path, own, "one", "two", more='gpus = ["gfx1031"]')
    run = built(recipe, site, monkeypatch)
    summary = run.summary
    assert (summary.wheels, summary.tasks, summary.done_before) == (3, 6, 0)
    assert (summary.written, summary.original, summary.refused, summary.failed) == (2, 2, 2, 0)
    assert summary.ok(recipe.refused)
    assert not summary.ok("fail")
    (one,) = page(site, "one", "demo")
    (two,) = page(site, "two", "demo")
    version = str(parse_wheel_name(one["filename"]).version)
    assert version == "1.0+rocm7.2.4.1"
    assert one["filename"] == two["filename"]
    file = (site / "one/simple/demo" / one["url"].replace("%2B", "+")).resolve()
    assert hashlib.sha256(file.read_bytes()).hexdigest() == one["hashes"]["sha256"]
    metadata = file.with_name(f"{file.name}.metadata").read_bytes()
    assert hashlib.sha256(metadata).hexdigest() == one["core-metadata"]["sha256"]
    assert f"Version: {version}\n".encode() in metadata
    assert json.loads(file.with_name(f"{file.name}.cdx.json").read_text())["bomFormat"] == "CycloneDX"
    assert page(site, "one", "plain")[0]["filename"] == f"plain-1.0-{TAG}.whl"
    assert not (site / "one/simple/lost").exists()
    matrix = json.loads((site / "matrix.json").read_text())
    row = next(row for row in matrix["rows"] if row["project"] == "lost")
    assert [matrix["states"][state] for state in row["cells"]["one"]["states"]] == ["refused"]
    assert "libnowhere.so.1" in matrix["texts"][row["cells"]["one"]["causes"][0]]
    assert [target["prefixes"] for target in matrix["targets"]] == [[str(own.prefix)]] * 2


def test_an_index_for_one_gpu(own: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has code for another GPU is published without it, and what has none as ever; page, matrix and SBOM know the GPU."""
    kernels = {f"demo/rocblas/library/T_{gpu}.dat": b"x" for gpu in ("gfx1030", "gfx90a")}
    make_wheel(tmp_path / "wheels", {"demo/a.so": own.library, **kernels}, tag=TAG)
    make_wheel(tmp_path / "wheels", {"other/a.so": own.library}, name="other", tag=TAG)
    site = tmp_path / "site"
    run = built(recipe_of(tmp_path, own, more='only-gpus = ["gfx1030"]'), site, monkeypatch)
    assert (run.summary.written, run.summary.failed) == (2, 0)
    ((demo,), (other,)) = (page(site, "one", name) for name in ("demo", "other"))
    assert demo["filename"].startswith("demo-1.0+rocm7.2.4.gfx1030")
    assert "gfx1030" not in other["filename"]
    file = (site / "one/simple/demo" / demo["url"].replace("%2B", "+")).resolve()
    assert b"\nSupported-Platform: gfx1030\n" in file.with_name(f"{file.name}.metadata").read_bytes()
    bill = json.loads(file.with_name(f"{file.name}.cdx.json").read_text())
    assert "with code for gfx1030 alone" in bill["metadata"]["component"]["pedigree"]["notes"]
    with zipfile.ZipFile(file) as archive:
        assert [name for name in archive.namelist() if name.endswith(".dat")] == [*kernels][:1]
    matrix = json.loads((site / "matrix.json").read_text())
    assert [gpu["id"] for gpu in matrix["targets"][0]["gpus"]] == ["gfx1030"]
    cells = {row["project"]: row["cells"]["one"] for row in matrix["rows"]}
    assert matrix["texts"][cells["demo"]["command"]].endswith(" --only-gpu gfx1030")
    assert any("RLK430" in matrix["texts"][text] for text in cells["other"]["causes"])


@pytest.mark.slow(reason="several runs; test_a_changed_library_redoes_its_dependents has such")
def test_done_work_is_not_done_again(own: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels_of(own, tmp_path / "wheels")
    site, recipe = tmp_path / "site", recipe_of(tmp_path, own)
    assert len(built(recipe, site, monkeypatch).ran) == 3
    shown = site.readlink()
    for path in own.prefix.rglob("*.so*"):
        os.utime(path)  # touched, and of the same content
    again = built(recipe, site, monkeypatch)
    assert again.ran == []
    assert (again.summary.done_before, again.summary.published) == (3, False)
    assert site.readlink() == shown
    make_wheel(tmp_path / "wheels", {"demo/a.so": own.library}, version="1.1", tag=TAG)
    more = built(recipe, site, monkeypatch)
    assert relinked_for(more.ran) == ["demo one"]
    assert site.readlink() != shown
    assert [file["filename"].split("+")[0] for file in page(site, "one", "demo")] == ["demo-1.0", "demo-1.1"]


def test_a_changed_library_redoes_its_dependents(
    own: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a library that nothing needs redoes only what was searched for something missing."""
    wheels_of(own, tmp_path / "wheels")
    shared(own.prefix / "lib" / "libother.so.1", "int other(void){return 1;}")
    site, recipe = tmp_path / "site", recipe_of(tmp_path, own)
    before = built(recipe, site, monkeypatch)
    (old,) = page(site, "one", "demo")
    shared(tmp_path / "new" / "libdeep.so.1", "int deep(void){return 41;}").replace(
        own.prefix / "lib/libdeep.so.1"
    )
    assert before.summary.written == 1
    changed = built(recipe, site, monkeypatch)
    assert relinked_for(changed.ran) == ["demo one", "lost one"]
    first, new = page(site, "one", "demo")
    assert (first, parse_wheel_name(new["filename"]).version.local) == (old, "rocm7.2.4.2")
    shared(tmp_path / "new" / "libother.so.1", "int other(void){return 2;}").replace(
        own.prefix / "lib/libother.so.1"
    )
    assert relinked_for(built(recipe, site, monkeypatch).ran) == ["lost one"]
    shared(own.prefix / "lib" / "libnowhere.so.1", "int nowhere(void){return 0;}")
    found = built(recipe, site, monkeypatch)
    assert relinked_for(found.ran) == ["lost one"]
    assert found.summary.written == 1
    matrix = json.loads((site / "matrix.json").read_text())
    (change,) = [one for one in matrix["changes"] if one["before"] == "refused"]
    assert (change["project"], change["after"]) == ("lost", "written")


@SLOW
def test_all_wheels_of_a_release_have_one_version(
    own: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where only one of them rests on what has changed; what was there before stays listed as long as the recipe says."""
    other = shared(own.prefix / "lib" / "libother.so.1", "int other(void){return 1;}")
    using = shared(tmp_path / "b.so", "extern int other(void); int g(void){return other();}", needed=[other])
    make_wheel(tmp_path / "wheels", {"demo/a.so": own.library}, tag=TAG)
    make_wheel(tmp_path / "wheels", {"demo/b.so": using}, tag=f"py3-none-{TAG.rpartition('-')[2]}")
    site, recipe = tmp_path / "site", recipe_of(tmp_path, own, head='superseded = "30d"')

    def labels(day: int) -> list[str]:
        monkeypatch.setenv("SOURCE_DATE_EPOCH", str(day * 86400))
        built(recipe, site, monkeypatch)
        return [str(parse_wheel_name(file["filename"]).version.local) for file in page(site, "one", "demo")]

    assert labels(0) == ["rocm7.2.4.1"] * 2
    shared(tmp_path / "new" / "libother.so.1", "int other(void){return 2;}").replace(other)
    assert labels(1) == ["rocm7.2.4.1"] * 2 + ["rocm7.2.4.2"] * 2
    assert {file["upload-time"] for file in page(site, "one", "demo")} == {
        "1970-01-01T00:00:00.000000Z",
        "1970-01-02T00:00:00.000000Z",
    }
    assert labels(30) == ["rocm7.2.4.1"] * 2 + ["rocm7.2.4.2"] * 2
    assert labels(32) == ["rocm7.2.4.2"] * 2
    make_wheel(
        tmp_path / "wheels", {"demo/a.so": own.library}, tag=f"{TAG.split('-')[0]}-abi3-linux_{MACHINE}"
    )
    assert labels(33) == ["rocm7.2.4.2"] * 3  # a wheel that comes later has the number of its release


@SLOW
def test_an_index_is_for_one_release_of_rocm(
    own: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels_of(own, tmp_path / "wheels")
    site, recipe = tmp_path / "site", recipe_of(tmp_path, own)
    built(recipe, site, monkeypatch)
    (own.prefix / ".info" / "version").write_text("10.0.0-1\n")
    with pytest.raises(UsageError, match=r"is for rocm7\.2\.4, and its prefixes have rocm10\.0\.0 now"):
        built(recipe, site, monkeypatch)


@pytest.mark.slow(reason="several runs; test_a_changed_library_redoes_its_dependents has such")
def test_another_release_of_relink(own: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels_of(own, tmp_path / "wheels")
    site, recipe = tmp_path / "site", recipe_of(tmp_path, own)
    built(recipe, site, monkeypatch)
    monkeypatch.setattr("relink.indexes.build.building.__version__", "99.0")
    assert built(recipe, site, monkeypatch, BuildOptions(since=relink.__version__)).ran == []
    assert len(relinked_for(built(recipe, site, monkeypatch).ran)) == 3
    assert built(recipe, site, monkeypatch).ran == []
    with pytest.raises(UsageError, match="no version of relink"):
        built(recipe, site, monkeypatch, BuildOptions(since="new"))


@pytest.mark.slow(reason="several runs; test_a_changed_library_redoes_its_dependents has such")
def test_options_of_a_target_are_part_of_a_task(
    own: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels_of(own, tmp_path / "wheels")
    site = tmp_path / "site"
    built(recipe_of(tmp_path, own), site, monkeypatch)
    recipe = recipe_of(tmp_path, own, more='allow-missing = ["libnowhere*"]')
    assert len(relinked_for(built(recipe, site, monkeypatch).ran)) == 3
    assert len(page(site, "one", "lost")) == 1


@pytest.mark.slow(reason="several runs; test_a_changed_library_redoes_its_dependents has such")
def test_fail_keeps_the_old_site(own: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_wheel(tmp_path / "wheels", {"demo/a.so": own.library}, tag=TAG)
    site, recipe = tmp_path / "site", recipe_of(tmp_path, own, head='refused = "fail"')
    assert built(recipe, site, monkeypatch).summary.ok(recipe.refused)
    shown = site.readlink()
    wheels_of(own, tmp_path / "wheels")
    summary = built(recipe, site, monkeypatch).summary
    assert (summary.ok(recipe.refused), summary.red, site.readlink()) == (False, 1, shown)


@pytest.mark.slow(reason="several runs; test_a_changed_library_redoes_its_dependents has such")
@pytest.mark.parametrize(("originals", "expected"), [("mirror", ["demo", "plain"]), ("omit", ["demo"])])
def test_originals(
    own: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, originals: str, expected: list[str]
) -> None:
    wheels_of(own, tmp_path / "wheels")
    built(recipe_of(tmp_path, own, head='originals = "omit"'), tmp_path / "site", monkeypatch)
    built(recipe_of(tmp_path, own, head=f'originals = "{originals}"'), tmp_path / "site", monkeypatch)
    projects = json.loads((tmp_path / "site/one/simple/index.json").read_text())["projects"]
    assert [project["name"] for project in projects] == expected


@pytest.mark.slow(reason="several runs; test_a_changed_library_redoes_its_dependents has such")
def test_wheels_of_an_index(
    own: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: WebServer
) -> None:
    """Without hashes, with a yanked release, linked where nothing is changed; and an index that fails changes nothing."""
    wheels_of(own, tmp_path / "served")
    for project in ("demo", "plain"):
        name = f"{project}-1.0-{TAG}.whl"
        server.answers[f"/f/{name}"] = Answer((tmp_path / "served" / name).read_bytes())
        anchor = f'<a href="/f/{name}" data-yanked="old">{name}</a>'
        server.answers[f"/simple/{project}/"] = Answer(anchor.encode())
    recipe = recipe_of(tmp_path, own, "one", "two", head='originals = "link"')
    text = (tmp_path / "index.toml").read_text()
    source = f'index = "{server.url}/simple"\nrequirements = ["demo", "plain"]'
    (tmp_path / "index.toml").write_text(text.replace('directory = "wheels"', source))
    from relink.indexes.build.recipe import read_recipe  # noqa: PLC0415 (the recipe was rewritten)

    recipe = read_recipe(recipe.path)
    monkeypatch.setattr("relink.indexes.build.building.pip_settings", relink_settings)
    site = tmp_path / "site"
    first = built(recipe, site, monkeypatch)
    assert (first.summary.fetched, first.summary.written, first.summary.original) == (2, 2, 2)
    fetched = [path for path, _ in server.asked if path.startswith("/f/")]
    assert len(fetched) == len(set(fetched)) == 2  # once for both targets
    (plain,) = page(site, "one", "plain")
    assert (plain["url"], plain["yanked"]) == (f"{server.url}/f/plain-1.0-{TAG}.whl", "old")
    assert page(site, "one", "demo")[0]["yanked"] == "old"
    asked = len(server.asked)
    assert built(recipe, site, monkeypatch).ran == []
    assert len(server.asked) == asked + 2  # the pages, and no wheel
    page_of_demo = server.answers["/simple/demo/"]
    page_of_demo.body = page_of_demo.body.replace(b'"old"', b'"broken"')
    assert built(recipe, site, monkeypatch).ran == []
    server.answers.clear()
    gone = built(recipe, site, monkeypatch)
    assert (gone.summary.ok(recipe.refused), gone.summary.source_failures) == (False, 2)
    assert [file["yanked"] for file in page(site, "one", "demo")] == ["broken"]
    remove_results(recipe, site, partial(old_results, keep=1))
    assert [file["yanked"] for file in page(site, "one", "demo")] == ["broken"]


def relink_settings() -> Any:
    from relink.indexes.build.web import PipSettings  # noqa: PLC0415

    return PipSettings()


def test_another_place_is_left_alone(own: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site").mkdir()
    with pytest.raises(UsageError, match="is no site of relink"):
        built(recipe_of(tmp_path, own), tmp_path / "site", monkeypatch)


@pytest.mark.slow(reason="several runs; test_a_changed_library_redoes_its_dependents has such")
def test_what_a_machine_cannot_do_is_tried_again(
    own: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels_of(own, tmp_path / "wheels")
    site, recipe = tmp_path / "site", recipe_of(tmp_path, own)

    def full(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("relink.indexes.build.work.carry_out", full)
        summary = built(recipe, site, patch).summary
    assert (summary.failed, summary.written, summary.ok(recipe.refused)) == (1, 0, False)
    matrix = json.loads((site / "matrix.json").read_text())
    cells = {row["project"]: row["cells"]["one"]["status"] for row in matrix["rows"]}
    assert cells == {"demo": "failed", "lost": "refused", "plain": "original"}
    again = built(recipe, site, monkeypatch)
    assert relinked_for(again.ran) == ["demo one"]
    assert again.summary.ok(recipe.refused)


@pytest.mark.slow(reason="several runs; test_a_changed_library_redoes_its_dependents has such")
def test_a_damaged_wheel_is_refused_alone(
    own: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels_of(own, tmp_path / "wheels")
    (tmp_path / "wheels" / f"bad-1.0-{TAG}.whl").write_bytes(b"PK no archive")
    recipe, site = recipe_of(tmp_path, own), tmp_path / "site"
    summary = built(recipe, site, monkeypatch).summary
    assert (summary.written, summary.refused, summary.failed) == (1, 2, 0)
    assert built(recipe, site, monkeypatch).ran == []


@pytest.mark.slow(reason="a large wheel is read; the limit is that of every member")
def test_gigantic_metadata_are_refused(own: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a wheel that is small, since they compress well."""
    wheel = make_wheel(
        tmp_path / "wheels", {"demo/a.so": own.library}, version="9.0", tag=TAG, requires=("x" * (17 << 20),)
    )
    assert wheel.stat().st_size < 1 << 20
    run = built(recipe_of(tmp_path, own), tmp_path / "site", monkeypatch)
    assert (run.summary.refused, run.summary.failed) == (1, 0)
    (row,) = (
        row
        for row in json.loads((tmp_path / "site/matrix.json").read_text())["rows"]
        if row["version"] == "9.0"
    )
    assert row["cells"]["one"]["status"] == "refused"
    (said,) = (facts["text"] for _, facts in run.events if facts.get("status") == "refused")
    assert "METADATA" in said
    assert f"at most {16 << 20} are expected" in said


TARGET = IndexTarget("one", ("/x",))


def test_identity() -> None:
    keys = {
        target_key(TARGET),
        target_key(replace(TARGET, name="two")),
        target_key(replace(TARGET, prefixes=("/y",))),
        target_key(replace(TARGET, allow_missing=("libx*",))),
    }
    assert len(keys) == 4
    assert target_key(TARGET) == target_key(replace(TARGET))


def test_wheels_are_for_machines_and_pythons(tmp_path: Path) -> None:
    targets = (TARGET, replace(TARGET, name="arm"))
    recipe = Recipe(Path("x"), ((3, 12),), (WheelSource("directory", "x"),), targets)
    states = {
        "one": TargetState({}, "", "", "", "x86_64", "/", (), "rocm7.2.4"),
        "arm": TargetState({}, "", "", "", "aarch64", "/", (), "rocm7.2.4"),
    }
    wheels = [
        ListedWheel(parse_wheel_name(f"demo-1.0-{tag}.whl"), "file:///x", "ab")
        for tag in (
            "cp312-cp312-manylinux_2_28_x86_64",
            "cp311-cp311-linux_x86_64",
            "py3-none-manylinux_2_28_aarch64",
        )
    ]
    with Store(tmp_path / "site") as store:
        plan = plan_tasks(store, wheels, recipe, states)
    planned = {wheel.name.platform: [one.target.name for one in own] for wheel, own in plan.todo.items()}
    assert planned == {"manylinux_2_28_x86_64": ["one"], "manylinux_2_28_aarch64": ["arm"]}
    assert (plan.tasks, plan.again) == (2, [])
    assert plan.releases == [("demo", "1.0", "one", 1), ("demo", "1.0", "arm", 1)]
