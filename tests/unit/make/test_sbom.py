"""The bill of materials of an output; report/test_text.py has what it rests on."""

from __future__ import annotations

from msgspec.structs import replace

from relink.make.added_members import make_bill_of_materials
from relink.planning.model import (
    BASE_PREFIX,
    FilePlan,
    InterpreterChange,
    Plan,
    ProviderFacts,
    RpathChange,
    TargetFacts,
    WheelFacts,
)


def planned(*closure: tuple[str, str], changed: bool = True) -> Plan:
    path = RpathChange("/opt", "/p", "rpath", "runpath") if changed else RpathChange(None, None, None, None)
    file = FilePlan(
        "demo/a.so", "runpath" if changed else "nothing", (), path, InterpreterChange(None, None), closure
    )
    return Plan(
        WheelFacts("demo-1.0-py3-none-any.whl", "a" * 64, "demo", "1.0", ("py3-none-any",)),
        "demo-1.0+rocm7.whl",
        TargetFacts("/lib64/ld.so", "2.36", ("/lib",), "/usr/bin/python3"),
        (ProviderFacts("prefix", "/p", "7.2.4"),),
        (file,),
    )


def test_libraries_of_the_system_and_of_the_base_prefix_are_components() -> None:
    plan = planned(
        ("libz.so", "/p/libz.so"),
        ("liba.so", f"{BASE_PREFIX}/lib/liba.so"),
        ("libown.so", "$WHEEL/demo/libown.so"),
        ("prog", "$PREFIX/bin/prog"),
    )
    document = make_bill_of_materials(plan, "1.0+rocm7")
    paths = sorted(["/p/libz.so", f"{BASE_PREFIX}/lib/liba.so"])
    assert [item["bom-ref"] for item in document["components"]] == paths
    assert document["components"][paths.index("/p/libz.so")]["properties"] == [
        {"name": "relink:path", "value": "/p/libz.so"}
    ]


def test_the_ancestor_is_the_vendors_wheel() -> None:
    (ancestor,) = make_bill_of_materials(planned(), "1.0+rocm7")["metadata"]["component"]["pedigree"][
        "ancestors"
    ]
    assert ancestor["purl"] == "pkg:pypi/demo@1.0"
    assert ancestor["hashes"] == [{"alg": "SHA-256", "content": "a" * 64}]


def test_package_urls_are_as_scanners_have_them() -> None:
    plan = planned()
    plan = replace(plan, wheel=replace(plan.wheel, name="My_Demo", version="1!1.0+cu12"))
    component = make_bill_of_materials(plan, "1!1.0+cu12.rocm7")["metadata"]["component"]
    assert component["purl"] == "pkg:pypi/my-demo@1%211.0%2Bcu12.rocm7"
    assert component["pedigree"]["ancestors"][0]["purl"] == "pkg:pypi/my-demo@1%211.0%2Bcu12"


def test_another_content_has_another_serial_number() -> None:
    """Two prefixes of one release of ROCm, say: the outputs have one name and two contents."""
    one, other = planned(("libz.so", "/p/libz.so")), planned(("libz.so", "/q/libz.so"))
    moved = replace(other.files[0], rpath=replace(other.files[0].rpath, after="/q"))
    serials = {
        make_bill_of_materials(plan, "1.0+rocm7")["serialNumber"]
        for plan in (one, one, replace(other, files=(moved,)))
    }
    assert len(serials) == 2


def test_what_is_not_edited_brings_no_component() -> None:
    document = make_bill_of_materials(planned(("libz.so", "/p/libz.so"), changed=False), "1.0")
    assert document["components"] == []
