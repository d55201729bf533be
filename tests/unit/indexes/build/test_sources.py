"""index.sources: which wheels of a source are taken, by requirement, Python, marker and release."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from relink.indexes.build.fingerprint import Digests
from relink.indexes.build.recipe import IndexTarget, Recipe, WheelSource
from relink.indexes.build.simple_api import ListedWheel
from relink.indexes.build.sources import find_wheels, fits
from relink.indexes.build.web import PipSettings, Web
from relink.system.errors import UsageError
from relink.wheel.naming import parse_wheel_name
from tests.support.web_server import Answer, WebServer
from tests.support.wheels import make_wheel

MACHINE = "x86_64"
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
        recipe, Web(settings), Digests(), (MACHINE,), lambda kind, text: told[kind].append(text)
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
    assert fits(wheel, (3, 11), MACHINE) is expected
