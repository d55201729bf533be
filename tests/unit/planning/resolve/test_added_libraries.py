"""resolve.added_libraries: what is known to be dlopened, and what a file forgot to name, if nothing else changes by it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import relink.vendors.rocm.facts
from relink.elf.edit import ElfEdit
from relink.elf.version_edits import VersionEdit
from relink.planning.resolve.added_libraries import required_edit
from relink.planning.resolve.decide import PlanDraft, decide
from relink.planning.resolve.strategy import find_strategy
from relink.providers.distribution import Distribution
from relink.providers.profiles import DlopenEntry
from tests.support.cc import cc
from tests.unit.planning.resolve.scenes import Scene, call, codes, define, opens

MEMBER = "demo/a.so"
RUNTIME, BUILTINS = "libhip.so.7", "libbuiltins.so.7"


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@pytest.fixture
def opening(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """The table knows that libhip.so dlopens libbuiltins.so, and that one libmore.so."""
    facts = relink.vendors.rocm.facts.rocm_facts()
    entries = (
        DlopenEntry("libhip.so", ("libbuiltins.so.*",), "it compiles"),
        DlopenEntry("libbuiltins.so", ("libmore.so.*",), "it reads tables"),
    )
    monkeypatch.setattr(relink.vendors.rocm.facts, "rocm_facts", lambda: type(facts)(facts.same_abi, entries))
    return scene


def added(draft: PlanDraft, member: str = MEMBER) -> tuple[str, ...]:
    (file,) = (file for file in draft.files if file.path == member)
    return file.edit.add


def test_it_is_added_and_reported_with_what_knows_of_it(opening: Scene) -> None:
    opening.provide(f"lib/{BUILTINS}", source=define("builtins"))
    opening.provide(f"lib/{RUNTIME}", [], define("hip"))
    opening.member(MEMBER, [RUNTIME], call("hip"))
    draft = opening.decide()
    assert added(draft) == (BUILTINS,)
    assert BUILTINS not in [found.subject for found in draft.findings if found.code == "RLK120"]
    (told,) = (found for found in draft.findings if found.code == "RLK121")
    assert (told.level, told.subject, told.profile) == ("info", MEMBER, "rocm")
    assert BUILTINS in told.message
    assert added(opening.decide_again(draft)) == ()


def test_the_table_knows_better_than_a_string(opening: Scene) -> None:
    opening.provide(f"lib/{BUILTINS}", source=define("builtins"))
    opening.provide(f"lib/{RUNTIME}", [], define("hip") + opens(BUILTINS))
    opening.provide("lib/libother.so.1", [], define("other") + opens("libseen.so.1"))
    opening.provide("lib/libseen.so.1")
    opening.member(MEMBER, [RUNTIME, "libother.so.1"], call("hip"))
    draft = opening.decide()
    assert BUILTINS in added(draft)
    assert "libseen.so.1" not in added(draft)  # only a string says that it is dlopened


def test_what_is_preloaded_may_dlopen_another(opening: Scene) -> None:
    opening.provide("lib/libmore.so.7", source=define("more"))
    opening.provide(f"lib/{BUILTINS}", source=define("builtins"))
    opening.provide(f"lib/{RUNTIME}", [], define("hip"))
    opening.member(MEMBER, [RUNTIME], call("hip"))
    assert added(opening.decide()) == (BUILTINS, "libmore.so.7")


def test_not_where_it_is_turned_off(opening: Scene) -> None:
    opening.provide(f"lib/{BUILTINS}", source=define("builtins"))
    opening.provide(f"lib/{RUNTIME}", [], define("hip"))
    opening.member(MEMBER, [RUNTIME], call("hip"))
    opening.preload_known = False
    draft = opening.decide()
    assert added(draft) == ()
    assert "RLK120" in codes(draft)


def test_not_where_a_binding_changes(opening: Scene) -> None:
    """The preloaded library would come before libown.so.1 in the scope. Libraries with a RUNPATH take no RPATH of the member."""
    elsewhere = ["-Wl,--enable-new-dtags,-rpath,/nowhere"]
    opening.provide(f"lib/{BUILTINS}", source=define("builtins") + define("shared"))
    opening.provide("lib/libown.so.1", source=define("shared"))
    opening.provide("lib/libmid.so.1", ["libown.so.1"], call("shared"), elsewhere)
    opening.provide(f"lib/{RUNTIME}", ["libmid.so.1"], define("hip"), elsewhere)
    opening.member(MEMBER, [RUNTIME], call("hip"))
    draft = opening.decide()
    assert BUILTINS not in added(draft)
    assert "RLK120" in codes(draft)


def test_not_where_a_second_version_of_a_library_comes_in(opening: Scene) -> None:
    opening.provide("lib/libhip.so.6", source=define("other"))
    opening.provide(f"lib/{BUILTINS}", ["libhip.so.6"], define("builtins"))
    opening.provide(f"lib/{RUNTIME}", [], define("hip"))
    opening.member(MEMBER, [RUNTIME], call("hip"))
    draft = opening.decide()
    assert BUILTINS not in added(draft)
    assert "RLK120" in codes(draft)


def test_not_for_a_library_that_the_wheel_brings_along(opening: Scene) -> None:
    opening.provide(f"lib/{BUILTINS}", source=define("builtins"))
    opening.member(f"demo/{RUNTIME}", [], define("hip"), flags=[f"-Wl,-soname,{RUNTIME}"])
    opening.member(MEMBER, [RUNTIME], call("hip"), flags=["-Wl,--enable-new-dtags,-rpath,$ORIGIN"])
    draft = opening.decide()
    assert added(draft) == added(draft, f"demo/{RUNTIME}") == ()


def test_what_is_asked_for_keeps_the_version_edits(opening: Scene) -> None:
    """A NEEDED that is added later, because it was forgotten or is dlopened, comes on top of them."""
    opening.provide(f"lib/{RUNTIME}")
    opening.member(MEMBER, [RUNTIME])
    outcome = find_strategy(opening.context(), MEMBER)
    versions = (VersionEdit("libold.so.1", "OLD_1", RUNTIME, "OLD_1", weak=True),)
    asked = replace(outcome, edit=replace(outcome.edit, versions=versions), preloaded={BUILTINS: None})
    assert outcome.edit.search_path is not None
    assert required_edit(asked) == ElfEdit(add=(BUILTINS,), versions=versions)


# Forgotten NEEDED


def edit_of(draft: PlanDraft, member: str = MEMBER) -> ElfEdit:
    return next(file.edit for file in draft.files if file.path == member)


def refused(draft: PlanDraft) -> str:
    """The remedy of the error that remains, where nothing is added."""
    assert edit_of(draft).add == ()
    (error,) = (item for item in draft.findings if item.level == "error")
    assert error.code == "RLK302"
    return error.remedy


def test_the_soname_that_other_members_need(scene: Scene) -> None:
    scene.provide("lib/libdevice.so.7", source=define("device", "device_more"))
    scene.member("demo/b.so", ["libdevice.so.7"], call("device"))
    scene.member(MEMBER, [], call("device", "device_more"))
    draft = scene.decide()
    assert edit_of(draft).add == ("libdevice.so.7",)
    (told,) = (item for item in draft.findings if item.code == "RLK122")
    assert (told.level, told.subject) == ("info", MEMBER)
    assert "it alone exports 2 imports that no NEEDED brings: device, device_more; b.so of" in told.message
    assert not [item for item in draft.findings if item.level == "error"]
    assert edit_of(scene.decide_again(draft)).add == ()
    (resolution,) = (
        item for file in draft.files if file.path == MEMBER for item in file.needed if item.evidence
    )
    assert resolution.origin == "provider"


def test_a_member_of_the_wheel_that_others_need(scene: Scene) -> None:
    scene.provide("lib/libother.so.1")
    scene.member("demo/libtvm.so", source=define("tvm"))
    scene.member("demo/b.so", ["libtvm.so"], call("tvm"), ["-Wl,-rpath,$ORIGIN"])
    scene.member(MEMBER, [], call("tvm"), ["-Wl,-rpath,$ORIGIN"])
    draft = scene.decide()
    assert edit_of(draft).add == ("libtvm.so",)
    assert not [item for item in draft.findings if item.level == "error"]


def test_the_names_that_the_table_gives_to_it(scene: Scene) -> None:
    scene.provide("lib/libamdhip64.so.6", source=define("hipMalloc", "__hipPush"))
    scene.member(MEMBER, [], call("hipMalloc", "__hipPush"))
    draft = scene.decide()
    assert edit_of(draft).add == ("libamdhip64.so.6",)
    assert "all of them are its names (table rocm)" in next(
        item.message for item in draft.findings if item.code == "RLK122"
    )


def test_a_library_that_only_has_the_symbols_is_refused(scene: Scene) -> None:
    scene.provide("lib/libchance.so.1", source=define("init", "run"))
    scene.member(MEMBER, [], call("init", "run"))
    assert "pass --preload libchance.so.1" in refused(scene.decide())


def test_two_versions_are_refused_and_both_named(scene: Scene) -> None:
    for major in "67":
        scene.provide(f"lib/libamdhip64.so.{major}", source=define("hipMalloc"))
    scene.member(MEMBER, [], call("hipMalloc"))
    remedy = refused(scene.decide())
    assert "libamdhip64.so.6, libamdhip64.so.7 of the prefix each export all of them" in remedy
    assert "pass --preload libamdhip64.so.6 or --preload libamdhip64.so.7" in remedy


def test_another_version_that_has_some_of_them_is_a_second_candidate(scene: Scene) -> None:
    scene.provide("lib/libamdhip64.so.6", source=define("hipMalloc", "hiprtcVersion"))
    scene.provide("lib/libamdhip64.so.7", source=define("hipMalloc"))
    scene.member(MEMBER, [], call("hipMalloc", "hiprtcVersion"))
    remedy = refused(scene.decide())
    assert remedy.startswith(
        "libamdhip64.so.6 of the prefix exports all of them (libamdhip64.so.7 some of them)"
    )


def test_two_libraries_are_refused_even_where_members_need_one(scene: Scene) -> None:
    scene.provide("lib/libone.so.1", source=define("device"))
    scene.provide("lib/libtwo.so.1", source=define("device"))
    scene.member("demo/b.so", ["libone.so.1"], call("device"))
    scene.member(MEMBER, [], call("device"))
    assert "--preload libone.so.1 or --preload libtwo.so.1" in refused(scene.decide())


def test_the_user_decides_between_two(scene: Scene) -> None:
    for major in "67":
        scene.provide(f"lib/libamdhip64.so.{major}", source=define("hipMalloc"))
    scene.member(MEMBER, [], call("hipMalloc"))
    scene.preload = ("libamdhip64.so.7",)
    draft = scene.decide()
    assert edit_of(draft).add == ("libamdhip64.so.7",)
    assert "--preload names it" in next(item.message for item in draft.findings if item.code == "RLK122")


HIP = ("hipMalloc", "hipFree")
RTC = ("hiprtcVersion", "hiprtcCompileProgram")


def hip(scene: Scene, major: str, *more: str) -> None:
    scene.provide(f"lib/libamdhip64.so.{major}", source=define(*HIP, *more))
    scene.provide(f"lib/libhiprtc.so.{major}", source=define(*RTC))


def told(draft: PlanDraft) -> dict[str, str]:
    """The sentence for each library that is added, by its soname."""
    texts = [item.message for item in draft.findings if item.code == "RLK122"]
    return dict(text.split(" added to NEEDED: ", 1) for text in texts)


def test_two_libraries_that_export_all_of_them_together(scene: Scene) -> None:
    hip(scene, "7")
    scene.provide("lib/libelse.so.1", source=define("hiprtcElse"))
    scene.member(MEMBER, [], call(*HIP, *RTC))
    draft = scene.decide()
    assert edit_of(draft).add == ("libamdhip64.so.7", "libhiprtc.so.7")
    texts = told(draft)
    assert texts["libamdhip64.so.7"].startswith(
        "it exports 2 imports that no NEEDED brings (libhiprtc.so.7 the others of 4): hipFree, hipMalloc; all of them are its"
    )
    assert "hiprtcCompileProgram, hiprtcVersion" in texts["libhiprtc.so.7"]
    assert not [item for item in draft.findings if item.level == "error"]
    assert edit_of(scene.decide_again(draft)).add == ()


def test_evidence_is_asked_for_each_of_several(scene: Scene) -> None:
    """One that other members need, and one that only has the symbols: nothing is added, and both are named."""
    scene.provide("lib/libdevice.so.7", source=define("device"))
    scene.provide("lib/libchance.so.1", source=define("chance"))
    scene.member("demo/b.so", ["libdevice.so.7"], call("device"))
    scene.member(MEMBER, [], call("device", "chance"))
    draft = scene.decide()
    assert "pass --preload libchance.so.1 --preload libdevice.so.7;" in refused(draft)
    scene.preload = ("libchance.so.1",)
    draft = scene.decide()
    assert edit_of(draft).add == ("libchance.so.1", "libdevice.so.7")
    assert "--preload names it" in told(draft)["libchance.so.1"]


def test_the_libraries_are_of_one_release(scene: Scene) -> None:
    """The older runtime alone exports what takes two libraries of the newer one; none is taken with a library of the other."""
    hip(scene, "6", *RTC)
    hip(scene, "7")
    scene.member(MEMBER, [], call(*HIP, *RTC))
    draft = scene.decide()
    remedy = refused(draft)
    assert remedy.startswith(
        "libamdhip64.so.6, libamdhip64.so.7 with libhiprtc.so.7 of the prefix each export all"
    )
    (error,) = (item for item in draft.findings if item.level == "error")
    assert error.choices == (
        "--preload libamdhip64.so.6",
        "--preload libamdhip64.so.7 --preload libhiprtc.so.7",
    )
    assert error.step is None


def test_a_library_that_needs_the_other_runtime_is_in_no_set_with_this_one(scene: Scene) -> None:
    """libMIOpen.so.1 is in both releases, by the table; this one was built for the newer runtime."""
    hip(scene, "6")
    hip(scene, "7")
    scene.provide("lib/libMIOpen.so.1", ["libamdhip64.so.7"], define("miopenCreate"))
    scene.member(MEMBER, [], call("hipMalloc", "miopenCreate"))
    remedy = refused(scene.decide())
    assert remedy.startswith(
        "libMIOpen.so.1 with libamdhip64.so.7 of the prefix export all of them (libamdhip64.so.6 some"
    )


@pytest.mark.parametrize("named", [("libamdhip64.so.7",), ("libhiprtc.so.7", "libamdhip64.so.7")])
def test_the_user_decides_between_two_releases(scene: Scene, named: tuple[str, ...]) -> None:
    hip(scene, "6", *RTC)
    hip(scene, "7")
    scene.member(MEMBER, [], call(*HIP, *RTC))
    scene.preload = named
    draft = scene.decide()
    assert edit_of(draft).add == ("libamdhip64.so.7", "libhiprtc.so.7")
    assert "RLK109" not in codes(draft)


def test_no_set_of_several_where_a_member_exports_some(scene: Scene) -> None:
    hip(scene, "7")
    scene.member("demo/libown.so", source=define(*RTC))
    scene.member(MEMBER, [], call(*HIP, *RTC))
    assert edit_of(scene.decide()).add == ()


def test_libraries_of_two_providers_are_no_set(scene: Scene, tmp_path: Path) -> None:
    hip(scene, "7")
    other = Scene(tmp_path / "other")
    moved = other.prefix / "lib/libhiprtc.so.7"
    moved.parent.mkdir(parents=True)
    (scene.prefix / "lib/libhiprtc.so.7").rename(moved)
    scene.member(MEMBER, [], call(*HIP, *RTC))
    context = scene.context()
    context = replace(context, providers=(*context.providers, *other.context().providers))
    assert edit_of(decide(context, scene.tables)).add == ()


@pytest.mark.parametrize("others", [(), HIP])
def test_a_library_of_the_release_that_no_prefix_has(scene: Scene, others: tuple[str, ...]) -> None:
    """The table says whose the names are that nothing exports; no package puts it into this prefix."""
    hip(scene, "7")
    (scene.prefix / ".info").mkdir()
    (scene.prefix / ".info/version").write_text("7.2.4\n")
    scene.member(MEMBER, [], call("miopenCreate", *others))
    context = replace(scene.context(), distribution=Distribution("Debian", "debian"))
    draft = decide(context, scene.tables)
    remedy = refused(draft)
    some = "libamdhip64.so.7 of the prefix has 2 of 3 symbols used, and nothing there"
    start = some if others else "nothing in the prefix exports"
    assert remedy.startswith(f"{start} miopenCreate, which may be of libMIOpen.so.1 (table rocm): use a ROCm")
    assert remedy.endswith("libMIOpen.so.1 is part of MIOpen.")
    (error,) = (item for item in draft.findings if item.level == "error")
    assert error.step is None
    scene.provide(
        "lib/libMIOpen.so.1", source=define("miopenDestroy")
    )  # of a release that has no such function
    assert "may be of" not in refused(scene.decide())


def test_a_preload_without_effect_is_told(scene: Scene) -> None:
    scene.provide("lib/libidle.so.1", source=define("idle"))
    scene.provide("lib/libother.so.1", source=define("other"))
    scene.member(MEMBER, ["libother.so.1"], call("other"))
    scene.preload = ("libidle.so.1", "libnowhere.so.1", "libother.so.1")
    texts = {item.subject: item.message for item in scene.decide().findings if item.code == "RLK109"}
    assert texts == {
        "libidle.so.1": "--preload: added to no NEEDED: no library is known to open it (dlopen), and it does not have all "
        "that a file lacks",
        "libnowhere.so.1": "--preload: added to no NEEDED: no prefix has it",
    }


def test_the_wheel_was_built_for_another_version(scene: Scene) -> None:
    scene.provide("lib/libamdhip64.so.6", source=define("hipMalloc"))
    scene.member("demo/b.so", ["libamdhip64.so.5"], call("hipMalloc"))
    scene.member(MEMBER, [], call("hipMalloc"))
    assert edit_of(scene.decide()).add == ()


def test_one_import_that_it_lacks_is_enough_to_refuse(scene: Scene) -> None:
    scene.provide("lib/libamdhip64.so.6", source=define("hipMalloc"))
    scene.member(MEMBER, [], call("hipMalloc", "hipNever"))
    refused(scene.decide())


def test_a_library_that_would_change_a_binding_is_refused(scene: Scene) -> None:
    """What libamdhip64 needs exports a symbol too that binds to another library so far."""
    scene.provide("lib/libinner.so.1", source=define("inner"))
    scene.provide("lib/libdeep.so.1", ["libinner.so.1"], call("inner") + define("deep"))
    scene.provide("lib/libamdhip64.so.6", source=define("hipMalloc", "inner"))
    scene.member(MEMBER, ["libdeep.so.1"], call("deep", "hipMalloc"))
    draft = scene.decide()
    assert "libamdhip64.so.6" not in edit_of(draft).add
    assert "RLK302" in codes(draft)


def test_a_second_build_of_the_same_code_is_not_added(scene: Scene) -> None:
    """libtvm.so and libtvm_runtime.so: both register the same names when they are loaded, and the second one ends the process."""
    runtime = call("registry") + define("registry", "run")
    scene.provide("lib/libother.so.1")
    scene.member("demo/libtvm_runtime.so", source=runtime)
    scene.member("demo/libtvm.so", source=runtime + define("compile"))
    scene.member("demo/b.so", ["libtvm.so"], call("compile"), ["-Wl,-rpath,$ORIGIN"])
    scene.member(MEMBER, ["libtvm_runtime.so"], call("run", "compile"), ["-Wl,-rpath,$ORIGIN"])
    assert "libtvm.so exports all of them" in refused(scene.decide())


def test_what_was_mixed_before_keeps_nothing_from_being_added(scene: Scene) -> None:
    same = "int registry(void){return 1;} int start(void){return registry();} "
    scene.provide("lib/libdevice.so.7", source=define("device"))
    for name in ("one", "two"):
        scene.member(f"demo/lib{name}.so", source=same.replace("start", f"start_{name}") + define(name))
    origin = ["-Wl,-rpath,$ORIGIN"]
    scene.member("demo/b.so", ["libdevice.so.7"], call("device"))
    scene.member(MEMBER, ["libone.so", "libtwo.so"], call("one", "two", "device"), origin)
    draft = scene.decide()
    assert edit_of(draft).add == ("libdevice.so.7",)
    assert "RLK131" in codes(draft)  # they are mixed, and were so


def test_weak_imports_ask_for_nothing(scene: Scene) -> None:
    scene.provide("lib/libamdhip64.so.6", source=define("hipMalloc"))
    source = (
        "extern int hipMalloc(void) __attribute__((weak)); int u(void){return hipMalloc ? hipMalloc() : 0;}"
    )
    scene.member(MEMBER, [], source)
    assert edit_of(scene.decide()).add == ()


def test_libm_is_not_taken_for_granted_of_a_python_that_has_none(scene: Scene) -> None:
    """What a Python that is known maps is seen: one without libm leaves an import of it open, so libm is added."""
    scene.provide("lib/libother.so.1")
    scene.member(
        MEMBER,
        [],
        "extern float fmaxf(float, float); float u(float x){return fmaxf(x, 2*x);}",
        ["-fno-builtin"],
    )
    python = cc("int main(void){return 0;}", scene.root / "python")
    context = scene.context()
    draft = decide(replace(context, target=replace(context.target, python=str(python))), scene.tables)
    assert "RLK303" not in codes(draft)
    assert "RLK302" in codes(draft) or edit_of(draft).add == ("libm.so.6",)


@pytest.mark.parametrize(("name", "is_open"), [("fmaxf", False), ("fmax_of_nobody", True)])
def test_libm_is_there_with_every_python(scene: Scene, name: str, is_open: bool) -> None:
    """Without a Python (``--interpreter`` alone), too; what libm lacks stays open."""
    scene.provide("lib/libother.so.1")
    source = f"extern float {name}(float, float); float u(float x){{return {name}(x, 2*x);}}"
    scene.member(MEMBER, [], source, ["-fno-builtin"])
    context = scene.context()
    draft = decide(replace(context, target=replace(context.target, python=None)), scene.tables)
    assert edit_of(draft).add == ()
    assert ("RLK302" in codes(draft)) is is_open
    told = [item.message for item in draft.findings if item.code == "RLK303"]
    assert all(name in text and "libm.so.6" in text for text in told)
    assert bool(told) is not is_open
