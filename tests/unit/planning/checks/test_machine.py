"""What relink doctor finds where there is nothing, and that each vendor is asked about its own prefixes."""

from __future__ import annotations

from pathlib import Path

import pytest

from relink import Options, relink
from relink.loader.target import find_target
from relink.planning.checks.machine import check_machine, to_json
from relink.report.text import doctor_text
from relink.system.findings.model import Finding
from tests.support.cc import shared
from tests.support.wheels import make_wheel
from tests.support.works import Works, copy_glibc


def test_no_gpu_no_nodes_no_rocm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relink.planning.checks.machine.find_places", lambda *_: ())
    found = check_machine([], str(tmp_path), {})
    assert {item.code for item in found.findings if item.level == "error"} == {"RLK421", "RLK424"}
    (none,) = (item for item in found.findings if item.code == "RLK421")
    nodes = ("GPU", f"{tmp_path}/dev/kfd", f"{tmp_path}/dev/dri/renderD*")
    assert none.subjects == nodes
    assert "group" not in none.remedy
    text = "\n".join(line.plain for line in doctor_text(found))
    assert "no GPU" in text
    assert "renderD*: not there" in text


def test_the_facts_are_of_the_machine_and_of_each_prefix(works: Works, tmp_path: Path) -> None:
    data = to_json(check_machine([str(works.prefix)], str(tmp_path), {}))
    assert data["schema"] == "relink.doctor/1"
    assert (data["gpus"], data["kfd"]) == ([], False)
    assert [(one["path"], one["rocm_version"]) for one in data["prefixes"]] == [(str(works.prefix), "7.2.4")]


def broken_prefix(directory: Path) -> Path:
    """A prefix whose MIOpen imports a symbol that none of its libraries has."""
    (directory / ".info").mkdir(parents=True)
    (directory / ".info/version").write_text("7.2.4\n")
    hip = shared(directory / "lib/libamdhip64.so.7", "int hipMalloc(void){return 0;}")
    source = "extern int hipMalloc(void), of_another_release(void);"
    source += "int miopenCreate(void){return hipMalloc() + of_another_release();}"
    shared(
        directory / "lib/libMIOpen.so.1",
        source,
        needed=[hip],
        flags=["-Wl,-rpath,$ORIGIN", "-Wl,--allow-shlib-undefined"],
    )
    return directory


def test_a_prefix_that_is_broken_by_itself(tmp_path: Path) -> None:
    """Neither the wheel nor its release is to blame: `doctor` says the same without a wheel."""
    prefix = broken_prefix(tmp_path / "rocm")
    member = shared(
        tmp_path / "a.so",
        "extern int miopenCreate(void); int f(void){return miopenCreate();}",
        needed=[prefix / "lib/libMIOpen.so.1"],
        flags=["-Wl,--allow-shlib-undefined"],
    )
    wheel = make_wheel(tmp_path, {"demo/__init__.py": b"", "demo/a.so": member})
    report = relink(wheel, Options(prefixes=(str(prefix),), output_directory=tmp_path / "out"))
    (told,) = [found for found in report.findings if found.code == "RLK302"]
    (seen,) = [found for found in check_machine([str(prefix)]).findings if found.code == "RLK302"]
    for found in (told, seen):
        assert "of_another_release" in found.message
        assert found.remedy.startswith("libMIOpen.so.1 lacks this without any wheel, too: ")
        assert "libamdhip64.so.7" in found.remedy
    assert seen.level == "warning"


def test_a_prefix_of_a_newer_glibc(works: Works, tmp_path: Path) -> None:
    """Debian's libraries of a newer release, in a directory; its own loader is the way to use them."""
    script = tmp_path / "versions"
    script.write_text("GLIBC_9.98 { global: newer; };\nGLIBC_ABI_DT_X86_99 { global: plt; };\n")
    source = "int newer(void){return 1;} int plt(void){return 1;}"
    libc = shared(tmp_path / "newer/libc.so.6", source, flags=[f"-Wl,--version-script={script}"])
    source = "int newer(void), plt(void); int hipMalloc(void){return newer() + plt();}"
    shared(tmp_path / "rocm/lib/libamdhip64.so.7", source, needed=[libc])
    own = [found for found in check_machine([str(works.prefix)]).findings if found.code == "RLK301"]
    assert own == []

    def told() -> Finding:
        (found,) = [one for one in check_machine([str(tmp_path / "rocm")]).findings if one.code == "RLK301"]
        return found

    message = f"1 library needs up to GLIBC_9.98; this machine has glibc {find_target().glibc}"
    assert (told().subject, told().level, told().message) == (str(tmp_path / "rocm"), "warning", message)
    loader = copy_glibc(tmp_path / "rocm/lib")
    assert told().remedy == f"Relink with --interpreter {loader}, the loader of this prefix."
