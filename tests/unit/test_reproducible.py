"""The same wheel, prefix and options give the same bytes, wherever, whenever and by whomever it is done."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.cc import shared
from tests.support.works import OUTPUT, TAG, VENDOR_PATH, Works

SLOW = pytest.mark.slow(
    reason="processes; test_same_input_same_bytes of test_relink_wheel.py has runs in one"
)

NAME = f"demo-1.0-{TAG}.whl"
EPOCH = 1_700_000_001  # odd: ZIP's times have steps of two seconds


@dataclass(frozen=True)
class Way:
    """One way to do the same."""

    words: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    umask: int = 0o022
    relative: bool = False
    touch: int | None = None


WAYS: dict[str, Way] = {
    "as it comes": Way(),
    "one thread": Way(("--jobs", "1")),
    "seven threads": Way(("--jobs", "7")),
    "little memory": Way(("--max-memory", "256", "--jobs", "3")),
    "nobody else may read": Way(umask=0o077),
    "everybody may write": Way(umask=0),
    "far east": Way(environment={"TZ": "Pacific/Kiritimati"}),
    "far west": Way(environment={"TZ": "<-12>12"}),
    "Turkish": Way(environment={"LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8"}),
    "no locale": Way(environment={"LC_ALL": "C", "PYTHONUTF8": "0"}),
    "other hashes": Way(environment={"PYTHONHASHSEED": "12345"}),
    "other hashes again": Way(environment={"PYTHONHASHSEED": "1"}),
    "from where it lies": Way(relative=True),
    "an old file": Way(touch=1_000_000_000),
    "without a home": Way(environment={"HOME": "/nonexistent", "USER": "somebody"}),
    "a wide terminal": Way(environment={"COLUMNS": "300", "FORCE_COLOR": "1"}),
    "not verified": Way(("--no-verify-record", "--no-verify")),
    "all of it": Way(
        ("--jobs", "7", "--max-memory", "256"),
        {
            "TZ": "<-12>12",
            "LC_ALL": "C",
            "PYTHONUTF8": "0",
            "PYTHONHASHSEED": "1",
            "HOME": "/nonexistent",
            "COLUMNS": "300",
        },
        umask=0o077,
        relative=True,
        touch=1_000_000_000,
    ),
}
ALWAYS = ("as it comes", "one thread", "all of it")
ONE_BY_ONE = pytest.mark.slow(reason="'all of it' has them together; apart they tell which it was")


@pytest.fixture(scope="module")
def wheel(works: Works, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Several libraries, one of which is edited without what patchelf does not touch, and data that several threads deflate."""
    directory = tmp_path_factory.mktemp("reproducible")
    stub = shared(directory / "libhip.so.7", "int hip(void){return 0;}")
    source = "extern int hip(void); int g(void){return hip();} char big[1 << 22] = {1};"
    large = shared(directory / "large.so", source, needed=[stub], flags=[VENDOR_PATH])
    files: dict[str, bytes | Path] = {f"demo/{number}.so": works.library for number in range(5)}
    files |= {"demo/large.so": large, "demo/bin/prog": works.program, "demo/__init__.py": b"x = 1\n" * 999}
    return works.wheel(directory, files).read_bytes()


def done(works: Works, wheel: bytes, place: Path, way: Way) -> Path:
    """Relink in a process of its own; returns the output."""
    place.mkdir(parents=True)
    source = place / NAME
    source.write_bytes(wheel)
    if way.touch is not None:
        os.utime(source, (way.touch, way.touch))
    out = place / "out"
    paths = [source.name, "-o", "out"] if way.relative else [str(source), "-o", str(out)]
    environment = {key: value for key, value in os.environ.items() if key != "SOURCE_DATE_EPOCH"}
    ended = subprocess.run(
        [sys.executable, "-m", "relink", *paths, "--prefix", str(works.prefix), *way.words],
        cwd=place,
        env=environment | {"PYTHONPATH": str(Path(__file__).parents[2])} | way.environment,
        umask=way.umask,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert os.listdir(out) == [OUTPUT]
    return out / OUTPUT


@pytest.fixture(scope="module")
def right(works: Works, wheel: bytes, tmp_path_factory: pytest.TempPathFactory) -> str:
    return digest(done(works, wheel, tmp_path_factory.mktemp("right") / "x", Way()))


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@SLOW
@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=() if way in ALWAYS else ONE_BY_ONE) for way in WAYS]
)
def test_same_bytes(works: Works, wheel: bytes, right: str, tmp_path: Path, way: str) -> None:
    assert digest(done(works, wheel, tmp_path / "another" / "directory", WAYS[way])) == right


@pytest.mark.slow(reason="three processes; test_pipeline and test_cli try SOURCE_DATE_EPOCH in one")
def test_the_date_is_asked_for_in_utc(works: Works, wheel: bytes, right: str, tmp_path: Path) -> None:
    """SOURCE_DATE_EPOCH is the time of what is new; the zone does not count."""
    made: set[str] = set()
    for number, zone in enumerate(("UTC", "Pacific/Kiritimati", "<-12>12")):
        way = Way(environment={"TZ": zone, "SOURCE_DATE_EPOCH": str(EPOCH)})
        path = done(works, wheel, tmp_path / str(number), way)
        made.add(digest(path))
        with zipfile.ZipFile(path) as archive:
            moments = {item.filename: item.date_time for item in archive.infolist()}
        assert moments["demo/0.so"] == (2023, 11, 14, 22, 13, 20)
        assert moments["demo/__init__.py"] == (2024, 5, 1, 12, 0, 0)
    assert len(made) == 1
    assert right not in made


@pytest.mark.slow(reason="three runs")
def test_what_is_asked_for_differently_differs(
    works: Works, wheel: bytes, right: str, tmp_path: Path
) -> None:
    """Or the other tests show nothing."""
    assert digest(done(works, wheel, tmp_path / "x", Way(("--compress", "small")))) != right


_PLAN = """
import sys
from pathlib import Path
from relink.providers.profiles import Profile
from tests.unit.planning.resolve.scenes import Scene, call, define
scene = Scene(Path(sys.argv[1]))
early = [f"demo/libearly{number}.so.1" for number in range(4)]
scene.profile = Profile("p", preload=tuple(early))
scene.substitutes = tuple((f"libold{number}.so.1", f"libold{number}.so.2") for number in range(4))
for number in range(4):
    scene.member(early[number], source=define(f"early{number}"))
    scene.provide(f"lib/lib{'even' if number % 2 else 'odd'}{number}.so.1", source=define("odd" if number % 2 else "even"))
names = [f"early{number}" for number in range(4)]
scene.member("demo/sub/a.so", [f"lib{name}.so.1" for name in names], call(*names, "odd", "even"), ["-Wl,-rpath,/x"])
for found in scene.decide().findings:
    print(found.code, found.subject, found.message, found.remedy, found.choices)
"""
"""Four libraries that preloaded members bring, four options for nothing, and imports that several pairs of libraries export."""


@SLOW
def test_no_finding_depends_on_hashes(tmp_path: Path) -> None:
    """The findings of a plan, and what they list, have the order of the files: the plan is written into the output."""
    printed = {
        subprocess.run(
            [sys.executable, "-c", _PLAN, str(tmp_path)],
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(5)
    }
    (lines,) = printed
    for code in ("RLK109", "RLK115", "RLK302"):
        assert code in lines
