"""resolve.stubs: which stubs and shims there are, what they refuse to be, and a wheel with one from the plan to a call."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from msgspec.structs import replace

from relink.elf.image import DlopenNote
from relink.elf.stub import StubFunction
from relink.library import apply, diff, plan, relink, verify
from relink.planning.model import Plan, Stub, from_json
from relink.planning.model import to_json as plan_to_json
from relink.planning.options import Options
from relink.planning.resolve.context import ResolveContext
from relink.planning.resolve.decide import PlanDraft, decide
from relink.planning.resolve.strategy import Outcome, find_strategy
from relink.planning.resolve.stubs import (
    AUTO,
    StubPlans,
    add_stubs,
    plan_forwarders,
    plan_shims,
    plan_stubs,
)
from relink.providers.profiles import DlopenEntry, Profile
from relink.report.model import Report, to_json
from relink.runs.questions import verify_wheel
from relink.system.errors import UsageError
from relink.system.findings.model import Finding, causes
from relink.vendors.protocol import OptionalLibrary, Vendor
from relink.vendors.rocm.facts import rocm_facts
from tests.support.built import ROOT
from tests.support.cc import cc, shared
from tests.support.elf_builder import SUPPORTED, WHY_NOT
from tests.support.vendors import fake_vendor
from tests.support.wheels import make_wheel
from tests.support.works import TAG, VENDOR_PATH, Works
from tests.unit.planning.resolve.scenes import Scene, call, define, opens
from tests.unit.planning.resolve.test_proof import scene

SLOW = pytest.mark.slow(
    reason="a relink, and processes that call; test_a_call_of_a_stub_in_a_relinked_wheel has both"
)

__all__ = ["scene"]

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)

SONAME, MEMBER = "libmany.so.1", "demo/ext.so"
FACTS = OptionalLibrary("many_", "MANY_UNSUPPORTED", 3, "one card needs none of it", frozenset({"many_init"}))
VENDOR = fake_vendor("table", optional=lambda soname: FACTS if soname == SONAME else None)


def missing(scene: Scene, source: str, exports: str = "", flags: tuple[str, ...] = ()) -> None:
    """A member that needs a library which nobody has."""
    library = scene.library(
        scene.root / "old" / SONAME, [], exports or define("many_init", "many_name"), flags
    )
    scene.provide("lib/libelse.so.1", source=define("other"))
    scene.member(MEMBER, ["libelse.so.1"], source, flags=[str(library)])


def planned(scene: Scene, *wanted: str, vendor: Vendor = VENDOR) -> StubPlans:
    context = replace(scene.context(), vendor=vendor)
    return plan_stubs(context, wanted or (SONAME,), "demo")


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


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The members whose loading is planned, in order."""
    members: list[str] = []

    def find(context: ResolveContext, member: str) -> Outcome:
        members.append(member)
        return find_strategy(context, member)

    monkeypatch.setattr("relink.planning.resolve.stubs.find_strategy", find)
    return members


def test_only_members_that_need_the_library_are_followed(scene: Scene, followed: list[str]) -> None:
    missing(scene, call("many_init"))
    scene.member("demo/other.so", ["libelse.so.1"])
    assert len(planned(scene, AUTO).stubs) == 1
    assert followed == [MEMBER]
    context = replace(scene.context(), vendor=VENDOR)
    plan_shims(context, ("libelse.so.1:other",), "demo")
    assert followed == [MEMBER, MEMBER, "demo/other.so"]


def test_versions_are_those_of_the_record(scene: Scene) -> None:
    missing(scene, call("many_init"), flags=(scene.versions("MANY_1:many_init,many_name"),))
    (stub,) = planned(scene, vendor=fake_vendor("none")).stubs  # a version record says whose it is
    assert stub.functions[0].version == "MANY_1"
    assert stub.functions[0].answer is None
    assert stub.versions == ("MANY_1",)


def test_the_path_of_the_stub_is_the_last(scene: Scene) -> None:
    missing(scene, call("many_init", "other"))
    plans = planned(scene)
    context = add_stubs(replace(scene.context(), vendor=VENDOR), plans.stubs)
    decisions = decide(context)
    file = next(file for file in decisions.files if file.path == MEMBER)
    assert file.rpath.after == f"{scene.prefix}/lib:$ORIGIN/../demo.libs/relink-stubs"
    assert not [found for found in decisions.findings if found.level == "error"]
    served = next(entry for entry in file.needed if entry.soname == SONAME)
    assert (served.resolved, served.origin) == (f"$WHEEL/demo/../{plans.stubs[0].path}", "wheel")


def test_auto_takes_what_is_optional_and_nothing_else(scene: Scene) -> None:
    missing(scene, call("many_init"))
    assert [stub.soname for stub in planned(scene, AUTO).stubs] == [SONAME]
    assert planned(scene, AUTO, vendor=fake_vendor("none")) == StubPlans()


def test_auto_takes_what_this_package_does_without(scene: Scene) -> None:
    """The table knows the functions, and only the package's profile that the library is optional."""
    missing(scene, call("many_init"))
    vendor = fake_vendor(
        "table", optional=lambda soname: replace(FACTS, why="") if soname == SONAME else None
    )
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
    assert "no import is known to be of this library" in refused(scene, vendor=fake_vendor("none"))


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
    vendor = fake_vendor("table", optional=lambda _: FACTS)
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


@pytest.mark.few(2, reason="the same of other values")
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
    with pytest.raises(UsageError, match=r"the plan (has|puts) a stub"):
        add_stubs(scene.context(), [stub])


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
        found.code
        for found in relink(path, dataclasses.replace(options, stub=())).findings
        if found.level == "error"
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
    again = relink(path, dataclasses.replace(options, output_directory=tmp_path / "again"))
    assert again.output is not None
    assert again.output.sha256 == report.output.sha256
    assert diff(path, output, options).ok
    assert not [
        found for found in verify(output).findings if found.level == "error" or found.code == "RLK127"
    ]


LIVE = {
    "libroctracer64.so.4": ("roctracer_default_pool", "roctracer_default_pool_expl"),
    "librocprofiler-sdk.so.1": ("rocprofiler_configure",),
}
"""Functions of the headers that must return an object which a caller then uses."""


@pytest.mark.few(3, reason="the same of other values")
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
    (stub,) = plan_stubs(scene.context(), (soname,), "demo").stubs
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


@SLOW
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


@SLOW
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


# Forwarders

NAME, FORWARDER = "librocblas.so", "demo.libs/relink-stubs/librocblas.so"
PROFILE = Profile("demo", dlopen=(DlopenEntry(MEMBER, (NAME,), "its GPU part", required=True),))


@pytest.fixture
def opening(tmp_path: Path) -> Scene:
    """A member that is linked with HIP 6 and opens rocBLAS, of which the prefix has that of HIP 6 and that of HIP 7."""
    made = Scene(tmp_path)
    for major in ("6", "7"):
        made.provide(f"lib/libamdhip64.so.{major}", [], define("hip"))
    made.provide("lib/librocblas.so.4", ["libamdhip64.so.6"], define("rocblas"))
    made.provide("lib/librocblas.so.5", ["libamdhip64.so.7"], define("rocblas"))
    made.member(MEMBER, ["libamdhip64.so.6"], call("hip") + opens(NAME))
    return made


@pytest.mark.parametrize("by", ["a string", "a note", "the profile", "the vendor's table", "nothing"])
def test_only_members_that_may_open_something_are_followed(
    opening: Scene, followed: list[str], by: str
) -> None:
    opening.opens.clear()
    opening.member(MEMBER, ["libamdhip64.so.6"], call("hip"))
    opening.member("demo/other.so", ["libamdhip64.so.6"], call("hip"))
    image = opening.images[MEMBER]
    if by == "a string":
        opening.opens[MEMBER] = (NAME,)
    elif by == "a note":
        opening.images[MEMBER] = replace(image, dlopen_notes=(DlopenNote((NAME,), "BLAS", "required"),))
    elif by == "the profile":
        opening.profile = PROFILE
    elif by == "the vendor's table":
        opening.images[MEMBER] = replace(image, soname="libopens.so.1")
    # A glob of the table that no library matches is a name of its own.
    name = "lib*blas.so" if by == "the vendor's table" else NAME
    vendor = fake_vendor(
        "table", dlopens_of=lambda soname, _names: {name: "it does"} if soname == "libopens.so.1" else {}
    )
    plans = plan_forwarders(replace(opening.context(), vendor=vendor), (name,), "demo")
    opens_it = "--forward: no member of the wheel opens it in vain" not in {
        found.message for found in plans.findings
    }
    assert opens_it == (by != "nothing")
    assert {*followed} == (set() if by == "nothing" else {MEMBER})


def forwarded(opening: Scene, *wanted: str) -> tuple[StubPlans, PlanDraft]:
    plans = plan_forwarders(opening.context(), wanted, "demo")
    return plans, decide(add_stubs(opening.context(), plans.stubs))


def told(draft: PlanDraft, code: str) -> list[Finding]:
    return [found for found in draft.findings if found.code == code]


def test_a_name_in_the_data_is_told_with_what_would_serve(opening: Scene) -> None:
    (found,) = told(opening.decide(), "RLK132")
    assert (found.level, found.subject, found.step) == ("warning", NAME, f"--forward {NAME}")
    assert "$WHEEL/demo/ext.so (a name in its data); not found there" in found.message
    assert found.message.endswith("the prefix has librocblas.so.4, librocblas.so.5")


def test_a_profile_that_requires_it_makes_it_an_error(opening: Scene) -> None:
    opening.profile = PROFILE
    (found,) = told(opening.decide(), "RLK132")
    assert (found.level, found.profile) == ("error", "demo")
    opening.allow_missing = (NAME,)
    draft = opening.decide()
    assert [found.level for found in told(draft, "RLK132")] == ["info"]
    assert not told(draft, "RLK109")


def test_without_any_of_that_name_it_is_an_info(opening: Scene) -> None:
    opening.member(MEMBER, ["libamdhip64.so.6"], call("hip") + opens("librocsolver.so"))
    (found,) = told(opening.decide(), "RLK132")
    assert (found.level, found.step) == ("info", None)
    plans, _ = forwarded(opening, "librocsolver.so")
    assert [(found.code, found.message) for found in plans.findings] == [
        ("RLK134", "cannot be forwarded: no prefix has a library of that name with a number")
    ]


def test_a_member_that_imports_no_dlopen_opens_nothing(opening: Scene) -> None:
    opening.opens.clear()
    opening.member(
        MEMBER, ["libamdhip64.so.6"], call("hip") + 'const char *name(void){return "librocblas.so";}'
    )
    assert not opening.opens
    assert not told(opening.decide(), "RLK132")


@pytest.mark.parametrize("wanted", [NAME, AUTO])
def test_it_leads_to_the_library_of_the_same_runtime(opening: Scene, wanted: str) -> None:
    plans, draft = forwarded(opening, wanted)
    (stub,) = plans.stubs
    assert (stub.path, stub.soname, stub.needed[0]) == (FORWARDER, NAME, "librocblas.so.4")
    assert [found.code for found in plans.findings] == ["RLK133"]
    assert not told(draft, "RLK132")
    assert not told(draft, "RLK130")
    file = next(file for file in draft.files if file.path == MEMBER)
    assert str(file.rpath.after).endswith(":$ORIGIN/../demo.libs/relink-stubs")
    opened = [
        (edge.opener, edge.name, edge.known_by, edge.resolved) for edge in draft.opened if edge.name == NAME
    ]
    assert opened == [("$WHEEL/demo/ext.so", NAME, "string", f"$WHEEL/{FORWARDER}")]


def test_a_second_runtime_is_refused(opening: Scene) -> None:
    (opening.prefix / "lib/librocblas.so.4").unlink()
    plans, draft = forwarded(opening, NAME)
    assert plans.stubs == ()
    (found,) = plans.findings
    assert (found.code, found.level) == ("RLK134", "error")
    assert found.message.endswith("librocblas.so.5 brings a second version of a library that is loaded")
    assert told(draft, "RLK132")
    assert forwarded(opening, AUTO)[0] == StubPlans()


def test_a_development_link_is_taken_and_the_runtime_it_brings_is_told(opening: Scene) -> None:
    link = opening.prefix / "lib" / NAME
    link.symlink_to("librocblas.so.4")
    draft = opening.decide()
    assert [edge.resolved for edge in draft.opened if edge.name == NAME] == [str(link)]
    assert not told(draft, "RLK132")
    assert not told(draft, "RLK130")
    assert [found.message for found in forwarded(opening, NAME)[0].findings] == [
        "--forward: no member of the wheel opens it in vain"
    ]
    link.unlink()
    link.symlink_to("librocblas.so.5")
    (found,) = told(opening.decide(), "RLK130")
    assert (found.level, found.subject) == ("error", "libamdhip64")
    assert "librocblas.so, which is opened later (dlopen), needs libamdhip64.so.7" in found.message


def test_a_library_of_that_name_that_does_not_load(opening: Scene) -> None:
    """A development link leads to a library whose own NEEDED nothing finds: the forwarder comes before it."""
    opening.provide("lib/libtensile.so.1", [], define("tensile"))
    opening.provide("lib/librocblas.so.4", ["libamdhip64.so.6", "libtensile.so.1"], define("rocblas"))
    (opening.prefix / "lib" / NAME).symlink_to("librocblas.so.4")
    (found,) = told(opening.decide(), "RLK132")
    assert f"{opening.prefix}/lib/{NAME} does not load: libtensile.so.1 is not found" in found.message
    plans, draft = forwarded(opening, NAME)
    assert [stub.needed[0] for stub in plans.stubs] == ["librocblas.so.4"]
    assert not told(draft, "RLK132")
    file = next(file for file in draft.files if file.path == MEMBER)
    assert str(file.rpath.after).startswith("$ORIGIN/../demo.libs/relink-stubs:")


def test_what_the_forwarded_library_needs_is_found(opening: Scene) -> None:
    """The prefix's library names no directory: what it needs is in the forwarder's NEEDED, too."""
    opening.provide("lib/libtensile.so.1", [], define("tensile"))
    opening.provide("lib/librocblas.so.4", ["libamdhip64.so.6", "libtensile.so.1"], define("rocblas"))
    (stub,) = forwarded(opening, NAME)[0].stubs
    reached = {*stub.needed} if stub.search_kind == "runpath" else {"libtensile.so.1"}
    assert "libtensile.so.1" in reached
    assert str(opening.prefix / "lib") in str(stub.search_path)


def test_a_forwarder_opens_nothing_itself(opening: Scene) -> None:
    """HIP opens comgr; a forwarder to HIP has its name and none of its code."""
    opening.provide("lib/libamd_comgr.so.3", [], define("comgr"))
    opening.member(MEMBER, ["libamdhip64.so.6"], call("hip") + opens("libamdhip64.so"))
    plans, draft = forwarded(opening, "libamdhip64.so")
    assert [stub.needed[0] for stub in plans.stubs] == ["libamdhip64.so.6"]
    assert not [edge for edge in draft.opened if "relink-stubs" in edge.opener]


def test_a_wheel_that_has_a_member_where_the_forwarder_would_be(opening: Scene) -> None:
    opening.member(FORWARDER)
    opening.images[FORWARDER] = replace(opening.images[FORWARDER], soname="libelse.so")
    assert "has a member where the forwarder would be" in forwarded(opening, NAME)[0].findings[0].message


# From the plan to a call

_OPENER = """
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv) {
  void *member = dlopen(argv[1], RTLD_NOW);
  if (!member) { puts(dlerror()); return 1; }
  void *handle = ((void *(*)(void))dlsym(member, "opened"))();
  if (!handle) { puts(dlerror()); return 1; }
  printf("%d\\n", ((int (*)(void))dlsym(handle, "rocblas"))());
  (void)argc;
  return 0;
}
"""


@SLOW
def test_a_symbol_is_found_through_a_forwarder(works: Works, tmp_path: Path) -> None:
    library = shared(works.prefix / "lib/librocblas.so.5", "int rocblas(void){return 42;}")
    try:
        member = shared(
            tmp_path / "members/a.so",
            call("hip") + opens(NAME),
            needed=[works.prefix / "lib/libhip.so.7"],
            flags=[VENDOR_PATH],
        )
        wheel = works.wheel(tmp_path, {"demo/__init__.py": b"", "demo/a.so": member})
        options = works.options(tmp_path / "out")
        assert [
            found.code for found in relink(wheel, dataclasses.replace(options, dry_run=True)).findings
        ].count("RLK132") == 1
        options = dataclasses.replace(options, forward=(AUTO,))
        report = relink(wheel, options)
        assert report.ok, report.findings
        assert report.verified == 2  # the member, and the forwarder
        assert [edge["resolved"] for edge in to_json(report)["opened"]] == [f"$WHEEL/{FORWARDER}"]
        with zipfile.ZipFile(report.path or "") as archive:
            archive.extractall(tmp_path / "site")
            (record,) = (name for name in archive.namelist() if name.endswith("/RECORD"))
            assert FORWARDER in archive.read(record).decode()
        caller = cc(_OPENER, tmp_path / "caller", needed=["-ldl"])
        done = subprocess.run(
            [caller, tmp_path / "site/demo/a.so"], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (0, "42\n")

        # A saved plan writes the same bytes.
        made = plan(wheel, options)
        made.save(tmp_path / "plan.json")
        saved = Plan.load(tmp_path / "plan.json")
        again = apply(
            saved, wheel=wheel, options=dataclasses.replace(options, output_directory=tmp_path / "again")
        )
        assert Path(again.path or "").read_bytes() == Path(report.path or "").read_bytes()
    finally:
        library.unlink()


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


def called(path: Path, *names: str) -> list[int]:
    text = f"import ctypes, json; a = ctypes.CDLL({str(path)!r}); print(json.dumps([a[n]() for n in {list(names)!r}]))"
    run = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, env={"LD_BIND_NOW": "1"}, check=True
    )
    return list(json.loads(run.stdout))


def codes(report: Report | Plan, level: str) -> list[tuple[str, str]]:
    return [(item.code, item.subject) for item in report.findings if item.level == level]


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("stub", ["auto", f"{RCCL}:{LACKED}"])
def test_the_function_refuses_and_all_else_is_the_real_librarys(tmp_path: Path, stub: str) -> None:
    world = World(tmp_path)
    report, member = world.relinked(stub)
    assert called(member, "version", "window") == [22606, 2]  # ncclSystemError
    (found,) = (item for item in report.findings if item.code == "RLK125")
    assert (found.subject, found.level) == (RCCL, "warning")
    assert found.message.startswith(
        f"{RCCL} of ROCm 7.0.0 ({world.rccl}) lacks {LACKED}; a shim has it (RCCL moves data"
    )
    assert found.message.endswith("; returning ncclSystemError: 1")
    (made,) = report.plan.stubs
    assert (made.path, made.shim_of) == (PLACE, RCCL)
    assert from_json(plan_to_json(report.plan)) == report.plan
    file = next(file for file in report.plan.files if file.path == "demo/a.so")
    assert [(entry.soname, entry.action) for entry in file.needed] == [(RCCL, "keep"), (SHIM, "add")]
    sbom = next((tmp_path / "site").glob("*.dist-info/sboms/*.json")).read_text()
    assert f"a shim of relink's beside {RCCL}, which lacks {LACKED}" in sbom
    assert not [item for item in verify(str(report.output.path)).findings if item.level == "error"]  # type: ignore[union-attr]


@pytest.mark.few(1, reason="the same of other values")
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
    assert called(member, "window") == [2]


@pytest.mark.few(1, reason="the same of other values")
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
    assert called(member, "version", "window") == [22606, 2]
    file = next(file for file in report.plan.files if file.path == "demo/a.so")
    assert [(edit.file_after, edit.weak) for edit in file.versions] == ([(RCCL, True)] if weak else [])


def test_a_record_of_its_own_names_the_shim(tmp_path: Path) -> None:
    world = World(tmp_path, ("RCCL_1:ncclGetVersion",), ("RCCL_1:ncclGetVersion", f"RCCL_2:{LACKED}"))
    report, member = world.relinked("auto", source=ONLY)
    assert called(member, "window") == [2]
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


@pytest.mark.few(1, reason="the same of other values")
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


@SLOW
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


@SLOW
def test_names_for_other_wheels_are_no_error(tmp_path: Path) -> None:
    """``repair --all`` and a run of several wheels: what fits none of one wheel may fit another."""
    world = World(tmp_path)
    options = world.options(f"{RCCL}:ncclUnheardOf", f"{RCCL}:ncclGetVersion", "libnone.so.1")
    options = dataclasses.replace(options, forward=["libother.so"])
    for several, level in ((False, "error"), (True, "info")):
        report = plan(world.wheel(), dataclasses.replace(options, several=several))
        found = {item.subject: item.level for item in report.findings if item.code in ("RLK126", "RLK134")}
        assert {*found.values()} == {level}, found
        assert {f"{RCCL}:ncclGetVersion", "libnone.so.1", "libother.so"} <= found.keys()


@SLOW
def test_a_real_function_that_appears_later_wins(tmp_path: Path) -> None:
    world = World(tmp_path)
    report, member = world.relinked("auto")
    assert report.output is not None
    before = verify(report.output.path)
    assert "RLK127" not in {item.code for item in before.findings}
    world.rccl.write_bytes(world.newer.read_bytes())
    assert called(member, "version", "window") == [22809, 0]
    after = verify(report.output.path)
    assert [item.subject for item in after.findings if item.code == "RLK127"] == [RCCL]


def test_a_saved_plan_makes_the_same(tmp_path: Path) -> None:
    world = World(tmp_path, ("RCCL_1:ncclGetVersion",), ("RCCL_1:ncclGetVersion", f"RCCL_2:{LACKED}"))
    plan(world.wheel(), world.options("auto")).save(tmp_path / "plan.json")
    report = apply(Plan.load(tmp_path / "plan.json"), output_directory=world.root / "out")
    assert report.output is not None
    with zipfile.ZipFile(report.output.path) as output:
        output.extractall(tmp_path / "site")
    assert called(tmp_path / "site" / "demo" / "a.so", "version", "window") == [22606, 2]
