"""The sdist and the wheel: whole, the same from either, and at work outside of the repository."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import jsonschema
import pytest

import relink
from tests.support.built import ROOT, Built, build, own_python_first, skip_without_index
from tests.support.works import Works

pytestmark = pytest.mark.network  # pip and build fetch the build backend and what relink depends on
VERSION = re.compile(rf"relink {re.escape(relink.__version__)}( \([0-9a-f]{{12}}(-dirty)?\))?\n")
DATA = {"profiles": "relink/_profiles", "examples/demo": "relink/_demo"}


def _shipped(directory: str) -> set[str]:
    """Return the files of a data directory that are part of the project."""
    return {
        path.relative_to(ROOT / directory).as_posix()
        for path in (ROOT / directory).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(tmp_path_factory)


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the ``bin`` of a venv in which there is the built wheel and nothing else."""
    venv = tmp_path_factory.mktemp("installed") / "venv"
    environment = own_python_first()
    subprocess.run(["python3", "-m", "venv", venv], env=environment, check=True)
    command = [str(venv / "bin/pip"), "install", "--quiet", str(built.wheel)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        skip_without_index(done.stderr)
        pytest.fail(done.stderr[-2000:])
    return venv / "bin"


def _relink(installed: Path, directory: Path, *words: str) -> str:
    environment = own_python_first() | {"PATH": os.defpath}
    done = subprocess.run(
        [installed / "relink", *words],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_has_all_data_and_no_tests(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        names = set(archive.namelist())
    for source, place in DATA.items():
        assert {f"{place}/{name}" for name in _shipped(source)} <= names, source
    package = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "relink").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert package <= names
    release = built.wheel.name.split("-py3")[0]
    assert {name.split("/")[0] for name in names} <= {"relink", f"{release}.dist-info", f"{release}.data"}
    assert not any("__pycache__" in name for name in names)


def test_the_sdist_has_what_a_checkout_has(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2]: archive.getmember(name).mode for name in archive.getnames()}
    for name in (
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "Makefile",
        "flake.nix",
        "default.nix",
    ):
        assert name in names
    assert {
        "tests/__init__.py",
        "examples/demo/demo.py",
        "benchmarks/__main__.py",
        "docs/architecture.md",
    } <= set(names)
    assert names["scripts/fetch-rocm-prefix"] & 0o111
    assert not any(part in name for name in names for part in (".venv/", ".cache/", "__pycache__"))


def test_the_sdist_builds_the_same_wheel_as_the_tree(built: Built, tmp_path: Path) -> None:
    # `python -m build` made the wheel from the sdist; this one is made from the tree.
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(command, capture_output=True, check=True)
    with zipfile.ZipFile(tmp_path / built.wheel.name) as tree, zipfile.ZipFile(built.wheel) as sdist:
        assert {name: tree.read(name) for name in tree.namelist()} == {
            name: sdist.read(name) for name in sdist.namelist()
        }


@pytest.mark.slow(reason="two builds of both archives")
def test_both_archives_are_the_same_whoever_builds_them(tmp_path: Path) -> None:
    """Of a clone of the commit: at another time, in another directory, with another umask, time zone, locale and hash seed."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is no clone with its history")
    found = []
    for name, umask, seed, zone, locale in (
        ("clone", 0o022, "1", "UTC", "C.UTF-8"),
        ("other/place", 0o077, "2", "Asia/Kolkata", "C"),
    ):
        directory = tmp_path / name
        clone = ["git", "clone", "--quiet", "--no-local", str(ROOT), str(directory)]
        subprocess.run(clone, umask=umask, check=True)
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(directory / "dist")]
        given = os.environ | {"PYTHONHASHSEED": seed, "TZ": zone, "LC_ALL": locale}
        subprocess.run([*command, str(directory)], umask=umask, env=given, capture_output=True, check=True)
        found.append(
            {
                path.name: hashlib.sha256(path.read_bytes()).hexdigest()
                for path in (directory / "dist").iterdir()
            }
        )
    assert len(found[0]) == 2
    assert found[0] == found[1]


def test_the_metadata_is_complete(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    assert metadata["Name"] == "rocm-relink"
    assert metadata["Version"] == relink.__version__
    assert metadata["License-Expression"] == "MIT"
    assert metadata["License-File"] == "LICENSE"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Description-Content-Type"] == "text/markdown"
    check = [
        sys.executable,
        "-m",
        "twine",
        "--no-color",
        "check",
        "--strict",
        str(built.wheel),
        str(built.sdist),
    ]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("PASSED") == 2


@pytest.mark.slow(reason="a wheel is built for metadata that the release alone has")
def test_a_release_has_the_urls_of_its_repository(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(tmp_path),
        str(ROOT),
    ]
    environment = os.environ | {"RELINK_REPOSITORY": "https://localhost/them/relink/"}
    subprocess.run(command, capture_output=True, check=True, env=environment)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    assert metadata.get_all("Project-URL") == [
        "Repository, https://localhost/them/relink",
        "Documentation, https://localhost/them/relink/blob/main/docs/start.md",
        "Changelog, https://localhost/them/relink/blob/main/CHANGELOG.md",
        "Issues, https://localhost/them/relink/issues",
    ]


def test_it_is_installed_under_both_names(installed: Path, tmp_path: Path) -> None:
    """The distribution's own name is what uvx and pipx run; another package is called relink there."""
    environment = own_python_first() | {"PATH": os.defpath}
    command = [str(installed / "rocm-relink"), "rules", "RLK101"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == _relink(installed, tmp_path, "rules", "RLK101")


def test_uvx_runs_the_wheel(built: Built, tmp_path: Path) -> None:
    uv = Path(sys.executable).with_name("uv")
    environment = own_python_first() | {"UV_CACHE_DIR": str(tmp_path / "cache"), "UV_NO_CONFIG": "1"}
    command = [str(uv), "tool", "run", "--from", str(built.wheel), "rocm-relink", "--version"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        skip_without_index(done.stderr)
        pytest.fail(done.stderr[-2000:])
    assert VERSION.fullmatch(done.stdout)


def test_the_installed_wheel_works_outside_of_the_repository(installed: Path, tmp_path: Path) -> None:
    assert VERSION.fullmatch(_relink(installed, tmp_path, "--version"))
    assert "RLK101" in _relink(installed, tmp_path, "rules")
    assert "RLK101" in _relink(installed, tmp_path, "rules", "RLK101")
    assert "relink demo" in _relink(installed, tmp_path, "demo", "--help")
    profiles = _relink(installed, tmp_path, "profile", "list")
    for path in (ROOT / "profiles/packages").glob("*.toml"):
        assert path.stem in profiles
    shown = tmp_path / "shown.toml"
    shown.write_text(_relink(installed, tmp_path, "profile", "show", "bitsandbytes"))
    _relink(installed, tmp_path, "profile", "check", str(shown))  # by the schema of profiles
    assert [path.name for path in tmp_path.iterdir()] == ["shown.toml"]


def test_the_installed_wheel_relinks(installed: Path, works: Works, tmp_path: Path) -> None:
    wheel = works.wheel(tmp_path / "in")
    report = json.loads(
        _relink(installed, tmp_path, str(wheel), "--prefix", str(works.prefix), "-o", "out", "--json")
    )
    jsonschema.validate(report, json.loads((ROOT / "relink/schemas/report.schema.json").read_text()))
    (tmp_path / "report.json").write_text(json.dumps(report))
    _relink(installed, tmp_path, "report", "report.json", "-o", "page.html")
    assert "<html" in (tmp_path / "page.html").read_text()
    _relink(installed, tmp_path, "nix", str(wheel), "-o", "package")
    assert (tmp_path / "package/package.nix").is_file()
