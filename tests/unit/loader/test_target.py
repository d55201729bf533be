"""The target: this system's own loader, and everything that is none."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from relink.loader.loading import load
from relink.loader.search import Environment
from relink.loader.seen_files import Files
from relink.loader.target import GLIBC_SONAMES, find_target
from relink.system.errors import TargetError
from tests.support.cc import cc
from tests.support.elf_builder import SUPPORTED, WHY_NOT, Library

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)


def test_this_system() -> None:
    target = find_target()
    assert target.python == os.path.realpath(f"/proc/{os.getpid()}/exe")
    assert target.glibc == os.confstr("CS_GNU_LIBC_VERSION").split()[1]  # type: ignore[union-attr]
    assert target.header.machine == 62
    assert target.directories
    assert not any(directory.endswith("/") for directory in target.directories)
    assert all(name.startswith("x86-64-v") for name in target.hwcaps)
    assert os.path.exists(os.path.join(target.libc_directory, "libc.so.6"))


def test_directories_are_those_of_the_loaders_own_help() -> None:
    target = find_target()
    run = subprocess.run([target.interpreter, "--help"], capture_output=True, text=True, check=True)
    told = [line.split()[0] for line in run.stdout.splitlines() if line.endswith("(system search path)")]
    assert list(target.directories) == told
    active = [line.split()[0] for line in run.stdout.splitlines() if line.endswith("(supported, searched)")]
    active = [
        name for name in active if name.startswith("x86-64-v")
    ]  # before 2.37 older kinds are listed too
    assert list(target.hwcaps) == active


def test_the_same_as_the_loader_lists() -> None:
    """What is read from the search trace is what ``--list-diagnostics`` says where a loader has it (glibc 2.33 and newer)."""
    target = find_target()
    run = subprocess.run(
        [target.interpreter, "--list-diagnostics"], env={}, capture_output=True, text=True, check=True
    )
    facts = dict(re.findall(r'^(\S+?)="(.*?)"$', run.stdout, re.MULTILINE))
    directories = [value.rstrip("/") for key, value in facts.items() if key.startswith("path.system_dirs")]
    assert (target.glibc, target.lib) == (facts["version.version"], facts["dl_dst_lib"])
    assert target.platform == facts.get("dl_platform", "")
    assert target.cache_path == facts["path.sysconfdir"] + "/ld.so.cache"
    assert list(target.directories) == directories


def test_what_is_asked_is_not_what_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = find_target()
    monkeypatch.setenv("LD_LIBRARY_PATH", "/somewhere:/else")
    monkeypatch.setenv("LD_DEBUG", "all")
    assert find_target() == plain


def test_named_python_and_named_loader() -> None:
    plain = find_target()
    assert find_target(python=sys.executable) == plain
    named = find_target(interpreter=plain.interpreter)
    assert named.python is None
    assert named.directories == plain.directories


def test_a_link_to_python_is_followed(tmp_path: Path) -> None:
    (tmp_path / "python").symlink_to(os.path.realpath(sys.executable))
    assert find_target(python=str(tmp_path / "python")).python == os.path.realpath(sys.executable)


@pytest.mark.parametrize("kind", ["missing", "text", "empty", "directory", "library", "other machine"])
def test_no_loader(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "ld.so"
    match kind:
        case "text":
            path.write_text("#!/bin/sh\necho hello\n")
        case "empty":
            path.write_bytes(b"")
        case "directory":
            path.mkdir()
        case "library":
            Library(soname="liba.so").write(path)
        case "other machine":
            Library(soname="ld.so", machine=183).write(path)
        case _:
            pass
    with pytest.raises(TargetError) as caught:
        find_target(interpreter=str(path))
    assert "ld.so" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "NIX_LD_LIBRARY_PATH",
            r"ld\.so is nix-ld, which starts another loader; name that one: --interpreter /nix/ld\.so",
        ),
        (
            "https://nix.dev/permalink/stub-ld",
            r"ld\.so is the stub that NixOS has where others have the loader",
        ),
    ],
)
def test_what_nixos_has_in_the_place_of_the_loader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    """Programs that do what those of nixpkgs do when they are called by themselves: they say something and fail."""
    monkeypatch.setenv("NIX_LD", "/nix/ld.so")
    program = f'extern int puts(const char *);\nint main(void) {{ puts("{text}"); return 127; }}'
    cc(program, tmp_path / "ld.so")
    with pytest.raises(TargetError, match=said):
        find_target(interpreter=str(tmp_path / "ld.so"))


def test_a_program_that_is_no_loader(tmp_path: Path) -> None:
    program = Library(needed=("libc.so.6",), interpreter=find_target().interpreter).write(tmp_path / "prog")
    with pytest.raises(TargetError, match="does not answer like glibc's loader"):
        find_target(interpreter=str(program))


@pytest.mark.parametrize("kind", ["missing", "fails", "silent", "no program"])
def test_no_python(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "python"
    if kind != "missing":
        path.write_text({"fails": "#!/bin/sh\nexit 3\n", "silent": "#!/bin/sh\n"}.get(kind, "text"))
        path.chmod(path.stat().st_mode | (stat.S_IXUSR if kind != "no program" else 0))
    with pytest.raises(TargetError, match="--python"):
        find_target(python=str(path))


def test_no_sysroot(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="no such directory"):
        find_target(sysroot=str(tmp_path / "none"))
    with pytest.raises(TargetError, match="no dynamic loader in it"):
        find_target(sysroot=str(tmp_path))


def test_sysroot(tmp_path: Path) -> None:
    """A sysroot that holds this loader: its cache is the one inside, and host paths below it are taken for inner ones."""
    plain = find_target()
    inner = tmp_path.resolve() / "lib64"
    inner.mkdir()
    shutil.copy2(os.path.realpath(plain.interpreter), inner / "ld-linux-x86-64.so.2")
    target = find_target(sysroot=str(tmp_path.resolve()))
    assert target.interpreter == "/lib64/ld-linux-x86-64.so.2"
    assert target.cache is None
    assert target.directories == plain.directories
    assert target.libc_directory == "/lib64"
    assert (
        find_target(sysroot=str(tmp_path.resolve()), interpreter=str(inner / "ld-linux-x86-64.so.2"))
        == target
    )


def test_the_process_of_python_itself() -> None:
    """What the simulation maps for the Python that runs is what /proc says is mapped in it."""
    target = find_target()
    assert target.python is not None
    program = subprocess.run(
        [target.python, "-S", "-c", "print(open('/proc/self/maps').read())"],
        capture_output=True,
        text=True,
        check=True,
        env={key: value for key, value in os.environ.items() if not key.startswith("LD_")},
    )
    mapped = {os.path.realpath(line.split()[5]) for line in program.stdout.splitlines() if ".so" in line}
    closure = load(Environment(target, Files()), [], target.python)
    assert closure.loads
    simulated = {os.path.realpath(entry.path) for entry in closure.objects[1:]}
    assert simulated <= mapped
    extensions = {path for path in mapped - simulated if "/lib-dynload/" in path}
    assert mapped - simulated == extensions
    assert {entry.image.soname for entry in closure.objects} & GLIBC_SONAMES >= {"libc.so.6"}
