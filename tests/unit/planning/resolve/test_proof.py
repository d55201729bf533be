"""Proof before edit, on compiled libraries: what binds, what may be replaced, dropped or added, what comes twice or by dlopen."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

import relink.vendors.rocm.facts
from relink.elf.edit import ElfEdit, VersionEdit
from relink.elf.image import read_image
from relink.elf.patchelf import find_patchelf
from relink.elf.symbol_reader import read_symbols
from relink.loader.target import find_target
from relink.planning.model import FilePlan
from relink.planning.resolve.decide import PlanDraft, decide
from relink.planning.resolve.proof import Prover
from relink.planning.resolve.strategy import AddedNeeded
from relink.providers.distribution import Distribution
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
        decisions = decide(context)
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
        scene.provide("lib/librocsparse.so.6", source=define("six"))
        scene.provide("lib/librocsparse.so.7", source=define("seven"))
        scene.provide("lib/libblas.so.1", ["librocsparse.so.6"], define("blas"))
        scene.member(MEMBER, ["librocsparse.so.7", "libblas.so.1"], call("seven", "blas"))
        item = found(scene.decide(), "RLK130")
        assert item.level == "error"
        assert "a.so → libblas.so.1 → librocsparse.so.6" in item.message
        assert "a.so → librocsparse.so.7" in item.message

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
            ("libzstd", "5df4f4df", "demo/lib", "warning"),  # auditwheel puts its copies elsewhere
            ("libzstd", "15", "demo.libs", "warning"),  # a version, no hash
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
        is_copy = (level, more, directory) == ("warning", "5df4f4df", "demo.libs")
        assert ("is a copy that auditwheel put into the wheel" in item.message) is is_copy

    def test_two_copies_that_auditwheel_renamed_are_the_vendors_choice(self, scene: Scene) -> None:
        scene.provide("lib/libcurl.so.4", [], define("curl"))
        copies = [f"libzstd-{digits}.so.1" for digits in ("5df4f4df", "0badcafe")]
        for copy, name in zip(copies, ("one", "two"), strict=True):
            scene.member(f"demo.libs/{copy}", source=define(name))
        scene.member(MEMBER, copies, call("one", "two"), ["-Wl,-rpath,$ORIGIN/../demo.libs"])
        assert found(scene.decide(), "RLK130").level == "info"

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
        scene.provide("lib/librocsparse.so.6", source=define("six"))
        scene.provide("lib/librocsparse.so.7", source=define("seven"))
        origin = ["-Wl,--enable-new-dtags,-rpath,$ORIGIN"]
        plugin_path = origin if by_dlopen == "found" else []
        scene.provide("lib/libplugin.so.1", ["librocsparse.so.6"], define("plugin"), plugin_path)
        scene.provide("lib/libopens.so.1", [], opens("libplugin.so.1") + define("opens"), origin)
        scene.provide("lib/libblas.so.1", ["librocsparse.so.6"], define("blas"), origin)
        members = [
            ("demo/warned.so", ["librocsparse.so.7", "libopens.so.1"], call("seven", "opens")),
            ("demo/wrong.so", ["librocsparse.so.7", "libblas.so.1"], call("seven", "blas")),
        ]
        for place in order:
            scene.member(*members[place])
        twice = [item for item in scene.decide().findings if item.code == "RLK130"]
        assert [item.level for item in twice] == ["error"]
        assert "wrong.so → libblas.so.1 → librocsparse.so.6" in twice[0].message

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
        assert only(decisions).needed[-1].evidence == ("loaded first, since a library opens it (dlopen)",)
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
        assert (
            cause.message
            == f"2 files need up to hip_6.0 of libhip.so.7; libhip.so.7 ({lib}) goes up to hip_4.2"
        )

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


RUNTIME, BUILTINS = "libhip.so.7", "libbuiltins.so.7"


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
    prover = Prover(opening.context())
    outcome = prover.find_outcome(MEMBER)
    versions = (VersionEdit("libold.so.1", "OLD_1", RUNTIME, "OLD_1", weak=True),)
    asked = replace(outcome, edit=replace(outcome.edit, versions=versions))
    reasons = (AddedNeeded(BUILTINS, "dlopened"), AddedNeeded("libmore.so.7", "imported"))
    for number in (1, 2):
        asked = prover.add_needed(MEMBER, asked, reasons[number - 1 : number])
        assert (asked.needed, asked.edit.versions) == (reasons[:number], versions)
        assert asked.edit.add == tuple(reason.soname for reason in reasons[:number])


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
    assert edit_of(decide(context)).add == ()


@pytest.mark.parametrize("others", [(), HIP])
def test_a_library_of_the_release_that_no_prefix_has(scene: Scene, others: tuple[str, ...]) -> None:
    """The table says whose the names are that nothing exports; no package puts it into this prefix."""
    hip(scene, "7")
    (scene.prefix / ".info").mkdir()
    (scene.prefix / ".info/version").write_text("7.2.4\n")
    scene.member(MEMBER, [], call("miopenCreate", *others))
    context = replace(scene.context(), distribution=Distribution("Debian", "debian"))
    draft = decide(context)
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
    draft = decide(replace(context, target=replace(context.target, python=str(python))))
    assert "RLK303" not in codes(draft)
    assert "RLK302" in codes(draft) or edit_of(draft).add == ("libm.so.6",)


@pytest.mark.parametrize(("name", "is_open"), [("fmaxf", False), ("fmax_of_nobody", True)])
def test_libm_is_there_with_every_python(scene: Scene, name: str, is_open: bool) -> None:
    """Without a Python (``--interpreter`` alone), too; what libm lacks stays open."""
    scene.provide("lib/libother.so.1")
    source = f"extern float {name}(float, float); float u(float x){{return {name}(x, 2*x);}}"
    scene.member(MEMBER, [], source, ["-fno-builtin"])
    context = scene.context()
    draft = decide(replace(context, target=replace(context.target, python=None)))
    assert edit_of(draft).add == ()
    assert ("RLK302" in codes(draft)) is is_open
    told = [item.message for item in draft.findings if item.code == "RLK303"]
    assert all(name in text and "libm.so.6" in text for text in told)
    assert bool(told) is not is_open
