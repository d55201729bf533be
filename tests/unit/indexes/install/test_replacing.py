"""What replacing a distribution may lose: files of others, edits, what a wheel lacks, and all of it where an installer fails."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from relink.indexes.install import replacing
from relink.indexes.install.environment import TargetEnvironment, find_environment, find_installed
from relink.indexes.install.installers import copy_to_cache
from relink.indexes.install.replacing import own, replace_files
from relink.system.errors import RelinkError, UsageError
from tests.support.command import Run
from tests.support.wheels import changed, make_wheel
from tests.support.works import TAG, Works
from tests.unit.indexes.install.conftest import pip_install, put, python_of, site_of, tree

SLOW = pytest.mark.slow(reason="an installation and a repair; test_one_owner has one")

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def venv(make_environment: Callable[..., Path], index: Path) -> Path:
    """An environment that uv installs into, with another package."""
    environment = make_environment(with_pip=False)
    files = {"victim/__init__.py": b"", "victim-1.0.data/scripts/victim-tool": b"#!python\n"}
    put(environment, make_wheel(index, files, name="victim", tag="py3-none-any"))
    return environment


def vendor(works: Works, index: Path, **more: bytes) -> Path:
    files: dict[str, bytes | Path] = {"demo/__init__.py": b"", "demo/a.so": works.library}
    files |= {"demo-1.0.data/data/etc/demo.conf": b"as it was\n", "demo/more.txt": b"more\n"}
    return make_wheel(index, {**files, **more}, tag=TAG)


def repair(run: Run, works: Works, environment: Path, *words: str | Path) -> tuple[int, str, str]:
    """Repair demo without importing it."""
    more = () if "--undo" in words else ("--prefix", works.prefix, "--no-import-test")
    return run("repair", "demo", "--python", python_of(environment), *more, *words)


def facts(environment: Path) -> TargetEnvironment:
    return find_environment(str(python_of(environment)), {})


FOREIGN = [
    "demo-1.0.dist-info/../victim/__init__.py",
    "../../../pyvenv.cfg",
    "victim-1.0.dist-info/METADATA",
    "demo-1.0.dist-info/../../../../bin/victim-tool",
    "demo-1.0.dist-info/./../victim/__init__.py",
    "victim/__init__.py",
    "victim",
    "demo/../victim/__init__.py",
    "../site-packages/victim/__init__.py",
    "../../../bin/victim-tool",
    "../../../bin/python",
    "../../../../outside.txt",
    "./victim/__init__.py",
    "demo/more.txt\u2028victim/__init__.py",
    "ABSOLUTE/victim/__init__.py",
]


@pytest.mark.few(1, reason="a second for each other spelling of such a path")
@pytest.mark.parametrize("of", ["what is relinked", "what is installed"])
@pytest.mark.parametrize("line", FOREIGN)
def test_files_of_others(
    run: Run, works: Works, index: Path, venv: Path, tmp_path: Path, line: str, of: str
) -> None:
    """A line of RECORD that leads to what is not the distribution's own: an installer would remove that."""
    (tmp_path / "outside.txt").write_text("of somebody")
    line = line.replace("ABSOLUTE", str(site_of(venv)))
    wheel = vendor(works, index)
    if of == "what is relinked":
        with zipfile.ZipFile(wheel) as archive:
            record = archive.read("demo-1.0.dist-info/RECORD")
        edits: dict[str, bytes | None] = {"demo-1.0.dist-info/RECORD": f"{line},,\n".encode() + record}
        wheel = changed(wheel, tmp_path / "edited", edits, record=False)
    put(venv, "demo", "--find-links", wheel.parent) if of == "what is installed" else pip_install(venv, wheel)
    record_file = site_of(venv) / "demo-1.0.dist-info" / "RECORD"
    if of == "what is installed":
        record_file.write_text(f"{line},,\n" + record_file.read_text())
    before = tree(tmp_path / "venv") | {"outside": str((tmp_path / "outside.txt").exists())}
    code, out, err = repair(run, works, venv, "--wheel", wheel)
    assert code in (1, 2), out
    assert before == tree(tmp_path / "venv") | {"outside": str((tmp_path / "outside.txt").exists())}
    if of == "what is installed":
        # What was relinked is no better: the line comes after the repair, too.
        record_file.write_text(record_file.read_text().partition("\n")[2])
        assert repair(run, works, venv, "--wheel", wheel)[0] == 0
        (record_file,) = site_of(venv).glob("demo-*.dist-info/RECORD")
        record_file.write_text(f"{line},,\n" + record_file.read_text())
        before = tree(venv)
        for words in (("--undo",), ()):
            code, _, err = repair(run, works, venv, *words)
            assert (code, tree(venv)) == (2, before)
            assert "what is not its own, so nothing was changed" in err


@SLOW
def test_scripts_of_others_by_entry_points(run: Run, works: Works, index: Path, venv: Path) -> None:
    """pip removes the scripts that entry_points.txt names, whatever RECORD has."""
    put(venv, vendor(works, index))
    info = site_of(venv) / "demo-1.0.dist-info"
    for name in ("victim-tool", "../pyvenv.cfg"):
        (info / "entry_points.txt").write_text(f"[console_scripts]\n{name} = demo:main\n")
        before = tree(venv)
        assert repair(run, works, venv)[0] == 2
        assert tree(venv) == before


@SLOW
def test_a_file_of_dist_info_that_record_has_not(run: Run, works: Works, index: Path, venv: Path) -> None:
    """The installer leaves it, and with it a directory that describes no distribution."""
    put(venv, vendor(works, index))
    (site_of(venv) / "demo-1.0.dist-info" / "note.txt").write_text("mine")
    code, _, err = repair(run, works, venv)
    assert (code, err) == (0, ""), err
    assert (site_of(venv) / "demo-1.0.dist-info" / "note.txt").read_text() == "mine"
    assert repair(run, works, venv, "--undo")[0] == 0


@SLOW
@pytest.mark.parametrize("known", ["cached", "passed"])
def test_undo_takes_no_other_package(run: Run, works: Works, index: Path, venv: Path, known: str) -> None:
    """The plan in an installed package may name any wheel; an older one of the same name as well."""
    put(venv, vendor(works, index))
    assert repair(run, works, venv)[0] == 0
    (plan,) = site_of(venv).glob("demo-*.dist-info/relink.json")
    written = json.loads(plan.read_text())
    older = make_wheel(index, {"demo/__init__.py": b"", "demo/a.so": works.library}, version="0.9", tag=TAG)
    for wheel, version in ((index / "victim-1.0-py3-none-any.whl", "1.0"), (older, "0.9"), (older, "1.0")):
        facts = written["wheel"] | {"sha256": copy_to_cache(wheel).sha256, "version": version}
        plan.write_text(json.dumps(written | {"wheel": facts}))
        before = tree(venv)
        given = ("--wheel", wheel) if known == "passed" else ()
        for words in (("--undo", *given), given):
            code, _, err = repair(run, works, venv, *words)
            assert (code, tree(venv)) == (2, before), err
            assert "whatever its plan says" in err


def test_another_packages_metadata(run: Run, works: Works, index: Path, venv: Path) -> None:
    """The name that a wheel is fetched by is that of the directory, or nothing is done."""
    put(venv, vendor(works, index))
    (site_of(venv) / "demo-1.0.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: victim\nVersion: 1.0\n"
    )
    code, _, err = repair(run, works, venv)
    assert code == 2
    assert "METADATA is that of victim 1.0, so what was installed is not known" in err


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("lacks", ["demo/more.txt", "demo-1.0.data/data/etc/demo.conf"])
def test_a_wheel_that_lacks_files(
    run: Run, works: Works, index: Path, venv: Path, tmp_path: Path, lacks: str
) -> None:
    put(venv, vendor(works, index))
    other = changed(vendor(works, index), tmp_path / "other", {lacks: None})
    before = tree(venv)
    code, _, err = repair(run, works, venv, "--wheel", other)
    assert (code, tree(venv)) == (2, before)
    assert "is not the wheel that demo was installed from" in err


@SLOW
def test_a_file_that_another_package_has_written_over(
    run: Run, works: Works, index: Path, venv: Path
) -> None:
    """openmm and openmm-hip-7 have a file in common: what is in the way is told, and what to do about it can be done."""
    wheel = vendor(works, index)
    put(venv, wheel)
    put(venv, make_wheel(index, {"demo/more.txt": b"theirs"}, name="other", tag="py3-none-any"))
    before = tree(venv)
    code, _, err = repair(run, works, venv, "--wheel", wheel)
    assert (code, tree(venv)) == (2, before)
    assert "'demo/more.txt' is a file of other-1.0; remove these lines from " in err
    record = site_of(venv) / "demo-1.0.dist-info/RECORD"
    lines = [line for line in record.read_text().splitlines() if not line.startswith("demo/more.txt,")]
    record.write_text("\n".join(lines) + "\n")
    assert repair(run, works, venv, "--wheel", wheel)[0] == 0


@SLOW
@pytest.mark.parametrize("words", [(), ("--undo",)])
def test_edits_are_kept(run: Run, works: Works, index: Path, venv: Path, words: tuple[str, ...]) -> None:
    """Of what was repaired once; where they are is told."""
    put(venv, vendor(works, index))
    assert repair(run, works, venv)[0] == 0
    files = [site_of(venv) / path for path in ("../../../etc/demo.conf", "demo/more.txt", "demo/a.so")]
    for file in files:
        file.write_text(f"edited {file.name}")
    code, out, err = repair(run, works, venv, *words)
    assert (code, err) == (0, "")
    kept = [line.strip() for line in out.splitlines() if "relink-changed-demo" in line]
    assert sorted(Path(line).read_text() for line in kept) == sorted(f"edited {file.name}" for file in files)
    assert not any(file.read_bytes().startswith(b"edited") for file in files)


def test_an_edit_before_the_first_repair(run: Run, works: Works, index: Path, venv: Path) -> None:
    """Below .data as well: whether it is the very wheel cannot be seen then."""
    put(venv, vendor(works, index))
    (venv / "etc/demo.conf").write_text("edited")
    code, _, err = repair(run, works, venv)
    assert (code, (venv / "etc/demo.conf").read_text()) == (2, "edited")
    assert "or its files were changed since: ../../../etc/demo.conf differ" in err


def test_one_owner(run: Run, works: Works, index: Path, venv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(venv, vendor(works, index))
    before = tree(venv)
    monkeypatch.setattr(replacing, "PATIENCE", 0.1)
    program = f"""
import sys
from relink.indexes.install.environment import find_environment
from relink.indexes.install.replacing import own
with own(find_environment({str(python_of(venv))!r}, {{}})):
    print("owned", flush=True)
    sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdin=-1, stdout=-1, text=True) as owner:
        assert owner.stdout
        owner.stdout.readline()
        for command in (
            ("install", "demo", "--prefix", works.prefix),
            ("repair", "demo"),
            ("repair", "demo", "--undo"),
        ):
            code, _, err = run(*command, "--python", python_of(venv))
            assert (code, tree(venv)) == (2, before)
            assert "is being changed by another relink" in err
        owner.kill()
    assert repair(run, works, venv)[0] == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB with a thousand files at most."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m,nr_inodes=1000", "tmpfs", place],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system is not permitted here")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


@SLOW
@pytest.mark.parametrize("what", ["bytes", "files"])
@pytest.mark.parametrize("by", ["uv", "pip"])
@pytest.mark.usefixtures("small_disk")
def test_a_full_disk(
    run: Run,
    works: Works,
    index: Path,
    make_environment: Callable[..., Path],
    what: str,
    by: str,
) -> None:
    """The installer has removed the old version, and cannot write the new one."""
    environment = make_environment("small/venv", with_pip=by == "pip")
    put(
        environment,
        make_wheel(index, {"demo/__init__.py": b"old", "demo/old.txt": b"old"}, version="0.5", tag=TAG),
    )
    before = tree(environment)
    more = {"demo/big": os.urandom(5 << 20)} if what == "bytes" else {f"demo/{n}": b"x" for n in range(1500)}
    vendor(works, index, **more)
    words = (
        "install",
        "demo",
        "--prefix",
        works.prefix,
        "--python",
        python_of(environment),
        "--no-import-test",
    )
    code, _, err = run(*words, "--no-deps")
    assert code == 2, err
    assert tree(environment) == before
    assert "as it was before" in err


def replace_and_die(environment: TargetEnvironment, wheel: Path) -> None:
    """Be killed when the installer has removed the old files and written a part of the new ones."""

    def install() -> None:
        site = environment.site[0]
        shutil.rmtree(site / "demo")
        shutil.rmtree(site / "demo-1.0.dist-info")
        (site / "demo").mkdir()
        (site / "demo" / "__init__.py").write_text("new")
        (site / "~emo").mkdir()
        os._exit(9)

    with own(environment):
        replace_files(environment, find_installed(environment, "demo"), wheel, install)


@SLOW
def test_killed_in_the_middle(run: Run, works: Works, index: Path, venv: Path, tmp_path: Path) -> None:
    """check says so, and the next command puts all back before it does anything."""
    put(venv, vendor(works, index))
    before = tree(venv)
    new = make_wheel(tmp_path, {"demo/__init__.py": b"new", "demo/b.py": b""}, version="2.0", tag=TAG)
    if (child := os.fork()) == 0:
        try:
            replace_and_die(facts(venv), new)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    code, out, _ = run("check", venv)
    assert code == 1
    assert "error RLK554 demo 1.0: was being replaced when relink was killed" in out
    assert f"\n    relink repair --all --python {python_of(venv)}\n" in out.rpartition("\nNext")[2]
    code, _, err = repair(run, works, venv, "--undo")
    assert "demo 1.0 was being replaced when relink was killed: it is as it was before." in err
    assert (code, tree(venv)) == (2, before)
    assert run("check", venv)[1].count("RLK554") == 0


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize(("call", "number"), [("link", 2), ("unlink", 0), ("unlink", 2)])
def test_interrupted_before_and_behind_the_installer(
    works: Works,
    index: Path,
    venv: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    number: int,
) -> None:
    """While files are kept all is as before, while what was kept is removed as after; nothing is left either time."""
    put(venv, vendor(works, index))
    before = tree(venv)
    new = make_wheel(tmp_path, {"demo/__init__.py": b"new"}, version="2.0", tag=TAG)
    environment = facts(venv)
    real, calls = getattr(os, call), iter(range(9999))

    def interrupted(*arguments: object, **named: object) -> None:
        real(*arguments, **named)
        if next(calls) == number:
            raise KeyboardInterrupt

    with own(environment):
        monkeypatch.setattr(os, call, interrupted)
        with pytest.raises(KeyboardInterrupt):
            replace_files(environment, find_installed(environment, "demo"), new, lambda: put(venv, new))
    assert not (site_of(venv) / ".relink-replaced").exists()
    assert (tree(venv) == before) == (call == "link")
    assert (site_of(venv) / "demo/__init__.py").read_bytes() == (b"" if call == "link" else b"new")


def test_bytecode_that_an_interrupted_installer_left(
    works: Works, index: Path, venv: Path, tmp_path: Path
) -> None:
    """Lib/importlib/_bootstrap_external.py, _write_atomic: it has another name until it is whole."""
    put(venv, vendor(works, index))
    before = tree(venv)
    new = make_wheel(tmp_path, {"demo/__init__.py": b"new"}, version="2.0", tag=TAG)
    environment = facts(venv)

    def interrupted() -> None:
        put(venv, new)
        (cache := site_of(venv) / "demo/__pycache__").mkdir(exist_ok=True)
        (cache / "__init__.cpython-311.pyc.140126251025888").write_bytes(b"half")
        raise KeyboardInterrupt

    with own(environment), pytest.raises(KeyboardInterrupt):
        replace_files(environment, find_installed(environment, "demo"), new, interrupted)
    assert tree(venv) == before


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("step", ["before", "during"])
def test_another_installer_meanwhile(
    works: Works, index: Path, venv: Path, tmp_path: Path, step: str
) -> None:
    """What it has installed stays, and is told."""
    put(venv, vendor(works, index))
    new = make_wheel(tmp_path, {"demo/__init__.py": b"new"}, version="2.0", tag=TAG)
    theirs = make_wheel(tmp_path, {"demo/__init__.py": b"theirs"}, version="3.0", tag=TAG)
    environment = facts(venv)
    seen = find_installed(environment, "demo")
    if step == "before":
        put(venv, theirs)
    with own(environment), pytest.raises(UsageError, match="another program"):
        replace_files(environment, seen, new, lambda: put(venv, theirs))
    assert (site_of(venv) / "demo/__init__.py").read_bytes() == b"theirs"
    assert [path.name for path in site_of(venv).glob("demo-*")] == ["demo-3.0.dist-info"]
    assert not (site_of(venv) / ".relink-replaced").exists()


def test_an_installer_that_leaves_files_out(works: Works, index: Path, venv: Path, tmp_path: Path) -> None:
    put(venv, vendor(works, index))
    before = tree(venv)
    new = make_wheel(tmp_path, {"demo/__init__.py": b"new"}, version="2.0", tag=TAG)
    environment = facts(venv)

    def install() -> None:
        put(venv, new)
        (site_of(venv) / "demo/__init__.py").unlink()

    with own(environment), pytest.raises(RelinkError, match="is not there; what was there before is again"):
        replace_files(environment, find_installed(environment, "demo"), new, install)
    assert tree(venv) == before


def test_two_of_one_name(run: Run, works: Works, index: Path, venv: Path) -> None:
    put(venv, vendor(works, index))
    shutil.copytree(site_of(venv) / "demo-1.0.dist-info", site_of(venv) / "demo-0.9.dist-info")
    code, _, err = repair(run, works, venv)
    assert code == 2
    assert "has demo-0.9.dist-info, demo-1.0.dist-info: what is installed of demo is not known" in err
