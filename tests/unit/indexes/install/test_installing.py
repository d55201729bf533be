"""install: an environment gets the relinked wheel, by its own pip or by uv, and has the vendor's again after --undo."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from relink.cli.formats import Shown
from relink.cli.installing import show_outcome
from relink.elf.stub import StubFunction
from relink.indexes.install import installers
from relink.indexes.install.environment import TargetEnvironment, find_installed
from relink.indexes.install.installers import cached_sha256s, store_wheel, working_place
from relink.indexes.install.installing import InstallResult, Trial, import_modules, load_members, required_by
from relink.loader.loading import RootRefusedError
from relink.planning.model import Stub
from relink.system.errors import UsageError
from relink.wheel.naming import parse_wheel_name
from tests.support.cc import shared
from tests.support.command import Run
from tests.support.reports import sample_report
from tests.support.wheels import make_wheel
from tests.support.works import TAG, VENDOR_PATH, Works, copy_glibc
from tests.unit.indexes.install.conftest import pip_install, put, python_of, site_of, tree

SLOW = pytest.mark.slow(reason="an installation; test_install has one")

LOADS = b"""import ctypes, os
ctypes.CDLL(os.path.join(os.path.dirname(__file__), "a.so"))
"""
RELINKED = "demo==1.0+rocm7.2.4"


def vendor(works: Works, index: Path, **more: object) -> Path:
    """A wheel that can be imported only after it was relinked, with a script in it."""
    files: dict[str, bytes | Path] = {
        "demo/__init__.py": LOADS,
        "demo/more/__init__.py": b"",
        "demo/a.so": works.library,
        "demo-1.0.data/scripts/demo-script": b"#!python\nimport demo\n",
        "demo-1.0.dist-info/entry_points.txt": b"[console_scripts]\ndemo = demo:main\n",
    }
    return make_wheel(index, files, tag=TAG, **more)  # type: ignore[arg-type]


def version_in(environment: Path) -> str:
    ask = "import importlib.metadata as m; print(m.version('demo'))"
    return subprocess.run(
        [python_of(environment), "-I", "-c", ask], capture_output=True, text=True, check=True
    ).stdout.strip()


def imports(environment: Path) -> bool:
    return (
        subprocess.run(
            [python_of(environment), "-I", "-c", "import demo"], capture_output=True, check=False
        ).returncode
        == 0
    )


# relink install


@pytest.mark.few(1, reason="the same by the other installer")
def test_install(run: Run, works: Works, index: Path, environment: Path) -> None:
    """With what it depends on; the wheel is chosen by hash, so that no temporary path is recorded."""
    make_wheel(index, {"helper.py": b""}, name="helper", tag="py3-none-any")
    vendor(works, index, requires=("helper",))
    code, out, err = run("install", "demo", "--prefix", works.prefix, "--python", python_of(environment))
    assert (code, err) == (0, "")
    assert f"demo 1.0+rocm7.2.4 is installed in {environment}; imported: demo." in out
    assert out.splitlines()[-1].strip() == RELINKED
    site = site_of(environment)
    assert (site / "helper.py").exists()
    assert not list(site.glob("demo-*.dist-info/direct_url.json"))
    assert imports(environment)


@SLOW
def test_json(run: Run, works: Works, index: Path, make_environment: Callable[..., Path]) -> None:
    """Nothing but one document on standard output: of install, of a run with errors, and of repair."""
    environment = make_environment()
    vendor(works, index)
    words = ("--python", python_of(environment), "--json")
    code, out, err = run("install", "demo", "--prefix", works.prefix, *words)
    document = json.loads(out)
    (wheel,) = document["wheels"]
    assert (code, err, document["schema"], document["environment"]) == (
        0,
        "",
        "relink.install/1",
        str(environment),
    )
    assert (wheel["ok"], wheel["version"], wheel["constraint"]) == (True, "1.0+rocm7.2.4", RELINKED)
    assert wheel["imports"] == [{"module": "demo", "problem": None}]
    assert wheel["report"]["schema"] == "relink.report/1"
    code, out, err = run("repair", "demo", "--undo", *words)
    (wheel,) = json.loads(out)["wheels"]
    assert (code, err, wheel["version"], wheel["report"]) == (0, "", "1.0", None)
    make_wheel(index, {"demo/__init__.py": b"", "demo/lost.so": works.lost}, version="2.0", tag=TAG)
    code, out, err = run("install", "demo", "--prefix", works.prefix, *words)
    (wheel,) = json.loads(out)["wheels"]
    assert (code, err, wheel["ok"], wheel["version"]) == (1, "", False, None)
    assert "RLK101" in [found["code"] for found in wheel["report"]["findings"]]


@SLOW
def test_repair_leaves_alone_what_needs_no_rocm(
    run: Run, works: Works, index: Path, make_environment: Callable[..., Path], tmp_path: Path
) -> None:
    idle = shared(tmp_path / "m" / "idle.so", "int p(void){return 1;}", flags=[VENDOR_PATH])
    environment = make_environment(with_pip=False)
    make_wheel(index, {"demo/__init__.py": b"", "demo/idle.so": idle}, tag=TAG)
    put(environment, "demo")
    before = tree(environment)
    code, out, err = run("repair", "demo", "--prefix", works.prefix, "--python", python_of(environment))
    assert (code, err) == (0, "")
    assert out.splitlines()[-2:] == ["Needs no ROCm: left as it is.", f"{environment} was not changed."]
    assert tree(environment) == before


@pytest.mark.slow(reason="two installations by pip")
def test_a_module_that_is_missing_is_what_comes_next(
    run: Run, works: Works, index: Path, make_environment: Callable[..., Path]
) -> None:
    """The vendor's wheel would lack it as well: --undo does not help. With --no-deps nobody has looked for it."""
    environment = make_environment()
    wheel = make_wheel(
        index,
        {"demo/__init__.py": b"import helper", "demo/a.so": works.library},
        tag=TAG,
        requires=("helper",),
    )
    words = ("install", wheel, "--prefix", works.prefix, "--python", python_of(environment))
    code, out, err = run(*words, "--no-deps")
    assert (code, err) == (1, "")
    told, command = out.splitlines()[-2:]
    assert told.endswith("but cannot be imported. helper, which it imports, is not there.")
    assert command == f"    {python_of(environment)} -m pip install helper"
    assert "--undo" not in out
    make_wheel(index, {"helper.py": b"raise ValueError('no')"}, name="helper", tag="py3-none-any")
    out = run(*words)[1]
    assert out.splitlines()[-1] == f"    relink repair demo --undo --python {python_of(environment)}"


def test_no_loader_is_advised_for_an_environment(
    run: Run, works: Works, index: Path, make_environment: Callable[..., Path], tmp_path: Path
) -> None:
    """`install` takes no --interpreter, and an environment's Python has its own loader."""
    environment = make_environment()
    prefix = tmp_path / "system"
    copy_glibc(prefix / "lib", "libc.so.6")
    newer = shared(
        prefix / "lib" / "libhip.so.7",
        'extern int later(void); __asm__(".symver later,later@GLIBC_2.99"); int hip(void){return later();}',
        needed=[later(tmp_path)],
    )
    wheel = make_wheel(index, {"demo/__init__.py": b"", "demo/a.so": works.library}, tag=TAG)
    words = (wheel, "--prefix", prefix, "--python", python_of(environment))
    code, out, _ = run("install", *words)
    assert (code, newer.exists(), "RLK301" in out) == (1, True, True), out
    assert "--interpreter" not in out


def later(directory: Path) -> Path:
    """A library of the C library's soname that has a version of the future."""
    script = directory / "later.map"
    script.write_text("GLIBC_2.99 { later; };\n")
    flags = [f"-Wl,--version-script={script}"]
    return shared(directory / "later" / "libc.so.6", "int later(void){return 1;}", flags=flags)


@SLOW
def test_the_constraint_keeps_it(
    run: Run, works: Works, index: Path, make_environment: Callable[..., Path], tmp_path: Path
) -> None:
    """Without the line an upgrade takes a newer wheel of the vendor's."""
    environment = make_environment()
    vendor(works, index)
    assert run("install", "demo==1.0", "--prefix", works.prefix, "--python", python_of(environment))[0] == 0
    make_wheel(index, {"demo/__init__.py": LOADS, "demo/a.so": works.library}, version="1.1", tag=TAG)
    (tmp_path / "constraints.txt").write_text(RELINKED + "\n")
    pip_install(environment, "--upgrade", "demo", "-c", tmp_path / "constraints.txt")
    assert version_in(environment) == "1.0+rocm7.2.4"
    pip_install(environment, "--upgrade", "demo")
    assert version_in(environment) == "1.1"


@SLOW
def test_a_wheel_that_is_named_and_kept(
    run: Run,
    works: Works,
    index: Path,
    make_environment: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The active environment is the one that is changed; a second time it is installed again. A relinked wheel is refused."""
    environment = make_environment()
    monkeypatch.setenv("VIRTUAL_ENV", str(environment))
    (tmp_path / "kept").mkdir()
    monkeypatch.chdir(tmp_path / "kept")
    words = ("install", vendor(works, index), "--prefix", works.prefix, "-o", ".")
    assert run(*words)[0] == 0
    (kept,) = (tmp_path / "kept").iterdir()
    (site_of(environment) / "demo" / "a.so").write_bytes(b"")
    code, out, _ = run(*words)
    assert code == 0
    assert f"The relinked wheel is {kept.name}." in out
    assert imports(environment)
    (site_of(environment) / "demo" / "a.so").write_bytes(b"")
    code, _, err = run("install", kept, "--prefix", works.prefix)
    assert (code, imports(environment)) == (2, False)
    assert "demo-1.0-" in err, "the vendor's wheel is named"


@SLOW
def test_what_cannot_be_imported(
    run: Run, works: Works, index: Path, make_environment: Callable[..., Path]
) -> None:
    environment = make_environment()
    make_wheel(index, {"demo/__init__.py": b"import nosuch\n", "demo/a.so": works.library}, tag=TAG)
    words = ("install", "demo", "--prefix", works.prefix, "--python", python_of(environment))
    code, out, _ = run(*words)
    assert code == 1
    assert "import demo: ModuleNotFoundError: No module named 'nosuch'" in out
    assert out.splitlines()[-1].endswith("but cannot be imported. nosuch, which it imports, is not there.")
    code, out, _ = run(*words, "--no-import-test")
    assert code == 0
    assert "; nothing was imported." in out


@SLOW
def test_errors_leave_the_environment_alone(run: Run, works: Works, index: Path, environment: Path) -> None:
    make_wheel(index, {"demo/__init__.py": b"", "demo/lost.so": works.lost}, tag=TAG)
    before = tree(environment)
    code, out, _ = run("install", "demo", "--prefix", works.prefix, "--python", python_of(environment))
    assert code == 1
    assert "error RLK101 libnowhere.so.1" in out
    assert f"{environment} was not changed." in out
    assert tree(environment) == before


# relink repair and --undo


@pytest.mark.few(0, reason="an installation each")
@pytest.mark.parametrize("known", ["by content", "by hash"])
def test_repaired_again_and_undone(
    run: Run, works: Works, index: Path, environment: Path, tmp_path: Path, known: str
) -> None:
    """Each repair begins with the vendor's wheel; --undo leaves every file of that as it was."""
    wheel = vendor(works, index)
    pip_install(environment, "demo" if known == "by content" else wheel)
    before = tree(site_of(environment) / "demo")
    assert any(name.endswith("direct_url.json") for name in tree(environment)) is (known == "by hash")
    assert not imports(environment)

    words = ("repair", "demo", "--python", python_of(environment))
    code, out, err = run(*words, "--prefix", works.prefix)
    assert (code, err) == (0, "")
    assert f"demo 1.0+rocm7.2.4 is installed in {environment}; imported: demo." in out
    assert imports(environment)
    assert tree(site_of(environment) / "demo") != before
    other = Path(shutil.copytree(works.prefix, tmp_path / "other"))
    (other / ".info" / "version").write_text("7.3.0\n")
    assert run(*words, "--prefix", other)[0] == 0
    assert version_in(environment) == "1.0+rocm7.3.0"

    code, out, err = run(*words, "--undo")
    assert (code, err) == (0, "")
    assert f"demo 1.0 is installed in {environment} again." in out
    after = tree(site_of(environment) / "demo")
    assert {name: after[name] for name in before if not name.endswith(".pyc")} == {
        name: digest for name, digest in before.items() if not name.endswith(".pyc")
    }
    assert not imports(environment)


@SLOW
def test_repair_takes_no_relinked_wheel_of_an_index(
    run: Run, works: Works, index: Path, make_environment: Callable[..., Path]
) -> None:
    """1.0+rocm7.2.4.1 satisfies ==1.0, too, and pip prefers it."""
    environment = make_environment()
    vendor(works, index)
    pip_install(environment, "demo")
    make_wheel(index, {"demo/__init__.py": b"of an index"}, version="1.0+rocm7.2.4.1", tag=TAG)
    code, _, err = run("repair", "demo", "--prefix", works.prefix, "--python", python_of(environment))
    assert (code, err) == (0, "")
    assert version_in(environment) == "1.0+rocm7.2.4"


@SLOW
def test_undo_of_an_installation(
    run: Run, works: Works, index: Path, make_environment: Callable[..., Path]
) -> None:
    """The vendor's wheel comes from the cache, by its hash."""
    environment = make_environment()
    vendor(works, index)
    python = python_of(environment)
    assert run("install", "demo", "--prefix", works.prefix, "--python", python)[0] == 0
    for wheel in index.iterdir():
        wheel.unlink()
    make_wheel(index, {"demo/__init__.py": b"another build"}, tag=TAG)
    assert run("repair", "demo", "--undo", "--python", python)[0] == 0
    assert version_in(environment) == "1.0"
    assert (site_of(environment) / "demo" / "__init__.py").read_bytes() == LOADS
    code, _, err = run("repair", "demo", "--undo", "--python", python)
    assert code == 2
    assert f"demo 1.0 in {environment} is not relinked, so there is nothing to undo" in err


@SLOW
@pytest.mark.parametrize("command", ["install", "repair"])
def test_the_vendors_wheel_is_kept_until_it_is_undone(
    run: Run,
    works: Works,
    index: Path,
    make_environment: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
) -> None:
    """Also one that was passed by its path, which is gone afterwards, and in a cache that may hold nothing."""
    monkeypatch.setattr(installers, "SIZE", 0)
    environment = make_environment()
    python = python_of(environment)
    wheel = vendor(works, index)
    words: tuple[str | Path, ...] = ("install", wheel)
    if command == "repair":
        pip_install(environment, "demo")
        words = ("repair", "demo", "--wheel", wheel)
    assert run(*words, "--prefix", works.prefix, "--python", python)[0] == 0
    wheel.unlink()

    def fill() -> None:
        with working_place() as place:
            store_wheel(make_wheel(place, {"other.py": b""}, name="other", tag="py3-none-any"))

    fill()
    assert len(cached_sha256s()) == 2
    assert run("repair", "demo", "--undo", "--python", python)[0] == 0
    assert version_in(environment) == "1.0"
    fill()
    assert len(cached_sha256s()) == 1


@SLOW
def test_only_the_very_wheel(
    run: Run, works: Works, index: Path, make_environment: Callable[..., Path], tmp_path: Path
) -> None:
    environment = make_environment()
    wheel = vendor(works, index)
    pip_install(environment, "demo")
    before = tree(environment)
    words = ("repair", "demo", "--prefix", works.prefix, "--python", python_of(environment))
    other = make_wheel(tmp_path / "other", {"demo/__init__.py": LOADS, "demo/a.so": works.plain}, tag=TAG)
    code, _, err = run(*words, "--wheel", other)
    assert code == 2
    assert "is not the wheel that demo was installed from, or its files were changed since: " in err
    assert "demo/a.so" in err
    assert tree(environment) == before
    assert run(*words, "--wheel", wheel)[0] == 0
    code, _, err = run("repair", "demo", "--undo", "--python", python_of(environment), "--wheel", other)
    assert code == 2
    assert "is not the wheel that demo was installed from (sha256 " in err


# Who is refused


def test_one_that_cannot_be_repaired_is_named(
    run: Run, make_environment: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its error is made of, and the others are repaired all the same."""
    refused = []

    def refuse(name: str, *_: object, **__: object) -> None:
        refused.append(name)
        raise RootRefusedError("/x/liba.so", "file too short")

    monkeypatch.setattr("relink.indexes.install.installing.repair", refuse)
    found = [SimpleNamespace(name=name, mendable=True, relinked=False) for name in ("one", "two")]
    monkeypatch.setattr(
        "relink.indexes.install.checking.check_environment",
        lambda *_, **__: SimpleNamespace(distributions=found),
    )
    code, _, err = run("repair", "--all", "--python", python_of(make_environment()))
    assert (code, refused) == (2, ["one", "two"])
    assert [line for line in err.splitlines() if "liba" in line] == [
        f"relink: {name}: /x/liba.so: cannot be loaded (file too short)" for name in refused
    ]


@SLOW
def test_the_environment_of_a_uv_project(
    run: Run,
    works: Works,
    index: Path,
    make_environment: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """It is found where nobody activated it; the wheel stays beside pyproject.toml for `uv add`, and nothing in uv's cache.

    Its site-packages does not exist: nothing was installed yet.
    """
    project = tmp_path / "my project"
    site_of(make_environment("my project/.venv", with_pip=False)).rmdir()
    (project / "uv.lock").touch()
    vendor(works, index)
    monkeypatch.chdir(project)
    code, out, err = run("install", "demo", "--prefix", works.prefix, "-q")
    assert (code, err) == (0, "")
    (wheel,) = project.glob("*.whl")
    assert out.splitlines()[-2:] == [
        "`uv run` and `uv sync` put the vendor's wheels back, until the project names these:",
        f"    uv add --project '{project}' '{wheel}'",
    ]
    assert version_in(project / ".venv") == "1.0+rocm7.2.4"
    assert not [*(tmp_path / "uv").glob("archive*/*")]
    assert f"Works: 1 package with native code in {project}/.venv" in run("check")[1]


def test_no_environment_was_named(run: Run, works: Works, index: Path) -> None:
    """Relink's own Python is never changed, whether in a virtual environment or not."""
    vendor(works, index)
    Path(".venv").symlink_to(sys.prefix)  # that of relink itself
    for command in ("install", "repair"):
        code, _, err = run(command, "demo", "--prefix", works.prefix)
        assert code == 2
        assert "no environment was named: activate a virtual environment, or pass --python PATH" in err


def test_an_externally_managed_python(run: Run, works: Works, index: Path, tmp_path: Path) -> None:
    vendor(works, index)
    (tmp_path / "EXTERNALLY-MANAGED").write_text("[externally-managed]\n")
    python = tmp_path / "python3"
    # As if its standard library lay there.
    paths = dict.fromkeys(("purelib", "platlib", "stdlib"), str(tmp_path))
    changed = f"import sysconfig\nsysconfig.get_paths = lambda *_, **__: {paths}\n"
    python.write_text(
        f'#!/bin/sh\nexec {os.path.realpath(sys.executable)} -I -S -c "{changed}$4" "$5" "$6"\n'
    )
    python.chmod(0o755)
    for command in ("install", "repair"):
        code, _, err = run(command, "demo", "--prefix", works.prefix, "--python", python)
        assert code == 2
        assert f"{python} is managed by the system's package manager (PEP 668)" in err
        assert f"{python} -m venv DIR" in err


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("mark", ["pipx_metadata.json", "uv-receipt.toml"])
def test_the_environment_of_a_tool(
    run: Run, works: Works, index: Path, make_environment: Callable[..., Path], mark: str
) -> None:
    """Relink itself runs in one under pipx and uvx."""
    environment = make_environment()
    vendor(works, index)
    (environment / mark).touch()
    for command in ("install", "repair"):
        code, _, err = run(command, "demo", "--prefix", works.prefix, "--python", python_of(environment))
        assert code == 2
        assert "has made for a tool of its own" in err


@SLOW
@pytest.mark.parametrize("mark", ["INSTALLER", "conda-meta"])
def test_condas_packages(
    run: Run, works: Works, index: Path, make_environment: Callable[..., Path], mark: str
) -> None:
    environment = make_environment()
    vendor(works, index)
    pip_install(environment, "demo")
    if mark == "INSTALLER":
        (site_of(environment) / "demo-1.0.dist-info" / "INSTALLER").write_text("conda\n")
    else:
        (environment / "conda-meta").mkdir()
        (environment / "conda-meta" / "demo-1.0-py311h_0.json").write_text("{}")
    before = tree(environment)
    for command in ("install", "repair"):
        code, _, err = run(command, "demo", "--prefix", works.prefix, "--python", python_of(environment))
        assert code == 2
        assert "demo is a package of conda's" in err
    assert tree(environment) == before


@SLOW
def test_an_editable_installation(
    run: Run, works: Works, index: Path, make_environment: Callable[..., Path]
) -> None:
    """As pip leaves it behind: PEP 660, with direct_url.json of PEP 610."""
    environment = make_environment()
    vendor(works, index)
    pip_install(environment, "demo")
    facts = {"url": "file:///src/demo", "dir_info": {"editable": True}}
    (site_of(environment) / "demo-1.0.dist-info" / "direct_url.json").write_text(json.dumps(facts))
    for command in ("install", "repair"):
        code, _, err = run(command, "demo", "--prefix", works.prefix, "--python", python_of(environment))
        assert code == 2
        assert "demo is an editable installation" in err


def test_progress_is_shown(
    run: Run,
    works: Works,
    index: Path,
    make_environment: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While relink reads, plans and edits; a wheel that is refused has the first three stages."""
    wheel = make_wheel(index, {"demo/__init__.py": b"", "demo/lost.so": works.lost}, tag=TAG)
    venv = make_environment(with_pip=False)
    put(venv, wheel)
    stages: list[tuple[bool, str]] = []

    @contextmanager
    def record(quiet: bool) -> Iterator[tuple[Callable[[str], None], Callable[[int, int], None]]]:
        yield (lambda stage: stages.append((quiet, stage))), (lambda _done, _total: None)

    monkeypatch.setattr("relink.cli.installing.show_progress", record)
    words = ("--prefix", works.prefix, "--python", python_of(venv))
    for command, quiet in ((("install", wheel, "--no-deps", "-q"), True), (("repair", "demo"), False)):
        assert run(*command, *words)[0] == 1
        assert stages[:3] == [(quiet, stage) for stage in ("target", "read", "plan")]
        stages.clear()


def test_a_stub_that_may_abort_is_told_beside_the_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    def tell(*functions: StubFunction) -> str:
        report = sample_report()
        plan = replace(report.plan, stubs=(Stub("demo/libsmi.so.1", "libsmi.so.1", "", functions),))
        wheel = parse_wheel_name("demo-1.0-py3-none-any.whl")
        trial = Trial("demo/a.so", None, "the process died of SIGABRT")
        done = InstallResult(replace(report, plan=plan), wheel, loads=(trial,))
        show_outcome(done, "/venv", Shown(quiet=True))
        return capsys.readouterr().out

    with_abort = tell(StubFunction("smi_init"), StubFunction("smi_stop", answer=2))
    assert (
        "a.so is bound; a function of the stub of libsmi.so.1 aborts, or to go on it needs a GPU"
        in with_abort
    )
    assert "a.so is bound; to go on it needs a GPU" in tell(StubFunction("smi_stop", answer=2))


def hand_made(site: Path) -> tuple[TargetEnvironment, Path]:
    """An environment that has demo 1.0 without a file; and the dist-info directory."""
    info = site / "demo-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
    (info / "RECORD").write_text("")
    return TargetEnvironment(sys.executable, site, (site,)), info


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a": ' + "[" * 900 + "]" * 900 + "}", '{"a": 1e400}'])
def test_json_recursion(tmp_path: Path, text: str) -> None:
    """direct_url.json, which whatever installs a package writes."""
    environment, info = hand_made(tmp_path)
    (info / "direct_url.json").write_text(text)
    with pytest.raises(UsageError, match="so what was installed is not known; install the package again"):
        find_installed(environment, "demo")


@pytest.mark.usefixtures("index")
def test_what_is_not_installed(run: Run, make_environment: Callable[..., Path]) -> None:
    environment = make_environment()
    code, _, err = run("repair", "demo", "--python", python_of(environment))
    assert code == 2
    assert f"demo is not installed in {environment}" in err
    code, _, err = run("repair", "demo==1.0", "--python", python_of(environment))
    assert code == 2
    assert "pass the name alone" in err


def test_what_a_profile_requires_counts(tmp_path: Path) -> None:
    """The METADATA of onnxruntime-rocm names nothing, and its import asks for numpy."""
    wheel = make_wheel(
        tmp_path, {"onnxruntime/__init__.py": b""}, name="onnxruntime_rocm", requires=("more",)
    )
    assert {"more", "numpy"} <= {*required_by(wheel)}


def python_that_fails(directory: Path, *stderr: str, code: str = "exit 1") -> str:
    """A program that prints lines on standard error and ends, as a Python does that cannot import a module."""
    path = directory / "python"
    path.write_text("#!/bin/sh\n" + "".join(f"echo '{line}' >&2\n" for line in stderr) + code + "\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (["Traceback (most recent call last):", "ImportError: no such"], "ImportError: no such"),
        (
            ["ModuleNotFoundError: No module named numpy", "", "The above exception …", "ImportError"],
            "ImportError (ModuleNotFoundError: No module named numpy)",
        ),
        (["  what", "demo.OddError"], "demo.OddError"),
        ([], "exit code 1"),
    ],
)
def test_the_reason(tmp_path: Path, lines: list[str], problem: str) -> None:
    python = python_that_fails(tmp_path, *lines)
    assert import_modules(python, ["demo"]) == (Trial("demo", problem),)


def test_how_it_died(tmp_path: Path) -> None:
    python = python_that_fails(tmp_path, code="kill -SEGV $$")
    assert import_modules(python, ["a", "b"]) == tuple(
        Trial(module, "the process died of SIGSEGV") for module in "ab"
    )


def test_what_can_be_imported(tmp_path: Path) -> None:
    assert import_modules(python_that_fails(tmp_path, code="exit 0"), ["a"]) == (Trial("a", None),)


def test_what_dlopen_says_of_each_library(tmp_path: Path) -> None:
    """One that cannot be loaded keeps no other from being tried, and one that ends the process neither."""
    good = shared(tmp_path / "good.so", "int f(void){return 1;}")
    lost = shared(
        tmp_path / "lost.so",
        "extern int nowhere(void); int g(void){return nowhere();}",
        flags=["-Wl,-z,undefs"],
    )
    dies = shared(
        tmp_path / "dies.so", "void abort(void); __attribute__((constructor)) static void d(void){abort();}"
    )
    members = {path.name: str(path) for path in (lost, dies, good)}
    for has_gpu in (True, False):
        told = {trial.name: trial for trial in load_members(sys.executable, [], [], members, has_gpu=has_gpu)}
        assert "undefined symbol: nowhere" in (told["lost.so"].problem or "")
        died = "the process died of SIGABRT"
        assert told["dies.so"] == (Trial("dies.so", died) if has_gpu else Trial("dies.so", None, died))
        assert told["good.so"] == Trial("good.so", None)
    exporter = shared(tmp_path / "exporter.so", "int nowhere(void){return 1;}")
    (trial,) = load_members(sys.executable, [], [str(exporter)], {"lost.so": str(lost)}, has_gpu=True)
    assert trial.problem is None
