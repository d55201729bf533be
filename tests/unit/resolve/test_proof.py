"""Proof before edit, on compiled libraries: what binds, what may be replaced or dropped, what is loaded twice or by dlopen."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import relink.rocm.facts
from relink.elf.image import read_image
from relink.elf.patchelf import find_patchelf
from relink.elf.symbol_reader import read_symbols
from relink.findings.model import Finding
from relink.plans.model import FilePlan
from relink.profiles import DlopenEntry, EqualSonames, Profile
from relink.resolve.decide import PlanDraft
from tests.unit.resolve.scenes import Scene, codes

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


def define(*names: str) -> str:
    return "".join(f"int {name}(void){{return 1;}} " for name in names)


def opens(soname: str) -> str:
    opening = "extern void *dlopen(const char *, int); void *opened(void){return dlopen(name(), 1);} "
    return f'const char *name(void){{return "{soname}";}} {opening}'


def call(*names: str) -> str:
    uses = "+".join(f"{name}()" for name in names)
    return "".join(f"extern int {name}(void); " for name in names) + f"int uses(void){{return {uses};}}"


@pytest.fixture
def one_abi(monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile that knows libsmi.so.1 and libsmi.so.7 as one ABI."""
    facts = relink.rocm.facts.rocm_facts()
    known = type(facts)((EqualSonames(("libsmi.so.1", "libsmi.so.7"), "they are the same"),), facts.dlopen)
    monkeypatch.setattr(relink.rocm.facts, "rocm_facts", lambda: known)


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
        assert "libsmi.so.7 exports 2 of 2 imports" in item.message
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
        assert "exports 1 of 2 imports, not smi_gone" in item.message
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
        facts = relink.rocm.facts.rocm_facts()
        entry = DlopenEntry("libhip.so", ("libbuiltins.so.*",), "it compiles")
        known = type(facts)(facts.same_abi, (entry,))
        monkeypatch.setattr(relink.rocm.facts, "rocm_facts", lambda: known)
        scene.provide("lib/libbuiltins.so.7", source=define("builtins"))
        scene.provide("lib/libhip.so.7", [], define("hip"))
        scene.member(MEMBER, ["libhip.so.7"], call("hip"))
        item = found(scene.decide(), "RLK120")
        assert item.subject == "libbuiltins.so.7"
        assert "known by profile rocm: it compiles" in item.message
