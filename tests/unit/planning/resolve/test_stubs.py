"""resolve.stubs: which stubs there are, what they refuse to be, and a wheel with one from the plan to a call."""

from __future__ import annotations

import json
import re
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from relink.elf.stub import StubFunction
from relink.library import apply, diff, plan, relink, verify
from relink.planning.model.model import Plan, Stub
from relink.planning.options import Options
from relink.planning.resolve.decide import decide
from relink.planning.resolve.stubs import AUTO, StubPlans, plan_stubs, with_stubs
from relink.providers.profiles import OptionalLibrary, Profile
from relink.report.model import to_json
from relink.runs.questions import verify_wheel
from relink.system.errors import UsageError
from relink.vendors.protocol import Vendor
from relink.vendors.rocm.facts import rocm_facts
from tests.support.built import ROOT
from tests.support.cc import cc, shared
from tests.support.elf_builder import SUPPORTED, WHY_NOT
from tests.support.vendors import FakeVendor
from tests.support.works import VENDOR_PATH, Works
from tests.unit.planning.resolve.scenes import Scene, call, define
from tests.unit.planning.resolve.test_proof import scene

__all__ = ["scene"]  # the fixture

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)

SONAME, MEMBER = "libmany.so.1", "demo/ext.so"
FACTS = OptionalLibrary("many_", "MANY_UNSUPPORTED", 3, "one card needs none of it", frozenset({"many_init"}))
VENDOR = FakeVendor("table", optional=lambda soname: FACTS if soname == SONAME else None)


def missing(scene: Scene, source: str, exports: str = "", flags: tuple[str, ...] = ()) -> None:
    """A member that needs a library which nobody has."""
    library = scene.library(
        scene.root / "old" / SONAME, [], exports or define("many_init", "many_name"), flags
    )
    scene.provide("lib/libelse.so.1", source=define("other"))
    scene.member(MEMBER, ["libelse.so.1"], source, flags=[str(library)])


def planned(scene: Scene, *wanted: str, vendor: Vendor = VENDOR) -> StubPlans:
    context = replace(scene.context(), vendor=vendor)
    return plan_stubs(context, scene.tables, wanted or (SONAME,), "demo")


def test_a_stub_has_what_the_wheel_imports(scene: Scene) -> None:
    missing(scene, call("many_init", "many_name", "other"))
    plans = planned(scene)
    (stub,) = plans.stubs
    assert (stub.path, stub.why) == (f"demo.libs/relink-stubs/{SONAME}", FACTS.why)
    assert stub.functions[0] == StubFunction("many_init", None, 3)
    assert [one.name for one in stub.functions] == ["many_init", "many_name"]
    assert stub.functions[1].answer is None
    assert "many_name of libmany.so.1 was called" in stub.functions[1].sentence
    (found,) = plans.findings
    assert (found.code, found.level, found.subject) == ("RLK125", "warning", SONAME)
    assert "returning MANY_UNSUPPORTED: 1; aborting with a message: many_name" in found.message


def test_versions_are_those_of_the_record(scene: Scene) -> None:
    missing(scene, call("many_init"), flags=(scene.versions("MANY_1:many_init,many_name"),))
    (stub,) = planned(scene, vendor=FakeVendor("none")).stubs  # a version record says whose it is
    assert stub.functions[0].version == "MANY_1"
    assert stub.functions[0].answer is None
    assert stub.versions == ("MANY_1",)


def test_the_path_of_the_stub_is_the_last(scene: Scene) -> None:
    missing(scene, call("many_init", "other"))
    plans = planned(scene)
    context, tables = with_stubs(replace(scene.context(), vendor=VENDOR), scene.tables, plans.stubs)
    decisions = decide(context, tables)
    file = next(file for file in decisions.files if file.path == MEMBER)
    assert file.rpath.after == f"{scene.prefix}/lib:$ORIGIN/../demo.libs/relink-stubs"
    assert not [found for found in decisions.findings if found.level == "error"]
    served = next(entry for entry in file.needed if entry.soname == SONAME)
    assert (served.resolved, served.origin) == (f"$WHEEL/demo/../{plans.stubs[0].path}", "wheel")


def test_auto_takes_what_is_optional_and_nothing_else(scene: Scene) -> None:
    missing(scene, call("many_init"))
    assert [stub.soname for stub in planned(scene, AUTO).stubs] == [SONAME]
    assert planned(scene, AUTO, vendor=FakeVendor("none")) == StubPlans()


def test_auto_takes_what_this_package_does_without(scene: Scene) -> None:
    """The table knows the functions, and only the package's profile that the library is optional."""
    missing(scene, call("many_init"))
    vendor = FakeVendor("table", optional=lambda soname: replace(FACTS, why="") if soname == SONAME else None)
    assert planned(scene, AUTO, vendor=vendor) == StubPlans()
    (stub,) = planned(scene, vendor=vendor).stubs
    assert (stub.why, stub.functions[0].answer) == ("--stub asks for it", 3)
    scene.profile = Profile("p", optional_libraries={"libmany.so": "it calls none of it"})
    (stub,) = planned(scene, AUTO, vendor=vendor).stubs
    assert stub.why == "it calls none of it"


def test_what_something_else_exports_is_not_in_the_stub(scene: Scene) -> None:
    missing(scene, call("many_init", "many_name"))
    scene.provide("lib/libelse.so.1", source=define("other", "many_name"))
    assert [one.name for one in planned(scene).stubs[0].functions] == ["many_init"]


def refused(scene: Scene, *wanted: str, vendor: Vendor = VENDOR) -> str:
    plans = planned(scene, *wanted, vendor=vendor)
    assert plans.stubs == ()
    (found,) = plans.findings
    assert (found.code, found.level) == ("RLK126", "error")
    return found.message


def test_data_cannot_be_stubbed(scene: Scene) -> None:
    source = "extern int many_state; int uses(void){return many_state;}"
    missing(scene, source, "int many_state = 5;")
    assert "many_state may be data" in refused(scene)


def test_thread_local_data_cannot_be_stubbed(scene: Scene) -> None:
    source = "extern _Thread_local int many_state; int uses(void){return many_state;}"
    missing(scene, source, "_Thread_local int many_state = 5;")
    assert "many_state may be data" in refused(scene)


def test_a_library_of_which_nothing_is_known_to_be_imported(scene: Scene) -> None:
    missing(scene, call("many_init"))
    assert "no import is known to be of this library" in refused(scene, vendor=FakeVendor("none"))


def test_a_library_that_no_member_misses(scene: Scene) -> None:
    missing(scene, call("many_init"))
    assert "no member of the wheel misses" in refused(scene, "libelse.so.1")


def test_a_name_that_leads_elsewhere(scene: Scene) -> None:
    missing(scene, call("many_init"))
    evil = "libmany.so.1/../../evil.so"
    image = scene.images[MEMBER]
    scene.images[MEMBER] = replace(
        image, needed=tuple(evil if name == SONAME else name for name in image.needed)
    )
    vendor = FakeVendor("table", optional=lambda _: FACTS)
    assert "no plain file name" in refused(scene, AUTO, vendor=vendor)


def test_auto_passes_over_what_nothing_is_imported_from(scene: Scene) -> None:
    """The NEEDED of such a library is dropped; by name, that there can be no stub is an error."""
    missing(scene, call("other"), define("unused"))
    assert planned(scene, AUTO) == StubPlans()
    assert "no import is known to be of this library" in refused(scene)
    assert scene.decide().files[0].edit.remove == (SONAME,)


def test_a_wheel_that_has_a_member_there(scene: Scene) -> None:
    missing(scene, call("many_init"))
    scene.member(f"demo.libs/relink-stubs/{SONAME}")
    assert "has a member where the stub would be" in refused(scene)


@pytest.mark.parametrize(
    "stub",
    [
        Stub("../demo.libs/relink-stubs/liba.so", "liba.so", "w"),
        Stub("demo.libs/relink-stubs/libb.so", "liba.so", "w"),
        Stub("demo/liba.so", "liba.so", "w"),
        Stub("demo.libs/relink-stubs/../liba.so", "../liba.so", "w"),
        Stub("demo.libs/relink-stubs/liba.so", "liba.so", "w", (StubFunction("\ud800"),)),
        Stub("demo.libs/relink-stubs/liba.so", "liba.so", "w", (), tuple(map(str, range(0x7FFF)))),
    ],
)
def test_a_saved_plan_with_a_stub_that_relink_would_not_plan(scene: Scene, stub: Stub) -> None:
    missing(scene, call("many_init"))
    with pytest.raises(UsageError, match="the plan has a stub"):
        with_stubs(scene.context(), scene.tables, [stub])


# From the plan to a call


@pytest.fixture
def wheel(works: Works, tmp_path: Path) -> tuple[Path, Options]:
    """A wheel whose library needs an rccl that the prefix lacks."""
    source = (
        "int ncclGetVersion(int*p){return 0;} const char *ncclGetErrorString(int i){return 0;}"
        "void *ncclGetLive(void){return 0;}"
    )
    rccl = shared(tmp_path / "old/librccl.so.1", source)
    user = (
        "extern int hip(void), ncclGetVersion(int *); const char *ncclGetErrorString(int); void *ncclGetLive(void);"
        "int version(void){return ncclGetVersion(0);} const char *text(void){return ncclGetErrorString(hip());}"
        "void *live(void){return ncclGetLive();}"
    )
    library = shared(
        tmp_path / "members/a.so", user, needed=[works.prefix / "lib/libhip.so.7", rccl], flags=[VENDOR_PATH]
    )
    made = works.wheel(tmp_path, {"demo/__init__.py": b"", "demo/a.so": library})
    return made, works.options(tmp_path / "out", stub=("librccl.so.1",))


_CALLER = """
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv) {
  void *it = dlopen(argv[1], RTLD_NOW);
  if (!it) { puts(dlerror()); return 2; }
  printf("%d\\n", ((int (*)(void))dlsym(it, "version"))()); fflush(stdout);
  puts(((const char *(*)(void))dlsym(it, "text"))()); fflush(stdout);
  ((void *(*)(void))dlsym(it, "live"))();
  return 3;
}
"""


def test_a_call_of_a_stub_in_a_relinked_wheel(wheel: tuple[Path, Options], tmp_path: Path) -> None:
    path, options = wheel
    assert [
        found.code for found in relink(path, replace(options, stub=())).findings if found.level == "error"
    ] == ["RLK101"]
    report = relink(path, options)
    assert report.ok, report.findings
    assert report.verified == 1
    assert report.output is not None
    assert [stub["soname"] for stub in to_json(report)["stubs"]] == ["librccl.so.1"]
    output = Path(report.output.path)
    with zipfile.ZipFile(output) as archive:
        archive.extractall(tmp_path / "site")
        (sbom,) = (name for name in archive.namelist() if name.endswith(".cdx.json"))
        components = json.loads(archive.read(sbom))["components"]
    (stub,) = (one for one in components if one["name"] == "librccl.so.1")
    assert {"name": "relink:stub", "value": "true"} in stub["properties"]
    caller = cc(_CALLER, tmp_path / "caller", needed=["-ldl"])
    run = subprocess.run([caller, tmp_path / "site/demo/a.so"], capture_output=True, text=True, check=False)
    number, text = run.stdout.splitlines()
    assert (run.returncode, number) == (127, "2")
    assert text.startswith("relink wrote this librccl.so.1 as a stub (RCCL moves data between several GPUs")
    assert run.stderr.startswith("ncclGetLive of librccl.so.1 was called, and relink wrote this")
    # Reproducible, explained by its plan, and done.
    again = relink(path, replace(options, output_directory=tmp_path / "again"))
    assert again.output is not None
    assert again.output.sha256 == report.output.sha256
    assert diff(path, output, options).ok
    twice = relink(output, replace(options, output_directory=tmp_path / "twice"))
    assert (twice.ok, twice.output) == (True, None)
    with pytest.raises(UsageError, match=r"with other options \(--stub librccl.so.1\)"):
        relink(output, replace(options, stub=()))
    assert not [
        found for found in verify(output).findings if found.level == "error" or found.code == "RLK127"
    ]


LIVE = {
    "libroctracer64.so.4": ("roctracer_default_pool", "roctracer_default_pool_expl"),
    "librocprofiler-sdk.so.1": ("rocprofiler_configure",),
}
"""Functions of the headers that must return an object which a caller then uses."""


@pytest.mark.parametrize("library", sorted(rocm_facts().stubs))
def test_every_function_of_every_stub_is_called(library: str, scene: Scene, tmp_path: Path) -> None:
    """Each returns the component's refusal, or a text; what must return a live object ends the process, as the manual says."""
    soname = next((name for name in LIVE if name.startswith(library)), f"{library}.1")
    facts, live = rocm_facts().stubs[library], LIVE.get(soname, ())
    texts = {name for name, kind in rocm_facts().texts.items() if kind == "returned"}
    texts &= {name for name in rocm_facts().texts if re.match(facts.names, name)}
    names = sorted({*facts.functions, *texts, *live})
    calls = "".join(f"extern long {name}(long, const char **); " for name in names)
    table = ", ".join(f'{{"{name}", (void *){name}}}' for name in names)
    old = scene.library(scene.root / "old" / soname, [], define(*names))
    scene.provide("lib/libelse.so.1")
    scene.member(MEMBER, ["libelse.so.1"], f"{calls} void *all[][2] = {{ {table} }};", flags=[str(old), "-w"])
    (stub,) = plan_stubs(scene.context(), scene.tables, (soname,), "demo").stubs
    assert [function.name for function in stub.functions] == names
    written = tmp_path / "out" / soname
    written.parent.mkdir()
    written.write_bytes(stub.content())
    ends = " || ".join(["0", *(f'!strcmp(all[i].name, "{name}")' for name in live)])
    program = f"""#include <stdio.h>
#include <string.h>
{calls}
struct {{ const char *name; long (*call)(long, const char **); }} all[] = {{ {table} }};
int main(int argc, char **argv) {{
  for (int i = 0; i < {len(names)}; i++) {{
    if (argc > 1 ? strcmp(argv[1], all[i].name) : {ends}) continue;
    const char *stored = "";
    long answer = all[i].call(0, &stored);
    char text = answer > 0xffffffffL;
    printf("%s|%d|%s|%s\\n", all[i].name, text ? 0 : (int)answer, text ? (const char *)answer : "", stored);
  }}
  return 0;
}}
"""
    caller = cc(program, tmp_path / "caller", "-w", "-Wl,-rpath,$ORIGIN/out", needed=[written])
    run = subprocess.run([caller], capture_output=True, text=True, check=True)
    answers = {row[0]: tuple(row[1:]) for row in (line.split("|") for line in run.stdout.splitlines())}
    assert sorted(answers) == sorted({*names} - {*live})
    text = f"relink wrote this {soname} as a stub ({facts.why or '--stub asks for it'}): install the library"
    for name, (answer, returned, stored) in answers.items():
        assert int(answer) == (0 if name in texts else facts.answer), name
        assert returned.startswith(text) if name in texts else not returned, name
        assert stored.startswith(text) == (rocm_facts().texts.get(name) == "stored"), name
    manual = (ROOT / "docs/missing.md").read_text(encoding="utf-8")
    for name in live:
        run = subprocess.run([caller, name], capture_output=True, text=True, check=False)
        assert (run.returncode, run.stderr.split()[0]) == (127, name)
        assert f"`{name}`" in manual


def test_a_saved_plan_writes_the_same_stub(wheel: tuple[Path, Options], tmp_path: Path) -> None:
    path, options = wheel
    report = relink(path, options)
    assert report.output is not None
    plan(path, options).save(tmp_path / "plan.json")
    saved = Plan.load(tmp_path / "plan.json")
    assert [stub.soname for stub in saved.stubs] == ["librccl.so.1"]
    applied = apply(saved, output_directory=tmp_path / "applied")
    assert applied.output is not None
    assert applied.output.sha256 == report.output.sha256


def test_verify_tells_when_the_library_has_appeared(works: Works, wheel: tuple[Path, Options]) -> None:
    path, options = wheel
    report = relink(path, options)
    assert report.output is not None
    real = works.prefix / "lib/librccl.so.1"
    shared(real, "int ncclGetVersion(int*p){return 0;} const char *ncclGetErrorString(int i){return 0;}")
    try:
        found = verify_wheel(Path(report.output.path), Options()).findings
    finally:
        real.unlink()
    (one,) = (item for item in found if item.code == "RLK127")
    assert one.subject == "librccl.so.1"
    assert one.message == f"the loader takes {real}; the stub in the wheel is idle"
