"""install.installers: wheels from an index, by pip, for the target's Python; never from the network here."""

from __future__ import annotations

import functools
import hashlib
import http.server
import json
import os
import socketserver
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from relink.indexes.install import installers
from relink.indexes.install.installers import (
    InstallerError,
    cache_directory,
    cached_sha256s,
    copy_to_cache,
    fetch_url,
    find_by_sha256,
    parse_requirement,
    pin_for_undo,
    store_wheel,
    working_place,
)
from relink.planning.model import PLAN_MEMBER
from relink.system.errors import UsageError, WheelError
from tests.support.command import Run
from tests.support.wheels import make_wheel
from tests.support.works import MACHINE, OUTPUT, TAG, Works
from tests.unit.planning.checks.test_tags import python_that_is


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def vendor(index: Path, version: str = "1.0", tag: str = TAG) -> Path:
    return make_wheel(index, {"demo/__init__.py": version.encode()}, version=version, tag=tag)


# Requirements


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("demo==", "is not a requirement"),
        ("../demo.whl", "is not a requirement"),
        (f"demo ; {'(' * 2000}python_version > '3'{')' * 2000}", "is not a requirement"),
        ("--index-url=x", "is not a requirement"),
        ("demo @ https://127.0.0.1/demo-1.0.tar.gz", "a URL or an environment marker"),
        ("demo==1.0; python_version > '3'", "a URL or an environment marker"),
        ("demo==1.*", "does not name one version"),
        ("demo>=1", "does not name one version"),
        ("demo==1,>0", "does not name one version"),
        ("demo", "does not name one version"),
    ],
)
def test_what_is_not_fetched(text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        parse_requirement(text, exact=True)


@pytest.mark.few(1, reason="a second of pip for each other tag")
@pytest.mark.parametrize(
    "tag", ["cp310-cp310-linux_x86_64", "py3-none-any", "cp39-abi3-manylinux_2_17_x86_64"]
)
def test_a_wheel_is_fetched_by_its_address(tag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever Python it is for."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    wheel = make_wheel(tmp_path / "there", {"demo/__init__.py": b""}, tag=tag)
    found = fetch_url(f"file://{wheel}")
    assert (found.path.name, found.sha256) == (wheel.name, sha256(wheel))
    with pytest.raises(InstallerError, match="pip has not got it"):
        fetch_url(f"file:///nowhere/{wheel.name}")
    with pytest.raises(WheelError, match="not the name of a wheel"):
        fetch_url("https://example.org/demo")


def test_extras_are_for_dependencies() -> None:
    wanted = parse_requirement("Demo_Pkg[b,a]>=1")
    assert (wanted.name, wanted.extras, str(wanted.specifier)) == ("Demo_Pkg", {"a", "b"}, ">=1")
    with pytest.raises(UsageError):
        parse_requirement("demo>=1; extra == 'a'")


# relink REQUIREMENT


@pytest.mark.slow(reason="pip runs")
def test_a_requirement_is_relinked(run: Run, works: Works, index: Path, tmp_path: Path) -> None:
    """The vendor's wheel is fetched, its hash is told, and what is written is what its path would have given."""
    wheel = works.wheel(index)
    code, out, err = run(
        "demo==1.0", "--prefix", works.prefix, "-o", tmp_path / "fetched", "--python", sys.executable
    )
    assert (code, err) == (0, "")
    first = out.splitlines()[0]
    assert first.startswith(f"{wheel.name}  sha256 {sha256(wheel)}  ")
    assert f"fetched for Python 3.{sys.version_info[1]} on {MACHINE}" in first
    run(wheel, "--prefix", works.prefix, "-o", tmp_path / "given")
    assert (tmp_path / "fetched" / OUTPUT).read_bytes() == (tmp_path / "given" / OUTPUT).read_bytes()


@pytest.mark.slow(reason="pip runs; test_a_requirement_is_relinked has one such run")
@pytest.mark.usefixtures("index")
def test_what_no_index_has(run: Run, works: Works, tmp_path: Path) -> None:
    code, _, err = run("demo==1.0", "--prefix", works.prefix, "-o", tmp_path / "out")
    assert code == 2
    assert "demo==1.0: pip has got no wheel of it for Python" in err
    assert "check the name and the version" in err


@pytest.mark.slow(reason="pip runs; test_a_requirement_is_relinked has one such run")
def test_json_is_nothing_but_json(run: Run, works: Works, index: Path, tmp_path: Path) -> None:
    works.wheel(index)
    code, out, _ = run("demo==1.0", "--prefix", works.prefix, "-o", tmp_path, "--json")
    assert code == 0
    assert out.startswith("{")


@pytest.mark.slow(reason="pip runs; test_a_requirement_is_relinked has one such run")
@pytest.mark.usefixtures("index")
def test_what_no_index_has_stops_no_other_wheel(run: Run, works: Works, tmp_path: Path) -> None:
    """The wheel beside it is relinked, and programs get their JSON, with the failure in it."""
    made = works.wheel(tmp_path)
    code, out, err = run(made, "bad==9", "--prefix", works.prefix, "-o", tmp_path / "out", "--json")
    assert code == 2
    assert "bad==9: pip has got no wheel of it" in err
    assert (tmp_path / "out" / OUTPUT).is_file()
    document = json.loads(out)
    assert [report["output"] is not None for report in document["reports"]] == [True]
    assert "bad==9" in json.dumps(document["failures"])


# relink fetch


def test_the_newest_that_the_target_installs(run: Run, index: Path, tmp_path: Path) -> None:
    """Of Python, ABI and platform; a source distribution is never taken, since pip would run it."""
    best = (
        vendor(index, "1.2", "cp39-abi3-manylinux_2_28_x86_64")
        if MACHINE == "x86_64"
        else vendor(index, "1.2", "cp39-abi3-linux_aarch64")
    )
    vendor(index, "1.1", f"cp312-cp312-linux_{MACHINE}")
    vendor(index, "1.3", f"cp311-cp311-linux_{MACHINE}")
    vendor(index, "1.4", "cp312-cp312-win_amd64")
    (index / "demo-1.5.tar.gz").write_bytes(b"")
    python = python_that_is(tmp_path / "python3.12", version=[3, 12])
    code, out, err = run("fetch", "demo", "--python", python, "-o", tmp_path / "got")
    assert (code, err) == (0, "")
    assert [path.name for path in (tmp_path / "got").iterdir()] == [best.name]
    assert (tmp_path / "got" / best.name).read_bytes() == best.read_bytes()
    assert f"sha256 {sha256(best)}" in out
    code, out, err = run("fetch", "demo", "--python", python, "-o", tmp_path / "got", "--json")
    (wheel,) = json.loads(out)["wheels"]
    assert (code, err, wheel["requirement"], wheel["path"]) == (
        0,
        "",
        "demo",
        str(tmp_path / "got" / best.name),
    )
    assert (wheel["sha256"], wheel["size"]) == (sha256(best), best.stat().st_size)


class _Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def simple_index(index: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The same wheels, served as a simple repository (PEP 503) on the loopback interface."""
    root = index.parent / "served"
    project = root / "simple" / "demo"
    project.mkdir(parents=True)
    wheel = vendor(project)
    (project / "index.html").write_text(f'<a href="{wheel.name}#sha256={sha256(wheel)}">{wheel.name}</a>')
    server = socketserver.ThreadingTCPServer(
        ("127.0.0.1", 0), functools.partial(_Silent, directory=str(root))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.delenv("PIP_NO_INDEX", raising=False)
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_address[1]}/simple")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield wheel
    server.shutdown()
    server.server_close()


@pytest.mark.slow(reason="pip runs; test_a_requirement_is_relinked has one such run")
def test_pips_own_configuration_names_the_index(run: Run, simple_index: Path, tmp_path: Path) -> None:
    code, _, err = run("fetch", "demo", "-o", tmp_path / "got")
    assert (code, err) == (0, "")
    assert (tmp_path / "got" / simple_index.name).read_bytes() == simple_index.read_bytes()
    page = simple_index.parent / "index.html"
    page.write_text(page.read_text().replace(sha256(simple_index), "0" * 64))
    code, _, err = run("fetch", "demo", "-o", tmp_path / "damaged")
    assert code == 2
    assert "pip has got no wheel of it" in err
    assert not (tmp_path / "damaged").exists()


# The cache


@pytest.mark.usefixtures("index")
def test_what_changed_in_the_cache_is_not_taken() -> None:
    with working_place() as place:
        kept = store_wheel(vendor(place))
    assert find_by_sha256(kept.sha256) == kept
    kept.path.write_bytes(b"something else")
    assert find_by_sha256(kept.sha256) is None
    assert cached_sha256s() == frozenset()


@pytest.mark.usefixtures("index")
def test_the_cache_stays_within_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not used for longest goes first; the newest stays, however large."""
    wheels = []
    for number in range(3):
        with working_place() as place:
            wheels.append(store_wheel(vendor(place, f"1.{number}")))
        os.utime(wheels[-1].path, (number, number))
    os.utime(wheels[0].path)  # it was used
    monkeypatch.setattr(installers, "SIZE", sum(wheel.path.stat().st_size for wheel in wheels) + 64)
    with working_place() as place:
        newest = store_wheel(vendor(place, "1.9"))
    assert cached_sha256s() == {wheel.sha256 for wheel in (wheels[0], wheels[2], newest)}
    monkeypatch.setattr(installers, "SIZE", 0)
    with working_place() as place:
        last = store_wheel(vendor(place, "2.0"))
    assert cached_sha256s() == {last.sha256}


@pytest.mark.usefixtures("index")
def test_what_is_held_stays_whatever_the_size(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As long as what the wheel became lies where it was installed; a note that leads elsewhere holds nothing."""
    monkeypatch.setattr(installers, "SIZE", 0)
    installed = tmp_path / "site/demo-1.0+rocm7.dist-info"
    with working_place() as place:
        wheel = copy_to_cache(vendor(place))
    assert copy_to_cache(wheel.path) == wheel
    plan = installed / PLAN_MEMBER
    plan.parent.mkdir(parents=True)
    plan.write_text(f'{{"wheel": {{"sha256": "{wheel.sha256}"}}}}')
    pin_for_undo(wheel, installed)

    def left() -> set[str]:
        with working_place() as place:
            newest = store_wheel(vendor(place, "2.0"))
        return set(cached_sha256s()) - {newest.sha256}

    assert left() == {wheel.sha256}
    pin_for_undo(wheel, tmp_path / "another")
    assert left() == {wheel.sha256}
    plan.write_text('{"wheel": {"sha256": "of another wheel"}}')
    assert left() == set()


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert cache_directory() == tmp_path / ".cache" / "relink" / "wheels"
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/me")
    assert cache_directory() == Path("/var/cache/me/relink/wheels")
