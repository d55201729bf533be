"""checks.tags: whether the target's Python installs the wheel; and loader.python, which asks it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from packaging.tags import sys_tags

from relink.loader.python import PythonFacts, active_python, ask_python
from relink.loader.target import find_target
from relink.planning.checks.tags import list_supported_tags, tag_findings
from relink.system.errors import TargetError
from relink.wheel.naming import parse_wheel_name
from tests.support.command import Run
from tests.support.works import MACHINE, PYTHON_TAG, Works

SLOW = pytest.mark.slow(reason="a whole run; the rules are tried without")

OWN = ask_python(sys.executable)
MINOR = sys.version_info[1]
OTHER = PythonFacts("/usr/bin/python3.9", "cpython", (3, 9), soabi="cpython-39-x86_64-linux-gnu")


def python_that_is(path: Path, **facts: object) -> Path:
    """A program that answers as this Python would, but for some facts."""
    path.parent.mkdir(parents=True, exist_ok=True)
    said = json.dumps({**vars_of(OWN), **facts})
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{said}\nEND\n")
    path.chmod(0o755)
    return path


def vars_of(facts: PythonFacts) -> dict[str, object]:
    return {name: getattr(facts, name) for name in PythonFacts.__struct_fields__}


def codes(filename: str, python: PythonFacts | None = OTHER, *, named: bool = True) -> list[tuple[str, str]]:
    target = replace(find_target(), python_facts=python)
    found = tag_findings(parse_wheel_name(filename), filename, target, named=named)
    return [(item.code, item.level) for item in found]


# Tags


def test_the_tags_of_this_python_are_those_of_packaging() -> None:
    target = find_target()
    assert set(list_supported_tags(OWN, target.glibc, MACHINE)) == set(sys_tags())


@pytest.mark.parametrize(
    ("python", "first"),
    [
        (PythonFacts("", "cpython", (3, 13), free_threaded=True), "cp313-cp313t-manylinux_2_36_x86_64"),
        (PythonFacts("", "cpython", (3, 12), debug=True), "cp312-cp312d-manylinux_2_36_x86_64"),
        (
            PythonFacts("", "pypy", (3, 10), soabi="pypy310-pp73-x86_64-linux-gnu"),
            "pp310-pypy310_pp73-manylinux_2_36_x86_64",
        ),
    ],
)
def test_other_pythons(python: PythonFacts, first: str) -> None:
    assert str(list_supported_tags(python, "2.36", "x86_64")[0]) == first


@pytest.mark.few(4, reason="other tags")
@pytest.mark.parametrize(
    ("tag", "expected"),
    [
        (f"cp39-cp39-linux_{MACHINE}", []),
        (f"cp38-abi3-linux_{MACHINE}", []),
        ("py3-none-any", []),
        (f"py2.py3-none-manylinux1_{MACHINE}", []),
        (f"cp39-cp39-manylinux_2_99_{MACHINE}", []),  # the output says linux; RLK301 has what is lacking
        (f"cp310-abi3-linux_{MACHINE}", [("RLK520", "error")]),
        (f"cp310-cp310-linux_{MACHINE}", [("RLK520", "error")]),
        (f"pp39-pypy39_pp73-linux_{MACHINE}", [("RLK520", "error")]),
        ("cp39-cp39-win_amd64", [("RLK521", "error")]),
        ("cp39-cp39-macosx_11_0_arm64", [("RLK521", "error")]),
        ("cp39-cp39-manylinux2014_s390x", [("RLK521", "error")]),
        (f"cp39-cp39-musllinux_1_2_{MACHINE}", [("RLK521", "error")]),
    ],
)
def test_what_python_3_9_installs(tag: str, expected: list[tuple[str, str]]) -> None:
    assert codes(f"demo-1.0-{tag}.whl") == expected
    assert codes(f"demo-1.0-{tag}.whl", named=False) == [
        (code, "warning" if code == "RLK520" else level) for code, level in expected
    ]


def test_a_loader_alone_knows_no_tags() -> None:
    assert codes(f"demo-1.0-cp39-cp39-linux_{MACHINE}.whl", None) == [("RLK522", "info")]
    assert codes("demo-1.0-py2.py3-none-any.whl", None) == []


# Asking


def test_who_is_asked() -> None:
    assert (OWN.implementation, OWN.version) == (sys.implementation.name, sys.version_info[:2])
    assert active_python({"VIRTUAL_ENV": "/v"}) == "/v/bin/python"
    assert active_python({"VIRTUAL_ENV": ""}) is None


@pytest.mark.parametrize("answer", ["", "[]", "{}", "no JSON", '{"file": "/x", "version": [3]}'])
def test_what_is_no_python(tmp_path: Path, answer: str) -> None:
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\necho '{answer}'\n")
    path.chmod(0o755)
    with pytest.raises(TargetError, match="is not a working Python"):
        ask_python(str(path))


# The command line


@SLOW
def test_a_named_python_that_would_not_install_it(run: Run, works: Works, tmp_path: Path) -> None:
    other = python_that_is(tmp_path / "bin" / "python3.9", version=[3, 9])
    words = (works.small(tmp_path), "--prefix", works.prefix, "-o", tmp_path / "out")
    code, out, _ = run(*words, "--python", other)
    assert code == 1
    assert f"is tagged {PYTHON_TAG}-{PYTHON_TAG}, which Python 3.9 does not install" in out
    assert not (tmp_path / "out").exists()
    assert run(*words, "--python", sys.executable)[0] == 0


def test_a_named_python_that_would_not_install_it_is_what_comes_next(
    run: Run, works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever else is wrong was compared with a Python that is not the right one."""
    wheel = works.wheel(tmp_path, {"demo/a.so": works.library}, tag=f"cp38-cp38-manylinux_2_34_{MACHINE}")
    words = (wheel, "-o", tmp_path / "out", "--prefix", works.prefix, "--allow-missing", "libnone.so")
    named = (*words, "--python", python_that_is(tmp_path / "bin" / "python3.9", version=[3, 9]))
    (tmp_path / "no").mkdir()
    (tmp_path / "no" / "python3.8").write_text("#!/bin/sh\nexit 127\n")
    (tmp_path / "no" / "python3.8").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "no"), prepend=":")
    why = "(not tried: it needs the network)"
    assert run(*named)[1].splitlines()[-2:] == [
        f"Next: get the wheel for Python 3.9 (cp39-cp39), or name another Python by --python {why}:",
        "    relink fetch demo==1.0",
    ]
    fitting = python_that_is(tmp_path / "yes" / "python3.8", version=[3, 8])
    monkeypatch.setenv("PATH", str(tmp_path / "yes"), prepend=":")
    assert f"\nNext: again with --python {fitting}\n" in run(*named)[1]


def test_the_active_environment_is_a_named_python(
    run: Run, works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python_that_is(tmp_path / "venv" / "bin" / "python", version=[3, 9])
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "venv"))
    words = (works.small(tmp_path), "--prefix", works.prefix, "-o", tmp_path / "out")
    assert "error RLK520" in run(*words)[1]
    assert run(*words, "--python", sys.executable)[0] == 0


@SLOW
def test_relinks_own_python_is_nobodys_target(
    run: Run, works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warning, which names a Python on PATH that fits; one that only has a fitting name is passed over."""
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    (tmp_path / "no").mkdir()
    (tmp_path / "no" / "python3.9").write_text("#!/bin/sh\necho 'command not found' >&2; exit 127\n")
    (tmp_path / "no" / "python3.9").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "no"), prepend=":")
    wheel = works.wheel(tmp_path, {"demo/a.so": works.library}, tag=f"cp39-cp39-manylinux_2_34_{MACHINE}")
    words = (wheel, "--prefix", works.prefix, "-o", tmp_path / "out")
    code, out, _ = run(*words)
    assert code == 0
    assert "warning RLK520" in out
    assert "Name the Python that will load the result by --python." in out
    fitting = python_that_is(tmp_path / "yes" / "python3.9", version=[3, 9])
    monkeypatch.setenv("PATH", str(tmp_path / "yes"), prepend=":")
    assert f"Pass --python {fitting}, if that is to load the result." in run(*words)[1]
    assert run(*words, "--python", fitting)[0] == 0


def test_a_wheel_for_another_machine(run: Run, works: Works, tmp_path: Path) -> None:
    wheel = works.wheel(tmp_path, {"demo/a.so": works.library}, tag="cp39-cp39-win_amd64")
    code, out, _ = run(wheel, "--prefix", works.prefix, "-o", tmp_path / "out")
    assert code == 1
    assert f"is for win_amd64; the target is Linux with glibc on {MACHINE}" in out
    assert not (tmp_path / "out").exists()


def test_a_wheel_for_musl_is_had_for_glibc(run: Run, works: Works, tmp_path: Path) -> None:
    """Its own C library is missing as well, and no prefix is to have that."""
    wheel = works.wheel(tmp_path, {"demo/a.so": works.lost}, tag=f"cp39-cp39-musllinux_1_2_{MACHINE}")
    code, out, _ = run(wheel, "--prefix", works.prefix)
    assert (code, "error RLK101" in out) == (1, True)
    assert out.splitlines()[-2:] == [
        "Next: get the manylinux wheel, which is for glibc (not tried: it needs the network):",
        "    relink fetch demo==1.0",
    ]


def test_a_loader_does_not_hide_a_wrong_python(run: Run, works: Works, tmp_path: Path) -> None:
    """Who names a loader alone is told that the Python which runs relink does not install the wheel."""
    wheel = works.wheel(tmp_path, {"demo/a.so": works.library}, tag=f"cp39-cp39-manylinux_2_34_{MACHINE}")
    words = (wheel, "--prefix", works.prefix, "-o", tmp_path / "out")
    code, out, _ = run(*words, "--interpreter", find_target().interpreter)
    assert code == 0
    assert "warning RLK520" in out
    assert f"is tagged cp39-cp39, which {OWN.shown} does not install" in out


def test_interpreter_alone(run: Run, works: Works, tmp_path: Path) -> None:
    """It is an information, and no part of the output: the same bytes come of any Python."""
    words = (works.small(tmp_path), "--prefix", works.prefix, "-v")
    code, out, _ = run(*words, "--interpreter", find_target().interpreter, "-o", tmp_path / "one")
    assert code == 0
    assert "info RLK522" in out
    cpython = f"{sys.version_info[0]}.{sys.version_info[1]}"
    untried = "(not tried: it changes the environment)"
    assert f"Next: by the pip of CPython {cpython} {untried}:\n    pip install " in out
    with_python = run(*words, "--python", sys.executable, "-o", tmp_path / "other")[1]
    assert "RLK522" not in with_python
    assert "Next (not tried: it changes the environment):\n    pip install " in with_python
