"""The commands that `relink check` ends with were planned for the files that are installed, and do what they are for."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cc import shared
from tests.support.command import Run
from tests.support.therock import device_code
from tests.support.wheels import make_wheel
from tests.support.works import TAG
from tests.unit.indexes.install.conftest import put, python_of

SLOW = pytest.mark.slow(reason="several packages are planned; test_no_command_that_cannot_help plans one")

OPENS = b"import ctypes, os\nctypes.CDLL(os.path.join(os.path.dirname(__file__), 'lib/libggml-hip.so'))\n"
LOST = "librocprofiler-register.so.0"


@pytest.fixture(autouse=True)
def _no_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's lists of packages may have some of the libraries (Debian's experimental)."""
    monkeypatch.setattr("relink.providers.distribution.Distribution.command", lambda *_: None)


@pytest.fixture
def bundle(index: Path, tmp_path: Path) -> Path:
    """A wheel that brings its own HIP runtime, and not the profiler's library that this one needs."""
    beside = ["-Wl,-rpath,$ORIGIN", "-Wl,--allow-shlib-undefined", "-Wl,--no-as-needed"]
    profiler = shared(tmp_path / "gone" / LOST, "int rocprofiler_register_library_api_table(void){return 0;}")
    hip = shared(
        tmp_path / "libamdhip64.so.6",
        "int rocprofiler_register_library_api_table(void); int hip(void){return rocprofiler_register_library_api_table();}",
        needed=[profiler],
        flags=beside,
    )
    source = "int hip(void); int g(void){return hip();}\n" + device_code(("gfx1100", "gfx942"))
    user = shared(tmp_path / "libggml-hip.so", source, needed=[hip], flags=beside)
    files: dict[str, bytes | Path] = {"bundle/__init__.py": OPENS}
    files |= {f"bundle/lib/{path.name}": path for path in (hip, user)}
    return make_wheel(index, files, name="bundle", tag=TAG)


@pytest.fixture
def venv(make_environment: Callable[..., Path]) -> Path:
    return make_environment(with_pip=False)


def commands_of(run: Run, *words: str | Path) -> list[tuple[str, str | None]]:
    verdict = json.loads(run("check", *words, "--output-format", "json")[1])["verdict"]
    return [(one["command"], one["untried"]) for one in verdict["commands"]]


@SLOW
def test_a_bundle_that_a_stub_mends(run: Run, venv: Path, bundle: Path, tmp_path: Path) -> None:
    """No ROCm is needed. The wheel is that of direct_url.json, which no index has."""
    elsewhere = tmp_path / "elsewhere" / bundle.name
    elsewhere.parent.mkdir()
    bundle.rename(elsewhere)
    put(venv, elsewhere)
    code, out, _ = run("check", venv)
    step = out.splitlines()[-1].strip()
    assert (code, step) == (1, f"relink repair bundle --python {python_of(venv)} --stub {LOST}")
    assert commands_of(run, venv) == [(step, "it needs the network and changes the environment")]
    assert run(*shlex.split(step)[1:])[0] == 0
    assert run("check", venv)[0] == 0


@SLOW
def test_one_command_for_all(run: Run, venv: Path, bundle: Path, gpu: Path, rocm: Path) -> None:
    """One package needs nothing beside the prefix, the other a stub, which is no error of the first."""
    put(venv, bundle, gpu)
    told = [command for command, _ in commands_of(run, venv, "--prefix", rocm)]
    common = f"--python {python_of(venv)} --prefix {rocm}"
    assert told == [f"relink repair --all {common} --stub {LOST}"]
    assert run(*shlex.split(told[0])[1:])[0] == 0
    assert run("check", venv)[0] == 0


@SLOW
def test_an_option_for_one_of_several_wheels(
    run: Run, venv: Path, bundle: Path, gpu: Path, rocm: Path
) -> None:
    options = ("--no-deps", "--no-import-test", "--python", python_of(venv), "--prefix", rocm, "--stub", LOST)
    code, out, _ = run("install", gpu, *options)
    assert (code, "RLK126" in out) == (1, True)
    assert run("install", gpu, bundle, *options)[0] == 0
    assert run("check", venv)[0] == 0


def test_no_command_that_cannot_help(run: Run, venv: Path, gpu: Path) -> None:
    """There is no ROCm: that is told, and no repair is printed, since it would end with that."""
    put(venv, gpu)
    assert commands_of(run, venv) == []
    lines = run("check", venv)[1].splitlines()
    told = (
        f"gpu does not work; 1 package with native code in {venv}. There is no ROCm: name one by --prefix DIR"
    )
    assert lines[0].startswith(told)
    assert lines[-1] == "Next: gpu: a ROCm that has librocblas.so.5 (--prefix DIR)"


def test_what_the_prefix_lacks(run: Run, venv: Path, gpu: Path, rocm: Path) -> None:
    (rocm / "lib/librocblas.so.5").unlink()
    put(venv, gpu)
    code, out, _ = run("check", venv, "--prefix", rocm)
    assert code == 1
    assert "repair" not in out
    assert out.splitlines()[-1] == ("Next: gpu: a ROCm that has librocblas.so.5 (--prefix DIR)")


@SLOW
def test_the_code_of_one_gpu(run: Run, venv: Path, bundle: Path) -> None:
    put(venv, bundle)
    ((command, _),) = commands_of(run, venv, "--only-gpu", "gfx1100", "--drop-jit")
    options = f"--only-gpu gfx1100 --drop-jit --stub {LOST}"
    assert command == f"relink repair bundle --python {python_of(venv)} {options}"
    ((command_of_another, _),) = commands_of(run, venv, "--gpu", "gfx942")
    assert "--gpu gfx942" in command_of_another
    assert run(*shlex.split(command)[1:])[0] == 0
    assert run("check", venv, "--gpu", "gfx1100")[0] == 0
    code, out, _ = run("check", venv, "--gpu", "gfx942")
    assert (code, "gfx942" in out) == (1, True)


@pytest.mark.parametrize(
    ("damage", "is_recorded"), [("cut", False), ("gone", False), ("other", False), ("none", True)]
)
def test_a_file_that_is_not_the_one_of_the_wheel(
    run: Run, venv: Path, index: Path, tmp_path: Path, damage: str, is_recorded: bool
) -> None:
    """To install the package again is advised where RECORD has another hash, and only there."""
    library = shared(tmp_path / "a.so", "extern int far(void); int near(void){return far();}")
    good = shared(tmp_path / "b.so", "int near(void){return 1;}")
    files: dict[str, bytes | Path] = {
        "one/__init__.py": b"import ctypes, os\nctypes.CDLL(os.path.join(os.path.dirname(__file__), 'a.so'))\n",
        "one/a.so": library if is_recorded else good,
    }
    put(venv, make_wheel(index, files, name="one", tag=TAG))
    if not is_recorded:
        assert commands_of(run, venv) == []
    (file,) = venv.rglob("one/a.so")
    contents = {"cut": good.read_bytes()[:5000], "other": library.read_bytes()}
    if damage in contents:
        file.write_bytes(contents[damage])
    elif damage == "gone":
        file.unlink()
    again = f"uv pip install --python={python_of(venv)} --reinstall --no-deps one==1.0"
    expected = (
        ("relink doctor", None)
        if is_recorded
        else (again, "it needs the network and changes the environment")
    )
    assert commands_of(run, venv) == [expected]
