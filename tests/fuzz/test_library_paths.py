"""Random LD_LIBRARY_PATHs, with a result of ``--search-path runpath`` and one of ``rpath``: which files the real loader takes.

The prediction must be what ld.so says, and with a DT_RPATH nothing may change but what a finding named. RELINK_FUZZ_PATHS
(10,000) are tried in `make fuzz`.
"""

from __future__ import annotations

import os
import random
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from relink.library import plan, relink
from relink.loader.search import Environment
from relink.loader.seen_files import Files
from relink.loader.target import GLIBC_SONAMES, find_target
from relink.planning.options import Options
from tests.fuzz.conftest import COUNTED, SEED
from tests.support.amount import amount
from tests.support.cc import shared
from tests.support.real_loader import Answer, really_trace, simulated_trace
from tests.support.wheels import make_wheel

LONG = int(os.environ.get("RELINK_FUZZ_PATHS", "10000"))
BESIDE = "-Wl,--enable-new-dtags,-rpath,$ORIGIN"
OWN, DEPENDS = "libown.so.1", "libdepends.so.1"
# By ld.so.cache, and by a RUNPATH that leads to a directory which is none of the prefix's.
NAMED = frozenset({"libgcc_s.so.1", "libfive.so.1"})
SONAMES = ("libhip.so.7", "libone.so.1", "libtwo.so.1", "libthree.so.1", "libfour.so.1", *NAMED, OWN, DEPENDS)


def _library(path: Path, *needed: Path | str, flags: tuple[str, ...] = ()) -> Path:
    return shared(
        path, f"int in_{len(needed)}(void){{return 1;}}", needed=needed, flags=["-Wl,--no-as-needed", *flags]
    )


def _build(root: Path) -> dict[str, Path]:
    """Return the relinked member for each kind of search path."""
    lib = root / "rocm" / "lib"
    five = _library(root / "elsewhere" / "libfive.so.1")
    three = _library(lib / "libthree.so.1")
    two = _library(lib / "libtwo.so.1", three, flags=("-Wl,--disable-new-dtags,-rpath,$ORIGIN",))
    one = _library(lib / "libone.so.1", two)
    four = _library(
        lib / "libfour.so.1", five, flags=("-Wl,--enable-new-dtags,-rpath,$ORIGIN/../../elsewhere",)
    )
    hip = _library(lib / "libhip.so.7", one, four, "-lgcc_s", flags=(BESIDE,))
    depends = _library(root / "members" / DEPENDS)
    own = _library(root / "members" / OWN, depends, flags=(BESIDE,))
    member = _library(root / "members" / "a.so", hip, own, flags=(f"{BESIDE}/libs",))
    files: dict[str, bytes | Path] = {
        "demo/__init__.py": b"",
        "demo/a.so": member,
        f"demo/libs/{OWN}": own,
        f"demo/libs/{DEPENDS}": depends,
    }
    made: dict[str, Path] = {}
    for kind in ("runpath", "rpath"):
        options = Options(prefixes=(str(root / "rocm"),), output_directory=root / kind, search_path=kind)
        report = relink(make_wheel(root / "vendor", files), options)
        assert report.output is not None, report.findings
        if kind == "rpath":
            assert {item.subject for item in report.findings if item.code == "RLK209"} == NAMED
        with zipfile.ZipFile(root / kind / Path(report.output.path).name) as wheel:
            wheel.extractall(root / kind)
        made[kind] = root / kind / "demo" / "a.so"
    return made


def _decoys(root: Path, chance: random.Random) -> list[str]:
    """Return directories with other versions of the libraries, and with what is none."""
    other = _library(root / "other.so").read_bytes()
    foreign = other[:4] + b"\x01" + other[5:]
    makers: tuple[Callable[[Path], object], ...] = (
        lambda path: _library(path, flags=("-Wl,-soname,other.so.2",)),
        _library,
        _library,
        lambda path: path.write_bytes(foreign),
        lambda path: path.write_bytes(other[:40]),
        lambda path: path.write_text("/* a linker script */"),
        lambda path: path.mkdir(),
        lambda path: path.symlink_to(path.name),
    )
    # Most directories have libraries alone: a file that is none ends the load.
    for number in range(20):
        directory = root / f"d{number}"
        directory.mkdir(parents=True)
        usual = makers[:4] if number % 4 else makers
        for soname in chance.sample(SONAMES, chance.randrange(1, 5)):
            chance.choice(usual)(directory / soname)
    return [str(root / f"d{number}") for number in range(20)]


def _tell(root: Path, library_path: str, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The libraries that relink says are replaced, where its own shell has that LD_LIBRARY_PATH."""
    (wheel,) = (root / "vendor").glob("*.whl")
    with monkeypatch.context() as patched:
        patched.setenv("LD_LIBRARY_PATH", library_path)
        planned = plan(wheel, Options(prefixes=(str(root / "rocm"),), search_path="runpath"))
    return {item.subject for item in planned.findings if item.code == "RLK210"}


def test_random_library_paths(
    tmp_path: Path, record_property: Callable[[str, object], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    _run(amount(500), 54, tmp_path, record_property, monkeypatch)


@pytest.mark.fuzz
def test_many_library_paths(
    tmp_path: Path, record_property: Callable[[str, object], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    _run(LONG, SEED, tmp_path, record_property, monkeypatch)


def _run(
    count: int,
    seed: int,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chance = random.Random(seed)
    members, target = _build(tmp_path), find_target()
    places = [*_decoys(tmp_path / "decoys", chance), "", ".", "/nonexistent", "$ORIGIN/libs", "d1"]
    cwd = tmp_path / "decoys" / "d2"
    counts: Counter[str] = Counter(paths=count)

    def ask(kind: str, library_path: tuple[str, ...]) -> Answer:
        environment = Environment(target, Files(), library_path, str(cwd))
        real = really_trace(environment, str(members[kind]))
        said = simulated_trace(environment, str(members[kind]))
        assert real.agrees_with(said), (kind, library_path, real, said)
        return real

    usual = {kind: dict(ask(kind, ()).rows) for kind in members}
    monkeypatch.chdir(cwd)
    for number in range(count):
        library_path = tuple(chance.choices(places, k=chance.randrange(1, 5)))
        for kind in members:
            answer = ask(kind, library_path)
            if answer.fatal is not None:
                changed = {os.path.basename(answer.fatal)}
                counts[f"{kind}: does not load"] += 1
            else:
                rows = dict(answer.rows)
                # Any process has mapped the C library before.
                changed = {
                    name for name in usual[kind].keys() - GLIBC_SONAMES if rows.get(name) != usual[kind][name]
                }
            counts[f"{kind}: a file changed"] += bool(changed)
            counts[f"{kind}: a file that is not named changed"] += bool(changed - NAMED)
            if kind == "runpath" and number % 20 == 0 and not any("$" in entry for entry in library_path):
                told = _tell(tmp_path, ":".join(library_path), monkeypatch)
                own = {name for name in changed - NAMED if answer.fatal or name in rows}
                # What the member of the wheel needs is told as well where that member is loaded by itself.
                more = told - NAMED - own - {DEPENDS}
                assert own <= told, (library_path, told, changed)
                assert not more or answer.fatal, (library_path, told, changed)
                counts["RLK210 told"] += bool(told)
    for name, value in counts.items():
        record_property(COUNTED + name, value)
    assert counts["rpath: a file that is not named changed"] == 0, counts
    assert counts["runpath: a file that is not named changed"] > count // 4, counts
