"""RLK128: which of its libraries a package picks by torch, and whether it is there; of a wheel and of an environment."""

from __future__ import annotations

import json
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from relink.elf.image import read_image
from relink.planning.picks import pick_findings
from relink.planning.processes import DistributionFiles
from relink.python.facts_cache import FactsCache
from relink.python.process import PythonProcesses
from relink.system.findings.model import Finding
from relink.vendors.registry import vendor_named
from tests.support.cc import shared
from tests.support.command import Run
from tests.support.elf_builder import SUPPORTED, WHY_NOT, Library, build
from tests.support.python_processes import python_of, write_files
from tests.support.wheels import make_wheel
from tests.support.works import TAG

PICKS = """
import ctypes, os, torch
HERE = os.path.dirname(__file__)
def name():
    kind = "rocm" if torch.version.hip else "cuda"
    release = (torch.version.hip or torch.version.cuda).split(".")
    return f"{kind}{int(release[0]) * 10 + int(release[1])}" if torch.cuda.is_available() else "cpu"
path = os.path.join(HERE, f"libown_{name()}.so")
try:
    if not os.path.exists(path):
        raise RuntimeError(path)
    ctypes.CDLL(path)
except Exception:
    pass
"""
NEEDS = {"rocm": "libamdhip64.so.7", "cuda": "libcudart.so.12"}


def findings_of(
    site: Path, version: str, names: tuple[str, ...], unserved: tuple[str, ...] = ()
) -> list[Finding]:
    files = {
        f"own/{name}": build(Library(needed=tuple(need for kind, need in NEEDS.items() if kind in name)))
        for name in names
    }
    write_files(
        site, {"own/__init__.py": PICKS, "torch/__init__.py": "", "torch/version.py": version, **files}
    )
    images = {name: read_image(content, name) for name, content in files.items()}
    distribution = DistributionFiles(
        str(site), "own", ["own/__init__.py", *files], images, gpu=[name for name in files if "rocm" in name]
    )
    processes = PythonProcesses(python_of(site), cache=FactsCache(None), variables={})
    return [*pick_findings(processes, distribution, vendor_named("rocm"), unserved)]


ABSENT = "is not there; own/__init__.py:10 looks for it:"
ROCM = ("libown_rocm71.so", "libown_rocm72.so", "libown_cuda128.so", "libown_cpu.so")


@pytest.mark.parametrize(
    ("version", "level", "subject", "message"),
    [
        (
            "hip = '7.14.60850'",
            "error",
            "libown_rocm84.so",
            f"{ABSENT} torch/version.py says hip 7.14.60850; there are libown_rocm71.so, libown_rocm72.so",
        ),
        (
            "hip = '7.2.1'",
            "info",
            "libown_rocm72.so",
            "own/__init__.py:12 picks it: torch/version.py says hip 7.2.1",
        ),
        (
            "cuda = '13.5'",
            "warning",
            "libown_cuda135.so",
            f"{ABSENT} torch/version.py says cuda 13.5; there are libown_cuda128.so",
        ),
        (
            "cuda = '12.8'",
            "info",
            "libown_cuda128.so",
            "own/__init__.py:12 picks it: torch/version.py says cuda 12.8",
        ),
        (
            "hip = cuda = None",
            "info",
            "libown_cpu.so",
            "own/__init__.py:12 picks it: torch is built for no GPU",
        ),
    ],
)
def test_the_variant_for_torch(tmp_path: Path, version: str, level: str, subject: str, message: str) -> None:
    (found,) = findings_of(tmp_path / "site", version, ROCM)
    assert (found.code, found.level, found.subject, found.message) == (
        "RLK128",
        level,
        f"own/{subject}",
        message,
    )
    assert found.without == (None if level == "info" else f"its GPU part ({subject})")


def test_one_that_is_not_served(tmp_path: Path) -> None:
    (found,) = findings_of(tmp_path / "site", "hip = '7.2.1'", ROCM, ("own/libown_rocm72.so",))
    assert (found.level, found.message.partition(";")[0]) == (
        "error",
        "is left as it is, since not all that it needs is there",
    )


def test_a_file_that_is_no_variant_is_not_missed(tmp_path: Path) -> None:
    """A package may ask for files that only some of its builds have."""
    site = tmp_path / "site"
    assert findings_of(site, "hip = '7.14.1'", ("libother_rocm72.so",)) == []


def test_a_library_that_may_be_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the same module opens something whose name is not known, nothing is missed."""
    monkeypatch.setitem(globals(), "PICKS", f"{PICKS}import json\nctypes.CDLL(json.load(open('x')))\n")
    assert findings_of(tmp_path / "site", "hip = '7.14.1'", ROCM) == []


def test_a_wheel_for_another_vendor_alone(tmp_path: Path) -> None:
    """What torch would pick is looked for, and only another vendor's variants are there."""
    (found,) = findings_of(tmp_path / "site", "hip = '7.14.1'", ("libown_cuda128.so", "libown_cpu.so"))
    assert (found.level, found.subject, found.message) == (
        "error",
        "own/libown_rocm84.so",
        f"{ABSENT} torch/version.py says hip 7.14.1",
    )


LOADS = """
import ctypes, os
def load():
    path = os.path.join(os.path.dirname(__file__), "libown_rocm84.so")
    return ctypes.CDLL(path) if os.path.exists(path) else None
"""


@pytest.mark.parametrize(("name", "count"), [("own", 1), ("torch", 0)])
def test_torch_itself_picks_nothing(tmp_path: Path, name: str, count: int) -> None:
    """What it is built for says its own torch/version.py; what another package does so is told."""
    library = f"{name}/libown_rocm71.so"
    content = build(Library(needed=(NEEDS["rocm"],)))
    files = {"torch/__init__.py": "", "torch/version.py": "hip = '7.14.1'", f"{name}/__init__.py": LOADS}
    write_files(tmp_path, {**files, library: content})
    images = {library: read_image(content, library)}
    distribution = DistributionFiles(str(tmp_path), name, [f"{name}/__init__.py", library], images)
    processes = PythonProcesses(python_of(tmp_path), cache=FactsCache(None), variables={})
    assert len([*pick_findings(processes, distribution, vendor_named("rocm"))]) == count


def test_an_extension_of_another_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its module is not there, and no variant of it is missed."""
    monkeypatch.setitem(globals(), "PICKS", "from own import _rocm72\n")
    assert findings_of(tmp_path / "site", "hip = '7.2.1'", ("_rocm72.cpython-312-x86_64-linux-gnu.so",)) == []


def test_a_pick_by_the_gpu_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which GPU there is is not known, so nothing is said."""
    source = PICKS.replace(
        'f"libown_{name()}.so"', 'f"libown_cuda{torch.cuda.get_device_capability()[0]}.so"'
    )
    monkeypatch.setitem(globals(), "PICKS", source)
    assert findings_of(tmp_path / "site", "cuda = '12.8'", ("libown_cuda8.so", "libown_cuda7.so")) == []


@pytest.fixture
def torch_venv(tmp_path: Path) -> Callable[[str], Path]:
    """An environment with a torch that says what it is built for."""

    def make(version: str) -> Path:
        directory = tmp_path / "venv"
        venv.create(directory, symlinks=True)
        (site,) = directory.glob("lib/python3*/site-packages")
        write_files(site, {"torch/__init__.py": "", "torch/version.py": version})
        return directory

    return make


@pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)
def test_a_wheel_whose_variant_is_not_there(
    run: Run, tmp_path: Path, torch_venv: Callable[[str], Path]
) -> None:
    """`relink` and `verify` say so and end with 1; for a torch that has its variant they do not."""
    hip = shared(tmp_path / "rocm/lib/libamdhip64.so.7", "int hip(void){return 7;}")
    code = "extern int hip(void); int own(void){return hip();}"
    library = shared(tmp_path / "own.so", code, needed=[hip], flags=["-Wl,-rpath,/opt/vendor"])
    files: dict[str, bytes | Path] = {
        "own/__init__.py": PICKS.encode(),
        "own/libown_rocm72.so": library,
        "own/libown_rocm71.so": library,
    }
    wheel = make_wheel(tmp_path, {**files, "own/libown_cpu.so": build(Library())}, name="own", tag=TAG)
    environment = torch_venv("hip = '7.14.60850'\n")
    words = (
        wheel,
        "--prefix",
        tmp_path / "rocm",
        "--python",
        environment / "bin/python",
        "-o",
        tmp_path / "out",
    )
    code_of, out, _ = run(*words)
    assert code_of == 1
    assert "error RLK128 own/libown_rocm84.so: is not there; own/__init__.py:10 looks for it" in out
    assert not [*(tmp_path / "out").glob("*.whl")]
    code_of, out, _ = run("verify", wheel, "--in", environment)
    assert (code_of, "RLK128 own/libown_rocm84.so" in out) == (1, True)

    (version,) = environment.glob("lib/python3*/site-packages/torch/version.py")
    version.write_text("hip = '7.2.1'\n")
    code_of, out, _ = run(*words, "--output-format", "json")
    (found,) = [one for one in json.loads(out)["findings"] if one["code"] == "RLK128"]
    assert (code_of, found["level"], found["subject"]) == (0, "info", "own/libown_rocm72.so")
