"""Target ids: form, order, and which code runs on which GPU; the shipped table of processors, and a damaged one."""

from __future__ import annotations

import pytest

from relink.gpu.amd.target_id import (
    CodeTarget,
    configurations,
    load_table,
    match,
    parse_bundle_id,
    parse_target_id,
    processor_for,
    sort_key,
    table,
)
from relink.gpu.coverage import TargetId
from relink.system.errors import RelinkError, UsageError


def test_the_table_holds_together() -> None:
    isa = table()
    for generic in isa.generics.values():
        assert {*generic.members, *generic.unmapped} <= set(isa.processors)
        assert all(set(isa.features(m) or ()) >= set(generic.features) & {"sramecc"} for m in generic.members)
    for row in isa.workarounds:
        major, minor, step = map(int, row.override.split("."))
        assert row.stands_in == f"gfx{major}{minor:x}{step:x}"
        assert set(row.processors) <= set(isa.processors)
    assert isa.machines[0x40] == "gfx940"
    assert isa.library("librocblas.so.5").name == "rocBLAS"  # type: ignore[union-attr]
    assert isa.library("libc.so.6") is None


@pytest.mark.parametrize(
    ("processor", "families"),
    [
        ("gfx1151", ("gfx115x", "gfx11")),
        ("gfx1201", ("gfx12-0",)),
        ("gfx1250", ("gfx12-5",)),
        ("gfx950", ("gfx9-4",)),
        ("gfx1030", ()),
    ],
)
def test_the_families_that_device_packages_are_named_for(processor: str, families: tuple[str, ...]) -> None:
    assert table().families_of(processor) == families


def test_a_damaged_table_is_said_so() -> None:
    with pytest.raises(RelinkError, match=r"isa\.toml"):
        load_table({"processors": {}})
    double = {
        "sources": {}, "workarounds": [], "libraries": [], "runtimes": [], "kpack": {"falls_through": "7.16"},
        "processors": {"table": [{"name": "gfx1", "mach": 1}, {"name": "gfx2", "mach": 1}]},
        "generics": {"joined": 1, "table": []},
    }  # fmt: skip
    with pytest.raises(RelinkError, match="twice"):
        load_table(double)


def codes(*texts: str, generic: int | None = None) -> list[CodeTarget]:
    return [CodeTarget(parse_target_id(text), generic if "generic" in text else None) for text in texts]


def served(agent: str, *texts: str, generic: int | None = None) -> list[str]:
    return [str(t) for t in match(codes(*texts, generic=generic), parse_target_id(agent)).served]


def test_features_are_put_in_alphabetical_order() -> None:
    assert str(parse_target_id("gfx90a:xnack-:sramecc+")) == "gfx90a:sramecc+:xnack-"
    assert parse_target_id("gfx90a:xnack-").feature("xnack") is False
    assert parse_target_id("gfx90a").feature("xnack") is None


@pytest.mark.parametrize(
    "text",
    ["", "gfx90a:xnack", "gfx90a:xnack+:xnack-", "90a", ":xnack+", "gfx90a:", "gfx 1", "a" + "-" * 300],
)
def test_what_is_no_target_id_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no target id"):
        parse_target_id(text)


@pytest.mark.parametrize(
    ("text", "kind", "target"),
    [
        ("hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-", "hipv4", "gfx90a:xnack-"),
        ("hip-amdgcn-amd-amdhsa--gfx9-4-generic:xnack-", "hip", "gfx9-4-generic:xnack-"),
        ("hip-amdgcn-amd-amdhsa--gfx90a:xnack-:sramecc+", "hip", "gfx90a:sramecc+:xnack-"),
        ("hipv4-spirv64-amd-amdhsa--amdgcnspirv", "hipv4", "amdgcnspirv"),
        ("hipv4-spirv64-amd-amdhsa-unknown-amdgcnspirv", "hipv4", "amdgcnspirv"),
        ("openmp-amdgcn-amd-amdhsa--gfx1030", "openmp", "gfx1030"),
    ],
)
def test_bundle_ids(text: str, kind: str, target: str) -> None:
    parsed, is_hip = parse_bundle_id(text)
    assert str(parsed) == target
    assert is_hip == (kind != "openmp")


@pytest.mark.parametrize(
    "text",
    [
        "host-x86_64-unknown-linux-gnu-",
        "host-x86_64-unknown-linux--",
        "",
        "hip",
        "hip-nvptx64-nvidia-cuda--sm_80",
        "hipv4-amdgcn-amd-amdhsa--",
        # comgr takes none of these (tests/real/test_comgr_agreement.py).
        "hip-amdgcn-amd-amdhsa-unknown-gfx1030",
        "hip-amdgcn-amd-amdhsa-gfx906",
        "hipv4-amdgcn-amd-amdpal--gfx1030",
        "hipv4-amdgcn--amdhsa--gfx1030",
        "hipv4-amdgcn-amd-amdhsa--gfx1030\0",
        "hipv4-amdgcn-amd-amdhsa--amdgcnspirv",
        "hipv4-spirv64-amd-amdhsa--gfx1030",
        "hipv4-spirv64-amd-amdhsa--amdgcnspirv:xnack+",
    ],
)
def test_bundle_ids_without_an_amd_target(text: str) -> None:
    assert parse_bundle_id(text) == (None, False)


def test_code_that_names_no_feature_runs_on_all() -> None:
    assert len(configurations(parse_target_id("gfx90a"))) == 4
    assert len(served("gfx90a", "gfx90a")) == 4
    assert served("gfx1030", "gfx1030") == ["gfx1030"]


def test_xnack_only_code_serves_half_of_the_configurations() -> None:
    assert served("gfx90a", "gfx90a:xnack-") == ["gfx90a:sramecc-:xnack-", "gfx90a:sramecc+:xnack-"]
    assert len(served("gfx90a", "gfx90a:xnack-", "gfx90a:xnack+")) == 4
    assert served("gfx90a:sramecc+", "gfx90a:xnack-") == ["gfx90a:sramecc+:xnack-"]
    assert served("gfx90a:sramecc+", "gfx90a:sramecc-") == []


def test_a_feature_that_the_processor_does_not_have_never_matches() -> None:
    assert served("gfx1030", "gfx1030:xnack+", "gfx1030:xnack-") == []


@pytest.mark.parametrize(
    ("agent", "generic"),
    [
        ("gfx1031", "gfx10-3-generic"),
        ("gfx1151", "gfx11-generic"),
        ("gfx1201", "gfx12-generic"),
        ("gfx90c", "gfx9-generic"),
        ("gfx1012", "gfx10-1-generic"),
        ("gfx942", "gfx9-4-generic"),
    ],
)
def test_generic_targets_serve_their_members(agent: str, generic: str) -> None:
    found = match(codes(generic, generic=1), TargetId(agent))
    assert len(found.served) == found.total
    assert set(found.via) == {"generic"}


@pytest.mark.parametrize(
    ("agent", "generic"),
    [
        ("gfx908", "gfx9-generic"),
        ("gfx90a", "gfx9-generic"),
        ("gfx1250", "gfx12-generic"),
        ("gfx1030", "gfx10-1-generic"),
    ],
)
def test_generic_targets_do_not_serve_others(agent: str, generic: str) -> None:
    assert match(codes(generic, generic=1), TargetId(agent)).served == ()


def test_generic_code_older_than_the_processor_does_not_run() -> None:
    assert match(codes("gfx11-generic", generic=0), TargetId("gfx1100")).served == ()


def test_generic_features_are_the_agents() -> None:
    assert served("gfx942:sramecc+", "gfx9-4-generic:xnack-", generic=1) == ["gfx942:sramecc+:xnack-"]


def test_native_code_is_preferred_to_generic_and_that_to_spirv() -> None:
    agent = TargetId("gfx1100")
    assert match(codes("amdgcnspirv", "gfx11-generic", "gfx1100"), agent).via == ("native",)
    assert match(codes("amdgcnspirv", "gfx11-generic"), agent).via == ("generic",)
    assert match(codes("amdgcnspirv"), agent).via == ("spirv",)


def test_an_unknown_processor_may_have_both_features() -> None:
    assert len(configurations(TargetId("gfx1999"))) == 4
    assert len(served("gfx1999", "gfx1999")) == 4


def test_order_is_by_version_and_not_by_text() -> None:
    names = ["gfx1201", "gfx90a", "gfx1030", "gfx908", "weird", "gfx11-generic", "gfx1100", "gfx9-4-generic"]
    assert sorted(names, key=sort_key) == [
        "gfx908", "gfx90a", "gfx9-4-generic", "gfx1030", "gfx1100", "gfx11-generic", "gfx1201", "weird",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "processor"),
    [
        ("RX 6750 XT", "gfx1031"),
        ("AMD Radeon RX 6750 XT", "gfx1031"),
        ("gfx1031", "gfx1031"),
        ("MI300X", "gfx942"),
        ("780m", "gfx1103"),
        ("Radeon VII", "gfx906"),
        ("GFX90A:xnack-", "gfx90a"),
    ],
)
def test_a_gpu_may_be_named_by_its_product(text: str, processor: str) -> None:
    assert processor_for(text).processor == processor


def test_an_unknown_product_is_refused() -> None:
    with pytest.raises(UsageError, match="gfx"):
        processor_for("geforce")
