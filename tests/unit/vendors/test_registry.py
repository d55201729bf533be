"""The registry: a second vendor is its own package and one line, and no message takes one vendor's libraries for another's."""

from __future__ import annotations

import ast
from dataclasses import fields, replace
from pathlib import Path

import pytest

from relink.library import relink
from relink.loader.target import find_target
from relink.providers.prefix import Provider
from relink.report.summary import verdict
from relink.report.text import header_text
from relink.system.errors import UsageError
from relink.system.shipped_files import PACKAGE
from relink.vendors import registry
from relink.vendors.protocol import NO_VENDOR, Gpus, Libraries, Packages, Place, Places, Release
from relink.vendors.rocm.vendor import rocm
from tests.support.cc import shared
from tests.support.vendors import fake_vendor
from tests.support.works import Works


def is_of_acme(soname: str) -> bool:
    return soname.startswith("libacme")


def release(provider: Provider, _sysroot: str = "/") -> Release | None:
    return Release("3.1", "libacme.so.3", "acme3.1") if provider.find("libacme.so.3") else None


ACME = fake_vendor(
    "acme",
    product="ACME",
    runtime="libacme.so",
    runtime_name="ACME runtime",
    has=is_of_acme,
    is_own=is_of_acme,
    release_of=release,
)
"""All that a second vendor has to say before it is taken into account."""


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "VENDORS", (rocm, ACME))


PARTS = {"libraries": Libraries, "places": Places, "packages": Packages, "gpus": Gpus}


def test_every_question_is_documented_and_answered_by_the_first_vendor() -> None:
    for part, kind in PARTS.items():
        for field in fields(kind):
            assert f":ivar {field.name}:" in (kind.__doc__ or ""), field.name
            assert getattr(getattr(rocm, part), field.name) != getattr(getattr(NO_VENDOR, part), field.name)


def test_the_protocol_has_what_other_packages_ask_and_no_more() -> None:
    """Each name is read of a vendor somewhere outside of the vendors' own packages."""
    paths = [path for path in PACKAGE.rglob("*.py") if not path.is_relative_to(PACKAGE / "vendors" / "rocm")]
    asked = {
        (node.value.attr, node.attr)
        for path in paths
        if "endor" in (source := path.read_text("utf-8"))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute)
    }
    names = {(part, field.name) for part, kind in PARTS.items() for field in fields(kind)}
    assert sorted(names - asked) == []


@pytest.mark.usefixtures("two")
def test_a_wheel_is_the_vendor_s_whose_libraries_it_needs() -> None:
    assert registry.vendor_of({"libacme.so.3", "libc.so.6"}) is ACME
    assert registry.vendor_of({"libamdhip64.so.7", "libc.so.6"}) is rocm
    assert registry.vendor_of(()) is rocm
    assert registry.products() == "ROCm or ACME"
    assert registry.vendor_that_has("libcublas.so.12") is None


@pytest.mark.usefixtures("two")
def test_a_wheel_of_the_second_vendor_is_relinked(works: Works, tmp_path: Path) -> None:
    prefix = tmp_path / "acme"
    library = shared(prefix / "lib" / "libacme.so.3", "int acme(void){return 1;}")
    member = shared(tmp_path / "a.so", "int acme(void); int f(void){return acme();}", needed=[library])
    wheel = works.wheel(tmp_path, {"demo/__init__.py": b"", "demo/a.so": member})
    report = relink(wheel, replace(works.options(tmp_path / "out"), prefixes=(str(prefix),)))
    assert report.output is not None
    assert "-1.0+acme3.1-" in report.output.path
    assert "with ACME 3.1 in" in header_text(report, verdict(report))[1].plain
    again = relink(
        Path(report.output.path), replace(works.options(tmp_path / "more"), prefixes=(str(prefix),))
    )
    assert verdict(again).text.startswith("Already relinked for this ACME:")


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize(
    ("soname", "product"),
    [
        ("libacmeblas.so.3", "ACME"),
        ("librocblas.so.99", "ROCm"),
        ("libcudart.so.12", "prefix"),
        ("libcublas.so.12", "prefix"),
    ],
)
def test_a_product_is_advised_for_its_own_libraries_alone(
    works: Works, tmp_path: Path, soname: str, product: str
) -> None:
    lost = shared(tmp_path / "stubs" / soname, "int lost(void){return 0;}")
    source = "int hip(void), lost(void); int f(void){return hip() + lost();}"
    member = shared(tmp_path / "a.so", source, needed=[works.prefix / "lib/libhip.so.7", lost])
    wheel = works.wheel(tmp_path, {"demo/__init__.py": b"", "demo/a.so": member})
    report = relink(wheel, works.options(tmp_path / "out"))
    assert [found.subject for found in report.findings if found.code == "RLK101"] == [soname]
    assert verdict(report).step == f"a {product} that has {soname} (--prefix DIR), then the same command"
    if product != "ROCm":
        assert "ROCm" not in str([found for found in report.findings if found.level == "error"])


def test_places_are_asked_of_each_vendor_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    none = fake_vendor("none", product="Nothing", variable="NOTHING_PATH")
    here = fake_vendor("here", choose=lambda *_: Place("/acme", "/opt"))
    target = find_target()
    monkeypatch.setattr(registry, "VENDORS", (none, here))
    assert registry.choose_place(target, {}, own=True) == Place("/acme", "/opt")
    monkeypatch.setattr(registry, "VENDORS", (none, NO_VENDOR))
    with pytest.raises(UsageError, match=r"no Nothing or release: .* set NOTHING_PATH or LD_LIBRARY_PATH"):
        registry.choose_place(target, {}, own=True)
