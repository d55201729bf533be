"""relink profile list, show, new and check; --profile; and the profile that `new` begins."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from relink import cli
from relink.loader.target import find_target
from relink.planning.case import Case, context_of
from relink.planning.options import Options
from relink.planning.reading import open_wheel
from relink.providers.distribution import Distribution
from relink.providers.profiles import shipped_profiles
from relink.system.shipped_files import shipped_directory
from relink.vendors.rocm.vendor import where_to_get
from tests.support.elf_builder import SUPPORTED, WHY_NOT, Export, Import, Library, build
from tests.support.wheels import make_wheel
from tests.support.works import TAG, Works

Run = Callable[..., tuple[int, str, str]]
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
        context = context_of(Case(wheel, target, (), Options(), "run"))
    assert context.distribution == Distribution("Arch Linux", "arch")
    assert where_to_get("librccl.so.1", context.distribution, context.providers) == (
        "librccl.so.1 is part of RCCL; on Arch Linux: pacman -S rccl, if its release has this version."
    )
