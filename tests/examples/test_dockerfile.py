"""The Dockerfile: the stage that relinks, run step by step against an unpacked root of Debian.

No image is built: that takes a container engine, and 1.7 GB of packages for what these steps do not touch.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.examples.conftest import linked
from tests.support.built import ROOT, build, own_python_first, skip_without_index, venv_on_ours

PROVIDER = "onnxruntime/capi/libonnxruntime_providers_migraphx.so"


@dataclass(frozen=True)
class Stage:
    """``FROM base AS name``, and (instruction, arguments) of what follows."""

    base: str
    name: str
    steps: tuple[tuple[str, str], ...]


def _stages() -> list[Stage]:
    text = (ROOT / "examples/dockerfile/Dockerfile").read_text(encoding="utf-8")
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    found: list[Stage] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        instruction, _, arguments = line.partition(" ")
        if instruction == "FROM":
            base, _, name = arguments.partition(" AS ")
            found.append(Stage(base, name, ()))
        else:
            stage = found.pop()
            found.append(Stage(stage.base, stage.name, (*stage.steps, (instruction, arguments))))
    return found


def _root(prefix: Path, directory: Path) -> Path:
    """Return a root as an image has it: the unpacked packages, and the links that Debian's base-files brings."""
    root = directory / "root"
    root.mkdir()
    linked(prefix, root / "usr")
    for name in ("lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    return root


def test_the_stages() -> None:
    rocm, relink, image = _stages()
    assert (rocm.name, relink.name, image.base) == ("rocm", "relink", "rocm")
    assert {instruction for stage in _stages() for instruction, _ in stage.steps} <= {
        "RUN", "WORKDIR", "COPY", "ENTRYPOINT",
    }  # fmt: skip
    assert "--sysroot root" in relink.steps[-1][1]
    assert not any("relink" in arguments.replace("from=relink", "") for _, arguments in image.steps)


@pytest.mark.real
def test_the_stage_that_relinks(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, small_prefix: Path
) -> None:
    if os.geteuid():
        pytest.skip("the loader of another root can only be asked by root (chroot)")
    environment = own_python_first()
    environment["PATH"] = f"{venv_on_ours(tmp_path / 'python')}:{environment['PATH']}"
    if wheels := os.environ.get("RELINK_REAL_WHEELS"):
        environment["PIP_FIND_LINKS"] = f"{environment.get('PIP_FIND_LINKS', '')} {wheels}".strip()
    root = _root(small_prefix, tmp_path)
    stage = _stages()[1]
    for instruction, arguments in stage.steps:
        if instruction == "WORKDIR":
            directory = tmp_path / arguments.lstrip("/")
            directory.mkdir()
        elif instruction == "COPY":
            assert arguments == ". relink/"
            build(tmp_path_factory).unpack(directory)
        else:
            mounts = re.findall(r"--mount=(\S+) +", arguments)
            for mount in mounts:
                # rw: the dry run puts its files into the root for a moment; what is written there is not kept.
                assert mount == "type=bind,from=rocm,target=/build/root,rw"
                root.rename(directory / "root")
            command = re.sub(r"--mount=\S+ +", "", arguments)
            done = subprocess.run(
                ["/bin/sh", "-c", command],
                cwd=directory,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                skip_without_index(done.stdout + done.stderr)
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    (wheel,) = (directory / "dist").glob("*.whl")
    _loads_in(directory / "root", wheel)


def _loads_in(root: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (plan,) = (name for name in archive.namelist() if name.endswith(".dist-info/relink.json"))
        files = {file["path"]: file for file in json.loads(archive.read(plan))["files"]}
        archive.extractall(root / "app")
    assert files[PROVIDER]["rpath"]["after"] == "/usr/lib/x86_64-linux-gnu"  # as seen inside of the image
    loader = "/lib64/ld-linux-x86-64.so.2"
    done = subprocess.run(
        ["chroot", root, loader, "--list", f"/app/{PROVIDER}"], capture_output=True, text=True, check=False
    )
    assert "not found" not in done.stdout
    assert "libmigraphx_c.so.3 => /usr/lib/x86_64-linux-gnu/libmigraphx_c.so.3" in done.stdout
    assert "libmigraphx.so.2014000 => /usr/lib/x86_64-linux-gnu/migraphx/lib/" in done.stdout
