"""Real wheels and real prefixes, brought once into .cache/real; a test that cannot have them skips and says why."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "real"


@contextmanager
def _locked(name: str) -> Iterator[None]:
    """Let one test process at a time fetch something; the others find it there."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def fetch_wheel(requirement: str, pattern: str, python: str = "3.12") -> Path:
    """Return a vendor's wheel: from RELINK_REAL_WHEELS, the cache, or the package index."""
    given = os.environ.get("RELINK_REAL_WHEELS")
    directory = Path(given) if given else CACHE / "wheels"
    with _locked("wheels"):
        found = sorted(directory.glob(pattern))
        if not found and not given:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
            command += ["--python-version", python, "--dest", str(directory), requirement]
            for platform in ("2_34", "2_28", "2_27", "2_24", "2_17"):
                command += ["--platform", f"manylinux_{platform}_x86_64"]
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            if run.returncode != 0:
                pytest.skip(
                    f"{requirement} cannot be downloaded here: {(run.stderr.strip() or 'no reason given').splitlines()[-1]}"
                )
            found = sorted(directory.glob(pattern))
    if not found:
        pytest.skip(f"{requirement} is not in RELINK_REAL_WHEELS")
    return found[0]


def fetch_prefix(size: str) -> Path:
    """Return a real ROCm prefix (DIR/usr): from RELINK_REAL_PREFIX_SMALL or _FULL, the cache, or the distribution."""
    given = os.environ.get(f"RELINK_REAL_PREFIX_{size.upper()}")
    if given:
        return Path(given)
    if size == "full" and not os.environ.get("RELINK_REAL_FETCH_FULL"):
        pytest.skip("the full prefix (1.7 GB) is fetched only with RELINK_REAL_FETCH_FULL=1")
    directory = CACHE / f"{size}7"
    ready = directory / "ready"
    with _locked(f"prefix-{size}"):
        if not ready.exists():
            script = ROOT / "scripts" / "fetch-rocm-prefix"
            run = subprocess.run(
                [str(script), str(directory), size, "7"], capture_output=True, text=True, check=False
            )
            if run.returncode != 0:
                reason = (run.stderr.strip() or "no reason given").splitlines()[-1]
                pytest.skip(f"the {size} ROCm prefix cannot be fetched here: {reason}")
            ready.touch()
    return directory / "usr"


@pytest.fixture(scope="session")
def small_prefix() -> Path:
    return fetch_prefix("small")


@pytest.fixture(scope="session")
def full_prefix() -> Path:
    return fetch_prefix("full")


@pytest.fixture(scope="session")
def migraphx_wheel() -> Path:
    return fetch_wheel("onnxruntime-migraphx==1.27.1", "onnxruntime_migraphx-1.27.1-cp312-*.whl")


@pytest.fixture(scope="session")
def rocm_wheel() -> Path:
    return fetch_wheel("onnxruntime-rocm==1.22.2.post3", "onnxruntime_rocm-1.22.2.post3-cp312-*.whl")


@pytest.fixture(scope="session")
def jax_plugin_wheel() -> Path:
    return fetch_wheel("jax-rocm7-plugin==0.12.0", "jax_rocm7_plugin-0.12.0-cp312-*.whl")


@pytest.fixture(scope="session")
def bitsandbytes_wheel() -> Path:
    return fetch_wheel("bitsandbytes==0.50.2", "bitsandbytes-0.50.2-*.whl")


@pytest.fixture(scope="session")
def aiter_wheel() -> Path:
    return fetch_wheel("amd-aiter==0.1.7.post2.dev18", "amd_aiter-0.1.7.post2.dev18-*.whl")


@pytest.fixture(scope="session")
def jax_pjrt_wheel() -> Path:
    return fetch_wheel("jax-rocm7-pjrt==0.12.0", "jax_rocm7_pjrt-0.12.0-*.whl")
