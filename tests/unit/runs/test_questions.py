"""Questions that change nothing, asked of small compiled wheels."""

from __future__ import annotations

import json
import os
import posixpath
import random
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from textwrap import dedent

import pytest

from relink.library import relink, relink_tree
from relink.loader.target import find_target
from relink.planning.model import read_plan
from relink.planning.options import Options
from relink.report.text import tree_text
from relink.runs import questions as queries
from relink.runs.questions import check_tree, explain, inspect, verify_wheel
from relink.system.errors import UsageError, WheelError
from relink.wheel.archive import WheelArchive
from relink.wheel.limits import WheelLimits
from tests.support.amount import amount
from tests.support.cc import cc, shared, shared_without
from tests.support.wheels import changed, make_wheel
from tests.support.works import MACHINE, TAG, Works

SLOW = pytest.mark.slow(
    reason="several runs and the real loader; test_a_wheel_is_judged_by_what_its_import_opens has one"
)


def test_inspect(works: Works, tmp_path: Path) -> None:
    found = inspect(works.wheel(tmp_path))
    assert (found.name, found.version, found.tags) == ("demo", "1.0", (TAG,))
    assert (found.members, found.findings) == (8, ())
    files = {file.path: file for file in found.files}
    assert [*files] == ["demo/a.so", "demo/plain.so", "demo/bin/prog", "demo-1.0.data/scripts/demo-prog"]
    library, program = files["demo/a.so"], files["demo/bin/prog"]
    assert (library.machine, library.soname, library.needed) == (MACHINE, "a.so", ("libhip.so.7",))
    assert (library.search_kind, library.search_path) == ("runpath", "/opt/rocm-0.0.0/lib:")
    assert (library.imports, library.exports, library.versions) == (1, 1, ())
    assert library.size == works.library.stat().st_size
    assert program.interpreter == "/nowhere/ld.so"
    assert [file for file, _ in program.versions] == ["libc.so.6"]
    with WheelArchive(tmp_path / f"demo-1.0-{TAG}.whl") as archive:
        assert found.unpacked == sum(len(archive.read(name)) for name in archive.members)


def test_inspect_sees_other_machines_libraries(works: Works, tmp_path: Path) -> None:
    data = bytearray(works.library.read_bytes())
    data[18:20] = (183 if MACHINE == "x86_64" else 62).to_bytes(2, "little")
    (file,) = inspect(works.wheel(tmp_path, {"demo/other.so": bytes(data)})).files
    assert file.machine == ("aarch64" if MACHINE == "x86_64" else "x86_64")


def test_inspect_tells_of_a_poor_record(tmp_path: Path) -> None:
    vendor = make_wheel(tmp_path, {"demo/__init__.py": b""}, tag="py3-none-any", hashes=False)
    assert [found.code for found in inspect(vendor).findings] == ["RLK501"]


def test_inspect_of_what_is_no_wheel(tmp_path: Path) -> None:
    with pytest.raises(WheelError):
        inspect(tmp_path / "none-1-py3-none-any.whl")


def test_explain_simulates_every_member(
    works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("relink.planning.assess.plan_gpus")  # who loads whom does not depend on GPU code
    found = {
        member.file.path: member for member in explain(works.wheel(tmp_path), works.options(tmp_path)).trees
    }
    assert [*found] == ["demo/a.so", "demo/plain.so", "demo/bin/prog", "demo-1.0.data/scripts/demo-prog"]
    closure = found["demo/a.so"].closure
    paths = [
        closure.objects[edge.target or 0].path
        for edge in closure.edges
        if edge.requester >= found["demo/a.so"].root
    ]
    assert paths == [str(works.prefix / "lib" / name) for name in ("libhip.so.7", "libdeep.so.1")]


def test_a_plan_of_another_format(works: Works, tmp_path: Path) -> None:
    files: dict[str, bytes | Path] = {
        "demo/plain.so": works.plain,
        "demo-1.0.dist-info/relink.json": json.dumps({"schema": "relink.plan/9"}).encode(),
    }
    vendor = works.wheel(tmp_path, files)
    with WheelArchive(vendor) as archive, pytest.raises(UsageError, match="not a plan of the kind"):
        read_plan(archive)
    with pytest.raises(UsageError):
        verify_wheel(vendor, Options())


def test_verify_wheel_has_the_limits_of_its_options(works: Works, tmp_path: Path) -> None:
    vendor = works.small(tmp_path)
    assert verify_wheel(vendor, Options(limits=WheelLimits(members=5))).maps
    with pytest.raises(WheelError, match="5 members; the limit is 4"):
        verify_wheel(vendor, Options(limits=WheelLimits(members=4)))


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("key", ["python", "interpreter", "sysroot"])
def test_no_program_is_run_because_a_wheel_names_it(works: Works, tmp_path: Path, key: str) -> None:
    """The plan inside of a wheel was written by its maker: a Python, a loader or a root directory in it is not the user's."""
    report = relink(works.small(tmp_path), works.options(tmp_path / "out"))
    assert report.output is not None
    output, name = Path(report.output.path), "demo-1.0+rocm7.2.4.dist-info/relink.json"
    with WheelArchive(output) as archive:
        plan = json.loads(archive.read(name))
    canary = tmp_path / "ran"
    shutil.copy(report.target.interpreter, tmp_path / "ld.so")
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {canary}\n")
    program.chmod(0o755)
    plan["target"][key] = str(
        {"python": program, "interpreter": tmp_path / "ld.so", "sysroot": tmp_path}[key]
    )
    forged = changed(output, tmp_path / "forged", {name: json.dumps(plan).encode()})
    if key == "python":
        assert verify_wheel(forged, Options()).target.python == find_target().python
    else:
        with pytest.raises(UsageError, match=r"relinked for another loader.*name it: --interpreter"):
            verify_wheel(forged, Options())
    assert not canary.exists()


@SLOW
def test_a_library_that_only_others_need_is_judged_where_they_load_it(tmp_path: Path) -> None:
    """The library in NAME.libs has no search path; the DT_RPATH of the module that needs it serves what it needs."""
    libs = tmp_path / "num.libs"
    deep = shared(libs / "libquad.so.0", "int quad(void){return 1;}")
    middle = shared(
        libs / "libfort.so.5", "extern int quad(void); int fort(void){return quad();}", needed=[deep]
    )
    old = ["-Wl,--disable-new-dtags", "-Wl,-rpath,$ORIGIN/../num.libs"]
    core = shared(
        tmp_path / "core.so", "extern int fort(void); int c(void){return fort();}", needed=[middle], flags=old
    )
    members = {"num/core.so": core, "num.libs/libquad.so.0": deep, "num.libs/libfort.so.5": middle}
    whole = verify_wheel(make_wheel(tmp_path, members, name="num", tag=TAG), Options())
    assert (whole.ok, [*whole.maps]) == (True, ["num/core.so", "num.libs/libquad.so.0"])
    del members["num/core.so"]
    (tmp_path / "other").mkdir()
    alone = verify_wheel(make_wheel(tmp_path / "other", members, name="num", tag=TAG), Options())
    assert [found.code for found in alone.findings if found.level == "error"] == ["RLK101"]


def lost_parts(directory: Path) -> dict[str, bytes | Path]:
    """Return a package whose import does without two of its files; nothing opens a third one, and none is for a GPU."""
    lost = shared_without(directory / "lost.so", "libtbb.so.12")
    core = shared(directory / "core.so", "int c(void){return 1;}")
    source = """
        import ctypes, os, relink_required
        here = os.path.dirname(__file__)
        ctypes.CDLL(os.path.join(here, "core.so"))
        try:
            ctypes.CDLL(os.path.join(here, "guarded.so"))
        except OSError:
            pass
    """
    return {
        "parts/__init__.py": dedent(source).encode(),
        "parts/core.so": core,
        "parts/guarded.so": lost,
        f"parts/later{EXTENSION_SUFFIXES[0]}": lost,
        "parts/unknown.so": lost,
    }


def test_a_wheel_is_judged_by_what_its_import_opens(tmp_path: Path) -> None:
    files = lost_parts(tmp_path)
    checked = verify_wheel(make_wheel(tmp_path, files, name="parts", tag=TAG), Options())
    assert (checked.ok, [*checked.maps]) == (True, ["parts/core.so"])
    assert {(found.level, found.without) for found in checked.findings if found.code == "RLK124"} == {
        ("warning", "parts.guarded (libtbb.so.12)"),
        ("warning", "parts.later (libtbb.so.12)"),
        ("info", None),
    }
    files["parts/__init__.py"] = bytes(files["parts/__init__.py"]).replace(b'"core.so"', b'"unknown.so"')
    (tmp_path / "other").mkdir()
    assert not verify_wheel(make_wheel(tmp_path / "other", files, name="parts", tag=TAG), Options()).ok


@SLOW
def test_a_run_leaves_what_the_import_does_without(works: Works, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, lost_parts(tmp_path), name="parts", tag=TAG)
    report = relink(wheel, works.options(tmp_path / "out"))
    assert report.ok
    left = [found.subject for found in report.findings if found.code == "RLK124"]
    assert {posixpath.basename(name).partition(".")[0] for name in left} == {"guarded", "later", "unknown"}


def test_what_the_plan_said_and_the_loader_says_is_reported_once(works: Works, tmp_path: Path) -> None:
    files = {**lost_parts(tmp_path), "parts/a.so": works.library}
    wheel = make_wheel(tmp_path, files, name="parts", tag=TAG)
    output = relink(wheel, works.options(tmp_path / "out")).output
    assert output is not None
    found = [(one.code, one.subject) for one in queries.read_report(Path(output.path))[0].findings]
    assert ("RLK124", "parts/guarded.so") in found
    assert len(found) == len({*found})


def test_a_loader_that_is_named_is_asked_for_the_report(works: Works, tmp_path: Path) -> None:
    loader = tmp_path / "ld.so"
    shutil.copy(find_target().interpreter, loader)
    named = Options(interpreter=str(loader))
    options = works.options(tmp_path / "out", interpreter=str(loader))
    output = relink(works.small(tmp_path), options).output
    assert output is not None
    path = Path(output.path)
    assert queries.read_report(path)[1]
    report, is_plan = queries.read_report(path, named)
    assert (is_plan, report.verified) == (False, 1)
    with pytest.raises(WheelError):
        queries.read_report(tmp_path / "none-1-py3-none-any.whl", named)
    with pytest.raises(UsageError, match="--interpreter is for a relinked wheel"):
        queries.read_report(tmp_path / "relink.json", named)


def test_the_demo_gets_its_words_and_gives_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    class Ended:
        returncode = 3

    def run(command: list[str], **_: object) -> Ended:
        seen.append(command)
        return Ended()

    monkeypatch.setattr("relink.runs.questions.subprocess.run", run)
    assert queries.run_demo(["--x"]) == 3
    assert Path(seen[0][1]).name == "demo.py"
    assert seen[0][2:] == ["--x"]


def test_no_demo_in_this_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relink.system.shipped_files.PACKAGE", tmp_path / "relink")
    with pytest.raises(UsageError, match="the demo is not part of this installation"):
        queries.run_demo([])


DLOPEN = "import ctypes, os, sys; ctypes.CDLL(sys.argv[1], os.RTLD_NOW)"
WAYS = (
    "$ORIGIN",
    "$ORIGIN/../lib",
    "$ORIGIN/sub",
    "$ORIGIN/..",
    "$ORIGIN/../lib:$ORIGIN/../lib/sub",
    "/nowhere/lib",
)


def _random_tree(root: Path, chance: random.Random) -> Path:
    """Three libraries, of which one needs another, and two programs; each in some directory, with some search path."""
    built: dict[str, Path] = {}
    for name, needs in {"a": "", "b": "a", "d": "b"}.items():
        source = (
            f"int {needs}(void); int {name}(void){{return {needs}();}}" if needs else "int a(void){return 1;}"
        )
        path = root / "tree" / chance.choice(["lib", "lib/sub", "bin"]) / f"lib{name}.so.1"
        needed = [built[needs]] if needs else []
        built[name] = shared(path, source, needed=needed, flags=_search_path(chance))
    for name in ("d", "a"):
        (root / "tree/bin").mkdir(parents=True, exist_ok=True)
        flags = [*_search_path(chance), "-Wl,--allow-shlib-undefined"]
        source = f"int {name}(void); int main(void){{return {name}() != 1;}}"
        cc(source, root / f"tree/bin/run-{name}", *flags, needed=[built[name]])
    if chance.random() < 0.3:
        shared(built["a"], "int other(void){return 1;}")
    return root / "tree"


def _search_path(chance: random.Random) -> list[str]:
    kind = chance.choice(["--enable-new-dtags", "--disable-new-dtags"])
    return [f"-Wl,{kind},-rpath,{chance.choice(WAYS)}"] if chance.random() < 0.8 else []


def _really_broken(tree: Path) -> set[str]:
    """The files that do not start or open; a library that lacks another counts by the file that maps it with the other."""
    loader, variables = find_target().interpreter, {**os.environ, "LD_BIND_NOW": "1"}
    files = {str(path.relative_to(tree)): str(path) for path in tree.rglob("*") if path.is_file()}
    broken, whole = set(), {}
    for name, path in files.items():
        command = [path] if "run-" in name else [sys.executable, "-c", DLOPEN, path]
        if subprocess.run(command, capture_output=True, env=variables, check=False).returncode:
            broken.add(name)
        asked = subprocess.run([loader, "--list", path], capture_output=True, text=True, check=False)
        if asked.returncode == 0:
            whole[name] = {os.path.normpath(word) for word in asked.stdout.split()}
    carried = {name for name, path in files.items() if any(path in words for words in whole.values())}
    return broken - (carried - {*whole})


@SLOW
def test_a_tree_is_judged_as_the_real_loader_does(tmp_path: Path) -> None:
    """Each program is started, each library opened by itself; the command that is printed leads to a copy that works."""
    chance = random.Random(2026)
    broken, offered = 0, 0
    for number in range(amount(60)):
        tree = _random_tree(tmp_path / str(number), chance)
        really = _really_broken(tree)
        found, summed = check_tree(tree, Options())
        lines = tree_text("tree", found.maps, found.findings, summed, verbose=False)
        said = {line.plain.strip().partition(":")[0] for line in lines if line.plain.endswith(" not found")}
        assert (said, found.ok) == (really, not really), (number, found.findings)
        broken += bool(really)
        if summed.step and summed.step.startswith(f"relink {tree} -o "):
            relink_tree(tree, Options(output_directory=tmp_path / f"{number}-new"))
            assert not _really_broken(tmp_path / f"{number}-new")
            offered += 1
    assert broken > offered > 0
