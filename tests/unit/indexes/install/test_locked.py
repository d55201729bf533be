"""The wheels of a uv.lock, fetched by their addresses: the real pip, from a directory; and the plans of all of them."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from relink.indexes.install.installers import InstallerError
from relink.indexes.install.locked import fetch_locked
from relink.system.errors import UsageError
from tests.support.cc import shared
from tests.support.command import Run
from tests.support.wheels import make_wheel

pytestmark = pytest.mark.slow(reason="pip runs")

TAG = "py3-none-manylinux_2_28_x86_64"


def vendor(directory: Path, name: str = "demo_rocm", *, needed: bool = True) -> Path:
    """A wheel that needs HIP, with a version whose address is escaped."""
    hip = shared(directory / "lib" / "libamdhip64.so.7", "int hip(void){return 1;}")
    source = "extern int hip(void); int a(void){return hip();}"
    library = shared(directory / f"{name}.so", source, needed=[hip]) if needed else b""
    return make_wheel(
        directory, {f"{name}/a.so" if needed else f"{name}.py": library}, name=name, version="1.0+x", tag=TAG
    )


def lock(directory: Path, *wheels: Path, digest: str | None = None, size: int | None = None) -> Path:
    rows = []
    for wheel in wheels:
        sha256 = digest or hashlib.sha256(wheel.read_bytes()).hexdigest()
        url = f"file://{wheel}".replace("+", "%2B")
        rows.append(
            f'[[package]]\nname = "{wheel.name.partition("-")[0]}"\n'
            f'wheels = [{{ url = "{url}", hash = "sha256:{sha256}", size = {size or wheel.stat().st_size} }}]\n'
        )
    path = directory / "uv.lock"
    path.write_text("version = 1\n" + "".join(rows))
    return path


def test_it_is_fetched_once(index: Path, tmp_path: Path) -> None:
    wheel = vendor(index)
    told: list[str] = []
    path = lock(tmp_path, wheel)
    (first,) = fetch_locked(path, (3, 12), told.append)
    assert first.path.read_bytes() == wheel.read_bytes()
    assert first.url == f"file://{wheel}".replace("+", "%2B")
    wheel.unlink()
    assert fetch_locked(path, None, told.append) == [first]
    assert told == [wheel.name]


def test_another_content_is_refused(index: Path, tmp_path: Path) -> None:
    path = lock(tmp_path, vendor(index), digest="0" * 64)
    with pytest.raises(
        InstallerError, match=r"cannot be fetched from file://.* as the lock file has it"
    ) as caught:
        fetch_locked(path, None, lambda _: None)
    assert "0000000" in str(caught.value.issues)


def test_another_size_is_refused(index: Path, tmp_path: Path) -> None:
    path = lock(tmp_path, vendor(index), size=5)
    with pytest.raises(InstallerError, match="is not what the lock file says"):
        fetch_locked(path, None, lambda _: None)


def test_a_file_without_an_end_is_refused(index: Path, tmp_path: Path) -> None:
    """pip may write what the lock file says and 16 MiB more, for what it keeps beside."""
    content = {"demo_rocm.bin": os.urandom(17 << 20)}
    wheel = make_wheel(index, content, name="demo_rocm", tag=TAG)
    path = lock(tmp_path, wheel, size=5)
    with pytest.raises(InstallerError, match="cannot be fetched") as caught:
        fetch_locked(path, None, lambda _: None)
    assert "File too large" in str(caught.value.issues)


def test_the_plans_of_all(run: Run, index: Path, tmp_path: Path) -> None:
    """Each with the address of the lock; a wheel that needs nothing of ROCm has none."""
    wheels = vendor(index), vendor(index, "other_rocm"), vendor(index, "plain_rocm", needed=False)
    path = lock(tmp_path, *wheels)
    code, out, err = run("nix", "--uv-lock", path, "-o", tmp_path / "plans")
    assert (code, err) == (0, "")
    assert f"{wheels[2].name}: it needs no library of ROCm, so it has no plan" in out
    plans = {file.name: json.loads(file.read_text()) for file in (tmp_path / "plans").iterdir()}
    assert plans.keys() == {"demo-rocm.json", "other-rocm.json"}
    source = plans["demo-rocm.json"]["source"]
    assert source["url"] == f"file://{wheels[0]}".replace("+", "%2B")
    assert source["sha256"] == hashlib.sha256(wheels[0].read_bytes()).hexdigest()


def test_neither_a_wheel_nor_a_lock(run: Run, tmp_path: Path) -> None:
    code, _, err = run("nix", "-o", tmp_path)
    assert code == 2
    assert "no wheel was named; pass WHEEL, or --uv-lock" in err
    (tmp_path / "uv.lock").write_text("version = 1\npackage = []\n")
    code, _, err = run("nix", "--uv-lock", tmp_path / "uv.lock", "-o", tmp_path)
    assert code == 2
    assert "it has no wheel for ROCm" in err


def test_no_release_of_pip_is_asked_for_what_is_wrong(index: Path, tmp_path: Path) -> None:
    assert index.is_dir()
    (tmp_path / "uv.lock").write_text(
        f'[[package]]\nname = "a-rocm"\nwheels = [{{ url = "ssh://x/a_rocm-1-{TAG}.whl", hash = "sha256:{"0" * 64}" }}]\n'
    )
    with pytest.raises(UsageError, match="none of https, http or file"):
        fetch_locked(tmp_path / "uv.lock", None, lambda _: None)
