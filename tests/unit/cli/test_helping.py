"""Help, completion and the manual: what a shell and a reader are told of the command line."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from msgspec.structs import replace

from relink import cli
from relink.cli import app
from relink.gpu.amd.target_id import table
from relink.loader.target import find_target
from relink.planning.case import Case, build_context
from relink.planning.options import Options
from relink.providers.distribution import Distribution
from relink.providers.profiles import shipped_profiles
from relink.system.findings.model import RULES
from relink.system.shipped_files import shipped_directory
from relink.vendors.rocm.vendor import where_to_get
from tests.support.command import Run
from tests.support.elf_builder import SUPPORTED, WHY_NOT, Export, Import, Library, build
from tests.support.wheels import make_wheel
from tests.support.works import TAG, Works, open_wheel

SLOW = pytest.mark.slow(reason="a process each")

builds = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.delenv("FORCE_COLOR", raising=False)

    def go(*words: str | Path) -> tuple[int, str, str]:
        arguments = [str(word) for word in words]
        monkeypatch.setattr(sys, "argv", ["relink", *arguments])
        with pytest.raises(SystemExit) as end:
            cli.main()
        captured = capsys.readouterr()
        return int(end.value.code or 0), captured.out, captured.err

    return go


def vendor(directory: Path) -> Path:
    """A wheel with something of everything that a profile can say."""
    runpath = ":".join(
        ["$ORIGIN/lib", *(f"$ORIGIN/../_sdk_gfx{n}/lib" for n in (90, 94, 11)), "$ORIGIN/../rocm/lib"]
    )
    elf = {
        "demo/first.so": Library(soname="first.so", exports=(Export("Host_Get"),)),
        "demo/core.so": Library(runpath=runpath, imports=(Import("Host_Get"),)),
        "demo/lib_rocm6.so": Library(needed=("libhip.so.6",)),
        "demo/lib_rocm7.so": Library(needed=("libhip.so.7",)),
    }
    files: dict[str, bytes | Path] = {
        "demo/__init__.py": b"",
        "demo/sub/__init__.py": b"",
        "space/x/__init__.py": b"",
    }
    return make_wheel(
        directory, files | {name: build(item) for name, item in elf.items()}, name="Demo_Pack", tag=TAG
    )


# list and show


def test_list(run: Run) -> None:
    code, out, _ = run("profile", "list")
    assert code == 0
    for name, profile in shipped_profiles().items():
        assert f"{name}  for {', '.join(profile.distributions)}\n  rests on {profile.source}\n" in out


def test_show(run: Run) -> None:
    code, out, _ = run("profile", "show", "torch")
    assert (code, out) == (0, (shipped_directory("profiles") / "packages" / "torch.toml").read_text())
    code, out, _ = run("profile", "show", "rocm")
    assert (code, out) == (0, (shipped_directory("profiles") / "rocm/rocm.toml").read_text())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("torhc", "relink: torhc: there is no such profile; did you mean torch?"),
        ("none", "none: the profile that says nothing has no file"),
        ("./x.toml", "x.toml: the profile cannot be read"),
    ],
)
def test_show_what_is_not_there(run: Run, name: str, message: str) -> None:
    code, out, err = run("profile", "show", name)
    assert (code, out) == (2, "")
    assert message in err


# check


def test_check(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('schema = "relink.profile/1"\ndistributions = ["a", "B"]\n')
    assert run("profile", "check", path) == (0, f"{path}: profile mine, for a, b\n", "")
    path.write_text('schema = "relink.profile/1"\n')
    assert "for no package by itself: name it by --profile" in run("profile", "check", path)[1]
    path.write_text('schema = "relink.profile/1"\nvarants = []\nrpath.drop = "x"\n')
    code, out, err = run("profile", "check", path)
    assert (code, out) == (2, "")
    assert f"  - {path}:2: varants: no such key; did you mean variants?\n" in err
    assert f'  - {path}:3: rpath.drop: a list was expected, not "x"\n' in err


@builds
def test_check_against_a_wheel(run: Run, tmp_path: Path) -> None:
    wheel = vendor(tmp_path)
    path = tmp_path / "mine.toml"
    path.write_text('schema = "relink.profile/1"\nvariants = ["demo/lib_*.so"]\nimports = ["demo"]\n')
    assert run("profile", "check", path, "--wheel", wheel)[0] == 0
    path.write_text('schema = "relink.profile/1"\nvariants = ["demo/libx_*.so"]\n')
    code, out, _ = run("profile", "check", path, "--wheel", wheel)
    assert (code, out) == (1, f"{path}: variants: demo/libx_*.so is no member of {wheel}\n")


@pytest.mark.few(3, reason="the same of other values")
@builds
@pytest.mark.parametrize("name", sorted(shipped_profiles()))
def test_what_is_shipped_shows_through_check(run: Run, name: str) -> None:
    path = shipped_directory("profiles") / "packages" / f"{name}.toml"
    assert run("profile", "check", path)[0] == 0


# --profile


def test_the_option_reaches_every_command_that_uses_a_profile(run: Run, works: Works, tmp_path: Path) -> None:
    wheel = works.small(tmp_path)
    for words in (
        (wheel, "--prefix", works.prefix, "--dry-run"),
        ("verify", wheel),
        ("explain", wheel, "--prefix", works.prefix),
        ("nix", wheel),
        ("isa", wheel),
    ):
        code, _, err = run(*words, "--profile", "torhc")
        assert (code, "did you mean torch?" in err) == (2, True), words
    path = tmp_path / "mine.toml"
    path.write_text('schema = "relink.profile/1"\n[[hints]]\ncode = "RLK*"\ntext = "Ask Ann."\n')
    code, out, _ = run(wheel, "--prefix", works.prefix, "--dry-run", "--json", "--profile", path)
    assert code == 0
    assert "Ask Ann. (profile mine)" in out


# Where a missing library is to be had


@SLOW
@builds
def test_explain_says_where_a_missing_library_is_to_be_had(run: Run, works: Works, tmp_path: Path) -> None:
    wheel = make_wheel(
        tmp_path,
        {"demo/a.so": build(Library(needed=("librccl.so.1",), imports=(Import("ncclGetVersion"),)))},
        tag=TAG,
    )
    code, out, err = run("explain", wheel, "librccl*", "--prefix", works.prefix)
    assert (code, err) == (0, "")
    assert "librccl.so.1  not found" in out
    assert "librccl.so.1 is part of RCCL" in out
    code, out, _ = run("verify", wheel)
    assert code == 1
    assert "librccl.so.1 is part of RCCL" in out


def test_the_distribution_is_that_of_the_sysroot(works: Works, tmp_path: Path) -> None:
    (tmp_path / "root" / "etc").mkdir(parents=True)
    (tmp_path / "root" / "etc" / "os-release").write_text('NAME="Arch Linux"\nID=arch\n')
    target = replace(find_target(), sysroot=str(tmp_path / "root"))
    with ExitStack() as stack:
        wheel = open_wheel(works.small(tmp_path), stack)
        context = build_context(Case(wheel, target, (), Options(), "run"))
    assert context.distribution == Distribution("Arch Linux", "arch")
    assert where_to_get("librccl.so.1", context.distribution, context.providers) == (
        "librccl.so.1 is part of RCCL; on Arch Linux: pacman -S rccl, if its release has this version."
    )


ROOT = Path(__file__).resolve().parents[3]
TOP: Any = typer.main.get_command(app)


def load_script() -> ModuleType:
    specification = importlib.util.spec_from_file_location("make_docs", ROOT / "scripts" / "make_docs.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["make_docs"] = module  # dataclasses look there
    specification.loader.exec_module(module)
    return module


make_docs = load_script()
COMMANDS: dict[str, Any] = dict(make_docs.leaves(TOP))


def relink(*words: str, **environment: str) -> str:
    """Standard output of relink with these words, in a process of its own that is called relink."""
    program = f"import sys; sys.argv[0] = 'relink'; from relink.cli import main; main({list(words)!r})"
    clean = {key: value for key, value in os.environ.items() if key not in ("FORCE_COLOR", "COLUMNS")}
    run = subprocess.run(
        [sys.executable, "-c", program], env=clean | environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


# Help


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_that_it_understands(name: str) -> None:
    text, _, example = re.sub(r"\s+", " ", COMMANDS[name].help).partition(" Example: ")
    assert text.endswith(".")
    for command in example.split("; "):
        program, *words = shlex.split(command.partition(" > ")[0])
        assert program == "relink"
        used = max(
            (known for known in COMMANDS if words[: len(known.split())] == known.split()), default="run"
        )
        rest = words[len(used.split()) :] if words[0] == used.split()[0] else words
        COMMANDS[used].make_context(used, rest).close()  # checks them, and runs nothing
        assert name in (used, "report")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_it_is_for(name: str) -> None:
    for parameter in COMMANDS[name].params:
        assert re.match(r"[A-Z].*[.)]$", parameter.help or ""), f"{name}: {parameter.name}"
        if parameter.param_type_name == "option" and name == "run":
            assert parameter.rich_help_panel, f"{parameter.name} is in no group of `relink run --help`"


@SLOW
def test_help_fits_a_narrow_terminal() -> None:
    for line in relink("run", "--help", COLUMNS="40").splitlines():
        assert len(line) <= 40, line


@SLOW
def test_brackets_in_help_are_shown() -> None:
    """rich takes them for markup: `[rocm]` was gone."""
    assert "the extra [rocm] brings them." in relink("run", "--help", COLUMNS="300")
    assert "in [tool.relink] of pyproject.toml" in relink("config", "--help", COLUMNS="300")


@SLOW
def test_no_default_is_shown_that_does_not_hold() -> None:
    """Without --output the wheels that install makes are kept nowhere: they do not go to the current directory."""
    lines = relink("install", "--help", COLUMNS="300").splitlines()
    (line,) = [line for line in lines if "--output" in line]
    assert "Default: none is kept, but" in line


# Completion


def proposals(line: str, shell: str) -> str:
    """What a shell is told at the end of `line`."""
    words = line.split(" ")
    told = {
        "_RELINK_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    return relink(**told)


@pytest.mark.few(1, reason="a bash each")
@pytest.mark.parametrize(
    ("line", "some"),
    [
        ("relink in", ["index", "inspect", "install"]),
        ("relink unknown --dry", ["--dry-run"]),
        ("relink --pre", ["--prefix", "--preload"]),
        ("relink --ver", ["--version", "--verbose"]),
        ("relink x.whl --allow-m", ["--allow-missing"]),
        ("relink --prefix /opt/rocm --dry", ["--dry-run"]),
        ("relink run x.whl --dry", ["--dry-run"]),
        ("relink x.whl --compress b", ["balanced"]),
        ("relink explain x.whl --int", ["--interpreter"]),
        ("relink rules RLK10", [code for code in RULES if code.startswith("RLK10")]),
        ("relink x.whl --ignore RLK10", [code for code in RULES if code.startswith("RLK10")]),
        ("relink x.whl --gpu gfx103", sorted(gpu for gpu in table().processors if gpu.startswith("gfx103"))),
        ("relink x.whl --profile onnx", [name for name in shipped_profiles() if name.startswith("onnx")]),
        ("relink profile sh", ["show"]),
        ("relink doctor --nothing", []),
        ("relink x.wh", []),  # bash then completes file names
    ],
)
def test_bash_completes(line: str, some: list[str]) -> None:
    assert sorted(proposals(line, "bash").split()) == sorted(some)


@SLOW
def test_other_shells_show_what_it_is() -> None:
    assert "gfx1030\tRX 6800" in proposals("relink x.whl --gpu gfx1030", "fish")
    assert '"RLK101":"missing library"' in proposals("relink rules RLK101", "zsh")


@SLOW
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_the_script_for_bash_works_in_bash(tmp_path: Path) -> None:
    try:
        script = relink(
            "--show-completion", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="", SHELL="/bin/bash"
        )
    except AssertionError as error:
        if "not supported" not in str(error):
            raise
        pytest.skip("no shell runs the tests, as far as shellingham sees")
    if "complete -o default" not in script:
        pytest.skip("the shell that runs the tests is not bash, and relink shows the script of that")
    program = tmp_path / "relink"
    program.write_text(f"#!{sys.executable}\nfrom relink.cli import main\nmain()\n")
    program.chmod(0o755)
    asked = (
        'COMP_WORDS=(relink x.whl --substi); COMP_CWORD=2; _relink_completion relink; echo "${COMPREPLY[@]}"'
    )
    run = subprocess.run(
        ["bash", "--norc", "-c", f"{script}\n{asked}"],
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.split() == ["--substitute"]


# The manual


@pytest.mark.parametrize("name", make_docs.FILES)
def test_the_manual_is_up_to_date(name: str) -> None:
    made = make_docs.FILES[name]()
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == made, "run `make docs`"


@pytest.mark.parametrize("name", ["relink.1", "cli.md"])
def test_every_option_is_in_the_manual(name: str) -> None:
    text = (ROOT / "docs" / name).read_text(encoding="utf-8").replace("\\-", "-")
    for command in (TOP, *COMMANDS.values()):
        assert command is TOP or command.name in text
        for option in (
            name for parameter in command.params for name in parameter.opts if name.startswith("-")
        ):
            # The table of cli.md is of the commands; what the program itself takes is in relink(1).
            assert option in text or (command is TOP and name == "cli.md"), option


@pytest.mark.skipif(shutil.which("groff") is None, reason="needs groff")
def test_groff_finds_nothing_odd_in_the_manual() -> None:
    page = ROOT / "docs" / "relink.1"
    run = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-b", str(page)], capture_output=True, text=True, check=True
    )
    assert run.stderr == ""
    shown = re.sub(r"\x1b\[[0-9;]*m|.\x08", "", run.stdout)
    assert "--allow-missing GLOB" in shown
    assert "relink onnxruntime_rocm-1.22.2-cp312-cp312-manylinux_2_34_x86_64.whl" in shown


def test_relink_alone_prints_its_help(run: Run) -> None:
    code, out, err = run()
    assert (code, err) == (0, "")
    assert "Usage: " in out  # followed by the name of the program that runs: pytest here
