"""Wheels of which an installer makes something else than was proved: what relink, pip and `installer` do with each."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import installer
import pytest
from installer.destinations import SchemeDictionaryDestination
from installer.sources import WheelFile

from relink.system.errors import WheelError
from relink.wheel.archive import WheelArchive
from relink.wheel.schemes import find_members_past_schemes, find_scheme_defects
from tests.support import wheels
from tests.support.command import Run
from tests.support.works import Works
from tests.unit.wheel.build import make_wheel

SLOW = pytest.mark.slow(reason="pip runs, or many members")

PYTHON = f"python{sys.version_info[0]}.{sys.version_info[1]}"
NAME = "demo_pkg-1.0-py3-none-any.whl"
DATA = "demo_pkg-1.0.data"
SITE = f"lib/{PYTHON}/site-packages"
INFO = "demo_pkg-1.0.dist-info"
HEADERS = f"include/{PYTHON}/demo-pkg"


def by_pip(wheel: Path, prefix: Path) -> str | None:
    """Install into `prefix`; returns None, or why not."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "-q",
        "--disable-pip-version-check",
        "install",
        "--no-deps",
        "--no-index",
    ]
    done = subprocess.run(
        [*command, "--no-compile", "--ignore-installed", "--prefix", str(prefix), str(wheel)],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr if done.returncode else None


def by_installer(wheel: Path, prefix: Path) -> str | None:
    site = str(prefix / SITE)
    places = {
        "purelib": site,
        "platlib": site,
        "headers": str(prefix / "include" / PYTHON / "demo-pkg"),
        "scripts": str(prefix / "bin"),
        "data": str(prefix),
    }
    try:
        with WheelFile.open(wheel) as source:
            installer.install(source, SchemeDictionaryDestination(places, sys.executable, "posix"), {})
    except Exception as error:  # noqa: BLE001 - whatever it raises is its answer
        return f"{type(error).__name__}: {error}"
    return None


A, B, C = "demo_pkg/a.so", f"{DATA}/platlib/demo_pkg/a.so", f"{DATA}/purelib/demo_pkg/a.so"
D = f"{DATA}/data/{SITE}/demo_pkg/a.so"
EXISTS = "FileExistsError"
SAME = "is installed to the same path as"


@dataclass(frozen=True)
class Case:
    """Members, each with its name as content; what relink says; and what the two installers make of it.

    :ivar pip: the member that is found at `place` afterwards, or pip's reason; `installer` likewise.
    """

    members: tuple[str, ...]
    relink: str
    place: str
    pip: str
    installer: str


CASES = {
    "platlib": Case((A, B), SAME, f"{SITE}/demo_pkg/a.so", B, EXISTS),
    "platlib first": Case((B, A), SAME, f"{SITE}/demo_pkg/a.so", B, EXISTS),
    "purelib": Case((A, C), SAME, f"{SITE}/demo_pkg/a.so", C, EXISTS),
    "purelib and platlib": Case((B, C), SAME, f"{SITE}/demo_pkg/a.so", C, EXISTS),
    "data": Case((A, D), SAME, f"{SITE}/demo_pkg/a.so", D, EXISTS),
    "scripts": Case((f"{DATA}/data/bin/x", f"{DATA}/scripts/x"), SAME, "bin/x", f"{DATA}/scripts/x", EXISTS),
    "headers": Case(
        (f"{DATA}/headers/x.h", f"{DATA}/data/{HEADERS}/x.h"),
        SAME,
        f"{HEADERS}/x.h",
        f"{DATA}/data/{HEADERS}/x.h",
        EXISTS,
    ),
    "a directory": Case(
        (A, f"{B}/x"), "needs a directory where", "", "Not a directory", "NotADirectoryError"
    ),
    "an unknown scheme": Case(
        (A, f"{DATA}/stdlib/x.py"),
        "no installer knows the scheme 'stdlib'",
        "",
        "Unknown scheme key",
        "InvalidWheelSource",
    ),
    "no scheme": Case(
        (A, f"{DATA}/x.py"), "belongs to no scheme", "", "Unexpected file", "InvalidWheelSource"
    ),
    "a directory of scripts": Case(
        (A, f"{DATA}/scripts/sub/x"),
        "uv installs no directory of scripts",
        "bin/sub/x",
        f"{DATA}/scripts/sub/x",
        f"{DATA}/scripts/sub/x",
    ),
    "another spelling": Case(
        (A, "Demo_Pkg-1.0.data/data/x"),
        "only pip takes it for the .data directory",
        f"{SITE}/Demo_Pkg-1.0.data/data/x",
        "No such file",
        "Demo_Pkg-1.0.data/data/x",
    ),
    "metadata": Case(
        (A, f"{DATA}/purelib/{INFO}/METADATA"),
        "would be installed as metadata",
        f"{SITE}/{INFO}/METADATA",
        f"{DATA}/purelib/{INFO}/METADATA",
        EXISTS,
    ),
    "metadata of another": Case(
        (A, f"{DATA}/data/{SITE}/numpy-9.dist-info/METADATA"),
        "would be installed as metadata",
        f"{SITE}/numpy-9.dist-info/METADATA",
        f"{DATA}/data/{SITE}/numpy-9.dist-info/METADATA",
        f"{DATA}/data/{SITE}/numpy-9.dist-info/METADATA",
    ),
}


def made(directory: Path, members: tuple[str, ...]) -> Path:
    return make_wheel(directory, {name: name.encode() for name in members}, filename=NAME)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_not_one_file_at_one_path_is_refused(tmp_path: Path, case: Case) -> None:
    with pytest.raises(WheelError) as caught:
        WheelArchive(made(tmp_path, case.members))
    assert any(case.relink in issue for issue in caught.value.issues), caught.value.issues


def answer(said: str | None, prefix: Path, place: str) -> str:
    return said if said is not None else (prefix / place).read_text()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_installer_does(tmp_path: Path, case: Case) -> None:
    said = by_installer(made(tmp_path, case.members), tmp_path / "prefix")
    assert answer(said, tmp_path / "prefix", case.place).startswith(case.installer)


# pip takes two seconds for each; all twelve were seen to answer like this.
@SLOW
@pytest.mark.parametrize("name", ["platlib first", "data", "an unknown scheme", "metadata"])
def test_what_pip_does(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    said = by_pip(made(tmp_path, case.members), tmp_path / "prefix")
    assert case.pip in answer(said, tmp_path / "prefix", case.place)


def test_the_command_line_refuses_it_and_writes_nothing(run: Run, works: Works, tmp_path: Path) -> None:
    files: dict[str, bytes | Path] = {
        "demo/a.so": works.library,
        "demo-1.0.data/platlib/demo/a.so": works.plain,
    }
    wheel = works.wheel(tmp_path, files)
    code, out, err = run(wheel, "--prefix", works.prefix, "-o", tmp_path / "out")
    assert (code, out) == (2, "")
    assert "is installed to the same path as 'demo/a.so'" in err
    assert not (tmp_path / "out").exists()


def test_modes(tmp_path: Path) -> None:
    """Bits that give a program another user's rights; links, devices, pipes. No installer takes them, and unzip does."""
    for mode in (0o104755, 0o102755, 0o101755, 0o4644, 0o106755):
        with pytest.raises(WheelError) as caught:
            WheelArchive(make_wheel(tmp_path, {A: b""}, modes={A: mode}))
        assert [*caught.value.issues] == [
            f"{A!r}: its mode has set-user-ID, set-group-ID or the sticky bit ({mode:#o})"
        ]
    for kind, word in (
        (0o120777, "symbolic link"),
        (0o020666, "device"),
        (0o060666, "device"),
        (0o010666, "pipe"),
    ):
        with pytest.raises(WheelError, match=word):
            WheelArchive(make_wheel(tmp_path, {A: b""}, modes={A: kind}))
    # Everybody may write: pip and `installer` take the execute bits and nothing else of a mode.
    wheel = make_wheel(tmp_path, {A: b""}, modes={A: 0o100777}, filename=NAME)
    with WheelArchive(wheel) as archive:
        assert archive.members[A].mode == 0o100777
    assert by_installer(wheel, tmp_path / "prefix") is None
    assert not (tmp_path / "prefix" / SITE / A).stat().st_mode & 0o002


def test_directories_may_have_set_group_id(tmp_path: Path) -> None:
    """They have it where a wheel was packed in a directory that has it, and every installer makes its own."""
    path = make_wheel(tmp_path, {"demo_pkg/": b"", A: b""})
    data = path.read_bytes()
    path.write_bytes(
        data.replace(
            (0o40755 << 16 | 0x10).to_bytes(4, "little"), (0o42755 << 16 | 0x10).to_bytes(4, "little")
        )
    )
    with WheelArchive(path) as archive:
        assert archive.members["demo_pkg/"].mode == 0o42755


def test_past_the_schemes() -> None:
    names = [
        A,
        B,
        D,
        f"{DATA}/data/share/x",
        f"{DATA}/data/lib/x",
        f"{DATA}/data/lib64/python3.12/site-packages/x/y",
    ]
    assert find_members_past_schemes(names, DATA) == [D, names[-1]]
    assert find_members_past_schemes(names, None) == []


@SLOW
def test_many_members_take_no_time() -> None:
    start = time.process_time()
    assert find_scheme_defects([f"{DATA}/data/{number}" + "/a" * 100 for number in range(20_000)], DATA) == []
    assert len(find_scheme_defects([f"{DATA}/x{number}" for number in range(1000)], DATA)) == 21
    assert time.process_time() - start < 5


def test_a_wheel_with_every_scheme(tmp_path: Path) -> None:
    names = [
        A,
        "demo_pkg/data/x",
        f"{DATA}/platlib/demo_pkg/b.so",
        f"{DATA}/scripts/a",
        f"{DATA}/headers/a.h",
        f"{DATA}/data/share/a",
    ]
    wheel = make_wheel(tmp_path, dict.fromkeys(names, b""), filename=NAME)
    with WheelArchive(wheel) as archive:
        assert archive.data_dir == DATA


SCRIPT = "demo-1.0.data/scripts/tool"


def open_wheel(directory: Path, text: bytes) -> None:
    members = {"demo/__init__.py": b"", SCRIPT: b"#!python\n", "demo-1.0.dist-info/entry_points.txt": text}
    with WheelArchive(wheels.make_wheel(directory, members, tag="py3-none-any")):
        pass


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"[console_scripts]\ntool = demo:main\n", "has the same path as a file of .data"),
        (b"[gui_scripts]\ntool = demo:main\n", "has the same path as a file of .data"),
        (b"[console_scripts]\nTool = demo:main\n", "has the same path as a file of .data"),
        (
            b"[console_scripts]\na = demo:b\n[gui_scripts]\na = demo:c\n",
            "has the same path as another script",
        ),
        (b"[console_scripts]\na = demo:b\na = demo:c\n", "installers read it differently"),
        (b"a = demo:b\n", "installers read it differently"),
        (b"[console_scripts]\n../a = demo:b\n", "is no script that every installer makes"),
        (b"[console_scripts]\npython = demo:b\n", "is no script that every installer makes"),
        (b"[gui_scripts]\nPython3.12 = demo:b\n", "is no script that every installer makes"),
        (b"[console_scripts]\na = demo\n", "is no script that every installer makes"),
        (b"[console_scripts]\na =\n  demo:b\n", "installers read different scripts"),
        (b"[[console_scripts]]\na = demo:b\n", "installers read"),
        (b"\xff", "installers read it differently"),
    ],
)
def test_scripts_that_installers_read_differently(tmp_path: Path, text: bytes, why: str) -> None:
    with pytest.raises(WheelError, match=why):
        open_wheel(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"# none\n",
        b"[console_scripts]\na = demo:b\nc.d-e = demo.x:f.g [more]\n\n[gui_scripts]\nh=demo:i\n",
        b"[console_scripts]\npython3-config = demo:b\npythonic = demo:c\n",
        b"[other.group]\nany thing = of it\ntool = demo:main\n",
    ],
)
def test_scripts_that_all_read_alike(tmp_path: Path, text: bytes) -> None:
    open_wheel(tmp_path, text)
