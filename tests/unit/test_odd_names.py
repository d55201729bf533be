"""Characters that mean something to the loader, in the name of a directory or a member: right, or refused with the character."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from relink.elf.edit import ElfEdit
from relink.elf.image import read_image
from relink.library import relink
from relink.loader.target import find_target
from relink.planning.options import Options
from relink.providers.prefix import open_prefix
from relink.runs.questions import verify_wheel
from relink.system.errors import ProviderError, WheelError
from tests.support.cc import shared
from tests.support.edits import apply_edit
from tests.support.elf_builder import Library
from tests.support.works import OUTPUT, Works, installed

SPLITTING = {
    "a:b": "a colon",
    "a\nb": "a line feed",
    "$LIB": "$LIB",
    "x${ORIGIN}": "${ORIGIN}",
    "$PLATFORM": "$PLATFORM",
}
"""What no search path can hold, and how that is told."""
PLAIN = ("a b", "a;b", "a$b", "$", "a'b", 'a"b', "a\\b", "-x", "@x", "%s", "$LIBx")
ALL = (*PLAIN, *SPLITTING)


def same_as_usual(works: Works, tmp_path: Path, output: Path) -> bool:
    """Whether an output is the one that usual names give."""
    (tmp_path / "usual").mkdir()
    assert relink(works.small(tmp_path / "usual"), works.options(tmp_path / "usual" / "out")).ok
    return output.read_bytes() == (tmp_path / "usual" / "out" / OUTPUT).read_bytes()


@pytest.mark.few(1, reason="the others are odd in the same ways")
@pytest.mark.parametrize("name", ALL)
def test_in_tmpdir(works: Works, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One member needs another, so the loader names a path in there."""
    odd = tmp_path / name
    odd.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(odd))
    inner = shared(tmp_path / "src" / "libinner.so.1", "int inner(void){return 1;}")
    source = "extern int inner(void), hip(void); int g(void){return inner() + hip();}"
    flags = ["-Wl,--enable-new-dtags,-rpath,/opt/rocm-0.0.0/lib:$ORIGIN"]
    outer = shared(
        tmp_path / "src" / "outer.so",
        source,
        needed=[inner, works.prefix / "lib" / "libhip.so.7"],
        flags=flags,
    )
    vendor = works.wheel(tmp_path, {"demo/libinner.so.1": inner, "demo/outer.so": outer})
    report = relink(vendor, works.options(tmp_path / "out"))
    assert report.ok, report.findings
    assert verify_wheel(tmp_path / "out" / OUTPUT, Options()).findings == ()
    assert [*odd.iterdir()] == []


@pytest.mark.few(1, reason="the others are odd in the same ways")
@pytest.mark.parametrize("name", ALL)
def test_in_the_directories_of_input_and_output(works: Works, tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    vendor = works.small(tmp_path / name)
    report = relink(vendor, works.options(tmp_path / "out" / name))
    assert report.ok, report.findings
    assert same_as_usual(works, tmp_path, tmp_path / "out" / name / OUTPUT)


@pytest.mark.few(1, reason="the others are odd in the same ways")
@pytest.mark.parametrize("name", PLAIN)
def test_in_a_prefix_that_works(works: Works, tmp_path: Path, name: str) -> None:
    shutil.copytree(works.prefix, tmp_path / name)
    options = replace(works.options(tmp_path / "out"), prefixes=(str(tmp_path / name),))
    report = relink(works.small(tmp_path), options)
    assert report.ok, report.findings
    (changed,) = (file for file in report.files if file.changed)
    assert changed.edit.search_path == str(tmp_path / name / "lib")


@pytest.mark.few(2, reason="the others are odd in the same ways")
@pytest.mark.parametrize("name", SPLITTING)
def test_in_a_prefix_that_no_search_path_can_name(works: Works, tmp_path: Path, name: str) -> None:
    shutil.copytree(works.prefix, tmp_path / name)
    options = replace(works.options(tmp_path / "out"), prefixes=(str(tmp_path / name),))
    with pytest.raises(ProviderError) as caught:
        relink(works.small(tmp_path), options)
    assert f"its path has {SPLITTING[name]}, " in caught.value.message
    assert "such as a symbolic link to it" in caught.value.message
    # Which is what helps.
    (tmp_path / "link").symlink_to(tmp_path / name)
    report = relink(works.small(tmp_path), replace(options, prefixes=(str(tmp_path / "link"),)))
    assert report.ok, report.findings


@pytest.mark.parametrize("name", SPLITTING)
def test_in_a_directory_of_the_prefix(tmp_path: Path, name: str) -> None:
    """One that nobody asked for is passed over, with the reason."""
    Library("libx.so.1").write(tmp_path / "lib" / "libx.so.1")
    Library("liby.so.1").write(tmp_path / "lib" / name / "liby.so.1")
    provider = open_prefix(str(tmp_path), find_target())
    assert provider.directories == (str(tmp_path / "lib"),)
    assert provider.find("liby.so.1") is None
    (skipped,) = provider.skipped
    assert skipped.path == str(tmp_path / "lib" / name)
    assert skipped.reason.startswith(f"its path has {SPLITTING[name]}, ")


def members(works: Works, name: str) -> dict[str, bytes | Path]:
    """A library of that name, and one in a directory of that name."""
    return {"demo/__init__.py": b"", f"demo/{name}/x.so": works.library, f"demo/{name}.so": works.library}


@pytest.mark.few(1, reason="the others are odd in the same ways")
@pytest.mark.parametrize("name", ["a:b", *(name for name in PLAIN if "\\" not in name)])
def test_in_a_member(works: Works, tmp_path: Path, name: str) -> None:
    report = relink(works.wheel(tmp_path, members(works, name)), works.options(tmp_path / "out"))
    assert report.ok, report.findings
    assert {file.path for file in report.files if file.changed} == {f"demo/{name}.so", f"demo/{name}/x.so"}
    assert verify_wheel(tmp_path / "out" / OUTPUT, Options()).findings == ()


@pytest.mark.few(0, reason="the other tokens are not expanded either")
@pytest.mark.parametrize("name", [name for name in SPLITTING if "$" in name])
def test_in_a_member_that_dlopen_does_not_find(works: Works, tmp_path: Path, name: str) -> None:
    report = relink(works.wheel(tmp_path, members(works, name)), works.options(tmp_path / "out"))
    said = f"the loader does not load it: its path has {SPLITTING[name]}, which dlopen replaces"
    errors = {
        found.subject: (found.code, found.message) for found in report.findings if found.level == "error"
    }
    assert errors == {f"demo/{name}.so": ("RLK116", said), f"demo/{name}/x.so": ("RLK116", said)}
    assert not (tmp_path / "out").exists()
    assert relink(
        works.wheel(tmp_path, members(works, name)), works.options(tmp_path / "out", verify=False)
    ).ok
    python = installed(tmp_path / "out" / OUTPUT, tmp_path / "env")
    for library in ("x.so", f"{name}.so"):
        assert "cannot open shared object file" in loaded(python, tmp_path / "env", library).stderr


@pytest.mark.parametrize(("name", "said"), [("a\nb", "control characters"), ("a\\b", "backslash")])
def test_in_a_member_that_no_wheel_may_have(works: Works, tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(WheelError) as caught:
        relink(works.wheel(tmp_path, {f"demo/{name}.so": works.library}), works.options(tmp_path / "out"))
    assert any(said in issue for issue in caught.value.issues), caught.value.issues


def loaded(python: Path, environment: Path, name: str) -> subprocess.CompletedProcess[str]:
    """Load an installed library in a Python."""
    (library,) = environment.rglob(name)
    code = f"import ctypes; print(ctypes.CDLL({str(library)!r}).g())"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)


def test_it_loads_from_there(works: Works, tmp_path: Path) -> None:
    """What was verified is what Python does."""
    shutil.copytree(works.prefix, tmp_path / "a ;$b")
    options = replace(works.options(tmp_path / "out"), prefixes=(str(tmp_path / "a ;$b"),))
    assert relink(works.wheel(tmp_path, members(works, "$x:; y")), options).ok
    python = installed(tmp_path / "out" / OUTPUT, tmp_path / "env")
    for name in ("x.so", "$x:; y.so"):
        assert loaded(python, tmp_path / "env", name).stdout.strip() == "42"


@pytest.mark.few(2, reason="the same of other values")
@pytest.mark.parametrize(
    "name", ["lib a.so", "lib:a.so", "lib\na.so", "lib$LIB.so", "lib;a.so", "--help", "lib,a.so"]
)
def test_in_patchelfs_arguments(works: Works, tmp_path: Path, name: str) -> None:
    """Each edit does what it says or fails: what comes out is compared with it."""
    original = works.library.read_bytes()
    before = read_image(original, "a.so")
    path = tmp_path / "a.so"
    for edit, needed in (
        (ElfEdit(add=(name,)), (*before.needed, name)),
        (
            ElfEdit(replace=(("libhip.so.7", name),)),
            tuple(name if one == "libhip.so.7" else one for one in before.needed),
        ),
    ):
        path.write_bytes(original)
        assert apply_edit(path, edit, before, original).needed == needed
    path.write_bytes(original)
    after = apply_edit(path, ElfEdit(f"/{name}/lib", "runpath"), before, original)
    assert after.runpath == f"/{name}/lib"
