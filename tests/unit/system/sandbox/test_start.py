"""Which kind is taken, where some do not work, and what is said of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from relink.library import relink
from relink.runs.questions import verify_wheel
from relink.system.errors import SandboxError
from relink.system.sandbox import start
from relink.system.sandbox.start import KINDS, OFF, Sandbox, find_sandbox, sandbox_findings, why_not
from tests.support.works import Works

ROOT = Path(__file__).parents[4]
CONTAINER = str(ROOT / "tests" / "support" / "container.py")
DENIED = [["namespaces"], ["namespaces", "landlock"], ["namespaces", "landlock", "seccomp"]]


def in_container(words: list[str], *command: str) -> subprocess.CompletedProcess[str]:
    start = [sys.executable, CONTAINER, *words, "--", sys.executable, *command]
    return subprocess.run(start, cwd=ROOT, capture_output=True, text=True, check=False)


def kind_in(words: list[str]) -> str:
    run = in_container(
        words, "-c", "from relink.system.sandbox.start import find_sandbox; print(find_sandbox().kind)"
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


@pytest.mark.parametrize(("words", "kind"), list(zip(DENIED, KINDS[2:], strict=True)), ids=KINDS[2:])
def test_the_next_best_is_taken(words: list[str], kind: str) -> None:
    if reason := why_not(kind):
        pytest.skip(f"{kind}: {reason}")
    assert kind_in(words) == kind


HAS = {
    "bubblewrap": ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"],
    "namespaces": ["unshare", "--map-root-user", "--mount", "--net", "true"],
    "landlock": [sys.executable, "-c", "import ctypes; exit(ctypes.CDLL(None).syscall(444, None, 0, 1) < 1)"],
}


@pytest.mark.parametrize("kind", HAS)
def test_what_the_machine_has_works(kind: str) -> None:
    """Or a kind that was broken here would only be skipped by the other tests, since it is tried before it is taken."""
    if shutil.which(HAS[kind][0]) is None or subprocess.run(HAS[kind], check=False).returncode:
        pytest.skip("the machine does not have it")
    assert why_not(kind) is None


def test_namespaces_of_its_own_where_there_is_no_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    if reason := why_not("namespaces"):
        pytest.skip(reason)
    monkeypatch.setenv("PATH", "/nowhere")
    start.first_working.cache_clear()
    try:
        assert find_sandbox() == Sandbox("namespaces", ("bubblewrap: there is no bwrap",))
    finally:
        start.first_working.cache_clear()


def test_a_container_is_no_obstacle(works: Works, tmp_path: Path) -> None:
    if reason := why_not("landlock"):
        pytest.skip(reason)
    words = ["--prefix", str(works.prefix), "-o", str(tmp_path / "out"), "--sandbox", "require", "--json"]
    run = in_container(DENIED[0], "-m", "relink", str(works.small(tmp_path)), *words)
    assert run.returncode == 0, run.stderr
    assert not {"RLK602", "RLK603", "RLK604"} & {
        found["code"] for found in json.loads(run.stdout)["findings"]
    }


@pytest.mark.slow(reason="three processes in a container; sandbox_findings is tried always")
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(DENIED[1], id=KINDS[3], marks=pytest.mark.slow(reason="as with limits alone")),
        pytest.param(DENIED[2], id=KINDS[4]),
    ],
)
def test_gaps_are_told_or_refused(words: list[str], works: Works, tmp_path: Path) -> None:
    wheel = str(works.small(tmp_path))
    base = ["-m", "relink", wheel, "--prefix", str(works.prefix), "-o", str(tmp_path / "out")]
    run = in_container(words, *base, "--sandbox", "require")
    assert run.returncode == 2
    assert not (tmp_path / "out").exists()
    assert "install bubblewrap, or allow user namespaces or Landlock" in run.stderr
    assert "landlock: Landlock: Function not implemented" in run.stderr
    run = in_container(words, *base)
    assert run.returncode == 0, run.stderr
    assert "warning RLK604 sandbox: only" in run.stdout
    (out,) = (tmp_path / "out").iterdir()
    run = in_container(words, "-m", "relink", "verify", str(out), "--sandbox", "require")
    assert (run.returncode, run.stdout) == (2, "")


def test_gaps(works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without = tuple(f"{kind}: not here" for kind in KINDS[:4])
    monkeypatch.setattr(start, "best_sandbox", lambda: Sandbox("limits", without))
    monkeypatch.delenv("NIX_BUILD_TOP", raising=False)
    report = relink(works.small(tmp_path), works.options(tmp_path / "out"))
    (found,) = (found for found in report.findings if found.code == "RLK604")
    assert found.level == "warning"
    assert "landlock: not here" in found.message
    with pytest.raises(SandboxError, match="install bubblewrap") as caught:
        relink(works.small(tmp_path), works.options(tmp_path / "other", sandbox="require"))
    assert caught.value.issues == without
    assert not (tmp_path / "other").exists()


def test_a_build_of_nix_is_confined_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIX_BUILD_TOP", "/build")
    monkeypatch.delenv("IN_NIX_SHELL", raising=False)
    gaps = Sandbox("filter", ("namespaces: not here",))
    assert [found.level for found in sandbox_findings(gaps)] == ["info"]
    monkeypatch.setenv("IN_NIX_SHELL", "impure")
    assert [found.level for found in sandbox_findings(gaps)] == ["warning"]


def test_off(works: Works, tmp_path: Path) -> None:
    report = relink(works.small(tmp_path), works.options(tmp_path / "out", sandbox="off"))
    assert report.output is not None
    assert [found.level for found in report.findings if found.code == "RLK603"] == ["info"]
    verified = verify_wheel(Path(report.output.path), works.options(tmp_path, sandbox="off"))
    assert [found.code for found in verified.findings if found.code in ("RLK602", "RLK603")] == ["RLK603"]


def test_nothing_is_said_where_the_kernel_holds(works: Works, tmp_path: Path) -> None:
    if not find_sandbox().enforced:
        pytest.skip("no kind that the kernel enforces works here")
    report = relink(works.small(tmp_path), works.options(tmp_path / "out", sandbox="require"))
    assert not {"RLK603", "RLK604"} & {found.code for found in report.findings}


def test_nothing_starts_without_a_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """An embedded Python may not know where its program lies."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    start.first_working.cache_clear()
    try:
        found = find_sandbox()
        assert (found.kind, found == OFF) == ("off", False)
        assert [item.code for item in sandbox_findings(found)] == ["RLK604"]
        with pytest.raises(SandboxError):
            find_sandbox("require")
    finally:
        start.first_working.cache_clear()
