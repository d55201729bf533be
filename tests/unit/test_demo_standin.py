"""The demo's stand-in prefix, held against the real loader: what a library imports is all there, in its versions."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from examples.demo import standin
from relink.elf.image import Image, read_image
from relink.elf.symbol_reader import read_symbols
from relink.elf.symbols import SymbolTable
from relink.loader.target import find_target
from relink.providers.prefix import open_prefix
from relink.system.errors import RelinkError
from relink.vendors.rocm.places import release_of
from tests.support.cc import shared

VENDOR = """
__asm__(".symver old_properties,hipProperties@hip_4.2");
__asm__(".symver new_properties,hipProperties@@hip_6.0");
long old_properties(void) { return 1; }
long new_properties(void) { return 2; }
long hipMalloc(void) { return 3; }
char hipTable[64] = "table";
"""
SCRIPT = (
    'hip_4.2 { global: "hipMalloc"; hipTable; local: old_properties; new_properties; };\n'
    "hip_6.0 { };\n"
    "hip_7.0 { };\n"
)
USER = """
__asm__(".symver old_properties,hipProperties@hip_4.2");
extern long old_properties(void);
extern long hipProperties(void);
extern long hipMalloc(void);
extern long migraphx_program_create(void);
extern char hipTable[64];
extern long Provider_GetHost(void);
extern long not_needed(void) __attribute__((weak));
char *table(void) { return hipTable; }
long use(void) {
    long sum = hipProperties() + hipMalloc() + migraphx_program_create() + Provider_GetHost();
    return sum + old_properties() + (not_needed ? not_needed() : 0);
}
"""
HOST = "pkg/libhost.so"
CLIENT = "pkg/libuser.so"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A directory with a wheel's two libraries; the libraries that they were linked to are gone."""
    build = tmp_path / "build"
    build.mkdir()
    (build / "map").write_text(SCRIPT)
    hip = shared(build / "libamdhip64.so.7", VENDOR, flags=[f"-Wl,--version-script={build / 'map'}"])
    migraphx = shared(build / "libmigraphx_c.so.3", "long migraphx_program_create(void) { return 4; }")
    host = shared(tmp_path / "wheel" / HOST, "long Provider_GetHost(void) { return 5; }")
    shared(
        tmp_path / "wheel" / CLIENT, USER, needed=[migraphx, hip, host, "-lc"], flags=["-Wl,-rpath,$ORIGIN"]
    )
    for path in (hip, migraphx):
        path.unlink()
    return tmp_path / "wheel"


def facts(wheel: Path) -> tuple[dict[str, Image], dict[str, SymbolTable]]:
    content = {name: (wheel / name).read_bytes() for name in (CLIENT, HOST)}
    images = {name: read_image(data, name) for name, data in content.items()}
    return images, {name: read_symbols(data) for name, data in content.items()}


def ask_the_loader(library: Path, *directories: Path) -> tuple[str, str]:
    """(map, complaints) of the real loader's dry run, with `directories` as LD_LIBRARY_PATH."""
    asked = {"LD_TRACE_LOADED_OBJECTS": "1", "LD_WARN": "yes", "LD_BIND_NOW": "yes", "LC_ALL": "C"}
    asked["LD_LIBRARY_PATH"] = ":".join(map(str, directories))
    command = [find_target().interpreter, str(library)]
    run = subprocess.run(command, env=os.environ | asked, text=True, capture_output=True, check=False)
    return run.stdout, run.stderr


def test_the_real_loader_finds_every_symbol_and_version(wheel: Path, tmp_path: Path) -> None:
    before, _ = ask_the_loader(wheel / CLIENT)
    assert before.count("not found") == 2

    images, tables = facts(wheel)
    elsewhere = standin.process_exports([wheel / CLIENT, wheel / HOST], find_target())
    prefix = standin.build_standin(images, tables, tmp_path / "rocm", "7.2.4", elsewhere=elsewhere)

    after, complaints = ask_the_loader(wheel / CLIENT, prefix / "lib", prefix / "lib/migraphx/lib")
    assert "not found" not in after
    assert complaints == ""
    assert f"{prefix}/lib/migraphx/lib/libmigraphx.so.2014000" in after


def test_it_exports_what_is_imported_and_no_more(wheel: Path, tmp_path: Path) -> None:
    prefix = standin.build_standin(*facts(wheel), tmp_path / "rocm", "7.2.4")
    hip = read_symbols((prefix / "lib/libamdhip64.so.7").read_bytes())
    found = {
        (name, one.version, one.hidden, one.type)
        for name, definitions in hip.exports.items()
        for one in definitions
        if one.version is not None and not name.startswith("hip_")
    }
    assert found == {
        ("hipMalloc", "hip_4.2", False, "func"),
        ("hipTable", "hip_4.2", False, "object"),
        ("hipProperties", "hip_4.2", True, "func"),
        ("hipProperties", "hip_6.0", False, "func"),
    }
    assert {node.name for node in hip.verdefs if not node.base} == {"hip_4.2", "hip_6.0"}
    migraphx = read_symbols((prefix / "lib/libmigraphx_c.so.3").read_bytes())
    assert set(migraphx.exports) == {"migraphx_program_create"}


def test_it_is_laid_out_like_a_rocm(wheel: Path, tmp_path: Path) -> None:
    prefix = standin.build_standin(*facts(wheel), tmp_path / "rocm", "7.2.4")
    provider = open_prefix(str(prefix), find_target())
    rocm = release_of(provider)
    assert rocm is not None
    assert rocm.release == "7.2.4"
    assert sorted(provider.libraries) == ["libamdhip64.so.7", "libmigraphx.so.2014000", "libmigraphx_c.so.3"]
    front = prefix / "lib/libmigraphx_c.so.3"
    image = read_image(front.read_bytes(), "libmigraphx_c.so.3")
    assert image.runpath == "/opt/rocm-7.2.4/lib/migraphx/lib"  # gaps the RPATH chain and leads nowhere
    alone, _ = ask_the_loader(front)
    assert "libmigraphx.so.2014000 => not found" in alone
    assert "not a ROCm" in (prefix / "STAND-IN.txt").read_text()


def test_names_without_a_version_go_to_the_library_they_resemble(wheel: Path) -> None:
    images, tables = facts(wheel)
    by_soname = {library.soname: library for library in standin.standin_libraries(images, tables)}
    assert [name for name, _, _ in by_soname["libmigraphx_c.so.3"].symbols] == ["migraphx_program_create"]


def test_a_version_that_only_a_record_names_is_defined(wheel: Path, tmp_path: Path) -> None:
    images, tables = facts(wheel)
    tables[CLIENT] = replace(tables[CLIENT], imports=())
    prefix = standin.build_standin(images, tables, tmp_path / "rocm", "7.2.4")
    hip = read_symbols((prefix / "lib/libamdhip64.so.7").read_bytes())
    assert {node.name for node in hip.verdefs if not node.base} == {"hip_4.2", "hip_6.0"}


def test_what_the_process_exports_is_not_stood_in_for(wheel: Path) -> None:
    exports = standin.process_exports([wheel / CLIENT], find_target())
    assert "malloc" in exports
    assert "PyObject_GetAttr" in exports
    assert "hipMalloc" not in exports
    images, tables = facts(wheel)
    libraries = standin.standin_libraries(images, tables, {"migraphx_program_create"})
    assert not next(library for library in libraries if library.soname == "libmigraphx_c.so.3").symbols


def test_a_wheel_that_needs_no_rocm_is_refused(wheel: Path, tmp_path: Path) -> None:
    images, tables = facts(wheel)
    with pytest.raises(RelinkError, match="nothing to stand in for"):
        standin.build_standin({HOST: images[HOST]}, {HOST: tables[HOST]}, tmp_path / "rocm", "7.2.4")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the demo's wheel is for x86_64 only")
def test_a_compiler_is_looked_for_before_the_download(tmp_path: Path) -> None:
    """Without a ROCm of this machine the stand-in has to be compiled: nothing is fetched for nothing."""
    program = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("demo", {str(Path(standin.__file__).with_name("demo.py"))!r})
demo = importlib.util.module_from_spec(spec)
sys.modules["demo"] = demo
spec.loader.exec_module(demo)
def none():
    raise demo.RelinkError("there is no C compiler")
def fetched(*_):
    raise AssertionError("it was downloaded")
demo.find_places = lambda *_: ()
demo.standin.compiler, demo._download = none, fetched
sys.exit(demo.main(["--work", {str(tmp_path / "work")!r}]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, "there is no C compiler" in done.stderr) == (2, True), done.stderr


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the demo's wheel is for x86_64 only")
def test_a_wheel_that_pip_would_refuse_is_refused_first(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Before a directory is filled or anything is relinked; with what would be installed."""
    other = f"cp3{sys.version_info[1] + 1}"
    wheel = tmp_path / f"demo-1.0-{other}-{other}-linux_x86_64.whl"
    script = Path(standin.__file__).with_name("demo.py")
    command = [sys.executable, str(script), "--wheel", str(wheel), "--work", str(tmp_path / "work")]
    assert subprocess.run(command, check=False).returncode == 2
    said = capfd.readouterr().err
    assert f"is tagged {other}-{other}, which Python 3.{sys.version_info[1]} does not install" in said
    assert "pass a wheel for Python 3." in said
    assert [path.name for path in (tmp_path / "work").iterdir()] == [".relink-demo"]
