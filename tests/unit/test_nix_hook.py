"""nix/auto-relink-hook.sh in bash, with what Nix's stdenv gives it: where no package set is at hand to build with.

tests/nix builds real packages with it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from relink.elf.image import read_image
from relink.elf.patchelf import find_patchelf
from relink.loader.target import find_target
from tests.support.built import ROOT
from tests.support.cc import compiler, shared
from tests.support.wheels import make_wheel
from tests.support.works import VENDOR_PATH, Works

SLOW = pytest.mark.slow(reason="a bash and several runs; test_a_package_is_relinked_to_its_inputs has one")

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")

SITE = f"lib/python3.{sys.version_info[1]}/site-packages"
# As in stdenv's setup.sh: hooks are called for each input, words of attributes are appended to an array.
STDENV = r"""
set -eu
set -o pipefail
targetOffset=0 NIX_BUILD_CORES=1
hooks=() postFixupHooks=()
addEnvHooks() { hooks+=("$2"); }
getAllOutputNames() { echo "$outputs"; }
isELF() { [ "$(head -c 4 "$1")" = $'\177ELF' ]; }
concatTo() {
  local -n into=$1
  local name values
  shift
  for name in "$@"; do
    if ! declare -p "$name" &> /dev/null; then continue; fi
    local -n values=$name
    into+=("${values[@]}")
    unset -n values
  done
}
"""
RUN = r"""
for hook in "${hooks[@]}"; do for input in $inputs; do "$hook" "$input"; done; done
if [ -n "${postFixup-}" ]; then eval "$postFixup"; fi
for hook in "${postFixupHooks[@]}"; do "$hook"; done
echo "strip ${dontStrip-yes}"
"""


def fixup(
    out: Path, inputs: list[Path], *attributes: str, gpus: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run the last step of fixup of a package in `out`."""
    runtime = out.with_name("runtime")
    shared(runtime / "lib/libgcc_like.so.1")
    values = {
        "sitePackages": SITE,
        "python": sys.executable,
        "patchelf": find_patchelf().path,
        "relink": str(Path(sys.executable).with_name("relink")),
        "runtime": str(runtime),
        "gpus": gpus,
    }
    text = (ROOT / "nix/auto-relink-hook.sh").read_text()
    hook = re.sub(r"@(\w+)@", lambda match: values[match[1]], text)
    words = " ".join(map(str, inputs))
    begin = f"out={out} outputs=out inputs='{words}' NIX_STORE={out.parent} NIX_BUILD_TOP={out.parent}"
    script = "\n".join([STDENV, begin, *attributes, hook, RUN])
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)


def installed(out: Path, **files: Path) -> Path:
    site = out / SITE
    (site / "demo").mkdir(parents=True)
    for name, path in files.items():
        shutil.copy(path, site / "demo" / f"{name}.so")
    return site


def entries(path: Path) -> list[str]:
    return (read_image(path.read_bytes(), path.name).search_path or "").split(":")


def program(path: Path, needed: Path, interpreter: str = "/lib64/ld-linux-none.so.2") -> Path:
    """A program for a loader that is not there, whose library no search path leads to."""
    path.parent.mkdir(parents=True, exist_ok=True)
    source = "extern int hip(void); int main(void){return hip() == 0;}"
    flags = ["-Wl,-z,lazy", f"-Wl,--dynamic-linker={interpreter}"]
    flags.append(f"-Wl,-rpath-link,{needed.parent}:{needed.parent}/deep")
    command = [*compiler(), "-x", "c", "-", "-x", "none", str(needed), *flags, "-o", str(path)]
    subprocess.run(command, input=source, text=True, check=True)
    return path


def test_a_package_is_relinked_to_its_inputs(works: Works, tmp_path: Path) -> None:
    """The log is a few lines: the verdict once, and nothing of where the build has its files."""
    site = installed(tmp_path / "out", a=works.library)
    before = (site / "demo/a.so").read_bytes()
    done = fixup(tmp_path / "out", [works.prefix])
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("Loads; checked by ld.so for 1 file") == 1
    assert len(done.stdout.splitlines()) <= 10
    assert ".relink." not in done.stdout
    assert "strip 1" in done.stdout
    assert (site / "demo/a.so").read_bytes() != before
    code = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).g())"
    told = subprocess.run(
        [sys.executable, "-c", code, site / "demo/a.so"], capture_output=True, text=True, check=True
    )
    assert told.stdout == "42\n"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["lib"]


@SLOW
def test_what_no_input_has_ends_the_build(works: Works, tmp_path: Path) -> None:
    """In the words of a package."""
    installed(tmp_path / "out", lost=works.lost)
    done = fixup(tmp_path / "out", [works.prefix])
    assert done.returncode == 1
    assert "error RLK101 libnowhere.so.1" in done.stdout
    assert "Add the package that has it to buildInputs. To go on without:" in done.stdout
    assert "(relinkSubstitute), or a stub, which refuses (relinkStub)." in done.stdout
    assert "--" not in done.stdout


def test_switched_off_it_does_nothing_at_all(works: Works, tmp_path: Path) -> None:
    site = installed(tmp_path / "out", lost=works.lost)
    done = fixup(tmp_path / "out", [works.prefix], "dontAutoRelink=1")
    assert (done.returncode, done.stdout) == (0, "strip yes\n")
    assert (site / "demo/lost.so").read_bytes() == works.lost.read_bytes()


def test_a_package_without_elf_files_is_an_error(tmp_path: Path) -> None:
    (installed(tmp_path / "out") / "demo/__init__.py").touch()
    done = fixup(tmp_path / "out", [])
    assert done.returncode == 1
    assert "autoRelinkHook: no output has an ELF file; take the hook out" in done.stderr


@SLOW
def test_attributes_become_options(works: Works, tmp_path: Path) -> None:
    library = shared(tmp_path / "old/librccl.so.1", "int ncclGetVersion(int *v){return 0;}")
    source = "extern int ncclGetVersion(int*), hip(void); int g(void){return ncclGetVersion(0) + hip();}"
    member = shared(
        tmp_path / "m.so", source, needed=[library, works.prefix / "lib/libhip.so.7"], flags=[VENDOR_PATH]
    )
    site = installed(tmp_path / "out", a=member)
    (site / "demo-1.0.dist-info").mkdir()
    (site / "demo-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
    (site / "demo-1.0.dist-info/RECORD").write_text("demo/a.so,,\ndemo-1.0.dist-info/METADATA,,\n")
    done = fixup(tmp_path / "out", [works.prefix], "relinkStub=(librccl.so.1)", "relinkFlags=(--quiet)")
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(site.rglob("librccl.so.1"))


@SLOW
def test_files_outside_of_site_packages_are_relinked(works: Works, tmp_path: Path) -> None:
    """A library in lib, a program in bin with its loader, and those of another output."""
    out, more = tmp_path / "out", tmp_path / "more"
    installed(out, a=works.library)
    for place in (out, more):
        (place / "lib/sub").mkdir(parents=True)
        shutil.copy(works.library, place / "lib/sub/b.so")
        program(place / "bin/run", works.prefix / "lib/libhip.so.7")
        (place / "bin/script").write_text("#!/bin/sh\n")
        (place / "bin/script").chmod(0o755)
    done = fixup(out, [works.prefix], f"more={more} outputs='out more'")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("Loads;") == 3
    for place in (out, more):
        assert f"{works.prefix}/lib" in entries(place / "lib/sub/b.so")
        image = read_image((place / "bin/run").read_bytes(), "run")
        assert image.interpreter == find_target().interpreter
        assert subprocess.run([place / "bin/run"], check=False).returncode == 0
        assert (place / "bin/script").read_text() == "#!/bin/sh\n"
        assert not list(place.glob(".relink.*"))


@SLOW
def test_search_paths_of_the_package_itself_survive(works: Works, tmp_path: Path) -> None:
    """Of its postFixup, which runs before; and attributes of autoPatchelfHook."""
    site = installed(tmp_path / "out", a=works.library)
    run = program(tmp_path / "out/bin/run", works.prefix / "lib/libhip.so.7")
    patchelf = find_patchelf().path
    post = f"postFixup='{patchelf} --add-rpath {tmp_path}/opened/lib:/elsewhere {site}/demo/a.so'"
    done = fixup(
        tmp_path / "out",
        [works.prefix],
        post,
        "appendRunpaths=(/run/x)",
        f"runtimeDependencies=({tmp_path}/more)",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert entries(site / "demo/a.so")[-2:] == [f"{tmp_path}/opened/lib", "/run/x"]
    assert "/elsewhere" not in entries(site / "demo/a.so")
    assert entries(run)[-2:] == ["/run/x", f"{tmp_path}/more/lib"]


@SLOW
def test_a_directory_can_be_added_to_what_is_searched(works: Works, tmp_path: Path) -> None:
    site = installed(tmp_path / "out", a=works.library)
    add = f"postFixup='addAutoRelinkSearchPath {works.prefix}/lib'"
    done = fixup(tmp_path / "out", [], add)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{works.prefix}/lib" in entries(site / "demo/a.so")


@SLOW
def test_the_c_runtime_is_the_package_sets(works: Works, tmp_path: Path) -> None:
    """And not that which another Python package brings."""
    library = shared(tmp_path / "old/libstdc++.so.6", "int cxx(void){return 1;}")
    for place in ("runtime/lib", f"other/{SITE}/torch/lib"):
        (tmp_path / place).mkdir(parents=True)
        shutil.copy(library, tmp_path / place)
    member = shared(
        tmp_path / "m.so",
        "extern int cxx(void), hip(void); int g(void){return cxx() + hip();}",
        needed=[library, works.prefix / "lib/libhip.so.7"],
        flags=[VENDOR_PATH],
    )
    site = installed(tmp_path / "out", a=member)
    done = fixup(tmp_path / "out", [tmp_path / "other", works.prefix])
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{tmp_path}/runtime/lib" in entries(site / "demo/a.so")
    assert f"{tmp_path}/other/{SITE}/torch/lib" not in entries(site / "demo/a.so")


def asked(directory: Path, inputs: list[str], *attributes: str, gpus: str = "") -> set[str]:
    """The options about GPUs that relink gets; a program in its place writes them down."""
    installed(directory / "out", a=shared(directory / "a.so", "int a;"))
    fake = directory / "fake"
    fake.write_text(f'#!/bin/sh\necho "$@" > {directory}/asked; exit 1\n')
    fake.chmod(0o755)
    text = (ROOT / "nix/auto-relink-hook.sh").read_text()
    assert "@relink@" in text
    for name in inputs:
        shared(directory / name / "lib/liba.so.1", "int a;")
    paths = [directory / name for name in inputs]
    fixup(directory / "out", paths, f'env() {{ {fake} "$@"; }}', *attributes, gpus=gpus)
    words = (directory / "asked").read_text().split()
    return {word for word in words if word.startswith(("--gpu", "--allow", "--jobs"))}


@pytest.mark.parametrize(
    ("inputs", "gpus", "attributes", "options"),
    [
        (["x-rocblas-7.2.4"], "", [], set()),
        (["x-rocblas-gfx906-7.2.4", "x-miopen-gfx906-7.2.4"], "", [], {"--gpu=gfx906"}),
        (
            ["x-rocblas-gfx1100-gfx1101-7.2.4"],
            "",
            [],
            {"--gpu=gfx1100", "--gpu=gfx1101", "--allow-isa-gap"},
        ),
        ([], "gfx1030", [], {"--gpu=gfx1030"}),
        (["x-rocblas-gfx906-7.2.4"], "", ["relinkGpus=(gfx90a)"], {"--gpu=gfx90a"}),
        (["x-rocblas-gfx906-7.2.4"], "gfx906", ["relinkGpus=()"], set()),
    ],
)
def test_gpus_are_those_that_an_input_was_narrowed_to(
    tmp_path: Path, inputs: list[str], gpus: str, attributes: list[str], options: set[str]
) -> None:
    """By the name that nixpkgs gives its libraries for some GPUs; of a family one GPU is enough."""
    assert asked(tmp_path, inputs, *attributes, gpus=gpus) - {"--jobs"} == options


@SLOW
def test_the_wheel_in_dist_is_relinked(works: Works, tmp_path: Path) -> None:
    installed(tmp_path / "out", a=works.library)
    wheel = make_wheel(tmp_path / "dist", {"demo/__init__.py": b"", "demo/a.so": works.library})
    before = wheel.read_bytes()
    done = fixup(tmp_path / "out", [works.prefix], f"dist={tmp_path}/dist outputs='out dist'")
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = (tmp_path / "dist").iterdir()
    assert found.name == "demo-1.0-cp311-cp311-linux_x86_64.whl"
    assert found.read_bytes() != before
