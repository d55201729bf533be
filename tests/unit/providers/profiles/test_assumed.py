"""A profile changes what is assumed, never what is proved; and what rests on it says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from relink.planning.model import NeededDecision
from relink.planning.options import Options
from relink.planning.resolve.decide import PlanDraft
from relink.providers.distribution import Distribution
from relink.providers.prefix import NIX_STORE
from relink.providers.profiles import DlopenEntry, EqualSonames, Hint, Profile, add_hints
from relink.runs.questions import verify_wheel
from relink.system.findings.model import Finding, finding
from relink.vendors.rocm.vendor import install, where_to_get
from tests.support.wheels import make_wheel
from tests.support.works import TAG
from tests.unit.planning.resolve.scenes import Scene, codes

MEMBER = "demo/a.so"
EQUAL = Profile("mine", same_abi=(EqualSonames(("liba.so.1", "liba.so.2"), "the vendor says so"),))


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    found = Scene(tmp_path)
    found.provide("lib/libother.so.1")
    return found


def one(decisions: PlanDraft, code: str) -> Finding:
    (found,) = [item for item in decisions.findings if item.code == code]
    return found


def entry(decisions: PlanDraft, soname: str, member: str = MEMBER) -> NeededDecision:
    (file,) = [file for file in decisions.files if file.path == member]
    (found,) = [item for item in file.needed if item.soname == soname]
    return found


# Equal sonames


def test_a_soname_that_is_known_to_be_equal_takes_the_place_and_says_by_whom(scene: Scene) -> None:
    scene.profile = EQUAL
    scene.provide("lib/liba.so.2", source="int start(void){return 1;}")
    scene.member(MEMBER, ["liba.so.1"], "int start(void); int g(void){return start();}")
    decisions = scene.decide()
    assert entry(decisions, "liba.so.1").soname_after == "liba.so.2"
    assert "profile mine: the vendor says so" in entry(decisions, "liba.so.1").evidence
    assert one(decisions, "RLK112").profile == "mine"
    assert codes(decisions) == ["RLK112"]


def test_known_to_be_equal_and_a_symbol_short_is_an_error_all_the_same(scene: Scene) -> None:
    scene.profile = EQUAL
    scene.provide("lib/liba.so.2", source="int start(void){return 1;}")
    scene.member(MEMBER, ["liba.so.1"], "int start(void), stop(void); int g(void){return start()+stop();}")
    decisions = scene.decide()
    assert entry(decisions, "liba.so.1").action == "keep"
    found = one(decisions, "RLK101")
    assert (found.level, found.profile) == ("error", None)
    assert "liba.so.2 has 1 of 2 symbols used, not stop" in found.message
    assert found.remedy.startswith("Use a prefix that has liba.so.1: liba.so.2 lacks")


def test_known_to_be_equal_and_another_version_of_the_symbol_is_an_error(scene: Scene) -> None:
    scene.profile = EQUAL
    flags = [scene.versions("V_2:start")]
    scene.provide("lib/liba.so.2", source="int start(void){return 1;}", flags=flags)
    old = scene.library(
        scene.root / "old" / "liba.so.1", [], "int start(void){return 1;}", [scene.versions("V_1:start")]
    )
    scene.root.joinpath("stubs").mkdir(exist_ok=True)
    scene.root.joinpath("stubs", "liba.so.1").write_bytes(old.read_bytes())
    scene.member(MEMBER, ["liba.so.1"], "int start(void); int g(void){return start();}")
    decisions = scene.decide()
    assert entry(decisions, "liba.so.1").action == "keep"
    assert "not start@V_1" in one(decisions, "RLK101").message


def test_two_libraries_are_never_equal(scene: Scene) -> None:
    scene.profile = Profile("mine", same_abi=(EqualSonames(("liba.so.1", "libb.so.1"), "nonsense"),))
    scene.provide("lib/libb.so.1", source="int start(void){return 1;}")
    scene.member(MEMBER, ["liba.so.1"], "int start(void); int g(void){return start();}")
    decisions = scene.decide()
    assert entry(decisions, "liba.so.1").action == "keep"
    assert one(decisions, "RLK101").level == "error"


# Preload


def preloading(scene: Scene, exports: str) -> PlanDraft:
    scene.member("demo/first.so", [], exports)
    scene.member(MEMBER, ["libother.so.1"], "int f(void), host(void); int g(void){return f()+host();}")
    return scene.decide()


def test_a_preloaded_member_supplies_what_it_exports_and_nothing_else(scene: Scene) -> None:
    scene.profile = Profile("mine", preload=("demo/first.so",))
    decisions = preloading(scene, "int host(void){return 1;}")
    assert one(decisions, "RLK303").profile == "mine"
    assert "RLK302" not in codes(decisions)


def test_a_preloaded_member_that_lacks_the_symbol_helps_nobody(scene: Scene) -> None:
    scene.profile = Profile("mine", preload=("demo/first.so",))
    decisions = preloading(scene, "int hosts(void){return 1;}")
    assert one(decisions, "RLK302").level == "error"
    assert "RLK303" not in codes(decisions)


def needing(scene: Scene) -> Path:
    """A wheel whose one library needs another that no search path leads to."""
    scene.profile = Profile("mine", preload=("demo/first/libfirst.so",))
    first = scene.member("demo/first/libfirst.so", [], "int host(void){return 1;}")
    source = "int f(void), host(void); int g(void){return f()+host();}"
    second = scene.member(MEMBER, ["libfirst.so", "libother.so.1"], source)
    return make_wheel(scene.root, {"demo/first/libfirst.so": first, MEMBER: second}, tag=TAG)


def test_a_library_that_only_a_preload_brings_is_told(scene: Scene) -> None:
    needing(scene)
    decisions = scene.decide()
    found = one(decisions, "RLK115")
    assert (found.level, found.subject, found.profile) == ("info", "libfirst.so", "mine")
    assert "needed by $WHEEL/demo/a.so" in found.message
    assert entry(decisions, "libfirst.so").evidence == ("profile mine: the package loads it before",)
    scene.profile = Profile("none")
    assert "RLK123" in codes(scene.decide())  # then a search path entry has to lead there


def test_a_library_that_is_found_anyway_rests_on_no_preload(scene: Scene) -> None:
    scene.profile = Profile("mine", preload=("demo/libfirst.so",))
    scene.member("demo/libfirst.so", [], "int host(void){return 1;}")
    flags = ["-Wl,--enable-new-dtags,-rpath,$ORIGIN"]
    scene.member(MEMBER, ["libfirst.so"], "int host(void); int g(void){return host();}", flags)
    assert codes(scene.decide()) == []


@pytest.mark.slow(reason="a whole run")
def test_the_loader_is_asked_without_the_profile_and_says_what_is_missing(
    scene: Scene, tmp_path: Path
) -> None:
    wheel = needing(scene)
    path = tmp_path / "mine.toml"
    path.write_text('schema = "relink.profile/1"\npreload = ["demo/first/libfirst.so"]\n')
    assumed = verify_wheel(wheel, Options(profile=str(path)))
    (found,) = [item for item in assumed.findings if item.subject == "libfirst.so"]
    assert (found.code, found.profile) == ("RLK115", "mine")
    assert assumed.maps[MEMBER].missing == ("libfirst.so", "libother.so.1")
    plain = verify_wheel(wheel, Options())
    assert {item.subject for item in plain.findings if item.code == "RLK101"} == {
        "libfirst.so",
        "libother.so.1",
    }


def test_a_preload_that_is_no_member_helps_nobody(scene: Scene) -> None:
    scene.profile = Profile("mine", preload=("demo/nowhere.so",))
    assert "RLK302" in codes(preloading(scene, "int host(void){return 1;}"))


def test_a_drop_that_needs_the_preload_says_so(scene: Scene) -> None:
    scene.profile = Profile("mine", preload=("demo/first.so",))
    scene.member("demo/first.so", [], "int host(void){return 1;}")
    source = "int f(void), host(void); int g(void){return f()+host();}"
    scene.member(MEMBER, ["libother.so.1", "libidle.so.1"], source, ["-Wl,--no-as-needed"])
    decisions = scene.decide()
    assert entry(decisions, "libidle.so.1").action == "drop"
    assert one(decisions, "RLK113").profile == "mine"
    assert any(
        "profile mine" in sentence and "host" in sentence
        for sentence in entry(decisions, "libidle.so.1").evidence
    )
    scene.profile = Profile("none")
    assert entry(scene.decide(), "libidle.so.1").action == "keep"


def test_a_drop_that_needs_no_preload_rests_on_nothing(scene: Scene) -> None:
    scene.profile = Profile("mine", preload=("demo/first.so",))
    scene.member("demo/first.so", [], "int host(void){return 1;}")
    source = "int f(void); int g(void){return f();}"
    scene.member(MEMBER, ["libother.so.1", "libidle.so.1"], source, ["-Wl,--no-as-needed"])
    found = one(scene.decide(), "RLK113")
    assert (found.profile, "profile" in found.message) == (None, False)


# Search path entries, variants, dlopen


def test_entries_into_the_wheel_are_not_a_profiles_to_drop(scene: Scene) -> None:
    scene.profile = Profile("mine", rpath_drop=("$ORIGIN*",))
    scene.member("demo/lib/libown.so.1", [], "int own(void){return 1;}")
    flags = ["-Wl,--enable-new-dtags,-rpath,$ORIGIN/lib:$ORIGIN/../other/lib"]
    scene.member(MEMBER, ["libown.so.1", "libother.so.1"], "int f(void); int g(void){return f();}", flags)
    decisions = scene.decide()
    (file,) = [file for file in decisions.files if file.path == MEMBER]
    assert (file.rpath.after or "").split(":")[0] == "$ORIGIN/lib"
    assert entry(decisions, "libown.so.1").origin == "wheel"
    assert one(decisions, "RLK204").profile == "mine"


def test_a_variant_that_lacks_a_library_is_left_byte_for_byte_and_told(scene: Scene) -> None:
    scene.profile = Profile("mine", variants=("demo/lib_rocm*.so",))
    scene.member("demo/lib_rocm6.so", ["libgone.so.6"], "int old(void); int g(void){return old();}")
    scene.member("demo/lib_rocm7.so", ["libother.so.1"], "int f(void); int g(void){return f();}")
    decisions = scene.decide()
    assert one(decisions, "RLK103").profile == "mine"
    assert [file.path for file in decisions.files if file.changed] == ["demo/lib_rocm7.so"]


def test_what_a_member_dlopens_is_told_with_the_profile_that_knows(scene: Scene) -> None:
    scene.profile = Profile("mine", dlopen=(DlopenEntry("demo/*.so", ("libplugin.so.*",), "when asked"),))
    scene.member(MEMBER, ["libother.so.1"], "int f(void); int g(void){return f();}")
    found = one(scene.decide(), "RLK120")
    assert (found.level, found.subject, found.profile) == ("info", "libplugin.so.*", "mine")
    assert "$WHEEL/demo/a.so (known by profile mine: when asked)" in found.message
    scene.provide("lib/libplugin.so.3")
    assert "RLK120" not in codes(scene.decide())  # the member's new search path leads to it


def test_only_the_member_that_the_profile_names_dlopens(scene: Scene) -> None:
    scene.profile = Profile("mine", dlopen=(DlopenEntry(MEMBER, ("libplugin.so.1",), "when asked"),))
    for member in (MEMBER, "demo/b.so"):
        scene.member(member, ["libother.so.1"], "int f(void); int g(void){return f();}")
    assert "demo/b.so" not in one(scene.decide(), "RLK120").message


# Advice


def test_hints_are_added_to_the_remedies_they_fit() -> None:
    profile = Profile("mine", hints=(Hint("RLK101", "Do this.", "libx*"), Hint("RLK1*", "And that.")))
    found = [
        finding("RLK101", "libx.so.1", "m", "Remedy."),
        finding("RLK101", "liby.so.1", "m", "Remedy."),
        finding("RLK201", "libx.so.1", "m", "Remedy."),
    ]
    told = list(add_hints(found, profile))
    assert [item.remedy for item in told] == [
        "Remedy. Do this. (profile mine) And that. (profile mine)",
        "Remedy. And that. (profile mine)",
        "Remedy.",
    ]
    assert [replace(item, remedy="Remedy.") for item in told] == found  # what was found is what it was
    assert list(add_hints(found, Profile("none"))) == found


@pytest.mark.parametrize(
    ("distribution", "soname", "sentence"),
    [
        (
            Distribution("Debian GNU/Linux", "debian"),
            "librocm_smi64.so.1",
            "librocm_smi64.so.1 is part of ROCm SMI; on Debian GNU/Linux: apt install librocm-smi64-1.",
        ),
        (
            Distribution("Fedora Linux", "fedora"),
            "librocblas.so.5",
            "librocblas.so.5 is part of rocBLAS; on Fedora Linux: dnf install rocblas, if its release has this version.",
        ),
        (
            Distribution("Arch Linux", "arch"),
            "libamdhip64.so.7",
            "libamdhip64.so.7 is part of HIP; on Arch Linux: pacman -S hip-runtime-amd, if its release has this version.",
        ),
        (
            Distribution("NixOS", "nixos"),
            "libamdhip64.so.7",
            "libamdhip64.so.7 is part of HIP: rocmPackages.clr in nixpkgs.",
        ),
        (Distribution("NixOS", "nixos"), "libamdhip64.so.99", "libamdhip64.so.99 is part of HIP."),
        (Distribution("Debian", "debian"), "libamdhip64.so.99", "libamdhip64.so.99 is part of HIP."),
        (Distribution("openSUSE", None), "librocblas.so.5", "librocblas.so.5 is part of rocBLAS."),
        (None, "librocblas.so.5", "librocblas.so.5 is part of rocBLAS."),
        (Distribution("Debian", "debian"), "libmine.so.1", None),
    ],
)
def test_where_a_library_is_to_be_had(
    scene: Scene, distribution: Distribution | None, soname: str, sentence: str | None
) -> None:
    context = replace(scene.context(), distribution=distribution, providers=())
    assert where_to_get(soname, context.distribution, context.providers) == sentence


def test_no_package_is_named_for_a_prefix_that_packages_put_nothing_into(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Distribution("Debian", "debian")
    elsewhere, at_home = scene.context().providers[0], replace(scene.context().providers[0], path="/usr")
    assert where_to_get("librccl.so.1", there, [elsewhere]) == "librccl.so.1 is part of RCCL."
    assert install("librccl.so.1", there, [elsewhere]) is None
    assert install("librccl.so.1", there, [at_home]) == "apt install librccl1"
    monkeypatch.setattr(
        Distribution, "command", lambda _, package, *__: package if package.endswith("-7") else None
    )
    # The index has the library of the same ABI under another number alone.
    assert install("librocm_smi64.so.1", there, [at_home]) == "librocm-smi64-7"
    assert install("librccl.so.1", there, [at_home]) is None


def test_beside_a_nix_store_it_is_the_attribute(scene: Scene) -> None:
    context = scene.context()
    provider = replace(context.providers[0], kind=NIX_STORE)
    there = replace(context, providers=(provider,), distribution=Distribution("Debian", "debian"))
    assert (
        where_to_get("librocblas.so.5", there.distribution, there.providers)
        == "librocblas.so.5 is part of rocBLAS: rocmPackages.rocblas in nixpkgs."
    )
    assert (
        where_to_get("libhipsparselt.so.0", there.distribution, there.providers)
        == "libhipsparselt.so.0 is part of hipSPARSELt: rocmPackages.hipsparselt in nixpkgs."
    )


def test_the_remedy_of_a_missing_library_says_it(scene: Scene) -> None:
    scene.member(MEMBER, ["librccl.so.1"], "int start(void); int g(void){return start();}")
    assert one(scene.decide(), "RLK101").remedy.endswith(" librccl.so.1 is part of RCCL.")
