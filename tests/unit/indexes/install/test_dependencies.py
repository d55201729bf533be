"""relink install: what a wheel depends on is relinked with it, or refused before it is fetched, and its GPU part is loaded."""

from __future__ import annotations

import io
import json
import shlex
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from relink.indexes.install.environment import TargetEnvironment, find_environment
from relink.indexes.install.installing import list_requirements
from tests.support.cc import shared
from tests.support.command import Run
from tests.support.elf_builder import SUPPORTED, WHY_NOT
from tests.support.wheels import make_wheel
from tests.support.works import TAG
from tests.unit.indexes.install.conftest import USES, VENDOR, python_of, site_of, tree

SLOW = pytest.mark.slow(
    reason="installations; the cases of test_nothing_is_built_before_the_decision have one"
)

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)


LOADED = {"member": "top/a.so", "problem": None, "without_gpu": None}


def depending(index: Path, rocm: Path, tmp_path: Path, *requires: str, code: str = USES) -> Path:
    library = shared(tmp_path / "top.so", code, needed=[rocm / "lib/librocblas.so.5"], flags=[VENDOR])
    files: dict[str, bytes | Path] = {"top/__init__.py": b"", "top/a.so": library}
    return make_wheel(index, files, name="top", tag=TAG, requires=requires)


def test_markers_are_about_the_python_of_the_environment(tmp_path: Path) -> None:
    """And not about the one that relink runs in."""
    requires = (
        'old-thing; python_version < "3.11" and extra == "x"',
        'new-thing; python_version >= "3.11" and extra == "x"',
        'plain; python_version < "3.11"',
    )
    wheel = make_wheel(tmp_path, {"top.py": b""}, name="top", tag="py3-none-any", requires=requires)
    for version, expected in (("3.10", "old-thing"), ("3.13", "new-thing")):
        markers = {"python_version": version, "python_full_version": f"{version}.1"}
        environment = TargetEnvironment("python", tmp_path, (), markers)
        found = list_requirements(wheel, {"x"}, environment)
        assert found == [expected, 'plain; python_version < "3.11"']
    own = find_environment(sys.executable, {}, changed=False).markers
    assert own["python_version"] == ".".join(map(str, sys.version_info[:2]))
    assert own["implementation_name"] == sys.implementation.name


@SLOW
@pytest.mark.usefixtures("gpu")
def test_a_dependency_that_needs_rocm_is_relinked_with_it(
    run: Run, environment: Path, rocm: Path, index: Path, tmp_path: Path
) -> None:
    """By way of one that needs none; and one that nobody depends on stays the vendor's."""
    make_wheel(index, {"between.py": b""}, name="between", tag="py3-none-any", requires=("gpu",))
    depending(index, rocm, tmp_path, "between")
    words = ("install", "top", "--prefix", rocm, "--python", python_of(environment))
    code, out, err = run(*words)
    assert (code, err) == (0, "")
    assert f"gpu 1.0+relinked is installed in {environment}" in out
    last = f"top 1.0+relinked is installed in {environment}; imported: top; loaded for the GPU: 1 library."
    assert last in out
    assert run("check", environment)[:2] == (0, f"Works: 2 packages with native code in {environment}.\n")
    code, out, _ = run(*words, "--json")
    (wheel,) = json.loads(out)["wheels"]
    assert (code, wheel["loads"], wheel["dependencies"]) == (0, [LOADED], [])


@pytest.mark.few(0, reason="four runs; the test above has a dependency that is accepted")
def test_cudas_build_is_refused_before_it_is_fetched(
    run: Run, environment: Path, rocm: Path, index: Path, tmp_path: Path
) -> None:
    make_wheel(index, {"nv.py": b""}, name="nvidia_cuda_runtime_cu12", tag="py3-none-any")
    make_wheel(
        index, {"fake.py": b""}, name="fake", tag="py3-none-any", requires=("nvidia-cuda-runtime-cu12",)
    )
    wheel = depending(index, rocm, tmp_path, "fake", "other; extra == 'never'", "old; python_version < '3'")
    before = tree(environment)
    words = ("install", wheel, "--prefix", rocm, "--python", python_of(environment))
    code, out, err = run(*words)
    assert (code, err) == (1, "")
    assert "RLK552 top: it depends on fake" in out
    assert "brings NVIDIA's CUDA (nvidia-cuda-runtime-cu12), not ROCm" in out
    assert out.splitlines()[-1] == f"{environment} was not changed."
    assert tree(environment) == before
    code, out, _ = run(*words, "--json")
    (told,) = json.loads(out)["wheels"][0]["refused"]
    assert (code, told["code"]) == (1, "RLK552")
    assert run(*words, "--no-deps")[0] == 0
    assert not (site_of(environment) / "fake.py").exists()
    assert run(*words, "--ignore", "RLK552")[0] == 0
    assert (site_of(environment) / "nv.py").exists()


@pytest.mark.parametrize("marker", ["extra ~= 'x'", "extra == 'x' and python_version ~= 'x'"])
def test_a_marker_without_a_meaning_is_left_to_the_installer(tmp_path: Path, marker: str) -> None:
    wheel = make_wheel(
        tmp_path, {"top.py": b""}, name="top", tag="py3-none-any", requires=(f"dep; {marker}", "a")
    )
    environment = TargetEnvironment("python", tmp_path, (), {"python_version": "3.12"})
    assert list_requirements(wheel, {"x"}, environment) == ["a"]


BACKEND = """
def note(*_):
    open({seen!r}, "w").close()
    raise SystemExit("built")
get_requires_for_build_wheel = prepare_metadata_for_build_wheel = build_wheel = note
"""


@pytest.mark.few(1, reason="a second for each other reference, and for the other installer")
@pytest.mark.parametrize("reference", ["direct", "named", "indirect"])
def test_nothing_is_built_before_the_decision(
    run: Run, environment: Path, rocm: Path, index: Path, tmp_path: Path, reference: str
) -> None:
    """The backend needs nothing that an index has to have, so that a build of any installer reaches it."""
    seen = tmp_path / "built"
    files = {
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "backend.py": BACKEND.format(seen=str(seen)),
        "PKG-INFO": "Metadata-Version: 2.1\nName: dep\nVersion: 1\n",
    }
    source = index / "dep-1.tar.gz"
    with tarfile.open(source, "w:gz") as archive:
        for name, text in files.items():
            row = tarfile.TarInfo(f"dep-1/{name}")
            row.size = len(text)
            archive.addfile(row, io.BytesIO(text.encode()))
    required = "dep" if reference == "named" else f"dep @ {source.as_uri()}"
    if reference == "indirect":
        make_wheel(index, {"between.py": b""}, name="between", tag="py3-none-any", requires=(required,))
        required = "between"
    wheel = depending(index, rocm, tmp_path, required)
    before = tree(environment)
    code, _, err = run("install", wheel, "--prefix", rocm, "--python", python_of(environment))
    assert code == 2
    assert "--no-deps" in err
    assert tree(environment) == before
    assert not seen.exists()


@pytest.mark.parametrize("environment", ["uv"], indirect=True)
def test_what_cannot_be_had_is_told_before_anything_changes(
    run: Run, environment: Path, rocm: Path, index: Path, tmp_path: Path
) -> None:
    wheel = depending(index, rocm, tmp_path, "nowhere")
    before = tree(environment)
    code, _, err = run("install", wheel, "--prefix", rocm, "--python", python_of(environment))
    assert code == 2
    assert "so nothing was installed" in err
    assert tree(environment) == before


@SLOW
@pytest.mark.parametrize("environment", ["uv"], indirect=True)
def test_the_rocm_of_site_packages_is_not_fetched_where_a_prefix_takes_its_place(
    run: Run, environment: Path, rocm: Path, index: Path, tmp_path: Path
) -> None:
    wheel = depending(index, rocm, tmp_path, "rocm[libraries]==10.0.0")
    code, out, err = run("install", wheel, "--prefix", rocm, "--python", python_of(environment))
    assert (code, err) == (0, "")
    assert "top 1.0+relinked is installed" in out


@pytest.mark.slow(reason="four installations; test_what_dlopen_says_of_each_library has the same trials")
@pytest.mark.parametrize("environment", ["pip"], indirect=True)
def test_a_gpu_part_that_does_not_load(
    run: Run, environment: Path, rocm: Path, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The import does not load it, and the dry run of the loader runs no constructor. Without a GPU it says nothing."""
    dies = USES + "void abort(void); __attribute__((constructor)) static void d(void){abort();}"
    depending(index, rocm, tmp_path, code=dies)
    words = ("--prefix", rocm, "--python", python_of(environment))
    code, out, err = run("install", "top", *words)
    assert (code, err) == (0, "")
    told = "it needs a GPU, and this machine has none (the process died of SIGABRT)"
    assert f"top/a.so is bound; to go on {told}" in out
    monkeypatch.setattr("relink.indexes.install.installing.find_local_gpus", lambda: ["gfx1100"])
    code, out, err = run("install", "top", *words)
    assert (code, err) == (1, "")
    assert "load top/a.so: the process died of SIGABRT" in out
    told, command = out.splitlines()[-2:]
    assert told.endswith("but its GPU part does not load. This puts the vendor's wheel back:")
    assert command == f"    relink repair top --undo --python {python_of(environment)}"
    assert run("install", "top", *words, "--no-import-test")[0] == 0


@pytest.mark.slow(reason="installations; that uv keeps what is named is uv's")
@pytest.mark.usefixtures("gpu", "index")
def test_uv_sync_keeps_what_the_printed_command_puts_into_the_project(
    run: Run, rocm: Path, tmp_path: Path
) -> None:
    """A constraint would not: `uv sync` goes by the lock. Each step is uv's own."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text(
        '[project]\nname = "p"\nversion = "1"\nrequires-python = ">=3.11"\ndependencies = ["gpu==1.0"]\n'
    )
    program = shutil.which("uv", path=str(Path(sys.executable).parent))
    assert program

    def uv(*words: str) -> None:
        command = [program, *words, "--offline", "--python", sys.executable]
        done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def version() -> str:
        (info,) = site_of(project / ".venv").glob("gpu-*.dist-info")
        return info.name.removeprefix("gpu-").removesuffix(".dist-info")

    uv("sync")
    words = ("install", "gpu", "--prefix", rocm, "--python", python_of(project / ".venv"))
    code, out, err = run(*words, "-q")
    assert (code, err, version()) == (0, "", "1.0+relinked")
    uv("sync")
    assert version() == "1.0"
    told, command = out.splitlines()[-2:]
    assert told == "`uv run` and `uv sync` put the vendor's wheels back, until the project names these:"
    uv(*shlex.split(command)[1:])
    for step in (("sync",), ("lock", "--check"), ("sync", "--reinstall")):
        uv(*step)
        assert version() == "1.0+relinked"
