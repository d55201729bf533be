"""Decisions about real compiled libraries: which strategy is taken, and what is said."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from relink.elf.edit import ElfEdit
from relink.elf.symbols import Import
from relink.planning.model import FilePlan
from relink.planning.resolve.decide import PlanDraft, normalize_edit
from relink.planning.resolve.evidence import evaluate_substitution
from relink.planning.resolve.strategy import IssueKind, ResolutionIssue
from relink.providers.profiles import OptionalMembers, Profile, shipped_profiles
from relink.vendors.protocol import Relation
from tests.support.vendors import fake_vendor
from tests.unit.planning.resolve.scenes import Scene, call, codes, define


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


USES = "extern int {0}(void); int uses_{0}(void){{return {0}();}}"  # an import that the libraries here do not export


def only(decisions: PlanDraft) -> FilePlan:
    (file,) = decisions.files
    return file


def test_what_loads_is_left_alone(scene: Scene) -> None:
    scene.provide("lib/libhip.so.1")
    scene.member("demo/a.so", [])
    decisions = scene.decide()
    assert only(decisions).strategy == "nothing"
    assert not only(decisions).changed
    assert codes(decisions) == []


def test_runpath_of_exactly_the_directory_used(scene: Scene) -> None:
    scene.provide("lib/libhip.so.1")
    scene.provide("lib64/libother.so.1")
    scene.member("demo/a.so", ["libhip.so.1"])
    file = only(scene.decide())
    assert file.strategy == "runpath"
    assert file.rpath.after == str(scene.prefix / "lib")
    assert file.rpath.kind_after == "runpath"
    assert [(entry.action, entry.origin) for entry in file.needed] == [("keep", "provider")]


def test_transitive_libraries_take_an_rpath(scene: Scene) -> None:
    scene.provide("lib/libdeep.so.1")
    scene.provide("lib/libhip.so.1", ["libdeep.so.1"])
    scene.member("demo/a.so", ["libhip.so.1"])
    decisions = scene.decide()
    assert only(decisions).strategy == "rpath"
    assert only(decisions).rpath.kind_after == "rpath"
    assert "RLK206" in codes(decisions)


def test_a_runpath_in_the_prefix_cuts_the_rpath_so_the_closure_is_flattened(scene: Scene) -> None:
    scene.provide("lib/libdeep.so.1")
    scene.provide("lib/libmid.so.1", ["libdeep.so.1"], flags=["-Wl,--enable-new-dtags,-rpath,/nowhere"])
    scene.provide("lib/libhip.so.1", ["libmid.so.1"])
    scene.member("demo/a.so", ["libhip.so.1"])
    decisions = scene.decide()
    file = only(decisions)
    assert file.strategy == "flatten"
    assert file.edit.add == ("libmid.so.1", "libdeep.so.1")
    assert [entry.soname for entry in file.needed] == ["libhip.so.1", "libmid.so.1", "libdeep.so.1"]
    added = file.needed[-1]
    assert "libmid.so.1, which cannot find it by itself" in added.evidence[0]
    assert "RLK205" in codes(decisions)


def test_the_second_plan_is_empty(scene: Scene) -> None:
    scene.provide("lib/libdeep.so.1")
    scene.provide("lib/libmid.so.1", ["libdeep.so.1"], flags=["-Wl,--enable-new-dtags,-rpath,/nowhere"])
    scene.member("demo/a.so", ["libmid.so.1"], flags=["-Wl,--enable-new-dtags,-rpath,/opt/rocm-9/lib:"])
    again = scene.decide_again(scene.decide())
    assert not any(file.changed for file in again.files)
    assert codes(again) == []


def test_vendor_empty_and_relative_entries_go(scene: Scene) -> None:
    scene.provide("lib/libhip.so.1")
    rpath = "$ORIGIN:/opt/rocm-9.9.9/lib:build/lib::$ORIGIN/../../../../elsewhere"
    scene.member("demo/a.so", ["libhip.so.1"], flags=[f"-Wl,--enable-new-dtags,-rpath,{rpath}"])
    decisions = scene.decide()
    assert only(decisions).rpath.after == f"$ORIGIN:{scene.prefix}/lib"
    assert codes(decisions) == ["RLK201", "RLK202", "RLK203"]


def test_clean_up_alone_is_reason_to_edit(scene: Scene) -> None:
    scene.provide("lib/libhip.so.1")
    scene.member("demo/a.so", [], flags=["-Wl,--enable-new-dtags,-rpath,/opt/rocm-9.9.9/lib:"])
    file = only(scene.decide())
    assert file.changed
    assert file.rpath.after is None


def test_siblings_stay_unless_the_profile_says_otherwise(scene: Scene) -> None:
    scene.provide("lib/libhip.so.1")
    flags = ["-Wl,--enable-new-dtags,-rpath,$ORIGIN/../_rocm_sdk_core/lib"]
    scene.member("demo/a.so", ["libhip.so.1"], flags=flags)
    kept = scene.decide()
    assert only(kept).rpath.after == f"{scene.prefix}/lib:$ORIGIN/../_rocm_sdk_core/lib"
    scene.profile = Profile("p", rpath_drop=("$ORIGIN/*_rocm_sdk_*",))
    dropped = scene.decide()
    assert only(dropped).rpath.after == f"{scene.prefix}/lib"
    assert codes(kept) == codes(dropped) == ["RLK204"]


def test_own_members_are_found_by_origin(scene: Scene) -> None:
    scene.provide("lib/libhip.so.1")
    scene.member("demo/libs/libown.so.1", ["libhip.so.1"])
    scene.member("demo/a.so", ["libown.so.1"], flags=["-Wl,--enable-new-dtags,-rpath,$ORIGIN/libs"])
    plans = {file.path: file for file in scene.decide().files}
    assert plans["demo/libs/libown.so.1"].strategy == "runpath"
    assert plans["demo/a.so"].strategy == "nothing"
    assert plans["demo/a.so"].needed[0].origin == "wheel"
    assert plans["demo/a.so"].needed[0].resolved == "$WHEEL/demo/libs/libown.so.1"


def test_all_missing_libraries_at_once_with_what_there_is_instead(scene: Scene) -> None:
    scene.provide("lib/libsmi.so.7")
    scene.member("demo/a.so", ["libsmi.so.1", "libtracer.so.4"], USES.format("tracer"))
    decisions = scene.decide()
    missing = {found.subject: found for found in decisions.findings if found.code == "RLK101"}
    assert set(missing) == {"libsmi.so.1", "libtracer.so.4"}
    assert "the prefix has libsmi.so.7" in missing["libsmi.so.1"].message
    assert "nothing of that name" in missing["libtracer.so.4"].message
    assert all(found.level == "error" for found in missing.values())


@pytest.mark.parametrize("pattern", ["libtracer.so.4", "libtracer.so", "libtracer", "libtr*"])
def test_allowed_missing(scene: Scene, pattern: str) -> None:
    scene.provide("lib/libhip.so.1")
    scene.allow_missing = (pattern, "libnever*")
    scene.member("demo/a.so", ["libhip.so.1", "libtracer.so.4"])
    decisions = scene.decide()
    assert codes(decisions) == ["RLK102", "RLK109"]
    assert [entry.origin for entry in only(decisions).needed] == ["provider", "assumed"]


def test_a_wide_allowance_does_not_keep_the_prefix_from_serving(scene: Scene) -> None:
    scene.provide("lib/libhip.so.1")
    scene.allow_missing = ("lib*",)
    scene.member("demo/a.so", ["libhip.so.1", "libtracer.so.4"])
    file = only(scene.decide())
    assert file.rpath.after == f"{scene.prefix}/lib"
    assert [entry.origin for entry in file.needed] == ["provider", "assumed"]


def test_what_the_prefix_has_is_not_taken_from_elsewhere(scene: Scene) -> None:
    scene.provide("lib/libhip.so.1")
    elsewhere = scene.root / "elsewhere"
    scene.library(elsewhere / "libhip.so.1", [], "int f(void){return 3;}")
    scene.member("demo/a.so", ["libhip.so.1"], flags=[f"-Wl,--enable-new-dtags,-rpath,{elsewhere}"])
    decisions = scene.decide()
    assert only(decisions).rpath.after == f"{scene.prefix}/lib"
    assert codes(decisions) == ["RLK201"]


def test_a_prefix_library_that_looks_elsewhere_is_overruled(scene: Scene) -> None:
    elsewhere = scene.root / "elsewhere"
    scene.library(elsewhere / "libdeep.so.1", [], "int deep(void){return 3;}")
    scene.provide("lib/libdeep.so.1", source="int deep(void){return 1;}")
    scene.provide("lib/libhip.so.1", ["libdeep.so.1"], flags=[f"-Wl,--enable-new-dtags,-rpath,{elsewhere}"])
    scene.member("demo/a.so", ["libhip.so.1"])
    file = only(scene.decide())
    assert file.edit.add == ("libdeep.so.1",)
    assert ("libdeep.so.1", f"{scene.prefix}/lib/libdeep.so.1") in file.closure


def test_a_directory_that_serves_what_the_prefix_lacks_stays(scene: Scene) -> None:
    scene.provide("lib/libhip.so.1")
    elsewhere = scene.root / "elsewhere"
    scene.library(elsewhere / "libmine.so.1")
    flags = [f"-Wl,--enable-new-dtags,-rpath,{elsewhere}:/opt/rocm-9/lib"]
    scene.member("demo/a.so", ["libhip.so.1", "libmine.so.1"], flags=flags)
    assert only(scene.decide()).rpath.after == f"{scene.prefix}/lib:{elsewhere}"


def test_unserved_variants_stay_as_they_are(scene: Scene) -> None:
    scene.profile = Profile("p", variants=("demo/lib_rocm*.so",))
    scene.provide("lib/libhip.so.7")
    flags = ["-Wl,--enable-new-dtags,-rpath,/opt/rocm/lib"]
    scene.member("demo/lib_rocm6.so", ["libhip.so.6"], USES.format("hip6"), flags)
    scene.member("demo/lib_rocm7.so", ["libhip.so.7"], flags=["-Wl,--enable-new-dtags,-rpath,/opt/rocm/lib"])
    decisions = scene.decide()
    plans = {file.path: file for file in decisions.files}
    assert not plans["demo/lib_rocm6.so"].changed
    assert not plans["demo/lib_rocm6.so"].served
    assert plans["demo/lib_rocm7.so"].changed
    assert [found.level for found in decisions.findings if found.code == "RLK103"] == ["info"]


def optional(scene: Scene, *, served: bool) -> PlanDraft:
    """A member that the package does without and that needs a library which nobody has, beside one that may be served."""
    scene.profile = Profile("p", optional=(OptionalMembers(("demo/_extra*.so",), "it does without"),))
    scene.provide("lib/libhip.so.7")
    flags = ["-Wl,--enable-new-dtags,-rpath,/opt/rocm/lib"]
    scene.member("demo/_extra.so", ["libgone.so.6"], USES.format("gone"), flags)
    scene.member("demo/_main.so", ["libhip.so.7"] if served else [], flags=flags)
    return scene.decide()


def test_what_the_package_does_without_is_left(scene: Scene) -> None:
    decisions = optional(scene, served=True)
    plans = {file.path: file for file in decisions.files}
    assert (plans["demo/_extra.so"].changed, plans["demo/_extra.so"].served) == (False, False)
    assert plans["demo/_main.so"].changed
    (told,) = (found for found in decisions.findings if found.level != "info")
    assert (told.code, told.level, told.subject) == ("RLK124", "warning", "demo/_extra.so")
    assert told.message == "left as it is: no prefix has libgone.so.6; it does without"


def test_what_the_user_says_will_be_there_is_no_reason_to_leave_a_member(scene: Scene) -> None:
    """Its open imports may be that library's; a pattern that allows another library changes nothing."""
    scene.allow_missing = ("libelse*",)
    assert "RLK124" in codes(optional(scene, served=True))
    scene.allow_missing = ("libgone*",)
    decisions = optional(scene, served=True)
    assert next(file for file in decisions.files if file.path == "demo/_extra.so").changed
    told = [(found.code, found.subject) for found in decisions.findings if found.level != "info"]
    assert told == [("RLK102", "libgone.so.6")]


def test_what_the_python_lacks_is_no_reason_to_leave_a_member(scene: Scene) -> None:
    """Another Python is missing then, and every module of the wheel."""
    scene.profile = Profile("p", optional=(OptionalMembers(("demo/_extra*.so",), "it does without"),))
    scene.provide("lib/libhip.so.7", source=define("hip"))
    scene.member("demo/_main.so", ["libhip.so.7"], call("hip"))
    scene.member("demo/_extra.so", ["libhip.so.7"], call("hip", "PyNobody_HasThis"))
    found = [item.code for item in scene.decide().findings if item.level != "info"]
    assert found == ["RLK302"]


def test_what_imports_names_of_nobody_is_left_if_the_package_does_without(scene: Scene) -> None:
    """As in tilelang-rocm 0.1.4.post13, with the shipped profile."""
    scene.profile = shipped_profiles()["tilelang-rocm"]
    scene.provide("lib/libhip.so.7", source=define("hip"))
    runtime = define("run") + "int registry(void){return 1;} int start(void){return registry();}"
    scene.member("tilelang/lib/libtvm_runtime.so", source=runtime)
    scene.member("tilelang/lib/libtvm.so", ["libhip.so.7"], runtime + call("hip") + define("compile"))
    origin = ["-Wl,-rpath,$ORIGIN"]
    scene.member("tilelang/lib/libtilelang_module.so", ["libtvm.so"], call("compile"), origin)
    scene.member("tilelang/lib/libtilelang.so", ["libtvm_runtime.so"], call("run", "compile"), origin)
    decisions = scene.decide()
    plans = {file.path: file for file in decisions.files}
    assert not plans["tilelang/lib/libtilelang.so"].changed
    assert not [found for found in decisions.findings if found.level == "error"]
    (told,) = (found for found in decisions.findings if found.code == "RLK124")
    assert told.message.startswith(
        "left unchanged: some of its imports are in no library that it loads; the package loads"
    )


def test_what_the_package_does_without_is_not_left_where_nothing_is_served(scene: Scene) -> None:
    decisions = optional(scene, served=False)
    assert [found.subject for found in decisions.findings if found.level == "error"] == ["libgone.so.6"]
    assert "RLK124" not in codes(decisions)


def test_what_another_member_needs_is_not_left(scene: Scene) -> None:
    scene.member("demo/_more.so", ["_extra.so"], flags=["-Wl,-rpath,$ORIGIN"])
    decisions = optional(scene, served=True)
    assert "RLK101" in [found.code for found in decisions.findings if found.level == "error"]


def test_an_unserved_variant_keeps_even_what_could_be_dropped(scene: Scene) -> None:
    scene.profile = Profile("p", variants=("demo/lib_rocm*.so",))
    scene.provide("lib/libhip.so.7")
    # A version record says whose hip6 is, so nothing stands against dropping libunused but that the variant is not served.
    flags = [scene.versions("HIP_6:hip6")]
    hip6 = scene.library(scene.root / "old" / "libhip.so.6", [], "int hip6(void){return 6;}", flags)
    scene.member("demo/lib_rocm6.so", ["libunused.so.1"], USES.format("hip6"), [str(hip6)])
    scene.member("demo/lib_rocm7.so", ["libhip.so.7"])
    plans = {file.path: file for file in scene.decide().files}
    assert not plans["demo/lib_rocm6.so"].changed
    assert {entry.action for entry in plans["demo/lib_rocm6.so"].needed} == {"keep"}


def test_no_variant_served_is_an_error(scene: Scene) -> None:
    scene.profile = Profile("p", variants=("demo/lib_rocm*.so",))
    scene.provide("lib/libelse.so.7")
    scene.member("demo/lib_rocm6.so", ["libhip.so.6"], USES.format("hip6"))
    assert codes(scene.decide()) == ["RLK103", "RLK104"]


def test_what_the_nearest_variant_lacks_is_told(scene: Scene) -> None:
    """That of the prefix's release comes first, though another lacks as few; each library of it is a finding with a way out."""
    scene.profile = Profile("p", variants=("demo/lib_*.so",))
    scene.provide("lib/libamdhip64.so.7")
    (scene.prefix / ".info").mkdir()
    (scene.prefix / ".info/version").write_text("7.2.4\n")
    for name, needed in (
        ("cuda", ["libcudart.so.13"]),
        ("rocm6", ["libhipblas.so.2"]),
        ("rocm7", ["libhipblas.so.3"]),
        ("rocm71", ["libhipblas.so.3", "libhipblaslt.so.1"]),
    ):
        scene.member(f"demo/lib_{name}.so", needed, call("hipblasCreate", "hipblasLtCreate"))
    findings = {found.code: found for found in scene.decide().findings if found.level == "error"}
    assert findings["RLK104"].message == (
        "none of the 4 bundled libraries finds all that it needs in the prefixes; lib_rocm7.so lacks libhipblas.so.3 (1 import); "
        "lib_rocm71.so lacks libhipblas.so.3 (1 import) and libhipblaslt.so.1 (1 import); "
        "lib_rocm6.so lacks libhipblas.so.2 (1 import)"
    )
    assert findings["RLK101"].subject == "libhipblas.so.3"
    assert findings["RLK101"].message.startswith("needed by $WHEEL/demo/lib_rocm7.so;")


def test_a_linker_script_under_a_needed_name(scene: Scene) -> None:
    scene.provide("lib/libhip.so.1")
    (scene.prefix / "lib" / "libz9.so").write_text("INPUT(-lz9)\n")
    scene.member("demo/a.so", ["libhip.so.1", "libz9.so"], USES.format("z9"))
    decisions = scene.decide()
    assert {"RLK105", "RLK106"} <= set(codes(decisions))


def test_a_version_that_the_provider_lacks(scene: Scene) -> None:
    script = scene.root / "v.map"
    script.write_text("hip_4.2 { global: f; };")
    scene.provide(
        "lib/libhip.so.1", source="int f(void){return 1;}", flags=[f"-Wl,--version-script={script}"]
    )
    script.write_text("hip_4.2 { }; hip_6.0 { global: f; } hip_4.2;")
    newer = scene.library(
        scene.root / "newer" / "libhip.so.1", [], "int f(void){return 1;}", [f"-Wl,--version-script={script}"]
    )
    scene.member("demo/a.so", [], "extern int f(void); int g(void){return f();}", flags=[str(newer)])
    decisions = scene.decide()
    (found,) = (item for item in decisions.findings if item.code == "RLK301")
    assert found.level == "error"
    assert "needs hip_6.0 of libhip.so.1" in found.message
    assert "goes up to hip_4.2" in found.message


def test_what_is_allowed_to_be_missing_has_no_weight(scene: Scene) -> None:
    """It would otherwise be looked for by ever more invasive edits, which cannot find it either."""
    scene.provide("lib/libhip.so.1")
    scene.allow_missing = ("libabsent.so.1",)
    scene.member("demo/a.so", ["libhip.so.1", "libabsent.so.1"])
    outcome = scene.decide().outcomes["demo/a.so"]
    assert [trouble.kind for trouble in outcome.issues] == ["allowed"]
    assert (outcome.issue_count, outcome.loads, outcome.strategy) == (0, True, "runpath")
    edge = outcome.issues[0].edge
    kinds: tuple[IssueKind, ...] = ("missing", "allowed", "incoherent", "libc", "shadowed")
    several = replace(outcome, issues=tuple(ResolutionIssue(kind, edge, "x") for kind in kinds))
    assert (several.issue_count, several.loads) == (3, False)


def test_the_roots_own_edges_are_among_the_loads(scene: Scene) -> None:
    """They are what the graph of the report begins with."""
    scene.provide("lib/libdeep.so.1")
    scene.provide("lib/libhip.so.1", ["libdeep.so.1"], flags=["-Wl,--enable-new-dtags,-rpath,$ORIGIN"])
    scene.member("demo/a.so", ["libhip.so.1"])
    own = [
        (load.requester.rpartition("/")[2], load.soname)
        for load in scene.decide().loads
        if not load.soname.startswith(("libc.so", "ld-linux"))
    ]
    assert own == [("a.so", "libhip.so.1"), ("libhip.so.1", "libdeep.so.1")]


def test_versions_are_compared_as_numbers(scene: Scene) -> None:
    """GLIBC_2.34 is higher than GLIBC_2.9, which comes later in the alphabet."""
    flag = scene.versions("hip_2.9:f", "hip_2.34:g")
    scene.provide("lib/libhip.so.1", source="int f(void){return 1;} int g(void){return 1;}", flags=[flag])
    newer = scene.library(
        scene.root / "newer" / "libhip.so.1", [], "int h(void){return 1;}", [scene.versions("hip_2.40:h")]
    )
    scene.member("demo/a.so", [], "extern int h(void); int use(void){return h();}", flags=[str(newer)])
    (found,) = (item for item in scene.decide().findings if item.code == "RLK301")
    assert "needs hip_2.40 of libhip.so.1" in found.message
    assert found.message.endswith("goes up to hip_2.34")


def test_a_mark_of_the_c_library_is_no_release(scene: Scene) -> None:
    """ld.so of glibc 2.43 defines GLIBC_ABI_DT_X86_64_PLT. And a prefix without a loader is told as that."""
    nodes = scene.versions("GLIBC_9.98:newer", "GLIBC_ABI_DT_X86_64_PLT:plt")
    source = "int newer(void){return 1;} int plt(void){return 1;}"
    stub = scene.library(scene.root / "newer" / "libc.so.6", source=source, flags=[nodes])
    scene.provide("lib/libhip.so.1", [], call("newer", "plt"), [str(stub)])
    scene.member(
        "demo/a.so", ["libhip.so.1", "libc.so.6"], call("uses").replace("int uses(void){", "int g(void){")
    )
    found = next(item for item in scene.decide().findings if item.code == "RLK301")
    assert found.cause is not None
    assert found.cause.startswith("libhip.so.1 needs up to GLIBC_9.98; the target has ")
    assert found.remedy.startswith("The prefix has no loader to aim at")


@pytest.mark.parametrize("option", ["-f", "-F"])
def test_a_filter_library_is_told(tmp_path: Path, option: str) -> None:
    """DT_AUXILIARY (-f) and DT_FILTER (-F): what the loader maps is not simulated, and never "all well"."""
    scene = Scene(tmp_path)
    scene.provide("lib/libfiltee.so.1")
    scene.provide("lib/libfilter.so.1", source=define("hip"), flags=[f"-Wl,{option},libfiltee.so.1"])
    scene.member("demo/a.so", ["libfilter.so.1"], call("hip"))
    (told,) = (item for item in scene.decide().findings if item.code == "RLK117")
    assert told.level == "error"
    assert told.subject.endswith("libfilter.so.1")
    assert "maps libfiltee.so.1 before it" in told.message


def test_missing_libraries_times_open_imports_have_a_bound() -> None:
    """Each import that is open may be each missing library's: where that is too much to compare, nothing is proved."""
    asked = []

    def whose(soname: str, name: str) -> Relation:
        asked.append((soname, name))
        return "unknown"

    missing = [f"lib{number}.so" for number in range(101)]
    imports = [Import(f"f{number}", None, None, "global", "func", 0) for number in range(10_000)]
    decisions = evaluate_substitution(missing, imports, imports, {}, fake_vendor(whose=whose))
    assert {decision.action for decision in decisions.values()} == {"keep"}
    assert "more than relink compares" in decisions["lib7.so"].evidence[0]
    assert asked == []
    evaluate_substitution(missing, imports, imports[:100], {}, fake_vendor(whose=whose))
    assert len(asked) == 101 * 100


def test_what_an_edit_says_of_sonames_that_are_not_there_is_left_out() -> None:
    """The order is the file's own, additions last."""
    edit = ElfEdit(
        "",
        None,
        (("libx.so", "liby.so"), ("libold.so.1", "libold.so.2")),
        ("libgone.so",),
        ("libnew.so", "liba.so"),
    )
    exact = normalize_edit(edit, ("liba.so", "libold.so.1", "libgone.so"))
    assert exact == ElfEdit("", None, (("libold.so.1", "libold.so.2"),), ("libgone.so",), ("libnew.so",))
