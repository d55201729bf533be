"""``--search-path``: the kind of entry that is written, and what LD_LIBRARY_PATH then comes before."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.cc import shared
from tests.support.command import Run
from tests.support.wheels import make_wheel
from tests.support.works import TAG
from tests.unit.planning.resolve.scenes import Scene, codes

BESIDE = "-Wl,--enable-new-dtags,-rpath,$ORIGIN"


def scene(tmp_path: Path, kind: str) -> Scene:
    """libhip.so.7 finds what it needs by a RUNPATH of its own; the member needs libhip alone."""
    made = Scene(tmp_path, search_path=kind)
    made.provide("lib/libdeep.so.1")
    made.provide("lib/libhip.so.7", ["libdeep.so.1"], flags=[BESIDE])
    made.member("demo/a.so", ["libhip.so.7"])
    return made


@pytest.mark.parametrize("kind", ["auto", "runpath"])
def test_a_runpath_where_it_reaches(tmp_path: Path, kind: str) -> None:
    (outcome,) = scene(tmp_path, kind).decide().outcomes.values()
    assert (outcome.strategy, outcome.image.search_kind, outcome.edit.add) == ("runpath", "runpath", ())


def test_libraries_below_a_runpath_are_flattened(tmp_path: Path) -> None:
    """A DT_RPATH does not count for what has a RUNPATH; what is NEEDED of the member itself is found by it."""
    made = scene(tmp_path, "rpath")
    made.provide("lib/libhip.so.7", ["libdeep.so.1", "libgcc_s.so.1"], flags=[BESIDE])
    draft = made.decide()
    (outcome,) = draft.outcomes.values()
    assert (outcome.image.rpath, outcome.image.runpath) == (f"{made.prefix}/lib", None)
    assert outcome.edit.add == ("libdeep.so.1",)
    found = {item.code: (item.subject, item.message) for item in draft.findings}
    assert found["RLK206"][1].startswith("LD_LIBRARY_PATH does not come before a DT_RPATH")
    assert found["RLK209"][0] == "libgcc_s.so.1"
    assert codes(draft).count("RLK209") == 1
    assert draft.files[0].rpath.kind_after == "rpath"


def test_a_file_that_loads_by_a_runpath_is_edited(tmp_path: Path) -> None:
    """Where a DT_RPATH is asked for; without, it stays as it is."""
    for kind, strategy in (("auto", "nothing"), ("rpath", "rpath")):
        made = Scene(tmp_path / kind, search_path=kind)
        made.provide("lib/libelse.so.1")
        made.member("demo/libown.so.1")
        made.member("demo/a.so", ["libown.so.1"], flags=[BESIDE])
        made.member("demo/b.so", ["libown.so.1"], flags=["-Wl,--disable-new-dtags,-rpath,$ORIGIN"])
        outcomes = made.decide().outcomes
        assert outcomes["demo/a.so"].strategy == strategy
        assert outcomes["demo/a.so"].image.search_kind == ("runpath" if kind == "auto" else "rpath")
        assert outcomes["demo/b.so"].strategy == "nothing"
        assert outcomes["demo/libown.so.1"].strategy == "nothing"


def test_no_rpath_where_a_runpath_is_asked_for(tmp_path: Path) -> None:
    """By itself a library that cannot find its own gets a DT_RPATH of what needs it; with ``runpath`` it is flattened."""
    for kind, strategy in (("auto", "rpath"), ("runpath", "flatten")):
        made = Scene(tmp_path / kind, search_path=kind)
        made.provide("lib/libdeep.so.1")
        made.provide("lib/libhip.so.7", ["libdeep.so.1"])
        made.member("demo/a.so", ["libhip.so.7"])
        (outcome,) = made.decide().outcomes.values()
        assert outcome.loads
        assert outcome.strategy == strategy


def calls_g(output: Path, library_path: str) -> int:
    """What g() of the relinked member gives in a shell with that LD_LIBRARY_PATH: by the real loader."""
    with zipfile.ZipFile(output) as wheel:
        wheel.extractall(output.parent / "site")
    code = f"import ctypes; print(ctypes.CDLL({str(output.parent / 'site/demo/a.so')!r}).g())"
    environment = {**os.environ, "LD_LIBRARY_PATH": library_path}
    return int(
        subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True).stdout
    )


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A wheel that needs libhip.so.7 of the ROCm in ``rocm``, which finds libdeep.so.1 by a RUNPATH; g() is 42."""
    deep = shared(tmp_path / "rocm/lib/libdeep.so.1", "int deep(void){return 40;}")
    source = "extern int deep(void); int hip(void){return deep() + 1;}"
    hip = shared(tmp_path / "rocm/lib/libhip.so.7", source, needed=[deep], flags=[BESIDE])
    member = shared(tmp_path / "a.so", "extern int hip(void); int g(void){return hip() + 1;}", needed=[hip])
    return make_wheel(tmp_path / "vendor", {"demo/__init__.py": b"", "demo/a.so": member}, tag=TAG)


def test_a_shell_that_replaces_a_library(
    run: Run, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told with the file, and the printed command was tried: what it writes is not changed by that shell."""
    prefix, other = tmp_path / "rocm", tmp_path / "module/lib"
    shared(other / "libdeep.so.1", "int deep(void){return 5;}")
    words = (wheel, "--prefix", prefix, "-o", tmp_path / "out")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{prefix}/lib:{other}")
    assert "RLK210" not in run(*words, "--dry-run")[1]
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{other}:{prefix}/lib")
    code, out, _ = run(*words)
    assert code == 0
    told = f"comes before what finds it, and has {other}/libdeep.so.1\n    → Pass --search-path rpath\n"
    assert f"warning RLK210 libdeep.so.1: LD_LIBRARY_PATH of this shell {told}" in out
    (output,) = (tmp_path / "out").iterdir()
    assert calls_g(output, f"{other}") == 7
    with zipfile.ZipFile(output) as archive:
        (plan,) = (name for name in archive.namelist() if name.endswith("relink.json"))
        assert "RLK210" not in archive.read(plan).decode()
    before, command = out.splitlines()[-2:]
    assert before == "or, for shells with this LD_LIBRARY_PATH:"
    output.unlink()
    code, out, _ = run(*shlex.split(command)[1:])
    assert (code, "RLK210" in out) == (0, False)
    assert calls_g(output, f"{other}") == 42


@pytest.mark.parametrize(
    ("words", "level"), [(("--search-path", "runpath"), "warning"), (("--sysroot", "/"), None)]
)
def test_nothing_is_offered_where_the_user_has_chosen(
    run: Run,
    wheel: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    level: str | None,
) -> None:
    """A broken file under the name ends the load; another loader or root directory has other shells."""
    (tmp_path / "libdeep.so.1").write_text(
        "/* a linker script, which is longer than a header of an ELF file is */"
    )
    monkeypatch.setenv("LD_LIBRARY_PATH", ":/none")
    out = run(wheel, "--prefix", tmp_path / "rocm", "--dry-run", "--json", *words)[1]
    found = [item for item in json.loads(out)["findings"] if item["code"] == "RLK210"]
    assert [(item["subject"], item["level"], item.get("step")) for item in found] == (
        [("libdeep.so.1", level, None)] if level else []
    )
    assert not level or "invalid ELF header" in found[0]["message"]
