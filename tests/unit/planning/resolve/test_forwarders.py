"""resolve.forwarders: names that a member opens, where these lead, and a wheel with a forwarder from the plan to a call."""

from __future__ import annotations

import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from relink.library import apply, plan, relink
from relink.planning.model.model import Plan
from relink.planning.resolve.decide import PlanDraft, decide
from relink.planning.resolve.forwarders import plan_forwarders
from relink.planning.resolve.stubs import AUTO, StubPlans, with_stubs
from relink.providers.profiles import DlopenEntry, Profile
from relink.report.model import to_json
from relink.system.findings.model import Finding
from tests.support.cc import cc, shared
from tests.support.elf_builder import SUPPORTED, WHY_NOT
from tests.support.works import VENDOR_PATH, Works
from tests.unit.planning.resolve.scenes import Scene, call, define, opens

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)

MEMBER, NAME, FORWARDER = "demo/ext.so", "librocblas.so", "demo.libs/relink-stubs/librocblas.so"
PROFILE = Profile("demo", dlopen=(DlopenEntry(MEMBER, (NAME,), "its GPU part", required=True),))


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """A member that is linked with HIP 6 and opens rocBLAS, of which the prefix has that of HIP 6 and that of HIP 7."""
    made = Scene(tmp_path)
    for major in ("6", "7"):
        made.provide(f"lib/libamdhip64.so.{major}", [], define("hip"))
    made.provide("lib/librocblas.so.4", ["libamdhip64.so.6"], define("rocblas"))
    made.provide("lib/librocblas.so.5", ["libamdhip64.so.7"], define("rocblas"))
    made.member(MEMBER, ["libamdhip64.so.6"], call("hip") + opens(NAME))
    return made


def forwarded(scene: Scene, *wanted: str) -> tuple[StubPlans, PlanDraft]:
    plans = plan_forwarders(scene.context(), scene.tables, wanted, "demo")
    return plans, decide(*with_stubs(scene.context(), scene.tables, plans.stubs))


def told(draft: PlanDraft, code: str) -> list[Finding]:
    return [found for found in draft.findings if found.code == code]


def test_a_name_in_the_data_is_told_with_what_would_serve(scene: Scene) -> None:
    (found,) = told(scene.decide(), "RLK132")
    assert (found.level, found.subject, found.step) == ("warning", NAME, f"--forward {NAME}")
    assert "$WHEEL/demo/ext.so (a name in its data); not found there" in found.message
    assert found.message.endswith("the prefix has librocblas.so.4, librocblas.so.5")


def test_a_profile_that_requires_it_makes_it_an_error(scene: Scene) -> None:
    scene.profile = PROFILE
    (found,) = told(scene.decide(), "RLK132")
    assert (found.level, found.profile) == ("error", "demo")
    scene.allow_missing = (NAME,)
    draft = scene.decide()
    assert [found.level for found in told(draft, "RLK132")] == ["info"]
    assert not told(draft, "RLK109")


def test_without_any_of_that_name_it_is_an_info(scene: Scene) -> None:
    scene.member(MEMBER, ["libamdhip64.so.6"], call("hip") + opens("librocsolver.so"))
    (found,) = told(scene.decide(), "RLK132")
    assert (found.level, found.step) == ("info", None)
    plans, _ = forwarded(scene, "librocsolver.so")
    assert [(found.code, found.message) for found in plans.findings] == [
        ("RLK134", "cannot be forwarded: no prefix has a library of that name with a number")
    ]


def test_a_member_that_imports_no_dlopen_opens_nothing(scene: Scene) -> None:
    scene.opens.clear()
    scene.member(
        MEMBER, ["libamdhip64.so.6"], call("hip") + 'const char *name(void){return "librocblas.so";}'
    )
    assert not scene.opens
    assert not told(scene.decide(), "RLK132")


@pytest.mark.parametrize("wanted", [NAME, AUTO])
def test_it_leads_to_the_library_of_the_same_runtime(scene: Scene, wanted: str) -> None:
    plans, draft = forwarded(scene, wanted)
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


def test_a_second_runtime_is_refused(scene: Scene) -> None:
    (scene.prefix / "lib/librocblas.so.4").unlink()
    plans, draft = forwarded(scene, NAME)
    assert plans.stubs == ()
    (found,) = plans.findings
    assert (found.code, found.level) == ("RLK134", "error")
    assert found.message.endswith("librocblas.so.5 brings a second version of a library that is loaded")
    assert told(draft, "RLK132")
    assert forwarded(scene, AUTO)[0] == StubPlans()


def test_a_development_link_is_taken_and_the_runtime_it_brings_is_told(scene: Scene) -> None:
    link = scene.prefix / "lib" / NAME
    link.symlink_to("librocblas.so.4")
    draft = scene.decide()
    assert [edge.resolved for edge in draft.opened if edge.name == NAME] == [str(link)]
    assert not told(draft, "RLK132")
    assert not told(draft, "RLK130")
    assert [found.message for found in forwarded(scene, NAME)[0].findings] == [
        "--forward: no member of the wheel opens it in vain"
    ]
    link.unlink()
    link.symlink_to("librocblas.so.5")
    (found,) = told(scene.decide(), "RLK130")
    assert (found.level, found.subject) == ("error", "libamdhip64")
    assert "librocblas.so, which is opened later (dlopen), needs libamdhip64.so.7" in found.message


def test_a_library_of_that_name_that_does_not_load(scene: Scene) -> None:
    """A development link leads to a library whose own NEEDED nothing finds: the forwarder comes before it."""
    scene.provide("lib/libtensile.so.1", [], define("tensile"))
    scene.provide("lib/librocblas.so.4", ["libamdhip64.so.6", "libtensile.so.1"], define("rocblas"))
    (scene.prefix / "lib" / NAME).symlink_to("librocblas.so.4")
    (found,) = told(scene.decide(), "RLK132")
    assert f"{scene.prefix}/lib/{NAME} does not load: libtensile.so.1 is not found" in found.message
    plans, draft = forwarded(scene, NAME)
    assert [stub.needed[0] for stub in plans.stubs] == ["librocblas.so.4"]
    assert not told(draft, "RLK132")
    file = next(file for file in draft.files if file.path == MEMBER)
    assert str(file.rpath.after).startswith("$ORIGIN/../demo.libs/relink-stubs:")


def test_what_the_forwarded_library_needs_is_found(scene: Scene) -> None:
    """The prefix's library names no directory: what it needs is in the forwarder's NEEDED, too."""
    scene.provide("lib/libtensile.so.1", [], define("tensile"))
    scene.provide("lib/librocblas.so.4", ["libamdhip64.so.6", "libtensile.so.1"], define("rocblas"))
    (stub,) = forwarded(scene, NAME)[0].stubs
    reached = {*stub.needed} if stub.search_kind == "runpath" else {"libtensile.so.1"}
    assert "libtensile.so.1" in reached
    assert str(scene.prefix / "lib") in str(stub.search_path)


def test_a_forwarder_opens_nothing_itself(scene: Scene) -> None:
    """HIP opens comgr; a forwarder to HIP has its name and none of its code."""
    scene.provide("lib/libamd_comgr.so.3", [], define("comgr"))
    scene.member(MEMBER, ["libamdhip64.so.6"], call("hip") + opens("libamdhip64.so"))
    plans, draft = forwarded(scene, "libamdhip64.so")
    assert [stub.needed[0] for stub in plans.stubs] == ["libamdhip64.so.6"]
    assert not [edge for edge in draft.opened if "relink-stubs" in edge.opener]


def test_a_wheel_that_has_a_member_there(scene: Scene) -> None:
    scene.member(FORWARDER)
    scene.images[FORWARDER] = replace(scene.images[FORWARDER], soname="libelse.so")
    assert "has a member where the forwarder would be" in forwarded(scene, NAME)[0].findings[0].message


# From the plan to a call

_CALLER = """
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
        assert [found.code for found in relink(wheel, replace(options, dry_run=True)).findings].count(
            "RLK132"
        ) == 1
        options = replace(options, forward=(AUTO,))
        report = relink(wheel, options)
        assert report.ok, report.findings
        assert report.verified == 2  # the member, and the forwarder
        assert [edge["resolved"] for edge in to_json(report)["opened"]] == [f"$WHEEL/{FORWARDER}"]
        with zipfile.ZipFile(report.path or "") as archive:
            archive.extractall(tmp_path / "site")
            (record,) = (name for name in archive.namelist() if name.endswith("/RECORD"))
            assert FORWARDER in archive.read(record).decode()
        caller = cc(_CALLER, tmp_path / "caller", needed=["-ldl"])
        done = subprocess.run(
            [caller, tmp_path / "site/demo/a.so"], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (0, "42\n")

        # A saved plan writes the same bytes.
        made = plan(wheel, options)
        made.save(tmp_path / "plan.json")
        saved = Plan.load(tmp_path / "plan.json")
        again = apply(saved, wheel=wheel, options=replace(options, output_directory=tmp_path / "again"))
        assert Path(again.path or "").read_bytes() == Path(report.path or "").read_bytes()
    finally:
        library.unlink()
