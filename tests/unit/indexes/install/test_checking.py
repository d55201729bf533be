"""relink check: what does not work in an environment is told, and repair --all mends what can be."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from relink.indexes.install import checking
from relink.loader import tables
from relink.loader.target import Target
from relink.planning import case, reading
from relink.providers.distribution import Distribution
from relink.system import progress
from relink.vendors.cuda import cuda
from tests.support.cc import shared, shared_without
from tests.support.command import Run
from tests.support.elf_builder import SUPPORTED, WHY_NOT, Library
from tests.support.elf_builder import build as build_elf
from tests.support.rocm_sdk import Settings, build, tiny_prefix, unpack
from tests.support.wheels import make_wheel
from tests.support.works import TAG
from tests.unit.gpu.amd.build import code_object
from tests.unit.indexes.install.conftest import HERE, USES, VENDOR, put, python_of, site_of, tree

SLOW = pytest.mark.slow(
    reason="an environment is made; test_an_environment_before_and_after_repair has the whole of it"
)

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)


@pytest.fixture
def venv(make_environment: Callable[..., Path], index: Path, tmp_path: Path) -> Path:
    """An environment with a package that needs no ROCm."""
    plain = shared(tmp_path / "plain.so", "int f(void){return 1;}")
    environment = make_environment(with_pip=False)
    put(environment, make_wheel(index, {"plain/p.so": plain}, name="plain", tag=TAG))
    return environment


@SLOW
def test_a_pin_on_the_local_version(run: Run, venv: Path, rocm: Path, index: Path, tmp_path: Path) -> None:
    """Another package requires the version with the vendor's label: told when that is changed, and later."""
    library = shared(tmp_path / "gpu.so", USES, needed=[rocm / "lib/librocblas.so.5"], flags=[VENDOR])
    files: dict[str, bytes | Path] = {"gpu/__init__.py": b"", "gpu/a.so": library}
    put(venv, make_wheel(index, files, name="gpu", version="1.0+rocm6.0", tag=TAG))
    requires = (
        "gpu==1.0+rocm6.0",
        "gpu==1.0",
        "gpu>=1.0",
        'gpu==1.0+rocm5; extra == "old"',
    )
    put(venv, make_wheel(index, {"pinned.py": b""}, name="pinned", requires=requires, tag="py3-none-any"))
    told = "RLK556 pinned: requires gpu==1.0+rocm6.0, not gpu 1.0+rocm6.0.relinked"
    assert "RLK556" not in run("check", venv, "--prefix", rocm)[1]
    options = ("--prefix", rocm, "--python", python_of(venv))
    code, out, err = run("repair", "gpu", *options)
    assert (code, err) == (0, "")
    assert told in out
    assert out.count("RLK556") == 1
    document = json.loads(run("check", venv, "--output-format", "json")[1])
    assert [one["message"] for one in document["findings"] if one["code"] == "RLK556"] == [
        told.partition(": ")[2]
    ]


def test_an_environment_before_and_after_repair(run: Run, venv: Path, gpu: Path, rocm: Path) -> None:
    code, out, err = run("check", venv)
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == f"Works: 1 package with native code in {venv}, and none of them needs ROCm."
    assert "Next" not in out

    put(venv, gpu)
    before = tree(venv)
    code, out, err = run("check", venv, "--prefix", rocm)
    first, line, last, word, step = out.splitlines()
    assert (code, err) == (1, "")
    assert first == last == f"gpu does not work; 2 packages with native code in {venv}."
    assert line == "  gpu 1.0: its GPU part does not load: librocblas.so.5 not found"
    assert word == "Next (not tried: it needs the network and changes the environment):"
    assert step == f"    relink repair --all --python {python_of(venv)} --prefix {rocm}"
    assert tree(venv) == before

    code, out, err = run(*step.split()[1:])
    assert (code, err) == (0, "")
    assert run("check", venv)[:2] == (0, f"Works: 2 packages with native code in {venv}.\n")
    code, out, _ = run("repair", "--all", "--prefix", rocm, "--python", python_of(venv))
    assert (code, out) == (0, f"Nothing in {venv} has to be repaired.\n")

    assert run("repair", "--all", "--undo", "--python", python_of(venv))[0] == 0
    kept = {
        name: digest
        for name, digest in before.items()
        if ".dist-info/" not in name and not name.endswith(".pyc")
    }
    assert kept.items() <= tree(venv).items()
    assert run("check", venv)[0] == 1


@SLOW
def test_what_an_import_opens_is_said_on_request(run: Run, venv: Path, tmp_path: Path) -> None:
    """In order, with the line of the source; the other packages are not looked at."""
    lost = shared_without(tmp_path / "lost.so", "libgone.so.1")
    source = b"""import ctypes, os
here = os.path.dirname(__file__)
ctypes.CDLL(os.path.join(here, "core.so"))
try:
    ctypes.CDLL(os.path.join(here, "lost.so"))
except OSError:
    pass
exec(input())
"""
    files: dict[str, bytes | Path] = {
        "parts/__init__.py": source,
        "parts/core.so": shared(tmp_path / "core.so", "int c;"),
        "parts/lost.so": lost,
    }
    put(venv, make_wheel(tmp_path, files, name="parts", tag=TAG))
    code, out, _ = run("check", venv, "--why", "Parts")
    opened = [line.split(maxsplit=1) for line in out.splitlines() if "parts/__init__.py:" in line]
    assert code == 0
    assert opened == [
        ["certain", "parts/core.so (ctypes.CDLL, parts/__init__.py:3)"],
        ["guarded", "parts/lost.so (ctypes.CDLL, parts/__init__.py:5): libgone.so.1 not found"],
        ["unknown", "code that is made at run time (exec, parts/__init__.py:8)"],
    ]
    (checked,) = json.loads(run("check", venv, "--why", "parts", "--output-format", "json")[1])[
        "distributions"
    ]
    assert len(checked["events"]) >= len(opened)
    assert "plain" not in out
    code, _, err = run("check", venv, "--why", "absent")
    assert (code, f"absent is not installed in {venv}, or has no native code" in err) == (2, True)


@SLOW
@pytest.mark.parametrize("damaged", ["RECORD", "METADATA", "an open quote"])
def test_one_bad_package(run: Run, venv: Path, gpu: Path, rocm: Path, damaged: str) -> None:
    """It is told, and the others are looked at and repaired."""
    put(venv, gpu)
    put(venv, make_wheel(gpu.parent, {"bad/p.so": gpu.read_bytes()}, name="bad", tag=TAG))
    info = site_of(venv) / "bad-1.0.dist-info"
    if damaged == "an open quote":
        (info / "RECORD").write_text('"' + (info / "RECORD").read_text())
    else:
        (info / damaged).write_bytes(b"\xff\xfe")
    code, out, err = run("check", venv)
    assert (code, err) == (1, "")
    assert "error RLK554 bad-1.0: " in out, out
    assert "gpu 1.0: its GPU part does not load" in out
    code, out, _ = run("repair", "--all", "--prefix", rocm, "--python", python_of(venv))
    assert "gpu 1.0+relinked is installed" in out


@SLOW
def test_a_damaged_plan_ends_no_check(run: Run, venv: Path, gpu: Path) -> None:
    """The plan in a relinked package is a claim; the package and the others are judged by their files."""
    put(venv, gpu)
    whole = run("check", venv, "--gpu", "gfx1030")
    (site_of(venv) / "gpu-1.0.dist-info" / "relink.json").write_text('{"x":')
    with (site_of(venv) / "gpu-1.0.dist-info" / "RECORD").open("a") as record:
        record.write("gpu-1.0.dist-info/relink.json,,\n")
    code, out, err = run("check", venv, "--gpu", "gfx1030")
    assert (code, err) == (whole[0], "")
    assert "gpu 1.0: its GPU part does not load" in out


def test_no_record(run: Run, venv: Path) -> None:
    """Nobody knows its files; Debian's packages have none."""
    (site_of(venv) / "plain-1.0.dist-info" / "RECORD").unlink()
    code, out, err = run("check", venv)
    assert (code, err) == (0, "")
    assert "warning RLK554 plain-1.0: was not looked at: its RECORD cannot be read" in out


def test_nothing_that_is_installed_runs(run: Run, venv: Path, index: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    source = f"""#include <stdio.h>
    __attribute__((constructor)) static void begin(void) {{ fclose(fopen("{ran}", "w")); }}
    int f(void) {{ return 1; }}"""
    writes = f"open({str(ran)!r}, 'w')\n"
    library = shared(tmp_path / "c.so", source)
    files: dict[str, bytes | Path] = {"canary/c.so": library, "canary/__init__.py": writes.encode()}
    put(venv, make_wheel(index, files, name="canary", tag=TAG))
    (site_of(venv) / "canary.pth").write_text(f"import builtins; {writes}")
    assert run("check", venv, "--gpu", "gfx1100")[0] == 0
    assert not ran.exists()
    subprocess.run([python_of(venv), "-c", "0"], check=True)
    assert ran.exists(), "the environment has no code that would run"


@SLOW
def test_a_chain_of_files(run: Run, venv: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of N files each loads those behind it, N²/2 in all: that package is not checked to its end, and the others are."""
    monkeypatch.setattr(progress, "MAPPED_PER_LOAD", 0)
    monkeypatch.setattr(progress, "LEAST_MAPPED", 600)
    files: dict[str, bytes | Path] = {
        f"chain/l{number}.so": build_elf(
            Library(
                soname=f"l{number}.so",
                needed=(f"l{number + 1}.so",) if number < 59 else (),
                runpath="$ORIGIN",
            )
        )
        for number in range(60)
    }
    put(venv, make_wheel(index, files, name="chain", tag=TAG))
    code, out, _ = run("check", venv)
    assert code == 1
    assert out.splitlines()[0] == f"chain-1.0 cannot be checked; 1 package with native code in {venv}."
    assert (
        "error RLK554 chain-1.0: was not looked at: the ELF files of the wheel map more than 600 files" in out
    )


@SLOW
def test_an_optional_file_of_the_gpu_part(
    run: Run, venv: Path, rocm: Path, index: Path, tmp_path: Path
) -> None:
    """The profile of JAX's plugin says what it does without; the rest of its GPU part loads."""
    code = "extern int hip(void); int u(void){return hip();}"
    hip = rocm / "lib/libamdhip64.so.7"
    lost = shared(tmp_path / "old/libhipsparse.so.4", "int sparse(void){return 1;}")
    more = "extern int sparse(void); extern int hip(void); int s(void){return sparse() + hip();}"
    files: dict[str, bytes | Path] = {
        "jax_rocm7_plugin/__init__.py": b"",
        "jax_rocm7_plugin/rocm_plugin_extension.so": shared(
            tmp_path / "a.so", code, needed=[hip], flags=[f"-Wl,-rpath,{rocm}/lib"]
        ),
        "jax_rocm7_plugin/_sparse.so": shared(tmp_path / "b.so", more, needed=[lost, hip]),
    }
    put(venv, make_wheel(index, files, name="jax_rocm7_plugin", tag=TAG))
    assert run("check", venv)[0] == 0
    (line,) = [line for line in run("check", venv)[1].splitlines() if "jax-rocm7-plugin 1.0" in line]
    assert line.startswith("  jax-rocm7-plugin 1.0: works, without sparse matrices (libhipsparse.so.4")


@SLOW
def test_a_package_of_kernel_files(run: Run, venv: Path, index: Path) -> None:
    files: dict[str, bytes | Path] = {"kern/__init__.py": b"", "kern/gfx942/pa.co": code_object("gfx942")}
    put(venv, make_wheel(index, files, name="kern", tag=TAG))
    code, out, _ = run("check", venv, "--gpu", "gfx1100")
    assert code == 1
    assert "  kern 1.0: has no code for this GPU: gfx1100: the wheel has code for gfx942, none" in out
    code, out, _ = run("check", venv, "--gpu", "gfx942")
    assert (code, out.splitlines()[0]) == (0, f"Works: 2 packages with native code in {venv}.")


@SLOW
def test_an_import_that_ends_early_hides_no_missing_library(
    run: Run, venv: Path, rocm: Path, index: Path, tmp_path: Path
) -> None:
    library = shared(
        tmp_path / "a.so",
        "extern int hip(void); int u(void){return hip();}",
        needed=[rocm / "lib/libamdhip64.so.7"],
    )
    files: dict[str, bytes | Path] = {
        "early/__init__.py": b"import relink_nowhere\n",
        "early/part.so": library,
    }
    put(venv, make_wheel(index, files, name="early", tag=TAG))
    code, out, _ = run("check", venv)
    assert code == 1
    assert "early 1.0: its GPU part does not load: libamdhip64.so.7 not found" in out


@SLOW
def test_what_fails_keeps_no_other_from_being_repaired(
    run: Run, venv: Path, gpu: Path, rocm: Path, index: Path, tmp_path: Path
) -> None:
    lost = shared(tmp_path / "old/librocsolver.so.0", "int solve(void){return 1;}")
    other = shared(
        tmp_path / "more.so", "extern int solve(void); int u(void){return solve();}", needed=[lost]
    )
    wheel = make_wheel(index, {"bad/a.so": other}, name="bad", tag=TAG)
    put(venv, gpu, wheel)
    wheel.unlink()  # it cannot be fetched again
    code, out, err = run("repair", "--all", "--prefix", rocm, "--python", python_of(venv))
    assert code == 2
    assert err.startswith("relink: bad: ")
    assert "gpu 1.0+relinked is installed" in out
    code, out, _ = run("check", venv)
    assert code == 1
    assert out.splitlines()[0].startswith("bad does not work; ")


@SLOW
def test_two_runtimes_of_two_packages(run: Run, venv: Path, rocm: Path, index: Path, tmp_path: Path) -> None:
    """Each brings one, and each loads: imported together they are two in one process."""
    for name in ("first", "second"):
        library = shared(
            tmp_path / f"{name}.so",
            "extern int hip(void); int u(void){return hip();}",
            needed=[rocm / "lib/libamdhip64.so.7"],
            flags=[HERE],
        )
        files = {f"{name}/a.so": library, f"{name}/libamdhip64.so.7": rocm / "lib/libamdhip64.so.7"}
        put(venv, make_wheel(index, files, name=name, tag=TAG))
    code, out, _ = run("check", venv)
    assert code == 0
    told = next(line for line in out.splitlines() if "RLK130" in line)
    assert "2 copies of the GPU runtime are in one process" in told
    assert f"first: {site_of(venv)}/first/libamdhip64.so.7" in told
    assert f"second: {site_of(venv)}/second/libamdhip64.so.7" in told
    remedy = out.splitlines()[out.splitlines().index(told) + 1]
    assert "first and second bring their own copy: install a build without it" in remedy
    assert "relink" not in remedy  # `relink repair` leaves both as they are


@SLOW
def test_a_runtime_of_a_package_and_one_of_a_prefix(
    run: Run, venv: Path, rocm: Path, index: Path, tmp_path: Path
) -> None:
    """What is printed is taken by the command line; the package that brings a runtime is none that it mends."""
    source, hip = "extern int hip(void); int u(void){return hip();}", rocm / "lib/libamdhip64.so.7"
    second = tmp_path / "other/lib/libamdhip64.so.7"
    shared(second, "int hip(void){return 2;}")
    mine = shared(tmp_path / "first.so", source, needed=[hip], flags=[HERE])
    brings: dict[str, bytes | Path] = {"first/__init__.py": b"", "first/a.so": mine, f"first/{hip.name}": hip}
    put(venv, make_wheel(index, brings, name="first", tag=TAG))
    other = shared(tmp_path / "second.so", source, needed=[second], flags=[f"-Wl,-rpath,{second.parent}"])
    # It maps the other package's runtime, too, and brings none.
    opens = b"import ctypes, os, first\nctypes.CDLL(os.path.join(os.path.dirname(first.__file__), 'libamdhip64.so.7'))\n"
    files: dict[str, bytes | Path] = {"second/__init__.py": opens, "second/a.so": other}
    put(venv, make_wheel(index, files, name="second", tag=TAG))
    out = run("check", venv)[1]
    (remedy,) = (line for line in out.splitlines() if "relink repair second" in line)
    command, rest = remedy.partition("relink ")[2].split(". ", 1)
    assert rest.startswith("first brings its own copy: ")
    code, said, err = run(*shlex.split(command.replace("DIR", str(rocm))))
    assert (code, "second 1.0+" in said) == (0, True), said + err


@SLOW
def test_an_executable_stack(
    run: Run, venv: Path, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `relink verify` has it: glibc 2.41 and newer load no module that asks for one."""
    monkeypatch.setattr(Target, "refuses_stacks", property(lambda _: True))
    source = "void *PyInit_bad(void){return 0;}"
    bad = shared(tmp_path / "bad.so", source, flags=["-Wl,-z,execstack"])
    files: dict[str, bytes | Path] = {"stack/__init__.py": b"from stack import bad\n", "stack/bad.so": bad}
    wheel = make_wheel(index, files, name="stack", tag=TAG)
    put(venv, wheel)
    for words in (("check", venv), ("verify", wheel)):
        code, out, _ = run(*words)
        assert code == 1
        assert "executable stack" in out


@SLOW
def test_a_package_for_another_vendors_gpus(
    run: Run, venv: Path, gpu: Path, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cudart = shared(tmp_path / "libcudart.so.12", "int cuda(void){return 1;}")
    library = shared(
        tmp_path / "torch.so",
        "extern int cuda(void); int u(void){return cuda();}",
        needed=[cudart],
        flags=[HERE],
    )
    files = {"fake/a.so": library, "fake/libcudart.so.12": cudart}
    put(venv, make_wheel(index, files, name="fake", tag=TAG))
    assert "RLK551" not in run("check", venv)[1]
    code, out, _ = run("check", venv, "--gpu", "gfx1100")
    text = "is built for NVIDIA's CUDA (it needs libcudart.so.12), and not for gfx1100"
    assert (code, out.splitlines()[0]) == (
        1,
        f"fake does not work; 2 packages with native code in {venv}.",
    )
    assert f"fake 1.0: does not work on the GPU: it {text}" in out
    assert run("check", venv, "--gpu", "gfx1100", "--ignore", "RLK551")[0] == 0
    put(venv, gpu)
    out = run("check", venv)[1]
    assert "RLK551 fake: is built for NVIDIA's CUDA (it needs libcudart.so.12), and gpu for ROCm" in out
    # On a machine whose driver is that vendor's, it is what the machine is for.
    here = replace(cuda, libraries=replace(cuda.libraries, driver_file=str(library)))
    monkeypatch.setattr(checking, "RECOGNIZED", (here,))
    assert "RLK551" not in run("check", venv)[1]
    assert "RLK551 fake" in run("check", venv, "--gpu", "gfx1100")[1]


@SLOW
def test_a_forwarder_is_no_second_runtime(run: Run, venv: Path, index: Path, tmp_path: Path) -> None:
    """It has nothing itself, and leads to the runtime that is there."""
    hip = shared(tmp_path / "rocm/lib/libamdhip64.so.7", "int hip(void){return 1;}")
    leads = shared(tmp_path / "libamdhip64.so", needed=[hip], flags=[f"-Wl,-rpath,{hip.parent}"])
    files: dict[str, bytes | Path] = {
        "demo/__init__.py": b"import ctypes, os\nctypes.CDLL(os.path.join(os.path.dirname(__file__), 'libamdhip64.so'))\n",
        "demo/libamdhip64.so": leads,
    }
    put(venv, make_wheel(index, files, tag=TAG))
    code, out, _ = run("check", venv)
    assert (code, "RLK130" in out) == (0, False), out


@SLOW
@pytest.mark.parametrize("beside", [False, True])
def test_a_runtime_that_is_opened_by_name_alone(
    run: Run, venv: Path, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, beside: bool
) -> None:
    """As hip-python and triton: nothing needs HIP, and the first call fails."""
    source = '#include <dlfcn.h>\nvoid *f(void){return dlopen("libamdhip64.so", RTLD_NOW);}'
    files: dict[str, bytes | Path] = {
        "demo/__init__.py": LOAD,
        "demo/a.so": shared(tmp_path / "a.so", source, flags=[HERE]),
    }
    if beside:
        files["demo/libamdhip64.so"] = shared(tmp_path / "libamdhip64.so", "int hip(void){return 1;}")
    put(venv, make_wheel(index, files, tag=TAG))
    text = "demo 1.0: works, but for what opens libamdhip64.so, which is not found"
    code, out, _ = run("check", venv)
    assert (code, text in out) == (0, not beside)
    # Nothing is amiss where the machine is for another vendor's GPUs.
    here = replace(cuda, libraries=replace(cuda.libraries, driver_file=str(tmp_path)))
    monkeypatch.setattr(checking, "RECOGNIZED", (here,))
    assert text not in run("check", venv)[1]


def needing(tmp_path: Path, soname: str) -> Path:
    """Return a library that needs another one, which is not installed."""
    gone = shared(tmp_path / "gone" / soname, "int gone(void){return 1;}")
    return shared(
        tmp_path / f"needs-{soname}", "extern int gone(void); int u(void){return gone();}", needed=[gone]
    )


LOAD = b"import ctypes, os\nctypes.CDLL(os.path.join(os.path.dirname(__file__), 'a.so'))\n"


@SLOW
def test_a_driver_that_this_machine_has_not(run: Run, venv: Path, index: Path, tmp_path: Path) -> None:
    """It is a fact about the machine, told once, and nothing is wrong with the packages."""
    for name in ("first", "second"):
        files: dict[str, bytes | Path] = {
            f"{name}/__init__.py": LOAD,
            f"{name}/a.so": needing(tmp_path, "libcuda.so.1"),
        }
        put(venv, make_wheel(index, files, name=name, tag=TAG))
    code, out, _ = run("check", venv)
    assert (code, out.splitlines()[0]) == (
        0,
        f"Works: 3 packages with native code in {venv}, and none of them needs ROCm.",
    )
    assert out.count("RLK553") == 1
    assert "needs the driver of NVIDIA's CUDA, which this machine has not: first, second" in out


@SLOW
def test_the_process_decides_and_not_the_file(run: Run, venv: Path, index: Path, tmp_path: Path) -> None:
    """One that the import does not open is no error, nor is one whose failure it catches; one that it opens is."""
    library = needing(tmp_path, "libtbb.so.12")
    guarded = (
        b"try:\n    import ctypes, os\n"
        + LOAD.replace(b"import ctypes, os\n", b"    ")
        + b"except OSError:\n    pass\n"
    )
    for name, source in {"unused": b"", "guarded": guarded}.items():
        files: dict[str, bytes | Path] = {f"{name}/__init__.py": source, f"{name}/a.so": library}
        put(venv, make_wheel(index, files, name=name, tag=TAG))
    code, out, _ = run("check", venv)
    first, line, last = out.splitlines()
    assert (code, first, last) == (
        0,
        *[f"Works: 3 packages with native code in {venv}, and none of them needs ROCm."] * 2,
    )
    assert line == "  guarded 1.0: works, without a.so (libtbb.so.12)"
    document = json.loads(run("check", venv, "--json")[1])
    assert {one["name"]: one["parts"] for one in document["distributions"]} == {
        "plain": {"plain/p.so": "unknown"},
        "unused": {"unused/a.so": "unknown"},
        "guarded": {"guarded/a.so": "guarded"},
    }

    put(venv, make_wheel(index, {"opened/__init__.py": LOAD, "opened/a.so": library}, name="opened", tag=TAG))
    code, out, _ = run("check", venv)
    assert code == 1
    assert "  opened 1.0: does not load: libtbb.so.12 not found" in out


@pytest.mark.few(
    1, reason="an environment each; of these the first has several libraries, and names with t64"
)
@pytest.mark.parametrize(
    ("names", "command"),
    [
        (("libgone.so.7", "libGone-2.so.2"), "apt install libgone7t64 libgone-2-2"),
        (("libgone.so.7", "libgone.so.8"), "apt install libgone7t64"),
        (("libgone.so.8",), "relink doctor"),
    ],
)
def test_packages_of_missing_libraries(
    run: Run,
    venv: Path,
    index: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    names: Sequence[str],
    command: str,
) -> None:
    """What the system's lists have by the name that the soname gives."""
    program = tmp_path / "bin/apt-cache"
    program.parent.mkdir()
    block = "%s:\\n     1 500\\n        500 X sid/main amd64 Packages\\n"
    packages = "libgone7 libgone7t64 libgone-2-2"
    program.write_text(
        f"#!/bin/sh\n[ $1 = policy ] && printf '{block}' {packages} || echo {packages} libgone8\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(case, "read_distribution", lambda _: Distribution("D", "debian", is_here=True))
    for number, name in enumerate(names):
        files: dict[str, bytes | Path] = {
            f"p{number}/__init__.py": LOAD,
            f"p{number}/a.so": needing(tmp_path, name),
        }
        put(venv, make_wheel(index, files, name=f"p{number}", tag=TAG))
    assert command in [line.strip() for line in run("check", venv)[1].splitlines()]


def test_symbols_are_read_once(
    run: Run, venv: Path, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second check of the same files reads none of their symbols; a library without one of them is noticed."""
    far = shared(tmp_path / "libfar.so.1", "int far(void){return 1;}")
    near = shared(
        tmp_path / "a.so", "extern int far(void); int near(void){return far();}", needed=[far], flags=[HERE]
    )
    files: dict[str, bytes | Path] = {"two/__init__.py": LOAD, "two/a.so": near, "two/libfar.so.1": far}
    put(venv, make_wheel(index, files, name="two", tag=TAG))
    before = run("check", venv, "--json")
    assert before[0] == 0
    with monkeypatch.context() as patch:
        for module in (reading, tables):
            patch.setattr(module, "read_symbols", None)
        assert run("check", venv, "--json") == before
    shutil.copy(shared(tmp_path / "other/libfar.so.1", "int other(void){return 1;}"), site_of(venv) / "two")
    code, out, _ = run("check", venv)
    assert code == 1
    assert "a.so imports far, which nothing there has; libfar.so.1 has nothing that it imports" in out


@SLOW
def test_a_file_that_is_gone_or_damaged(run: Run, venv: Path) -> None:
    (site_of(venv) / "plain/p.so").write_bytes(b"\x7fELF" + bytes(60))
    code, out, err = run("check", venv)
    assert (code, err) == (1, "")
    assert out.splitlines()[1].startswith("  plain 1.0: does not load: plain/p.so")
    (site_of(venv) / "plain/p.so").unlink()
    assert "plain/p.so" in run("check", venv)[1].splitlines()[1]


@SLOW
def test_an_extension_that_is_gone_beside_its_source(run: Run, venv: Path, tmp_path: Path) -> None:
    """The import takes the source; a module at the top is what users import."""
    library = shared(tmp_path / "a.so", "void *PyInit_fast(void){return 0;}")
    files: dict[str, bytes | Path] = {
        "two/__init__.py": b"from . import fast",
        "two/fast.py": b"",
        "two/fast.so": library,
        "own.so": library,
        "two/other.so": library,
    }
    put(venv, make_wheel(tmp_path, files, name="two", tag=TAG))
    (site_of(venv) / "two/fast.so").unlink()
    code, out, _ = run("check", venv)
    assert (code, "two 1.0: works, without two/fast.so (not there)" in out) == (0, True)
    (site_of(venv) / "two/other.so").write_bytes(b"\x7fELF" + bytes(60))
    code, out, _ = run("check", venv)
    assert (code, ", two/other.so (damaged)" in out) == (0, True)
    (site_of(venv) / "two/fast.py").unlink()
    code, out, _ = run("check", venv)
    assert (code, "two 1.0: does not load: two/fast.so" in out) == (1, True)
    (site_of(venv) / "two/fast.py").touch()
    (site_of(venv) / "own.so").unlink()
    code, out, _ = run("check", venv)
    assert (code, "two 1.0: does not load: own.so not found" in out) == (1, True)


@SLOW
def test_debug_data_beside_a_library(run: Run, venv: Path, tmp_path: Path) -> None:
    """As `objcopy --only-keep-debug` leaves it: the program headers of the whole file, and not its content."""
    library = shared(tmp_path / "a.so", "int f(void){return 1;}")
    debug = library.read_bytes()[:2000]
    files: dict[str, bytes | Path] = {"two/a.so": library, "two/a.so.debug": debug, "two/__init__.py": b""}
    put(venv, make_wheel(tmp_path, files, name="two", tag=TAG))
    code, out, _ = run("check", venv, "--why", "two")
    assert (code, out.startswith("Works: 1 package with native code")) == (0, True)


@SLOW
def test_a_package_whose_library_is_for_another_machine(run: Run, venv: Path, tmp_path: Path) -> None:
    other = build_elf(Library(soname="a.so")).replace(b"\x03\0\x3e\0", b"\x03\0\xb7\0", 1)
    files: dict[str, bytes | Path] = {"arm/__init__.py": b"from . import a", "arm/a.so": other}
    put(venv, make_wheel(tmp_path, files, name="arm", tag=TAG))
    code, out, _ = run("check", venv)
    assert (code, "arm 1.0: does not load: arm/a.so not found" in out) == (1, True)
    out = run("check", venv, "--why", "arm")[1]
    assert "arm/a.so (wrong machine: aarch64) not found" in out


def test_json(run: Run, venv: Path, gpu: Path) -> None:
    put(venv, gpu)
    code, out, err = run("check", "--python", python_of(venv), "--json")
    document = json.loads(out)
    assert (code, err, document["schema"], document["ok"]) == (1, "", "relink.check/1", False)
    assert document["mendable"] == ["gpu"]
    by_name = {one["name"]: one for one in document["distributions"]}
    assert by_name["plain"]["level"] == "info"
    assert "RLK101" in [found["code"] for found in by_name["gpu"]["findings"]]
    assert json.loads(run("check", venv, "--output-format", "sarif")[1])["version"] == "2.1.0"


def test_one_is_named_or_all(run: Run, venv: Path) -> None:
    for words in ((), ("plain", "--all")):
        code, _, err = run("repair", *words, "--python", python_of(venv))
        assert code == 2
        assert "name one installed distribution, or pass --all" in err


@SLOW
def test_variants_none_of_which_gets_rocm(
    run: Run, venv: Path, rocm: Path, index: Path, tmp_path: Path
) -> None:
    """bitsandbytes has a library for each release: where none loads, its GPU part does not, unless CUDA's packages are there."""
    library = shared(tmp_path / "bits.so", USES, needed=[rocm / "lib/librocblas.so.5"], flags=[VENDOR])
    cpu = shared(tmp_path / "cpu.so", "int f(void){return 1;}")
    files: dict[str, bytes | Path] = {
        "bitsandbytes/__init__.py": b"",
        "bitsandbytes/libbitsandbytes_rocm72.so": library,
        "bitsandbytes/libbitsandbytes_cpu.so": cpu,
    }
    put(venv, make_wheel(index, files, name="bitsandbytes", tag=TAG))
    code, out, _ = run("check", venv)
    assert code == 1
    assert out.splitlines()[1] == "  bitsandbytes 1.0: its GPU part does not load: librocblas.so.5 not found"
    put(venv, make_wheel(index, {"nvidia/x.py": b""}, name="nvidia_cuda_runtime_cu12", tag="py3-none-any"))
    assert run("check", venv)[0] == 0


@SLOW
def test_what_an_edit_would_mend_does_not_work_now(
    run: Run, venv: Path, rocm: Path, index: Path, tmp_path: Path
) -> None:
    """The package has the library itself, and no search path leads to it."""
    library = shared(tmp_path / "a.so", USES, needed=[rocm / "lib/librocblas.so.5"])
    own = shared(tmp_path / "librocblas.so.5", "int blas(void){return 1;}")
    files: dict[str, bytes | Path] = {"own/a.so": library, "own/deep/librocblas.so.5": own}
    put(venv, make_wheel(index, files, name="own", tag=TAG))
    code, out, _ = run("check", venv)
    assert code == 1
    assert out.splitlines()[1] == "  own 1.0: its GPU part does not load: librocblas.so.5 not found"


@SLOW
def test_a_pattern_that_is_about_one_package(run: Run, venv: Path, gpu: Path) -> None:
    """It matches nothing of the others, and nothing about several: that is no warning."""
    put(venv, gpu)
    code, out, _ = run("check", venv, "--ignore", "librocblas.so.5", "-v")
    assert code == 0
    assert "RLK109" not in out


@pytest.mark.slow(reason="packs a ROCm; test_no_device_package has the finding")
def test_pips_rocm_without_the_package_for_the_gpu(run: Run, venv: Path, index: Path, tmp_path: Path) -> None:
    """A library that loads from it runs nothing on a GPU: the package with the GPU's code is told."""
    prefix = tiny_prefix(tmp_path / "rocm-to-pack")
    (tmp_path / "work").mkdir()
    unpack(build(prefix, tmp_path / "work", Settings(gpus=())), site_of(venv))
    library = shared(
        tmp_path / "uses.so",
        "extern int hipblasSgemm(void); int u(void){return hipblasSgemm();}",
        needed=[prefix / "lib/libhipblas.so.3"],
        flags=["-Wl,--allow-shlib-undefined", VENDOR],
    )
    wheel = make_wheel(index, {"uses/__init__.py": b"", "uses/a.so": library}, name="uses", tag=TAG)
    words = ("--python", python_of(venv))
    assert run("install", wheel, *words, "--no-import-test")[0] == 0
    code, out, _ = run("check", venv)
    assert "RLK533" in out
    assert "rocm-sdk-device-gfx" in out
    assert code == 0


@pytest.mark.slow(
    reason="four installations; test_what_fails_keeps_no_other_from_being_repaired has several, too"
)
def test_a_kill_between_two_packages(venv: Path, rocm: Path, index: Path, tmp_path: Path, run: Run) -> None:
    """Each is the vendor's or the relinked one, and the same command completes it."""
    for name in ("first", "second"):
        library = shared(tmp_path / f"{name}.so", USES, needed=[rocm / "lib/librocblas.so.5"], flags=[VENDOR])
        put(venv, make_wheel(index, {f"{name}/a.so": library}, name=name, tag=TAG))
    words = ["repair", "--all", "--prefix", str(rocm), "--python", str(python_of(venv))]
    command = [sys.executable, "-m", "relink", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            if "first 1.0+relinked is installed" in line:
                process.kill()
                break
    versions = {info.name.removesuffix(".dist-info") for info in site_of(venv).glob("*.dist-info")}
    assert {"first-1.0+relinked", "second-1.0"} <= versions
    assert run("check", venv)[0] == 1
    assert run(*words)[0] == 0
    assert run("check", venv)[0] == 0


@SLOW
def test_what_a_library_of_the_system_opens(run: Run, venv: Path, index: Path, tmp_path: Path) -> None:
    """MIGraphX opens its GPU part by a name with its own number, which only the directory says: here it brings another HIP."""
    system = tmp_path / "system"
    hips = [
        shared(system / f"libamdhip64.so.{major}", f"int hip{major}(void){{return 1;}}") for major in "67"
    ]
    used = "extern int hip6(void); int m(void){return hip6();}"
    shared(system / "libmigraphx_gpu.so.2014000", used, needed=[hips[0]], flags=[HERE])
    migraphx = shared(system / "libmigraphx.so.2014000", "int migraphx(void){return 1;}", flags=[HERE])
    uses = "extern int hip7(void), migraphx(void); int u(void){return hip7() + migraphx();}"
    library = shared(tmp_path / "m.so", uses, needed=[hips[1], migraphx], flags=[f"-Wl,-rpath,{system}"])
    wheel = make_wheel(index, {"mix/a.so": library}, name="mix", tag=TAG)
    put(venv, wheel)
    code, out, _ = run("check", venv)
    assert code == 1
    assert "  mix 1.0: does not work on the GPU: libamdhip64.so.7 and libamdhip64.so.6 in one process" in out
    code, out, _ = run("verify", wheel, "--python", python_of(venv))
    assert (code, out.splitlines()[0]) == (1, "mix 1.0: Does not load: two HIP runtimes would be loaded.")
    (system / "libmigraphx_gpu.so.2014000").unlink()
    assert run("check", venv)[0] == 0
    assert run("verify", wheel, "--python", python_of(venv))[0] == 0


@SLOW
def test_python_code_alone_that_opens_a_vendors_library(run: Run, venv: Path, index: Path) -> None:
    """As amdsmi: no file of it is native, and its import fails."""
    code = b"import ctypes\nlib = ctypes.CDLL('libamd_smi.so')\n"
    put(venv, make_wheel(index, {"smi/__init__.py": code}, name="smi", tag="py3-none-any"))
    status, out, _ = run("check", venv)
    assert (status, "smi 1.0: does not load: libamd_smi.so not found" in out) == (1, True), out


@SLOW
def test_a_plugin_that_another_package_opens(run: Run, venv: Path, index: Path, tmp_path: Path) -> None:
    """As OpenMM's: the host has mapped its library before, and what is missing is HIP alone."""
    host = shared(tmp_path / "libHost.so", "int host(void){return 1;}")
    hip = shared(tmp_path / "gone/libamdhip64.so.7", "int hipMalloc(void){return 0;}")
    plugin = shared(
        tmp_path / "libPlugin.so",
        "extern int host(void), hipMalloc(void); int p(void){return host() + hipMalloc();}",
        needed=[host, hip],
    )
    code = b"import ctypes, os\nh = lambda n: ctypes.CDLL(os.path.join(os.path.dirname(__file__), n))\nh('libHost.so')\n"
    put(venv, make_wheel(index, {"host/__init__.py": code, "host/libHost.so": host}, name="host", tag=TAG))
    put(venv, make_wheel(index, {"Host.libs/plugins/libPlugin.so": plugin}, name="plugin", tag=TAG))
    status, out, _ = run("check", venv)
    assert (status, "plugin 1.0: its GPU part does not load: libamdhip64.so.7 not found" in out) == (
        1,
        True,
    ), out


@SLOW
def test_the_rocm_that_a_module_names(
    run: Run, venv: Path, gpu: Path, rocm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `check` prints needs no --prefix: repair finds the module's, and says so."""
    put(venv, gpu)
    module = rocm.rename(rocm.with_name("rocm-6.2.4"))
    monkeypatch.setenv("LOADEDMODULES", "PrgEnv-gnu/8.5.0:rocm/6.2.4")
    monkeypatch.setenv("CRAY_ROCM_PREFIX", str(module))
    code, out, _ = run("check", venv)
    told, _, step = out.splitlines()[-3:]
    assert told == f"with {module} (no --prefix: found by CRAY_ROCM_PREFIX, module rocm/6.2.4):"
    assert (code, step) == (1, f"    relink repair --all --python {python_of(venv)}")
    code, out, _ = run(*step.split()[1:])
    assert code == 0
    assert f"{module} ($PREFIX, no --prefix: found by CRAY_ROCM_PREFIX, module rocm/6.2.4)" in out
    monkeypatch.delenv("CRAY_ROCM_PREFIX")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{module}/lib")
    code, out, _ = run("install", gpu, "--python", python_of(venv))
    assert code == 0
    assert "no --prefix: found by LD_LIBRARY_PATH, module rocm/6.2.4" in out
    assert ", found by LD_LIBRARY_PATH, module rocm/6.2.4" in run("doctor")[1]


@SLOW
@pytest.mark.parametrize(
    ("version", "code"), [("hip = '7.14.1'", 1), ("cuda = '12.8'", 0), ("hip = '7.2.1'", 0)]
)
def test_the_library_that_python_picks(
    run: Run, venv: Path, gpu: Path, rocm: Path, version: str, code: int
) -> None:
    """One that is not there is told first, and no repair is advised, since no prefix has it."""
    source = """import ctypes, os, torch
release = torch.version.hip or torch.version.cuda
path = os.path.join(os.path.dirname(__file__), f"libp_{'rocm' if torch.version.hip else 'cuda'}{release[0]}{release[2]}.so")
try:
    ctypes.CDLL(path)
except OSError:
    pass
"""
    library = shared(
        gpu.parent / "p.so", USES, needed=[rocm / "lib/librocblas.so.5"], flags=[f"-Wl,-rpath,{rocm}/lib"]
    )
    files: dict[str, bytes | Path] = {
        "p/__init__.py": source.encode(),
        "p/libp_rocm72.so": library,
        "p/libp_cuda121.so": b"",
    }
    put(venv, make_wheel(gpu.parent, files, name="p", tag=TAG))
    site = site_of(venv)
    (site / "torch").mkdir()
    (site / "torch/__init__.py").touch()
    (site / "torch/version.py").write_text(version)
    ended, out, _ = run("check", venv)
    assert ended == code
    told = (
        "p 1.0: its GPU part does not load: p/libp_rocm71.so is not there; p/__init__.py:5 looks for it"
        in out
    )
    assert (told, "relink repair" in out) == (code == 1, False)
