"""What the plan in a wheel says of the machine that made it: nothing but what the result rests on."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest
from msgspec.structs import replace

from relink.library import relink
from relink.planning.embedded import ANY_PYTHON, embed_plan
from relink.planning.model import (
    FilePlan,
    InterpreterChange,
    Load,
    NeededDecision,
    Plan,
    ProviderFacts,
    RpathChange,
    TargetFacts,
    WheelFacts,
    from_json,
    to_json,
)
from relink.planning.options import Options
from relink.runs.questions import verify_wheel
from relink.system.findings.model import finding
from tests.support.works import OUTPUT, Works

PYTHON = "/home/me/py/bin/python3.12"
LIBRARY = "/home/me/py/lib/libpython3.12.so.1.0"
RPATH = RpathChange(None, "/home/me/py/extra:$ORIGIN", None, "runpath")


def plan_with(*providers: str, python: str | None = PYTHON, library: str = LIBRARY) -> Plan:
    needed = NeededDecision(
        "libpython3.12.so.1.0", "keep", "libpython3.12.so.1.0", library, f"in {library}", "platform"
    )
    file = FilePlan(
        "a.so",
        "runpath",
        (needed,),
        RPATH,
        InterpreterChange(None, None),
        (("libpython3.12.so.1.0", library),),
    )
    return Plan(
        WheelFacts("a.whl", "00", "a", "1", ("t",)),
        "b.whl",
        TargetFacts("/lib64/ld.so", "2.36", ("/lib",), python, "/home/me/root"),
        tuple(ProviderFacts("prefix", path, None) for path in providers),
        (file,),
        (finding("RLK108", "libx.so.1", f"served by {library}"),),
        (Load("$WHEEL/a.so", "libpython3.12.so.1.0", library, None, "platform"),),
    )


def test_the_python_and_what_it_brings_have_no_place() -> None:
    plan = plan_with("/opt/rocm")
    inside = embed_plan(plan)
    text = json.dumps(to_json(inside))
    assert text.count("/home/me") == 1  # in the search path, which is an edit
    assert (inside.target.python, inside.target.sysroot) == (ANY_PYTHON, "/")
    assert inside.files[0].closure[0][1] == "$BASE_PREFIX/lib/libpython3.12.so.1.0"
    assert inside.findings[0].message == "served by $BASE_PREFIX/lib/libpython3.12.so.1.0"
    assert [file.edit for file in inside.files] == [file.edit for file in plan.files]
    assert from_json(json.loads(text)) == inside
    assert embed_plan(inside) == inside


def test_a_needed_that_is_a_path_stays() -> None:
    """It is what the file says, and the edit names it."""
    plan = plan_with("/opt/rocm")
    (file,) = plan.files
    needed = replace(file.needed[0], soname=LIBRARY, action="substitute", soname_after=f"{LIBRARY}.1")
    plan = replace(plan, files=(replace(file, needed=(needed,)),))
    assert embed_plan(plan).files[0].edit.replace == ((LIBRARY, f"{LIBRARY}.1"),)


def test_without_a_python_none_is_named() -> None:
    assert embed_plan(plan_with(python=None)).target.python is None


@pytest.mark.parametrize("provider", ["/home/me/py", "/home/me/py/lib/python3.12/site-packages/_rocm_sdk"])
def test_a_provider_beside_the_python_stays(provider: str) -> None:
    """Conda's environment is both; pip's ROCm lies in site-packages."""
    library = f"{provider}/lib/libamdhip64.so.7"
    inside = embed_plan(plan_with(provider, library=library))
    assert inside.providers[0].path == provider
    assert inside.files[0].closure[0][1] == library
    near = embed_plan(plan_with(f"{provider}x"))
    assert near.files[0].closure[0][1].startswith("$BASE_PREFIX/")


@pytest.mark.parametrize("python", ["/usr/bin/python3.12", "/usr/local/bin/python3.12", "/bin/python3"])
def test_the_systems_own_directories_stay(python: str) -> None:
    library = "/usr/lib/x86_64-linux-gnu/libz.so.1"
    inside = embed_plan(plan_with(python=python, library=library))
    assert inside.files[0].closure[0][1] == library
    assert inside.target.python == ANY_PYTHON


def texts(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        info = [name for name in archive.namelist() if ".dist-info/" in name]
        return "\n".join(archive.read(name).decode("latin-1") for name in info)


@pytest.fixture
def pythons(tmp_path: Path) -> list[Path]:
    """The Pythons of two virtual environments, each a file of its own."""
    made = []
    for name in ("one", "another"):
        directory = tmp_path / "venvs" / name
        words = [sys.executable, "-m", "venv", "--without-pip", "--copies", str(directory)]
        subprocess.run(words, check=True)
        made.append(directory / "bin" / "python")
        if subprocess.run([made[-1], "-c", ""], capture_output=True, check=False).returncode:
            pytest.skip("a copy of this Python does not run")
    return made


@pytest.mark.slow(reason="makes two environments")
def test_two_environments_give_the_same_bytes(works: Works, tmp_path: Path, pythons: list[Path]) -> None:
    wheel = works.wheel(tmp_path)
    reports = [
        relink(wheel, works.options(tmp_path / f"out{number}", python=str(python)))
        for number, python in enumerate(pythons)
    ]
    first, second = (tmp_path / f"out{number}" / OUTPUT for number in range(2))
    assert first.read_bytes() == second.read_bytes()
    # A report is for the one who asks.
    places = [report.target.python or "" for report in reports]
    assert places[0] != places[1]
    assert all(place.startswith(str(tmp_path / "venvs")) for place in places)
    assert verify_wheel(first, Options()).findings == ()


def test_nothing_of_the_maker_is_in_a_wheel(
    works: Works, tmp_path: Path, pythons: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything here has a name of its own but what the result rests on: the prefix."""
    for name in ("secret-home", "secret-tmp", "secret-cwd", "secret-in", "secret-out"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "secret-home"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "secret-tmp"))
    monkeypatch.chdir(tmp_path / "secret-cwd")
    profile = tmp_path / "secret-home" / "mine.toml"
    profile.write_text(
        'schema = "relink.profile/1"\nname = "demo"\ndistributions = ["demo"]\nsource = "mine"\n'
    )
    wheel = works.wheel(tmp_path / "secret-in")
    words = ("relink", str(wheel), "--python", str(pythons[0]))
    options = works.options(
        tmp_path / "secret-out", python=str(pythons[0]), profile=str(profile), command=words
    )
    report = relink(wheel, dataclasses.replace(options))
    assert report.output is not None
    told = texts(Path(report.output.path))
    assert "secret" not in told
    assert str(tmp_path) not in told
    assert "relink.invalid" not in told
    assert sys.prefix not in told
    assert str(works.prefix) in told
