"""What the tests stand on: the cache of compiled files, and that `make test` uses nothing from outside."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support import cc as compiling
from tests.support.amount import FACTORS
from tests.support.cc import cc, shared
from tests.support.outside import OFFLINE, inside

ROOT = Path(__file__).resolve().parents[2]


# Compiled files


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Path]:
    """An empty cache, and the outputs that were really made."""
    made: list[Path] = []
    really = subprocess.run

    def run(command: list[str], **options: object) -> object:
        if "-o" in command and not command[-1].startswith(str(compiling.CACHE)):
            made.append(Path(command[-1]))
        return really(command, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(compiling, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(subprocess, "run", run)
    return made


def test_the_same_is_compiled_once(calls: list[Path], tmp_path: Path) -> None:
    first = shared(tmp_path / "1/libx.so", "int f(void){return 1;}")
    again = shared(tmp_path / "2/libx.so", "int f(void){return 1;}")
    assert calls == [first]
    assert again.read_bytes() == first.read_bytes()
    assert again.stat().st_mode == first.stat().st_mode


def test_what_differs_is_compiled_again(calls: list[Path], tmp_path: Path) -> None:
    source = "extern int f(void); int g(void){return f();}"
    one = shared(tmp_path / "1/libx.so", "int f(void){return 1;}")
    two = shared(tmp_path / "2/libx.so", "int f(void){return 1;}", soname="liby.so")  # another soname
    other = shared(tmp_path / "3/libx.so", "int f(void){return 2;}")  # another source
    made = [
        shared(tmp_path / f"{number}/libg.so", source, needed=[path])
        for number, path in enumerate((one, two))
    ]
    flagged = shared(tmp_path / "4/libx.so", "int f(void){return 1;}", flags=["-O0"])
    assert calls == [one, two, other, *made, flagged]
    assert made[0].read_bytes() != made[1].read_bytes()


def test_a_change_of_a_copy_does_not_reach_the_cache(calls: list[Path], tmp_path: Path) -> None:
    first = shared(tmp_path / "1/libx.so", "int f(void){return 1;}")
    right = first.read_bytes()
    first.write_bytes(b"changed")
    second = shared(tmp_path / "2/libx.so", "int f(void){return 1;}")
    second.write_bytes(b"changed")
    assert shared(tmp_path / "3/libx.so", "int f(void){return 1;}").read_bytes() == right
    assert calls == [first]


def test_what_has_a_path_in_it_is_not_kept(calls: list[Path], tmp_path: Path) -> None:
    """A library without DT_SONAME is needed by the path by which it was named."""
    source = "extern int f(void); int g(void){return f();}"
    libraries = [
        shared(tmp_path / f"{number}/libx.so", "int f(void){return 1;}", soname="") for number in (1, 2)
    ]
    made = [shared(tmp_path / f"{path.parent.name}/g.so", source, needed=[path]) for path in libraries]
    assert calls == [libraries[0], *made]
    assert all(os.fsencode(path) in result.read_bytes() for path, result in zip(libraries, made, strict=True))


def test_files_that_flags_name_are_read_anew(
    calls: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/elsewhere")  # as some tests set it
    script = tmp_path / "script"
    for version in ("V1", "V2"):
        script.write_text(f"{version} {{ f; }};")
        flags = [f"-Wl,--version-script={script}"]
        made = shared(tmp_path / "libx.so", "int f(void){return 1;}", flags=flags)
        assert version.encode() in made.read_bytes()
    assert len(calls) == 2
    shared(tmp_path / "again/libx.so", "int f(void){return 1;}", flags=flags)
    assert len(calls) == 2  # the same content


def test_the_same_source_is_compiled_once(calls: list[Path], tmp_path: Path) -> None:
    """Two libraries are linked of it."""
    for name in ("libx.so", "liby.so"):
        shared(tmp_path / name, "int f(void){return 1;}", flags=[f"-Wl,-rpath,{tmp_path}"])
    assert len(calls) == 2
    assert len([*compiling.CACHE.glob("*.o")]) == 1


def test_files_that_the_source_names_are_read_anew(calls: list[Path], tmp_path: Path) -> None:
    for content in (b"one", b"two"):
        (tmp_path / "file").write_bytes(content)
        source = f'__asm__(".section .rodata\\n.incbin \\"{tmp_path}/file\\"\\n.previous");'
        assert content in shared(tmp_path / "libx.so", source).read_bytes()
    assert len(calls) == 2


def test_an_error_of_the_compiler_is_told_each_time(calls: list[Path], tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(RuntimeError, match="error"):
            cc("this is no C", tmp_path / "x", "-c")
    assert len(calls) == 2
    assert not (tmp_path / "cache").exists()


# Nothing from outside


def test_the_network_is_refused() -> None:
    with inside() as refused, socket.socket() as ours:
        with pytest.raises(RuntimeError, match="may not use"):
            ours.connect(("192.0.2.1", 9))  # RFC 5737: an address of nobody
        with pytest.raises(RuntimeError, match="may not use"):
            socket.getaddrinfo("example.invalid", 80)
    assert len(refused) == 2


def test_local_sockets_are_not(tmp_path: Path) -> None:
    with inside() as refused, socket.socket(socket.AF_UNIX) as ours, socket.socket() as loopback:
        ours.bind(str(tmp_path / "s"))
        loopback.bind(("127.0.0.1", 0))
    assert refused == []


@pytest.mark.parametrize("program", ["nix-build", "chromium", "docker"])
def test_programs_from_outside_are_refused(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with inside() as refused, pytest.raises(RuntimeError, match=f"the program {program}"):
        subprocess.run([program, "--version"], check=False)
    assert len(refused) == 1
    stand_in = tmp_path / program
    stand_in.write_text("#!/bin/sh\n")
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with inside() as refused:
        subprocess.run([program], check=True)
    assert refused == []


@pytest.mark.slow(reason="a pytest within pytest")
def test_a_test_that_leaves_fails(tmp_path: Path) -> None:
    """Also where it catches the error; and a marker allows it."""
    (tmp_path / "test_x.py").write_text(
        "import pytest, socket\n"
        "def leave():\n"
        "    try:\n"
        "        socket.create_connection(('192.0.2.1', 9), timeout=0.01)\n"
        "    except Exception:\n"
        "        pass\n"
        "def test_refused(): leave()\n"
        "@pytest.mark.network\n"
        "def test_allowed(): leave()\n"
    )
    # A conftest.py applies to what lies below it: this one takes the place of tests/conftest.py.
    (tmp_path / "conftest.py").write_text(
        "from tests.conftest import _offline, emitted, empty_lists, pytest_configure\n"
        "__all__ = ['_offline', 'emitted', 'empty_lists']\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-c",
        str(ROOT / "pyproject.toml"),
        "--rootdir",
        str(ROOT),
    ]
    ended = subprocess.run(
        [*command, "-p", "no:cacheprovider", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 error" in ended.stdout, ended.stdout
    assert "2 passed" in ended.stdout, ended.stdout


def test_pip_and_uv_are_offline() -> None:
    assert {name: os.environ.get(name) for name in OFFLINE} == OFFLINE


# How much is tried


def test_no_such_profile() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", "from tests.support.amount import load_profile; load_profile()"],
        cwd=ROOT,
        env=os.environ | {"RELINK_TESTS": "slow"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"the profiles are {', '.join(FACTORS)}" in ended.stderr


@pytest.mark.slow(reason="three times a pytest within pytest")
def test_fast_and_rest_are_all() -> None:
    """Both have only the modules where inputs are generated."""

    def collect(profile: str, expression: str) -> set[str]:
        paths = "testpaths=tests/fuzz tests/unit/cli tests/unit/wheel"
        command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-m", expression, "-o", paths]
        environment = os.environ | {"RELINK_TESTS": profile}
        ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
        return {line for line in ended.stdout.splitlines() if "::" in line}

    fast, rest, everything = collect("fast", ""), collect("rest", "not fuzz"), collect("all", "not fuzz")
    assert fast | rest == everything
    both = {test.split("::")[0].removeprefix("tests/") for test in fast & rest}
    assert both >= {"unit/wheel/test_naming.py"}
    assert not {"fuzz/test_splice.py", "unit/wheel/test_archive.py", "unit/cli/test_relinking.py"} & both
