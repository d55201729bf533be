"""resolve.decision_findings: whether a member gets the vendor's libraries, by what is mapped for it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relink.library import relink
from relink.planning.options import Options
from relink.planning.resolve.decision_findings import has_vendors, list_mapped
from relink.providers.profiles import Profile
from relink.runs.questions import verify_wheel
from relink.wheel.archive import WheelArchive
from tests.support.cc import shared
from tests.support.command import Run
from tests.support.wheels import changed, make_wheel
from tests.support.works import OUTPUT, TAG, Works
from tests.unit.planning.resolve.scenes import Scene, call, codes

SLOW = pytest.mark.slow(reason="runs and checks; test_verify_allowed has both")


@pytest.mark.parametrize(
    ("soname", "where", "has"),
    [
        ("libamdhip64.so.7", "anywhere", True),  # by its name
        ("libown.so.1", "prefix/lib", True),  # by the provider's file
        ("libown.so.1", "anywhere", False),
        ("libstdc++.so.6", "prefix/lib", False),  # of every Linux
        ("libelse.so.1", "anywhere", False),
    ],
)
def test_what_is_the_vendors(tmp_path: Path, soname: str, where: str, has: bool) -> None:
    scene = Scene(tmp_path)
    scene.provide("lib/libown.so.1")
    scene.provide("lib/libstdc++.so.6")
    path = scene.library(tmp_path / where / soname)
    assert has_vendors(scene.context(), [(soname, str(path))]) is has


def test_what_python_has_for_itself_is_nobodys_part(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.provide("lib/libown.so.1")
    scene.member("demo/a.so", ["libown.so.1"])
    (outcome,) = scene.decide().outcomes.values()
    mapped = dict(list_mapped(outcome))
    assert mapped["libown.so.1"] == f"{scene.prefix}/lib/libown.so.1"
    assert "libpython3.11.so.1.0" not in mapped
    assert not {"libm.so.6", "libdl.so.2"} & mapped.keys()


def test_variants(tmp_path: Path) -> None:
    scene = Scene(tmp_path, profile=Profile("p", variants=("demo/v*.so",)))
    scene.provide("lib/libown.so.1")
    scene.member("demo/c.so", ["libown.so.1"])
    assert codes(scene.decide()) == []
    for member in ("demo/va.so", "demo/vb.so"):
        scene.member(member, ["libgone.so.1"], call("gone"))
    # What a member that is no variant has does not count.
    (found,) = (one for one in scene.decide().findings if one.code == "RLK104")
    assert (found.level, found.profile) == ("error", "p")
    scene.member("demo/vb.so", ["libown.so.1"])
    assert codes(scene.decide()) == ["RLK103"]


PLAN = "demo-1.0+rocm7.2.4.dist-info/relink.json"
LOST = "libnowhere.so.1"


@pytest.fixture(scope="module")
def forced(works: Works, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A relinked wheel with a member that needs what nobody has: its plan says so."""
    directory = tmp_path_factory.mktemp("forced")
    vendor = works.wheel(directory, {"demo/lost.so": works.lost})
    report = relink(vendor, works.options(directory / "out", force=True))
    assert [found.code for found in report.findings if found.level == "error"] == ["RLK101"]
    return directory / "out" / OUTPUT


def plan_of(wheel: Path) -> dict[str, Any]:
    with WheelArchive(wheel) as archive:
        data: dict[str, Any] = json.loads(archive.read(PLAN))
    return data


def forged(wheel: Path, directory: Path, forge: Callable[[dict[str, Any]], object]) -> Path:
    plan = plan_of(wheel)
    forge(plan)
    return changed(wheel, directory, {PLAN: json.dumps(plan).encode()})


def allow(plan: dict[str, Any]) -> None:
    (found,) = [item for item in plan["findings"] if item["code"] == "RLK101"]
    found |= {"code": "RLK102", "level": "warning"}


def test_verify_allowed(run: Run, forced: Path, tmp_path: Path) -> None:
    """An RLK102 that the wheel's maker wrote allows nothing; --allow-missing does."""
    wheel = forged(forced, tmp_path / "forged", allow)
    code, out, _ = run("verify", wheel)
    assert code == 1
    assert f"error RLK101 {LOST}: " in out
    assert "Does not load: 1 library is missing." in out
    code, out, _ = run("verify", wheel, "--allow-missing", "libnowhere*")
    assert code == 0
    assert f"warning RLK102 {LOST}" in out
    assert (
        f"Loads; checked by ld.so for 1 file. {LOST} is to be there at run time, as --allow-missing says."
        in out
    )


@SLOW
def test_verify_allowed_by_an_honest_plan(works: Works, tmp_path: Path) -> None:
    """Nobody can tell it from a forged one."""
    vendor = works.wheel(tmp_path, {"demo/lost.so": works.lost})
    assert relink(vendor, works.options(tmp_path / "out", allow_missing=("libnowhere*",))).ok
    output = tmp_path / "out" / OUTPUT
    assert [(one.code, one.level) for one in verify_wheel(output, Options()).findings] == [
        ("RLK101", "error")
    ]
    (found,) = verify_wheel(output, Options(allow_missing=("libnowhere*",))).findings
    assert (found.code, found.level, found.subject) == ("RLK102", "warning", LOST)


def test_verify_allowed_by_no_file_of_the_directory(run: Run, forced: Path, tmp_path: Path) -> None:
    """Whoever made a checkout may have made the wheel in it, too."""
    (tmp_path / "relink.toml").write_text("allow-missing = ['*']\nprofile = 'nosuch'\n")
    code, out, err = run("verify", forced)
    assert (code, err) == (1, "")
    assert f"error RLK101 {LOST}" in out


def stubbed(plan: dict[str, Any]) -> None:
    stub = {"path": "demo/lost.so", "soname": LOST, "functions": [], "versions": [], "why": "no need"}
    plan["stubs"], plan["kept"] = [stub], ["demo/lost.so"]


FORGED: dict[str, Callable[[dict[str, Any]], object]] = {
    "findings": lambda plan: plan["findings"].clear(),
    "allowed": allow,
    "no python": lambda plan: plan["target"].update(python=None),
    "another python": lambda plan: plan["target"].update(python="/nowhere/python"),
    "stub": stubbed,
    "relies on": lambda plan: plan.update(
        relies_on=[{"name": "rocm", "version": "7.2.4", "files": []}], sites=["/"], relocatable=True
    ),
    "not served": lambda plan: plan["files"][0].update(served=False),
    "no files": lambda plan: plan.update(files=[], loads=[]),
    "provider": lambda plan: plan["providers"][0].update(path="/"),
}


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("what", FORGED)
def test_verify_lowers_nothing_for_a_plan(forced: Path, tmp_path: Path, what: str) -> None:
    """With any plan a wheel has at least the errors that it has without one."""
    bare = verify_wheel(changed(forced, tmp_path / "bare", {PLAN: None}), Options())
    result = verify_wheel(forged(forced, tmp_path / "forged", FORGED[what]), Options())
    errors = {(one.code, one.subject) for one in result.findings if one.level == "error"}
    assert {(one.code, one.subject) for one in bare.findings if one.level == "error"} <= errors
    assert ("RLK101", LOST) in errors
    assert (result.target, result.maps) == (bare.target, bare.maps)


# Parts of a package of which none has ROCm


def hip_prefix(directory: Path) -> Path:
    shared(directory / "lib" / "libamdhip64.so.7", "int hip(void){return 7;}")
    (directory / ".info").mkdir()
    (directory / ".info" / "version").write_text("7.2.4-1\n")
    return directory


def onnxruntime(directory: Path, prefix: Path) -> Path:
    """As the vendor made it: an import loads a module without ROCm; a session loads the provider."""
    flags = ["-Wl,--enable-new-dtags,-rpath,/opt/rocm-0.0.0/lib:"]
    hip = prefix / "lib" / "libamdhip64.so.7"
    uses = "extern int hip(void); int g(void){return hip();}"
    capi = "onnxruntime/capi/"
    provider = f"{capi}libonnxruntime_providers_rocm.so"
    files: dict[str, bytes | Path] = {
        f"{capi}onnxruntime_pybind11_state.so": shared(
            directory / "m" / "state.so", "int p(void){return 1;}"
        ),
        provider: shared(
            directory / "m" / "libonnxruntime_providers_rocm.so", uses, needed=[hip], flags=flags
        ),
    }
    return make_wheel(directory, files, name="onnxruntime_rocm", tag=TAG)


def bitsandbytes(directory: Path, prefix: Path) -> Path:
    hip = prefix / "lib" / "libamdhip64.so.7"
    cuda = shared(directory / "stubs" / "libcudart.so.12", "int cuda(void){return 5;}")
    files: dict[str, bytes | Path] = {
        f"bitsandbytes/libbitsandbytes_{name}.so": shared(
            directory / "m" / f"libbitsandbytes_{name}.so",
            f"extern int {used}(void); int g(void){{return {used}();}}" if used else "int g(void){return 1;}",
            needed=needed,
        )
        for name, used, needed in (("cpu", "", []), ("cuda12", "cuda", [cuda]), ("rocm72", "hip", [hip]))
    }
    return make_wheel(directory, files, name="bitsandbytes", tag=TAG)


PARTS = {"onnxruntime": (onnxruntime, "RLK101"), "bitsandbytes": (bitsandbytes, "RLK104")}


@SLOW
@pytest.mark.parametrize("package", PARTS)
def test_verify_of_a_wheel_none_of_whose_rocm_parts_loads(tmp_path: Path, package: str) -> None:
    """The vendor's wheel, and the relinked one once the prefix is gone: an error, as run gives for a prefix without ROCm."""
    make, code = PARTS[package]
    prefix = hip_prefix(tmp_path / "rocm")
    vendor = make(tmp_path, prefix)
    empty = tmp_path / "empty"
    shared(empty / "lib" / "libelse.so.1", "int other(void){return 1;}")

    def errors(findings: tuple[Any, ...]) -> list[str]:
        return [found.code for found in findings if found.level == "error"]

    options = Options(prefixes=(str(empty),), output_directory=tmp_path / "refused")
    # A plan tells what the nearest variant lacks as well.
    assert errors(relink(vendor, options).findings) == list(dict.fromkeys((code, "RLK101")))
    assert errors(verify_wheel(vendor, Options()).findings) == list(dict.fromkeys((code, "RLK101")))
    report = relink(vendor, Options(prefixes=(str(prefix),), output_directory=tmp_path / "out"))
    assert report.ok, report.findings
    assert report.output is not None
    relinked = Path(report.output.path)
    assert errors(verify_wheel(relinked, Options()).findings) == []
    shutil.move(prefix, tmp_path / "elsewhere")
    assert errors(verify_wheel(relinked, Options()).findings) == list(dict.fromkeys((code, "RLK101")))


def test_verify_leaves_a_part_where_another_has_rocm(tmp_path: Path) -> None:
    """The rule for what a package does without, and for variants, stays a warning and an info."""
    prefix = hip_prefix(tmp_path / "rocm")
    report = relink(
        bitsandbytes(tmp_path, prefix), Options(prefixes=(str(prefix),), output_directory=tmp_path / "out")
    )
    assert report.output is not None
    found = verify_wheel(Path(report.output.path), Options()).findings
    left = next(one for one in found if one.code == "RLK103")
    assert (left.level, left.subject) == ("info", "bitsandbytes/libbitsandbytes_cuda12.so")
    assert "libcudart.so.12" in left.message
    assert not [one for one in found if one.level == "error"]
