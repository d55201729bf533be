"""A site as operators serve and copy it: the nginx, rsync and uv of docs/index-building.md, and object storage."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from relink.indexes.build.recipe import read_recipe
from relink.indexes.build.site import check_site
from tests.support.built import ROOT, skip_without_index
from tests.support.indexes import built
from tests.support.wheels import make_wheel
from tests.support.works import MACHINE, build_works

DOCUMENT = (ROOT / "docs" / "index-building.md").read_text(encoding="utf-8")
PYTHONS = ("cp311", "cp312")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of one release for two Pythons, made in 2001, and one that is refused."""
    place = tmp_path_factory.mktemp("sites")
    works = build_works(place / "works")
    for tag in PYTHONS:
        make_wheel(place / "wheels", {"demo/a.so": works.library}, tag=f"{tag}-{tag}-linux_{MACHINE}")
    make_wheel(place / "wheels", {"lost/a.so": works.lost}, name="lost", tag=f"py3-none-linux_{MACHINE}")
    (place / "index.toml").write_text(
        f'pythons = ["3.11", "3.12"]\n[[sources]]\ndirectory = "wheels"\n[targets.one]\nprefixes = ["{works.prefix}"]\n'
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(place / "cache"))
        patch.setenv("SOURCE_DATE_EPOCH", "1000000000")
        built(read_recipe(place / "index.toml"), place / "site", patch)
    return place / "site"


def block_with(text: str) -> str:
    blocks: list[str] = re.findall(r"```\w+\n(.*?)```", DOCUMENT, re.DOTALL)
    (found,) = (block for block in blocks if block.startswith(text))
    return found


def run(*words: object, place: Path, **more: str) -> subprocess.CompletedProcess[str]:
    keep = {key: value for key, value in os.environ.items() if not key.startswith(("PIP_", "UV_"))}
    environment = keep | {
        "PIP_CONFIG_FILE": os.devnull,
        "UV_NO_CONFIG": "1",
        "UV_CACHE_DIR": str(place / "uv-cache"),
        "NO_PROXY": "127.0.0.1",
        **more,
    }
    return subprocess.run(
        list(map(str, words)), cwd=place, env=environment, capture_output=True, text=True, check=False
    )


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert process.poll() is None, "the server has ended"
            assert time.monotonic() < end, "the server does not start"
            time.sleep(0.05)
        else:
            return


@contextmanager
def nginx(site: Path, place: Path) -> Iterator[str]:
    """Serve with the configuration of the document; gives the address."""
    if not (program := shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")):
        pytest.skip("nginx is not installed")
    port = free_port()
    own = block_with("map $http_accept").replace("/srv/wheels", str(site))
    own = own.replace("server {", f"server {{ listen 127.0.0.1:{port}; access_log {place}/access.log;")
    paths = "".join(
        f"{name}_temp_path {place}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root;" if os.geteuid() == 0 else ""
    (place / "nginx.conf").write_text(
        f"daemon off; {user} pid {place}/pid; error_log {place}/error.log;\nevents {{}}\nhttp {{ {paths}\n{own}\n}}\n"
    )
    with subprocess.Popen([program, "-p", str(place), "-c", str(place / "nginx.conf")]) as process:
        try:
            wait_for(port, process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


@pytest.mark.examples
def test_installers_from_nginx(site: Path, tmp_path: Path) -> None:
    """By hash, by metadata alone, by the time of upload; and one lock for two Pythons."""
    with nginx(site, tmp_path) as url:
        index = f"{url}/one/simple/"
        pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps"]
        pip += ["--report", "report.json"]
        asked = run(*pip, "--index-url", index, "demo", place=tmp_path)
        assert asked.returncode == 0, asked.stderr
        (chosen,) = json.loads((tmp_path / "report.json").read_text())["install"]
        assert chosen["metadata"]["version"] == "1.0+rocm7.2.4.1"
        assert chosen["download_info"]["archive_info"]["hashes"]["sha256"] in chosen["download_info"]["url"]
        lost = run(*pip, "--index-url", index, "lost", place=tmp_path)
        assert lost.returncode == 1
        uv = shutil.which("uv", path=Path(sys.executable).parent)
        compiling = (uv, "pip", "compile", "demo.in", "--no-header", "--index-url", index)
        (tmp_path / "demo.in").write_text("demo")
        for day, code in (("2001-01-01", 1), ("2002-01-01", 0)):
            newer = run(*compiling, "--exclude-newer", day, place=tmp_path)
            assert newer.returncode == code, newer.stderr
        log = (tmp_path / "access.log").read_text().splitlines()
        by_uv = [line for line in log if '"uv/' in line]
        assert any(".whl.metadata HTTP" in line for line in by_uv)
        assert not any(".whl HTTP" in line for line in by_uv), "metadata are enough"
        project = tmp_path / "project"
        project.mkdir()
        text = block_with("[[tool.uv.index]]").replace("https://wheels.example", url)
        text = text.replace("rocm72/simple", "one/simple").replace("onnxruntime-rocm", "demo")
        (project / "pyproject.toml").write_text(
            f'[project]\nname = "own"\nversion = "1"\nrequires-python = ">=3.11,<3.13"\ndependencies = ["demo"]\n{text}'
        )
        locked = run(uv, "lock", place=project)
        assert locked.returncode == 0, locked.stderr
        lock = (project / "uv.lock").read_text()
        assert lock.count('version = "1.0+rocm7.2.4.1"') == 1
        assert all(f"-{tag}-{tag}-" in lock for tag in PYTHONS)
        synced = run(uv, "sync", "--frozen", "--python", sys.executable, place=project)
        assert synced.returncode == 0, synced.stderr


@pytest.mark.examples
def test_pip_takes_nothing_else_in_the_place_of_a_refused_wheel(site: Path, tmp_path: Path) -> None:
    """By the documented line; with two indexes it takes the vendor's wheel, as the document says."""
    public = tmp_path / "public" / "lost"
    wheel = make_wheel(public, {"lost/x.py": b""}, name="lost", tag="py3-none-any")
    (public / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
    first, *_ = re.findall(r"^pip install (--no-deps .*?simple/) onnxruntime-rocm", DOCUMENT, re.MULTILINE)
    words = first.replace("http://127.0.0.1:8000/rocm72", f"{site.as_uri()}/one").split()
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed"]
    other = (tmp_path / "public").as_uri()
    assert run(*pip, *words, "lost", place=tmp_path, PIP_INDEX_URL=other).returncode == 1
    assert run(*pip, *words, "demo", place=tmp_path, PIP_INDEX_URL=other).returncode == 0
    both = run(*pip, *words[1:], "--extra-index-url", other, "lost", place=tmp_path)
    assert "Would install lost-1.0" in both.stdout


@pytest.mark.examples
def test_a_copy_that_is_cut_names_nothing_that_is_not_there(site: Path, tmp_path: Path) -> None:
    if not shutil.which("rsync"):
        pytest.skip("rsync is not installed")
    (tmp_path / "copy").mkdir()
    text = block_with("rsync ").replace("SITE/", f"{site}/").replace("HOST:/srv/wheels/", f"{tmp_path}/copy/")
    first, second = text.replace("\\\n", "").split("&&")
    assert run("sh", "-c", first, place=tmp_path).returncode == 0
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["files"]
    assert run("sh", "-c", second, place=tmp_path).returncode == 0
    assert check_site(tmp_path / "copy").problems == ()


def installed(place: Path, *names: str) -> Path:
    """Packages in a directory of their own."""
    words = ["-m", "pip", "install", "--quiet", "--target", str(place), *names]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        skip_without_index(done.stderr)
        pytest.fail(done.stderr[-2000:])
    return place


_BY_PYPI_SIMPLE = """\
import sys
from pathlib import Path
from pypi_simple import PyPISimple
with PyPISimple(sys.argv[1]) as client:
    packages = client.get_project_page("demo").packages
    assert sorted(client.get_index_page().projects) == ["demo"]
    for package in packages:
        metadata = client.get_package_metadata(package)
        assert f"Version: {package.version}" in metadata, metadata
        assert package.upload_time.year == 2001 and package.size
        client.download_package(package, Path(package.filename))  # checked by its SHA-256
print(len(packages), sorted({package.version for package in packages}))
"""


@pytest.mark.network
def test_pypi_simple(site: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """It reads pages, metadata and files, each with its hash."""
    library = installed(tmp_path_factory.mktemp("pypi-simple"), "pypi-simple")
    with nginx(site, tmp_path) as url:
        command = (sys.executable, "-c", _BY_PYPI_SIMPLE, f"{url}/one/simple/")
        found = run(*command, place=tmp_path, PYTHONPATH=str(library))
    assert (found.stderr, found.stdout) == ("", "2 ['1.0+rocm7.2.4.1']\n")
    assert sorted(path.stat().st_size for path in tmp_path.glob("*.whl")) == sorted(
        path.stat().st_size for path in (site / "files").resolve().rglob("*.whl")
    )


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """boto3, and a server that speaks as S3 does."""
    return installed(tmp_path_factory.mktemp("storage"), "boto3", "moto[server]")


@pytest.mark.network
def test_object_storage(site: Path, libraries: Path, tmp_path: Path) -> None:
    """pip installs from the bucket; files come before pages, and what is gone goes."""
    port = free_port()
    own = os.environ | {"PYTHONPATH": str(libraries)}
    command = [sys.executable, "-m", "moto.server", "-p", str(port)]
    log = (tmp_path / "moto.log").open("wb")
    with log, subprocess.Popen(command, env=own, stdout=log, stderr=log) as process:
        try:
            wait_for(port, process)
            url = f"http://127.0.0.1:{port}"
            keys = {
                "AWS_ENDPOINT_URL": url,
                "AWS_ACCESS_KEY_ID": "x",
                "AWS_SECRET_ACCESS_KEY": "x",
                "AWS_DEFAULT_REGION": "us-east-1",
                "PYTHONPATH": str(libraries),
            }
            make = "import boto3; boto3.client('s3').create_bucket(Bucket='wheels', ACL='public-read')"
            assert run(sys.executable, "-c", make, place=tmp_path, **keys).returncode == 0
            script = ROOT / "examples" / "index" / "upload.py"
            upload = (sys.executable, script, site, "wheels", "a/b")
            first = run(*upload, place=tmp_path, **keys)
            assert first.returncode == 0, first.stderr
            again = run(*upload, place=tmp_path, **keys)
            assert re.fullmatch(r"\d+ objects sent, 0 removed\n", again.stdout)
            assert int(again.stdout.split()[0]) < int(first.stdout.split()[0]), "files are not sent again"
            sent = re.findall(r'"PUT /wheels/a/b/(\S+) ', (tmp_path / "moto.log").read_text())
            pages = [key for key in sent if not key.startswith("files/")]
            assert sent.index(pages[0]) > max(sent.index(key) for key in sent if key.startswith("files/"))
            pip = [sys.executable, "-m", "pip", "download", "--no-deps", "-d", tmp_path, "--index-url"]
            got = run(*pip, f"{url}/wheels/a/b/one/simple/", "demo", place=tmp_path)
            assert got.returncode == 0, got.stderr
            copied = shutil.copytree(site, tmp_path / "site")
            shutil.rmtree(copied / "one" / "simple" / "demo")
            less = run(sys.executable, script, copied, "wheels", "a/b", place=tmp_path, **keys)
            assert less.stdout.endswith(" 3 removed\n"), less.stdout + less.stderr
        finally:
            process.terminate()


def test_media_types() -> None:
    source = (ROOT / "examples" / "index" / "upload.py").read_text().replace("import boto3\n", "")
    names: dict[str, Any] = {"__name__": "upload"}
    exec(compile(source, "upload.py", "exec"), names)  # noqa: S102 (the example, without what it uploads with)
    kind = names["kind_of"]
    assert kind("one/simple/demo/") == kind("one/simple/index.json") == "application/vnd.pypi.simple.v1+json"
    assert kind("one/simple/demo/index.html") == "text/html"
    assert kind("files/ab/abcd/demo-1.0-py3-none-any.whl") == "application/zip"
    assert kind("matrix.json") == "application/json"
