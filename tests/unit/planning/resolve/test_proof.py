"""Proof before edit, on compiled libraries: what binds, what may be replaced or dropped, what is loaded twice or by dlopen."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

import relink.vendors.rocm.facts
from relink.elf.image import read_image
from relink.elf.patchelf import find_patchelf
from relink.elf.symbol_reader import read_symbols
from relink.loader.target import find_target
from relink.planning.model.files import FilePlan
from relink.planning.resolve.decide import PlanDraft, decide
from relink.providers.profiles import DlopenEntry, EqualSonames, Profile
from relink.system.findings.model import RULES, Finding, causes
from tests.support.cc import cc
from tests.unit.planning.resolve.scenes import Scene, call, codes, define, opens

MEMBER = "demo/a.so"


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def only(decisions: PlanDraft) -> FilePlan:
    (file,) = decisions.files
    return file


def found(decisions: PlanDraft, code: str) -> Finding:
    (item,) = [item for item in decisions.findings if item.code == code]
    return item


@pytest.fixture
def one_abi(monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile that knows libsmi.so.1 and libsmi.so.7 as one ABI."""
    facts = relink.vendors.rocm.facts.rocm_facts()
    known = type(facts)((EqualSonames(("libsmi.so.1", "libsmi.so.7"), "they are the same"),), facts.dlopen)
    monkeypatch.setattr(relink.vendors.rocm.facts, "rocm_facts", lambda: known)


class TestSubstitution:
    @pytest.mark.usefixtures("one_abi")
    def test_a_profile_and_every_symbol(self, scene: Scene) -> None:
        scene.provide("lib/libsmi.so.7", source=define("smi_init", "smi_stop", "smi_more"))
        scene.member(MEMBER, ["libsmi.so.1"], call("smi_init", "smi_stop"))
        decisions = scene.decide()
        (entry,) = only(decisions).needed
        assert (entry.action, entry.soname, entry.soname_after) == (
            "substitute",
            "libsmi.so.1",
            "libsmi.so.7",
        )
        assert entry.origin == "provider"
        assert entry.evidence[0].startswith("2 of 2 imported symbols are exported by")
        assert "profile rocm: they are the same" in entry.evidence
        assert only(decisions).edit.replace == (("libsmi.so.1", "libsmi.so.7"),)
        assert codes(decisions) == ["RLK112"]

    def test_symbols_alone_are_an_error_that_names_the_flag(self, scene: Scene) -> None:
        scene.provide("lib/libsmi.so.7", source=define("smi_init", "smi_stop"))
        scene.member(MEMBER, ["libsmi.so.1"], call("smi_init", "smi_stop"))
        decisions = scene.decide()
        item = found(decisions, "RLK101")
        assert "libsmi.so.7 has 2 of 2 symbols used" in item.message
        assert "--substitute libsmi.so.1=libsmi.so.7" in item.remedy
        assert not only(decisions).edit.replace

    def test_the_flag_is_enough_with_the_symbols(self, scene: Scene) -> None:
        scene.provide("lib/libsmi.so.7", source=define("smi_init"))
        scene.member(MEMBER, ["libsmi.so.1"], call("smi_init"))
        scene.substitutes = (("libsmi.so.1", "libsmi.so.7"),)
        decisions = scene.decide()
        assert only(decisions).edit.replace == (("libsmi.so.1", "libsmi.so.7"),)

    @pytest.mark.usefixtures("one_abi")
    def test_one_symbol_lacking_is_refused_and_named(self, scene: Scene) -> None:
        scene.provide("lib/libsmi.so.7", source=define("smi_init"))
        scene.member(MEMBER, ["libsmi.so.1"], call("smi_init", "smi_gone"))
        by_profile = scene.decide()
        item = found(by_profile, "RLK101")
        assert "has 1 of 2 symbols used, not smi_gone" in item.message
        assert "--substitute" not in item.remedy
        scene.substitutes = (("libsmi.so.1", "libsmi.so.7"),)
        by_flag = scene.decide()
        assert "lacks smi_gone" in found(by_flag, "RLK114").message
        assert not only(by_profile).edit.replace
        assert not only(by_flag).edit.replace

    @pytest.mark.usefixtures("one_abi")
    def test_versions_count(self, scene: Scene) -> None:
        scene.provide("lib/libsmi.so.7", source=define("smi_init"), flags=[scene.versions("SMI_7:smi_init")])
        flags = [scene.versions("SMI_1:smi_init")]
        old = scene.library(scene.root / "old" / "libsmi.so.1", [], define("smi_init"), flags)
        scene.member(MEMBER, [], call("smi_init"), flags=[str(old)])
        assert "not smi_init@SMI_1" in found(scene.decide(), "RLK101").message

    def test_another_stem_is_refused(self, scene: Scene) -> None:
        scene.provide("lib/libother.so.7", source=define("smi_init"))
        scene.member(MEMBER, ["libsmi.so.1"], call("smi_init"))
        scene.substitutes = (("libsmi.so.1", "libother.so.7"),)
        assert "different libraries" in found(scene.decide(), "RLK114").message

    def test_a_flag_for_what_nobody_needs(self, scene: Scene) -> None:
        scene.provide("lib/libsmi.so.7")
        scene.member(MEMBER, ["libsmi.so.7"])
        scene.substitutes = (("libsmi.so.1", "libsmi.so.7"),)
        assert found(scene.decide(), "RLK109").subject == "libsmi.so.1"


class TestDropping:
    def test_what_is_not_used_goes(self, scene: Scene) -> None:
        scene.provide("lib/libhip.so.1", source=define("hip"))
        scene.member(MEMBER, ["libhip.so.1", "libtracer.so.4"], call("hip"))
        decisions = scene.decide()
        assert only(decisions).edit.remove == ("libtracer.so.4",)
        assert [entry.action for entry in only(decisions).needed] == ["keep", "drop"]
        assert found(decisions, "RLK113").level == "info"

    def test_what_is_used_stays(self, scene: Scene) -> None:
        scene.provide("lib/libhip.so.1", source=define("hip"))
        scene.member(MEMBER, ["libhip.so.1", "libtracer.so.4"], call("hip", "trace"))
        decisions = scene.decide()
        assert not only(decisions).edit.remove
        assert "1 import may be its: trace" in found(decisions, "RLK101").message
        assert "RLK302" not in codes(decisions)  # the missing library explains the open symbol

    def test_what_a_version_record_names_stays(self, scene: Scene) -> None:
        scene.provide("lib/libhip.so.1", source=define("hip", "trace"))
        flags = [scene.versions("TRACE_1:trace")]
        tracer = scene.library(scene.root / "old" / "libtracer.so.4", [], define("trace"), flags)
        scene.member(MEMBER, ["libhip.so.1"], call("hip", "trace"), flags=[str(tracer)])
        decisions = scene.decide()
        assert not only(decisions).edit.remove
        assert found(decisions, "RLK101").subject == "libtracer.so.4"

    @pytest.mark.usefixtures("one_abi")
    def test_a_second_missing_library_may_own_the_symbol(self, scene: Scene) -> None:
        scene.provide("lib/libsmi.so.7", source=define("smi_init"))
        scene.member(MEMBER, ["libsmi.so.1", "libtracer.so.4"], call("smi_init"))
        edit = only(scene.decide()).edit
        assert edit.replace == (("libsmi.so.1", "libsmi.so.7"),)
        assert edit.remove == ("libtracer.so.4",)


class TestBinding:
    def test_a_missing_symbol(self, scene: Scene) -> None:
        scene.provide("lib/libhip.so.1", source=define("hip", "hipMalloc"))
        scene.member(MEMBER, ["libhip.so.1"], call("hip", "hipMallocc"))
        item = found(scene.decide(), "RLK302")
        assert item.level == "error"
        assert "hipMallocc" in item.message
        assert "hipMalloc in libhip.so.1" in item.message

    def test_in_a_library_of_the_prefix(self, scene: Scene) -> None:
        scene.provide("lib/libhip.so.1", source=call("gone") + define("hip"))
        scene.member(MEMBER, ["libhip.so.1"], call("hip"))
        assert found(scene.decide(), "RLK302").subject == f"{scene.prefix}/lib/libhip.so.1"

    def test_a_version_record_that_was_left_behind(self, scene: Scene) -> None:
        scene.provide("lib/libhip.so.1", source=define("hip"), flags=[scene.versions("hip_4.2:hip")])
        scene.provide("lib/libelse.so.1", source=define("other"))
        member = scene.member(
            MEMBER, ["libelse.so.1"], call("hip", "other"), flags=[str(scene.prefix / "lib/libhip.so.1")]
        )
        assert "RLK305" not in codes(scene.decide())
        subprocess.run([find_patchelf().path, "--remove-needed", "libhip.so.1", str(member)], check=True)
        data = member.read_bytes()
        scene.images[MEMBER], scene.tables[MEMBER] = read_image(data, MEMBER), read_symbols(data)
        assert "names libhip.so.1" in found(scene.decide(), "RLK305").message

    def test_weak_imports_may_stay_open(self, scene: Scene) -> None:
        scene.provide("lib/libhip.so.1", source=define("hip"))
        source = "extern int maybe(void) __attribute__((weak)); int uses(void){return maybe ? maybe() : 0;}"
        scene.member(MEMBER, ["libhip.so.1"], source)
        assert codes(scene.decide()) == []

    def test_supplied_by_a_member_that_the_package_preloads(self, scene: Scene) -> None:
        scene.profile = Profile("p", preload=("demo/shared.so",))
        scene.provide("lib/libhip.so.1", source=define("hip"))
        scene.member("demo/shared.so", [], define("Provider_GetHost"))
        scene.member(MEMBER, ["libhip.so.1"], call("hip", "Provider_GetHost"))
        decisions = scene.decide()
        item = found(decisions, "RLK303")
        assert "Provider_GetHost" in item.message
        assert "$WHEEL/demo/shared.so" in item.message
        assert "RLK302" not in codes(decisions)

    def test_supplied_by_the_interpreter(self, scene: Scene) -> None:
        scene.provide("lib/libhip.so.1", source=define("hip"))
        scene.member(MEMBER, ["libhip.so.1"], call("hip", "PyLong_FromLong"))
        assert codes(scene.decide()) == ["RLK303"]

    def test_the_interpreter_supplies_only_what_it_has(self, scene: Scene) -> None:
        scene.provide("lib/libhip.so.1", source=define("hip"))
        scene.member(MEMBER, ["libhip.so.1"], call("hip", "PyLong_FromNowhere"))
        assert codes(scene.decide()) == ["RLK302"]

    def test_assumed(self, scene: Scene) -> None:
        scene.provide("lib/libhip.so.1", source=define("hip"))
        scene.assume_symbols = ("host_*",)
        scene.member(MEMBER, ["libhip.so.1"], call("hip", "host_alloc"))
        assert codes(scene.decide()) == ["RLK303"]


class TestFlattening:
    def chain(self, scene: Scene) -> None:
        """libtop needs libmid needs libdeep; libmid's RUNPATH leads nowhere, so libdeep is flattened in."""
        nowhere = ["-Wl,--enable-new-dtags,-rpath,/nowhere"]
        scene.provide("lib/libmid.so.1", ["libdeep.so.1"], define("mid"), nowhere)

    def test_no_binding_changes(self, scene: Scene) -> None:
        self.chain(scene)
        scene.provide("lib/libdeep.so.1", source=define("deep"))
        scene.member(MEMBER, ["libmid.so.1"], call("mid", "deep"))
        decisions = scene.decide()
        assert only(decisions).strategy == "flatten"
        assert "RLK304" not in codes(decisions)

    def test_a_changed_binding_is_seen(self, scene: Scene) -> None:
        # By itself: member, libmid, liblast, then libmid's libdeep: `both` is liblast's. Flattened libdeep comes after liblast's
        # sibling only if the order is kept; libother's dependency libfar, found late, is overtaken by the added libdeep.
        self.chain(scene)
        scene.provide("lib/libdeep.so.1", source=define("both"))
        scene.provide("lib/libfar.so.1", source=define("both"))
        scene.provide(
            "lib/libother.so.1", ["libfar.so.1"], define("other"), ["-Wl,--disable-new-dtags,-rpath,$ORIGIN"]
        )
        scene.member(MEMBER, ["libother.so.1", "libmid.so.1"], call("other", "mid", "both"))
        decisions = scene.decide()
        assert only(decisions).strategy == "flatten"
        item = found(decisions, "RLK304")
        assert "both" in item.message
        assert "libdeep.so.1" in item.message
        assert "libfar.so.1" in item.message

    def test_what_the_rpath_of_python_serves_is_bound(self, scene: Scene) -> None:
        """The Python of a Conda environment has a DT_RPATH: what is compared is loaded by that Python, both times."""
        self.chain(scene)
        scene.provide("lib/libdeep.so.1", source=define("deep"))
        scene.provide("lib/libfar.so.1", source=define("far"))
        scene.provide("lib/libplain.so.1", ["libfar.so.1"], call("far"))
        scene.member(MEMBER, ["libmid.so.1", "libplain.so.1"], call("mid", "deep"))
        flag = f"-Wl,--disable-new-dtags,-rpath,{scene.prefix}/lib"
        python = cc("int main(void){return 0;}", scene.root / "python", flag)
        context = replace(scene.context(), target=replace(find_target(), python=str(python)))
        decisions = decide(context, scene.tables)
        assert only(decisions).edit.add == ("libdeep.so.1",)
        assert codes(decisions) == ["RLK205"]


class TestSteps:
    """What is there to be typed is safe to be typed: names out of wheels and prefixes are quoted."""

    def test_a_soname_that_a_shell_would_read(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        facts = relink.vendors.rocm.facts.rocm_facts()
        known = type(facts)(facts.same_abi, (DlopenEntry("libhip.so", ("libbuiltins*",), "it compiles"),))
        monkeypatch.setattr(relink.vendors.rocm.facts, "rocm_facts", lambda: known)
        scene.provide("lib/libbuiltins$(id).so.7", source=define("builtins"))
        scene.provide("lib/libhip.so.7", [], define("hip"))
        scene.member(MEMBER, ["libhip.so.7"], call("hip"))
        scene.preload_known = False
        assert found(scene.decide(), "RLK120").step == "--preload 'libbuiltins$(id).so.7'"


class TestTwice:
    def test_two_majors_by_needed_are_an_error_with_both_chains(self, scene: Scene) -> None:
        scene.provide("lib/libhip.so.6", source=define("six"))
        scene.provide("lib/libhip.so.7", source=define("seven"))
        scene.provide("lib/libblas.so.1", ["libhip.so.6"], define("blas"))
        scene.member(MEMBER, ["libhip.so.7", "libblas.so.1"], call("seven", "blas"))
        item = found(scene.decide(), "RLK130")
        assert item.level == "error"
        assert "a.so → libblas.so.1 → libhip.so.6" in item.message
        assert "a.so → libhip.so.7" in item.message

    def test_two_members_that_load_them_in_other_orders_are_one_finding(self, scene: Scene) -> None:
        scene.provide("lib/libhip.so.6", source=define("six"))
        scene.provide("lib/libhip.so.7", source=define("seven"))
        scene.member(MEMBER, ["libhip.so.7", "libhip.so.6"], call("six", "seven"))
        scene.member("demo/b.so", ["libhip.so.6", "libhip.so.7"], call("six", "seven"))
        item = found(scene.decide(), "RLK130")
        assert item.message.startswith("libhip.so.7 and libhip.so.6 in one process, both by NEEDED: ")

    @pytest.mark.parametrize(
        ("stem", "more", "directory", "level"),
        [
            ("libzstd", "5df4f4df", "demo.libs", "warning"),
            ("libzstd", "5df4f4df", "demo/lib", "error"),  # auditwheel puts its copies elsewhere
            ("libzstd", "15", "demo.libs", "error"),  # a version, no hash
            ("libamdhip64", "5df4f4df", "demo.libs", "error"),  # two HIP runtimes stay two
        ],
    )
    def test_a_copy_that_auditwheel_renamed(
        self, scene: Scene, stem: str, more: str, directory: str, level: str
    ) -> None:
        scene.provide(f"lib/{stem}.so.1", source=define("one"))
        scene.provide("lib/libcurl.so.4", [f"{stem}.so.1"], call("one") + define("curl"))
        copy = f"{stem}-{more}.so.1.4.8"
        scene.member(f"{directory}/{copy}", source=define("two"))
        path = f"-Wl,-rpath,$ORIGIN/../{directory}"
        scene.member(MEMBER, [copy, "libcurl.so.4"], call("two", "curl"), [path])
        item = found(scene.decide(), "RLK130")
        assert item.level == level
        assert ("is a copy that auditwheel put into the wheel" in item.message) is (level == "warning")

    def test_two_copies_that_auditwheel_renamed_stay_an_error(self, scene: Scene) -> None:
        scene.provide("lib/libcurl.so.4", [], define("curl"))
        copies = [f"libzstd-{digits}.so.1" for digits in ("5df4f4df", "0badcafe")]
        for copy, name in zip(copies, ("one", "two"), strict=True):
            scene.member(f"demo.libs/{copy}", source=define(name))
        scene.member(MEMBER, copies, call("one", "two"), ["-Wl,-rpath,$ORIGIN/../demo.libs"])
        assert found(scene.decide(), "RLK130").level == "error"

    def test_one_by_dlopen_is_a_warning(self, scene: Scene) -> None:
        scene.provide("lib/libhip.so.6", source=define("six"))
        scene.provide("lib/libhip.so.7", source=define("seven"))
        origin = ["-Wl,--enable-new-dtags,-rpath,$ORIGIN"]
        scene.provide("lib/libplugin.so.1", ["libhip.so.6"], define("plugin"), origin)
        scene.provide("lib/libblas.so.1", [], opens("libplugin.so.1") + define("blas"), origin)
        scene.member(MEMBER, ["libhip.so.7", "libblas.so.1"], call("seven", "blas"))
        decisions = scene.decide()
        item = found(decisions, "RLK130")
        assert item.level == "warning"
        assert "libblas.so.1 → libplugin.so.1 → libhip.so.6" in item.message

    @pytest.mark.parametrize("order", [(0, 1), (1, 0)])
    @pytest.mark.parametrize("by_dlopen", ["found", "not found"])
    def test_a_warning_of_one_member_hides_no_error_of_another(
        self, scene: Scene, order: tuple[int, int], by_dlopen: str
    ) -> None:
        """The order of the archive's members does not decide what two versions of one library are."""
        scene.provide("lib/libhip.so.6", source=define("six"))
        scene.provide("lib/libhip.so.7", source=define("seven"))
        origin = ["-Wl,--enable-new-dtags,-rpath,$ORIGIN"]
        plugin_path = origin if by_dlopen == "found" else []
        scene.provide("lib/libplugin.so.1", ["libhip.so.6"], define("plugin"), plugin_path)
        scene.provide("lib/libopens.so.1", [], opens("libplugin.so.1") + define("opens"), origin)
        scene.provide("lib/libblas.so.1", ["libhip.so.6"], define("blas"), origin)
        members = [
            ("demo/warned.so", ["libhip.so.7", "libopens.so.1"], call("seven", "opens")),
            ("demo/wrong.so", ["libhip.so.7", "libblas.so.1"], call("seven", "blas")),
        ]
        for place in order:
            scene.member(*members[place])
        twice = [item for item in scene.decide().findings if item.code == "RLK130"]
        assert [item.level for item in twice] == ["error"]
        assert "wrong.so → libblas.so.1 → libhip.so.6" in twice[0].message

    def test_the_same_symbols_in_two_libraries(self, scene: Scene) -> None:
        same = define("llvm_a", "llvm_b", "llvm_c", "llvm_d")
        scene.provide("lib/libvanilla.so.1", source=same + define("vanilla"))
        own = "int own_use(void){return llvm_a()+llvm_b();}"
        scene.provide("lib/libfork.so.1", source=same + define("fork") + own)
        scene.member(MEMBER, ["libvanilla.so.1", "libfork.so.1"], call("vanilla", "fork"))
        item = found(scene.decide(), "RLK131")
        assert item.level == "warning"
        assert "libvanilla.so.1 exports 4 symbols of the same name" in item.message
        assert "libvanilla.so.1" in item.message


class TestDlopen:
    TEXT = opens("libcomgr.so.3")

    def test_would_not_be_found(self, scene: Scene) -> None:
        scene.provide("lib/libcomgr.so.3", source=define("comgr"))
        scene.provide("lib/libhip.so.7", [], self.TEXT + define("hip"))
        scene.member(MEMBER, ["libhip.so.7"], call("hip"))
        item = found(scene.decide(), "RLK120")
        assert item.subject == "libcomgr.so.3"
        assert item.brief == "not found when libhip.so.7 opens it (dlopen)"
        assert item.step == "--preload libcomgr.so.3"
        assert item.level == "warning"
        assert "known by string" in item.message
        assert "--preload libcomgr.so.3" in item.remedy

    def test_found_by_the_callers_own_runpath(self, scene: Scene) -> None:
        scene.provide("lib/libcomgr.so.3", source=define("comgr"))
        origin = ["-Wl,--enable-new-dtags,-rpath,$ORIGIN"]
        scene.provide("lib/libhip.so.7", [], self.TEXT + define("hip"), origin)
        scene.member(MEMBER, ["libhip.so.7"], call("hip"))
        assert codes(scene.decide()) == []

    def test_a_string_in_what_does_not_import_dlopen_is_nothing(self, scene: Scene) -> None:
        scene.provide("lib/libcomgr.so.3", source=define("comgr"))
        text = 'const char *name(void){return "libcomgr.so.3";} '
        scene.provide("lib/libhip.so.7", [], text + define("hip"))
        scene.member(MEMBER, ["libhip.so.7"], call("hip"))
        assert codes(scene.decide()) == []

    def test_a_string_without_a_library_of_that_name_is_nothing(self, scene: Scene) -> None:
        scene.provide("lib/libhip.so.7", [], self.TEXT + define("hip"))
        scene.member(MEMBER, ["libhip.so.7"], call("hip"))
        assert codes(scene.decide()) == []

    def test_preload_makes_it_findable(self, scene: Scene) -> None:
        scene.provide("lib/libcomgr.so.3", source=define("comgr"))
        scene.provide("lib/libhip.so.7", [], self.TEXT + define("hip"))
        scene.preload = ("libcomgr.so.3",)
        scene.member(MEMBER, ["libhip.so.7"], call("hip"))
        decisions = scene.decide()
        assert only(decisions).edit.add == ("libcomgr.so.3",)
        assert set(codes(decisions)) <= {"RLK121", "RLK205"}
        assert "RLK121" in codes(decisions)

    def test_a_profile_knows_what_no_string_says(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        facts = relink.vendors.rocm.facts.rocm_facts()
        entry = DlopenEntry("libhip.so", ("libbuiltins.so.*",), "it compiles")
        known = type(facts)(facts.same_abi, (entry,))
        monkeypatch.setattr(relink.vendors.rocm.facts, "rocm_facts", lambda: known)
        scene.provide("lib/libbuiltins.so.7", source=define("builtins"))
        scene.provide("lib/libhip.so.7", [], define("hip"))
        scene.member(MEMBER, ["libhip.so.7"], call("hip"))
        scene.preload_known = False
        item = found(scene.decide(), "RLK120")
        assert item.subject == "libbuiltins.so.7"
        assert "known by profile rocm: it compiles" in item.message


class TestOneCause:
    """What one thing is behind has one cause; each fact stays a finding."""

    def test_versions_and_symbols_that_one_library_lacks(self, scene: Scene) -> None:
        old = scene.versions("hip_4.2:f")
        scene.provide("lib/libhip.so.7", source=define("f"), flags=[old])
        stub = scene.library(
            scene.root / "stubs" / "libhip.so.7",
            source=define("f", "g"),
            flags=[scene.versions("hip_4.2:f", "hip_6.0:g")],
            soname="libhip.so.7",
        )
        assert stub.exists()
        for name in ("demo/a.so", "demo/b.so"):
            scene.member(name, ["libhip.so.7"], call("f", "g"))
        lost = [item for item in scene.decide().findings if item.level == "error"]
        assert {item.code for item in lost} == {"RLK301", "RLK302"}
        assert len(lost) == 4
        (cause,) = causes(lost)
        assert (cause.code, cause.subjects) == ("RLK301", ("$WHEEL/demo/a.so", "$WHEEL/demo/b.so"))
        lib = scene.prefix / "lib" / "libhip.so.7"
        assert cause.message == f"2 files need up to hip_6.0 of libhip.so.7; {lib} goes up to hip_4.2"

    def test_an_import_that_no_missing_version_explains_is_told(self, scene: Scene) -> None:
        scene.provide("lib/libhip.so.7", source=define("f"))
        scene.member(MEMBER, ["libhip.so.7"], call("f", "gone"))
        assert found(scene.decide(), "RLK302").cause is None

    def test_one_file_has_one_name(self, scene: Scene) -> None:
        """Whatever RUNPATH leads to it: of a file that two members find by other paths there is one finding."""
        same = define("llvm_a", "llvm_b", "llvm_c", "llvm_d")
        scene.provide("lib/libfork.so.1", source=same + "int own_use(void){return llvm_a()+llvm_b();}")
        origin = "-Wl,--enable-new-dtags,-rpath,$ORIGIN"
        scene.member("demo/libtwin.so.1", source=same + define("twin"))
        for directory in ("one", "two", "two/three"):
            up = "/".join(".." for _ in directory.split("/"))
            needs = ["libtwin.so.1", "libfork.so.1"]
            scene.member(f"demo/{directory}/a.so", needs, call("twin", "llvm_c"), [f"{origin}/{up}"])
        item = found(scene.decide(), "RLK131")
        assert "$WHEEL/demo/libtwin.so.1 exports 4 symbols" in item.message
        assert ".." not in item.message

    def test_between_members_of_the_wheel_it_is_an_info(self, scene: Scene) -> None:
        same = define("llvm_a", "llvm_b", "llvm_c", "llvm_d")
        origin = ["-Wl,--enable-new-dtags,-rpath,$ORIGIN"]
        scene.member("demo/libtwin.so.1", source=same + define("twin"))
        scene.member("demo/libfork.so.1", source=same + "int own_use(void){return llvm_a()+llvm_b();}")
        scene.provide("lib/libhip.so.7")
        scene.member(MEMBER, ["libtwin.so.1", "libfork.so.1"], call("twin", "own_use"), origin)
        assert found(scene.decide(), "RLK131").level == "info"


class TestOwners:
    """Whose an import is, and what is said of one library does not depend on what is allowed for another."""

    @pytest.mark.usefixtures("one_abi")
    @pytest.mark.parametrize(
        "allowed", [(), ("libtracer*",), ("libblas*",), ("libtracer*", "libblas*", "libopen*")]
    )
    def test_allowing_one_library_changes_nothing_for_another(
        self, scene: Scene, allowed: tuple[str, ...]
    ) -> None:
        scene.provide("lib/libsmi.so.7", source=define("smi_init"))
        flags = [scene.versions("OPEN_1:open_one")]
        versioned = scene.library(scene.root / "old" / "libopen.so.1", [], define("open_one"), flags)
        needed = ["libsmi.so.1", "libtracer.so.4", "libblas.so.2"]
        scene.member(MEMBER, needed, call("smi_init", "blas_one", "open_one"), [str(versioned)])
        scene.allow_missing = allowed
        decisions = scene.decide()
        assert only(decisions).edit.replace == (("libsmi.so.1", "libsmi.so.7"),)
        missing = {
            item.subject: item.level for item in decisions.findings if item.code in ("RLK101", "RLK102")
        }
        assert missing == {
            name: "warning" if any(pattern[:-1] in name for pattern in allowed) else "error"
            for name in ("libtracer.so.4", "libblas.so.2", "libopen.so.1")
        }

    @pytest.mark.usefixtures("one_abi")
    def test_a_version_that_what_is_there_lacks_is_no_missing_librarys(self, scene: Scene) -> None:
        """The version record says whose the import is: of a library that is there, in another version."""
        scene.provide("lib/libsmi.so.7", source=define("smi_init"))
        scene.provide("lib/libhip.so.7", source=define("hip"), flags=[scene.versions("hip_4.2:hip")])
        newer = scene.library(
            scene.root / "new" / "libhip.so.7",
            [],
            define("hip", "hip_new"),
            [scene.versions("hip_4.2:hip", "hip_6.0:hip_new")],
        )
        scene.member(MEMBER, ["libsmi.so.1"], call("smi_init", "hip_new"), [str(newer)])
        decisions = scene.decide()
        assert only(decisions).edit.replace == (("libsmi.so.1", "libsmi.so.7"),)
        assert {item.code for item in decisions.findings if item.level == "error"} == {"RLK301", "RLK302"}

    def test_what_several_members_import_of_a_missing_library_is_told_together(self, scene: Scene) -> None:
        scene.provide("lib/libhip.so.1", source=define("hip"))
        scene.member("demo/one.so", ["libnccl.so.2"], call("ncclOne", "ncclTwo"))
        scene.member("demo/two.so", ["libnccl.so.2"], call("ncclTwo", "ncclThree"))
        flags = [scene.versions("NONE_1:ncclNone")]
        named = scene.library(scene.root / "old" / "libnccl.so.2", [], define("ncclNone"), flags)
        scene.member("demo/zero.so", ["libhip.so.1"], call("hip", "ncclNone"), [str(named)])
        item = found(scene.decide(), "RLK101")
        names = {"ncclOne", "ncclTwo", "ncclThree", "ncclNone@NONE_1"}
        assert "4 imports may be its" in item.message
        assert all(name in item.message for name in names)

    def test_a_name_counts_against_the_library_that_owns_it_alone(self, scene: Scene) -> None:
        scene.provide("lib/libhip.so.1", source=define("hip"))
        needed = ["libhip.so.1", "librccl.so.1", "libhipsolver.so.0", "librocprofiler-register.so.0"]
        scene.member(MEMBER, needed, call("hip", "ncclAllReduce", "ncclSend"))
        decisions = scene.decide()
        assert {item.subject for item in decisions.findings if item.level == "error"} == {"librccl.so.1"}
        assert "2 imports may be its: ncclAllReduce, ncclSend" in found(decisions, "RLK101").message
        assert only(decisions).edit.remove == ("libhipsolver.so.0", "librocprofiler-register.so.0")
        dropped = [item for item in decisions.findings if item.code == "RLK113"]
        assert {item.profile for item in dropped} == {"rocm"}
        assert all("is one of its names (table rocm)" in item.message for item in dropped)

    def test_what_a_substitute_lacks_counts_whatever_else_is_missing(self, scene: Scene) -> None:
        has = [f"hipblas{letter}gemm" for letter in "SDCZHKL"]
        scene.provide("lib/libhipblas.so.3", source=define(*has))
        names = [*has, "hipblasGemmEx_v2", "hipblasGemmStridedBatchedEx_v2", "ncclSend"]
        scene.member(MEMBER, ["libhipblas.so.2", "libroctracer64.so.4", "librccl.so.1"], call(*names))
        decisions = scene.decide()
        errors = {item.subject: item.message for item in decisions.findings if item.level == "error"}
        assert set(errors) == {"libhipblas.so.2", "librccl.so.1"}
        assert "libhipblas.so.3 has 7 of 9 symbols used, not hipblasGemm" in errors["libhipblas.so.2"]
        assert only(decisions).edit.remove == ("libroctracer64.so.4",)

    def test_a_name_that_nobody_owns_may_be_of_a_library_without_all_its_names(self, scene: Scene) -> None:
        """What libroctracer64 exports was never seen, so its table proves nothing about other names."""
        scene.provide("lib/libother.so.1")
        scene.member(MEMBER, ["libroctracer64.so.4", "librccl.so.1"], call("mystery", "ncclSend"))
        decisions = scene.decide()
        assert only(decisions).edit.remove == ()
        errors = {item.subject: item.message for item in decisions.findings if item.level == "error"}
        assert "1 import may be its: mystery" in errors["libroctracer64.so.4"]
        assert "2 imports may be its" in errors["librccl.so.1"]

    def test_what_is_dropped_by_the_table_leaves_the_import_open(self, scene: Scene) -> None:
        """All that libhipfft exports is in the table; the open import is an error all the same."""
        scene.provide("lib/libother.so.1")
        scene.member(MEMBER, ["libhipfft.so.0"], call("mystery"))
        decisions = scene.decide()
        assert only(decisions).edit.remove == ("libhipfft.so.0",)
        assert [item.code for item in decisions.findings if item.level == "error"] == ["RLK302"]

    def test_libraries_of_one_component_share_its_names(self, scene: Scene) -> None:
        scene.provide("lib/libother.so.1")
        scene.member(MEMBER, ["libhiprtc.so.9", "libamdhip64.so.9", "libfoo.so.1"], call("hipMalloc"))
        decisions = scene.decide()
        errors = {item.subject for item in decisions.findings if item.level == "error"}
        assert errors == {"libhiprtc.so.9", "libamdhip64.so.9"}
        assert only(decisions).edit.remove == ("libfoo.so.1",)

    @pytest.mark.parametrize("others", [(), ("librccl.so.1",)])
    def test_what_another_version_serves_by_chance_is_no_proof(
        self, scene: Scene, others: tuple[str, ...]
    ) -> None:
        """MIOpen brings librocblas.so.4: the imports bind to it, and the wheel was built for .so.5."""
        scene.provide("lib/librocblas.so.4", source=define("rocblas_sgemm"))
        scene.provide(
            "lib/libMIOpen.so.1", ["librocblas.so.4"], call("rocblas_sgemm") + define("miopenCreate")
        )
        names = ["miopenCreate", "rocblas_sgemm", *(["ncclSend"] if others else [])]
        scene.member(MEMBER, ["libMIOpen.so.1", "librocblas.so.5", *others], call(*names))
        decisions = scene.decide()
        assert only(decisions).edit.remove == ()
        errors = {item.subject: item.message for item in decisions.findings if item.level == "error"}
        assert "librocblas.so.4 has 1 of 1 symbols used" in errors["librocblas.so.5"]

    def test_a_version_record_says_more_than_the_table(self, scene: Scene) -> None:
        scene.provide("lib/libother.so.1")
        flags = [scene.versions("NONE_1:ncclNone")]
        named = scene.library(scene.root / "old" / "libhipfft.so.0", [], define("ncclNone"), flags)
        scene.member(MEMBER, ["librccl.so.1"], call("ncclNone", "ncclSend"), [str(named)])
        decisions = scene.decide()
        assert only(decisions).edit.remove == ()
        assert {item.subject for item in decisions.findings if item.level == "error"} == {
            "libhipfft.so.0",
            "librccl.so.1",
        }

    def test_what_is_truly_missing_is_named(self, scene: Scene) -> None:
        """The prefix has libblas.so.1: two libraries that this needs are what is missing."""
        scene.provide("lib/libblas.so.1", ["libdeep.so.1", "libdeeper.so.1"], define("blas"))
        scene.member(MEMBER, ["libblas.so.1"], call("blas"))
        errors = {item.subject for item in scene.decide().findings if item.level == "error"}
        assert errors == {"libdeep.so.1", "libdeeper.so.1"}

    def test_the_cache_is_no_directory(self, scene: Scene) -> None:
        scene.provide("lib/libhip.so.1", source=define("hip"))
        scene.member(MEMBER, ["libhip.so.1", "libtracer.so.4"], call("hip", "trace"))
        item = found(scene.decide(), "RLK101")
        assert ", ld.so.cache, " in item.message
        assert "/etc," not in item.message


class TestSuppliers:
    """What to do about an import that nothing in its closure exports: never "another ROCm" where this one has it."""

    def test_a_library_of_the_prefix_that_no_needed_names(self, scene: Scene) -> None:
        scene.provide("lib/libhip.so.7", source=define("hip", "hipMalloc"))
        scene.provide("lib/libother.so.1", source=define("other"))
        scene.member(MEMBER, ["libother.so.1"], call("other", "hip", "hipMalloc"))
        item = found(scene.decide(), "RLK302")
        assert item.remedy.startswith(
            "libhip.so.7 of the prefix exports all of them, and no NEEDED leads there"
        )

    def test_a_member_of_the_wheel(self, scene: Scene) -> None:
        scene.provide("lib/libother.so.1", source=define("other"))
        scene.member("demo/libtvm.so", source=define("tvm"))
        scene.member(MEMBER, ["libother.so.1"], call("other", "tvm"))
        item = found(scene.decide(), "RLK302")
        assert item.remedy.startswith("$WHEEL/demo/libtvm.so exports all of them: the package has to load it")

    def test_what_has_some_of_them_only_is_told(self, scene: Scene) -> None:
        scene.provide("lib/libhip.so.7", source=define("hip"))
        scene.provide("lib/libother.so.1", source=define("other"))
        scene.member(MEMBER, ["libother.so.1"], call("other", "hip", "gone"))
        item = found(scene.decide(), "RLK302")
        fix = RULES["RLK302"].fix
        assert item.remedy == (
            f"libhip.so.7 of the prefix has 1 of 2 symbols used, and nothing there gone: {fix[0].lower()}{fix[1:]}"
        )
        assert (item.step, item.choices) == (None, ())

    def test_symbols_of_python_that_this_one_lacks(self, scene: Scene) -> None:
        scene.provide("lib/libhip.so.1", source=define("hip"))
        for name in ("demo/a.so", "demo/b.so"):
            scene.member(name, ["libhip.so.1"], call("hip", "PyType_FromNowhere"))
        (cause,) = causes(item for item in scene.decide().findings if item.code == "RLK302")
        assert cause.message == "symbols of Python that the target's lacks are imported: PyType_FromNowhere"
        assert cause.subjects == ("$WHEEL/demo/a.so", "$WHEEL/demo/b.so")
        assert cause.remedy.startswith("The target's Python does not have them")
