"""resolve.shims: a function that a library lacks is in a small one beside it; the real loader binds all else as before."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from relink.library import apply, plan, relink, verify
from relink.planning.model import Plan, from_json, to_json
from relink.planning.options import Options
from relink.report.model import Report
from relink.system.findings.model import causes
from tests.support.cc import shared
from tests.support.elf_builder import SUPPORTED, WHY_NOT
from tests.support.wheels import make_wheel
from tests.support.works import TAG

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)

RCCL, SHIM = "librccl.so.1", "relink-shim-librccl.so.1"
PLACE = f"demo.libs/relink-stubs/{SHIM}"
LACKED = "ncclCommWindowRegister"
USES = f"int ncclGetVersion(int *); int {LACKED}(void *); "
ONLY = f"int {LACKED}(void *); int window(void){{return {LACKED}(0);}}"
USES += (
    f"int version(void){{int v = 0; ncclGetVersion(&v); return v;}} int window(void){{return {LACKED}(0);}}"
)


def script(path: Path, *nodes: str) -> str:
    """A linker flag for a version script of nodes such as ``RCCL_1:f,g``."""
    pairs = (node.partition(":") for node in nodes)
    lines = [
        f"{name} {{ global: {' '.join(f'{one};' for one in names.split(','))} }};" for name, _, names in pairs
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines))
    return f"-Wl,--version-script={path}"


class World:
    """A ROCm whose RCCL lacks one function, and a wheel that was built with a newer one."""

    def __init__(
        self, root: Path, old: tuple[str, ...] = (), new: tuple[str, ...] = (), extra: str = ""
    ) -> None:
        self.root, self.rocm = root, root / "rocm"
        source = "int ncclGetVersion(int *v){*v = %d; return 0;} "
        (self.rocm / ".info").mkdir(parents=True)
        (self.rocm / ".info" / "version").write_text("7.0.0-1\n")
        flags = [script(root / "old.map", *old)] if old else []
        self.rccl = shared(self.rocm / "lib" / RCCL, source % 22606, flags=flags)
        flags = [script(root / "new.map", *new)] if new else []
        more = f"int {LACKED}(void *p){{return 0;}} int nccl_data = 4; __thread int nccl_local = 5; {extra}"
        self.newer = shared(root / "new" / RCCL, source % 22809 + more, flags=flags)

    def wheel(self, source: str = USES, **more: Path) -> Path:
        member = shared(self.root / "members" / "a.so", source, needed=[self.newer])
        files: dict[str, bytes | Path] = {"demo/__init__.py": b"", "demo/a.so": member, **more}
        return make_wheel(self.root / "vendor", files, tag=TAG)

    def options(self, *stubs: str) -> Options:
        return Options(prefixes=(str(self.rocm),), output_directory=self.root / "out", stub=stubs)

    def relinked(self, *stubs: str, source: str = USES) -> tuple[Report, Path]:
        """The report, and where the output is unpacked."""
        report = relink(self.wheel(source), self.options(*stubs))
        assert report.output is not None, [item for item in report.findings if item.level == "error"]
        with zipfile.ZipFile(report.output.path) as output:
            output.extractall(self.root / "site")
        return report, self.root / "site" / "demo" / "a.so"


def call(path: Path, *names: str) -> list[int]:
    text = f"import ctypes, json; a = ctypes.CDLL({str(path)!r}); print(json.dumps([a[n]() for n in {list(names)!r}]))"
    run = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, env={"LD_BIND_NOW": "1"}, check=True
    )
    return list(json.loads(run.stdout))


def codes(report: Report | Plan, level: str) -> list[tuple[str, str]]:
    return [(item.code, item.subject) for item in report.findings if item.level == level]


@pytest.mark.parametrize("stub", ["auto", f"{RCCL}:{LACKED}"])
def test_the_function_refuses_and_all_else_is_the_real_librarys(tmp_path: Path, stub: str) -> None:
    world = World(tmp_path)
    report, member = world.relinked(stub)
    assert call(member, "version", "window") == [22606, 2]  # ncclSystemError
    (found,) = (item for item in report.findings if item.code == "RLK125")
    assert (found.subject, found.level) == (RCCL, "warning")
    assert found.message.startswith(
        f"{RCCL} of ROCm 7.0.0 ({world.rccl}) lacks {LACKED}; a shim has it (RCCL moves data"
    )
    assert found.message.endswith("; returning ncclSystemError: 1")
    (made,) = report.plan.stubs
    assert (made.path, made.shim_of) == (PLACE, RCCL)
    assert from_json(to_json(report.plan)) == report.plan
    file = next(file for file in report.plan.files if file.path == "demo/a.so")
    assert [(entry.soname, entry.action) for entry in file.needed] == [(RCCL, "keep"), (SHIM, "add")]
    sbom = next((tmp_path / "site").glob("*.dist-info/sboms/*.json")).read_text()
    assert f"a shim of relink's beside {RCCL}, which lacks {LACKED}" in sbom
    assert not [item for item in verify(str(report.output.path)).findings if item.level == "error"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("old", "new", "source"),
    [
        ((), (), USES),
        (("RCCL_1:ncclGetVersion",), ("RCCL_1:ncclGetVersion", f"RCCL_2:{LACKED}"), USES),
        (("RCCL_1:ncclGetVersion",), ("RCCL_1:ncclGetVersion", f"RCCL_2:{LACKED}"), ONLY),
    ],
)
def test_it_is_the_way_out(tmp_path: Path, old: tuple[str, ...], new: tuple[str, ...], source: str) -> None:
    """RLK302 says which release lacks the function, also where its version is missing; the option that it offers was tried."""
    world = World(tmp_path, old, new)
    refused = relink(world.wheel(source), world.options())
    (error,) = causes([item for item in refused.findings if item.level == "error"])
    lacking = f"{RCCL} of ROCm 7.0.0 ({world.rccl})"
    assert error.code == "RLK302"
    assert f"looked for in {lacking}" in error.findings[0].message
    assert not old or error.message == f"a.so needs up to RCCL_2 of {RCCL}; {lacking} goes up to RCCL_1"
    assert error.step == f"--stub {RCCL}:{LACKED}"
    assert refused.way_out == ("--stub", f"{RCCL}:{LACKED}")
    _, member = world.relinked(refused.way_out[1], source=source)
    assert call(member, "window") == [2]


@pytest.mark.parametrize(
    ("old", "new", "weak"),
    [
        (("RCCL_1:ncclGetVersion",), (f"RCCL_1:ncclGetVersion,{LACKED}",), None),
        (("RCCL_1:ncclGetVersion",), ("RCCL_1:ncclGetVersion", f"RCCL_2:{LACKED}"), True),
        (("RCCL_0:ncclGetVersion",), (f"RCCL_2:{LACKED}", "RCCL_0:ncclGetVersion"), True),
    ],
)
def test_versions(tmp_path: Path, old: tuple[str, ...], new: tuple[str, ...], weak: bool | None) -> None:
    """A version that the library has not is asked for weakly; one that it has stays as it is."""
    report, member = World(tmp_path, old, new).relinked("auto")
    assert call(member, "version", "window") == [22606, 2]
    file = next(file for file in report.plan.files if file.path == "demo/a.so")
    assert [(edit.file_after, edit.weak) for edit in file.versions] == ([(RCCL, True)] if weak else [])


def test_a_record_of_its_own_names_the_shim(tmp_path: Path) -> None:
    world = World(tmp_path, ("RCCL_1:ncclGetVersion",), ("RCCL_1:ncclGetVersion", f"RCCL_2:{LACKED}"))
    report, member = world.relinked("auto", source=ONLY)
    assert call(member, "window") == [2]
    file = next(file for file in report.plan.files if file.path == "demo/a.so")
    assert [(edit.file, edit.file_after, edit.weak) for edit in file.versions] == [(RCCL, SHIM, False)]


def test_a_version_of_which_more_is_imported(tmp_path: Path) -> None:
    extra = "int ncclOther(void){return 1;} "
    new = ("RCCL_1:ncclGetVersion", f"RCCL_2:{LACKED},ncclOther")
    world = World(tmp_path, ("RCCL_1:ncclGetVersion",), new, extra)
    vendor = world.wheel(USES + "int ncclOther(void); int other(void){return ncclOther();}")
    report = plan(vendor, world.options(f"{RCCL}:{LACKED}"))
    (refused,) = (item for item in report.findings if item.code == "RLK126")
    assert refused.message == (
        f"cannot be stubbed: {RCCL} does not define RCCL_2, of which demo/a.so imports ncclOther as well"
    )
    taken = plan(vendor, world.options(f"{RCCL}:{LACKED}", f"{RCCL}:ncclOther"))
    assert not codes(taken, "error")


@pytest.mark.parametrize("name", ["nccl_data", "nccl_local"])
def test_data_is_never_made(tmp_path: Path, name: str) -> None:
    kind = "__thread " if name == "nccl_local" else ""
    world = World(tmp_path)
    vendor = world.wheel(f"{USES} extern {kind}int {name}; int data(void){{return {name};}}")
    refused = plan(vendor, world.options(f"{RCCL}:{name}"))
    (found,) = (item for item in refused.findings if item.code == "RLK126")
    assert found.message == f"cannot be stubbed: {name} may be data, and a shim has functions only"
    by_itself = plan(vendor, world.options("auto"))
    assert [one.name for stub in by_itself.stubs for one in stub.functions] == [LACKED]
    assert ("RLK302", "$WHEEL/demo/a.so") in codes(by_itself, "error")


def test_a_function_whose_refusal_is_no_known_answer(tmp_path: Path) -> None:
    """auto leaves it; by its name it is made, and ends the process with a sentence."""
    world = World(tmp_path, extra="int ncclUnheardOf(void){return 0;}")
    source = "int ncclUnheardOf(void); int unheard(void){return ncclUnheardOf();}"
    assert not plan(world.wheel(source), world.options("auto")).stubs
    report, member = world.relinked(f"{RCCL}:ncclUnheardOf", source=source)
    assert report.output is not None
    code = f"import ctypes; ctypes.CDLL({str(member)!r}).unheard()"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 127
    assert "ncclUnheardOf of librccl.so.1 was called, and relink wrote it into a shim" in run.stderr


def test_what_nobody_lacks(tmp_path: Path) -> None:
    world = World(tmp_path)
    report = plan(world.wheel(), world.options("auto", f"{RCCL}:ncclGetVersion", "libnone.so.1:f"))
    found = {item.subject for item in report.findings if item.code == "RLK126"}
    assert found == {f"{RCCL}:ncclGetVersion", "libnone.so.1:f"}


def test_names_for_other_wheels_are_no_error(tmp_path: Path) -> None:
    """``repair --all`` and a run of several wheels: what fits none of one wheel may fit another."""
    world = World(tmp_path)
    options = world.options(f"{RCCL}:ncclUnheardOf", f"{RCCL}:ncclGetVersion", "libnone.so.1")
    options = replace(options, forward=["libother.so"])
    for several, level in ((False, "error"), (True, "info")):
        report = plan(world.wheel(), replace(options, several=several))
        found = {item.subject: item.level for item in report.findings if item.code in ("RLK126", "RLK134")}
        assert {*found.values()} == {level}, found
        assert {f"{RCCL}:ncclGetVersion", "libnone.so.1", "libother.so"} <= found.keys()


def test_a_real_function_that_appears_later_wins(tmp_path: Path) -> None:
    world = World(tmp_path)
    report, member = world.relinked("auto")
    assert report.output is not None
    before = verify(report.output.path)
    assert "RLK127" not in {item.code for item in before.findings}
    world.rccl.write_bytes(world.newer.read_bytes())
    assert call(member, "version", "window") == [22809, 0]
    after = verify(report.output.path)
    assert [item.subject for item in after.findings if item.code == "RLK127"] == [RCCL]


def test_a_saved_plan_makes_the_same(tmp_path: Path) -> None:
    world = World(tmp_path, ("RCCL_1:ncclGetVersion",), ("RCCL_1:ncclGetVersion", f"RCCL_2:{LACKED}"))
    plan(world.wheel(), world.options("auto")).save(tmp_path / "plan.json")
    report = apply(Plan.load(tmp_path / "plan.json"), output_directory=world.root / "out")
    assert report.output is not None
    with zipfile.ZipFile(report.output.path) as output:
        output.extractall(tmp_path / "site")
    assert call(tmp_path / "site" / "demo" / "a.so", "version", "window") == [22606, 2]
