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

from tests.support.built import ROOT
from tests.support.cc import shared
from tests.support.works import VENDOR_PATH, Works

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")

SITE = f"lib/python3.{sys.version_info[1]}/site-packages"
# As in stdenv's setup.sh: hooks are called for each input, words of attributes are appended to an array.
STDENV = r"""
set -eu
targetOffset=0 NIX_STORE=/nix/store
hooks=() postFixupHooks=()
addEnvHooks() { hooks+=("$2"); }
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
for hook in "${postFixupHooks[@]}"; do "$hook"; done
"""


def fixup(out: Path, inputs: list[Path], *attributes: str) -> subprocess.CompletedProcess[str]:
    """Run the last step of fixup of a package in `out`."""
    runtime = out.with_name("runtime")
    shared(runtime / "lib/libgcc_like.so.1")
    values = {
        "sitePackages": SITE,
        "python": sys.executable,
        "pythonPrefix": "/nowhere/python",
        "relink": str(Path(sys.executable).with_name("relink")),
        "runtime": str(runtime),
        "gpuOptions": "",
    }
    text = (ROOT / "nix/auto-relink-hook.sh").read_text()
    hook = re.sub(r"@(\w+)@", lambda match: values[match[1]], text)
    words = " ".join(map(str, inputs))
    script = "\n".join([STDENV, f"out={out} inputs='{words}'", *attributes, hook, RUN])
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)


def installed(out: Path, **files: Path) -> Path:
    site = out / SITE
    (site / "demo").mkdir(parents=True)
    for name, path in files.items():
        shutil.copy(path, site / "demo" / f"{name}.so")
    return site


def test_a_package_is_relinked_to_its_inputs(works: Works, tmp_path: Path) -> None:
    site = installed(tmp_path / "out", a=works.library)
    before = (site / "demo/a.so").read_bytes()
    done = fixup(tmp_path / "out", [works.prefix])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Loads; checked by ld.so for 1 file" in done.stdout
    assert (site / "demo/a.so").read_bytes() != before
    code = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).g())"
    told = subprocess.run(
        [sys.executable, "-c", code, site / "demo/a.so"], capture_output=True, text=True, check=True
    )
    assert told.stdout == "42\n"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["lib"]


def test_what_no_input_has_ends_the_build(works: Works, tmp_path: Path) -> None:
    installed(tmp_path / "out", lost=works.lost)
    done = fixup(tmp_path / "out", [works.prefix])
    assert done.returncode == 1
    assert "error RLK101 libnowhere.so.1" in done.stdout
    again = fixup(tmp_path / "again", [works.prefix], "dontAutoRelink=1")
    assert (again.returncode, again.stdout) == (0, "")


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
