"""The registry: a second vendor is its own package and one line, and no message takes one vendor's libraries for another's."""

from __future__ import annotations

import ast
import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from relink.library import relink
from relink.loader.target import find_target
from relink.planning.checks.machine import check_machine, to_json
from relink.planning.options import Options
from relink.report.model import Report
from relink.report.summary import verdict
from relink.report.text import doctor_text, header_text
from relink.system.errors import UsageError
from relink.system.shipped_files import PACKAGE
from relink.vendors import registry
from relink.vendors.protocol import NO_VENDOR, Gpus, Libraries, Packages, Place, Places
from relink.vendors.rocm.vendor import rocm
from tests.support.acme import ACME, acme_code
from tests.support.cc import shared
from tests.support.command import Run
from tests.support.vendors import fake_vendor
from tests.support.wheels import make_wheel
from tests.support.works import TAG, Works
from tests.unit.gpu.amd.build import entries_of, raw
from tests.unit.gpu.amd.test_device import node
from tests.unit.gpu.amd.test_survey import fat

SLOW = pytest.mark.slow(reason="every module is parsed, or two vendors are asked")


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "VENDORS", (rocm, ACME))


PARTS = {"libraries": Libraries, "places": Places, "packages": Packages, "gpus": Gpus}


def test_every_question_is_documented_and_answered_by_the_first_vendor() -> None:
    for part, kind in PARTS.items():
        for name in kind.__struct_fields__:
            assert f":ivar {name}:" in (kind.__doc__ or ""), name
            assert getattr(getattr(rocm, part), name) != getattr(getattr(NO_VENDOR, part), name)


@SLOW
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
    names = {(part, name) for part, kind in PARTS.items() for name in kind.__struct_fields__}
    assert sorted(names - asked) == []


@pytest.mark.usefixtures("two")
def test_a_wheel_is_the_vendor_s_whose_libraries_it_needs() -> None:
    assert registry.vendor_of({"libacme.so.3", "libc.so.6"}) is ACME
    assert registry.vendor_of({"libamdhip64.so.7", "libc.so.6"}) is rocm
    assert registry.vendor_of(()) is rocm
    assert registry.list_products() == "ROCm or ACME"
    assert registry.vendor_that_has("libcublas.so.12") is None


@pytest.mark.usefixtures("two")
def test_a_wheel_of_the_second_vendor_is_relinked(works: Works, tmp_path: Path) -> None:
    prefix = tmp_path / "acme"
    library = shared(prefix / "lib" / "libacme.so.3", "int acme(void){return 1;}")
    member = shared(tmp_path / "a.so", "int acme(void); int f(void){return acme();}", needed=[library])
    wheel = works.wheel(tmp_path, {"demo/__init__.py": b"", "demo/a.so": member})
    report = relink(wheel, dataclasses.replace(works.options(tmp_path / "out"), prefixes=(str(prefix),)))
    assert report.output is not None
    assert "-1.0+acme3.1-" in report.output.path
    assert "with ACME 3.1 in" in header_text(report, verdict(report))[1].plain


@pytest.mark.few(2, reason="the same of other values")
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


CODES = ("RLK101", "RLK401")


@dataclass(frozen=True)
class Scene:
    """A prefix of each vendor, and wheels for the one, for the other, and with a variant for each."""

    rocm: Path
    acme: Path
    wheels: dict[str, Path]

    def relink(self, name: str, output: Path, *prefixes: Path, gpus: tuple[str, ...] = ()) -> Report:
        options = Options(prefixes=tuple(map(str, prefixes)), output_directory=output, gpus=gpus)
        return relink(self.wheels[name], options)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    for module in ("relink.vendors.registry", "relink.planning.checks.machine"):
        monkeypatch.setattr(f"{module}.VENDORS", (rocm, ACME))
    theirs, own = tmp_path / "acme", tmp_path / "rocm"
    library = shared(theirs / "lib" / "libacme.so.3", "int acme(void){return 1;}")
    shared(own / "lib" / "libamdhip64.so.7", "int stub;")
    (own / ".info").mkdir()
    (own / ".info" / "version").write_text("7.2.4-1\n")
    for_rocm = fat(tmp_path / "members" / "hip.so", raw(entries_of("gfx1030")), "libamdhip64.so.7")
    source = "int acme(void); int f(void){return acme();}" + acme_code("sm90")
    for_acme = shared(tmp_path / "members" / "acme.so", source, needed=[library])
    both = {
        "bitsandbytes/libbitsandbytes_rocm72.so": for_rocm,
        "bitsandbytes/libbitsandbytes_acme3.so": for_acme,
    }
    wheels = {
        "rocm": make_wheel(tmp_path, {"demo/hip.so": for_rocm}, name="forrocm", tag=TAG),
        "acme": make_wheel(tmp_path, {"demo/acme.so": for_acme}, name="foracme", tag=TAG),
        "both": make_wheel(tmp_path, both, name="bitsandbytes", tag=TAG),
    }
    return Scene(own, theirs, wheels)


def facts(report: Report) -> tuple[str, list[str | None], list[str]]:
    """The output's local version, the releases of its providers, and the errors."""
    local = report.plan.output.split("-")[1].partition("+")[2]
    releases = [provider.rocm_version for provider in report.plan.providers]
    return local, releases, [found.code for found in report.findings if found.level == "error"]


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("name", ["rocm", "acme"])
def test_a_wheel_gets_the_place_of_the_vendor_whose_libraries_it_needs(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("ROCM_PATH", str(scene.rocm))
    monkeypatch.setenv("ACME_PATH", str(scene.acme))
    report = scene.relink(name, tmp_path / "out")
    prefix, release = {"rocm": (scene.rocm, "7.2.4"), "acme": (scene.acme, "3.1")}[name]
    assert [provider.path for provider in report.plan.providers] == [str(prefix)]
    assert facts(report) == (f"{name}{release}", [release], [])
    assert report.output is not None
    product = {"rocm": "ROCm", "acme": "ACME"}[name]
    assert f"with {product} {release} in" in header_text(report, verdict(report))[1].plain


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("name", ["rocm", "acme"])
def test_a_wheel_with_a_variant_for_each_vendor_is_linked_to_the_one_whose_prefix_is_named(
    scene: Scene, tmp_path: Path, name: str
) -> None:
    prefix, release = {"rocm": (scene.rocm, "7.2.4"), "acme": (scene.acme, "3.1")}[name]
    report = scene.relink("both", tmp_path / "out", prefix)
    assert facts(report) == (f"{name}{release}", [release], [])
    assert any(name in file.path and file.served for file in report.plan.files)
    product = {"rocm": "ROCm", "acme": "ACME"}[name]
    assert f"with {product} {release} in" in header_text(report, verdict(report))[1].plain


def test_of_two_places_for_a_wheel_with_a_variant_for_each_none_is_guessed(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCM_PATH", str(scene.rocm))
    assert facts(scene.relink("both", tmp_path / "out"))[0] == "rocm7.2.4"
    monkeypatch.setenv("ACME_PATH", str(scene.acme))
    with pytest.raises(UsageError) as caught:
        scene.relink("both", tmp_path / "more")
    assert caught.value.issues == (
        f"--prefix {scene.rocm}  ROCm, found in ROCM_PATH",
        f"--prefix {scene.acme}  ACME, found in ACME_PATH",
    )
    monkeypatch.delenv("ROCM_PATH")
    monkeypatch.setattr(
        registry, "VENDORS", (replace(rocm, places=replace(rocm.places, choose=lambda *_: None)), ACME)
    )
    assert facts(scene.relink("both", tmp_path / "last"))[0] == "acme3.1"


@SLOW
def test_each_vendor_judges_its_own_code(scene: Scene, tmp_path: Path) -> None:
    for prefix, good, bad in ((scene.rocm, "gfx1030", "gfx1100"), (scene.acme, "ACME One", "sm80")):
        for name, errors in ((good, []), (bad, ["RLK401"])):
            report = scene.relink("both", tmp_path / name, prefix, gpus=(name,))
            found = [one.code for one in report.findings if one.code in CODES and one.level == "error"]
            assert found == errors, (prefix, name)
    report = scene.relink("acme", tmp_path / "other", scene.acme, gpus=("gfx1030",))
    (other,) = (one for one in report.findings if one.code == "RLK401")
    assert other.message.startswith("the wheel is linked to ACME, which has no code for gfx1030 (RX 6800")


def test_isa_has_a_survey_of_each_vendor_that_has_code_there(scene: Scene, run: Run) -> None:
    code, out, _ = run("isa", str(scene.wheels["both"]), "--gpu", "gfx1030", "--gpu", "sm90", "--json")
    surveys = json.loads(out)["reports"]
    assert (code, [one["gpus"] for one in surveys if one["kind"] == "wheel"][1]) == (
        0,
        [{"target": "sm90", "covered": True, "levels": {"bitsandbytes/libbitsandbytes_acme3.so": "full"}}],
    )
    assert [gpu["target"] for gpu in surveys[0]["gpus"]] == ["gfx1030"]
    code, out, _ = run("isa", str(scene.wheels["both"]), "--gpu", "sm80")
    assert code == 1
    assert "1 ACME kernels: full sm90" in out
    assert "sm80: missing: libbitsandbytes_acme3.so (none)" in out
    code, out, _ = run("isa", str(scene.wheels["rocm"]))
    assert (code, "ACME" in out) == (0, False)


def test_auto_and_doctor_ask_each_vendor_s_probe(scene: Scene, tmp_path: Path) -> None:
    root = tmp_path / "root"
    node(root, 1, gfx_target_version=100300)
    (root / "sys/acme").mkdir(parents=True)
    (root / "sys/acme/gpus").write_text("sm90\n")
    found = registry.requested_gpus(["auto"], str(root), {})
    assert [(str(gpu.target), gpu.vendor) for gpu in found] == [("gfx1030", "rocm"), ("sm90", "acme")]
    check = check_machine([str(scene.rocm), str(scene.acme)], str(root), {})
    data = to_json(check)
    assert [gpu if isinstance(gpu, str) else gpu["target"] for gpu in data["gpus"]] == ["gfx1030", "sm90"]
    assert [prefix["path"] for prefix in data["prefixes"]] == [str(scene.rocm), str(scene.acme)]
    text = [line.plain for line in doctor_text(check)]
    assert "  ACME GPU sm90" in text
    assert f"{scene.acme}  ACME 3.1" in text
    with pytest.raises(
        UsageError, match=r"no target id \(gfx1031 or sm90\), no product .*RX 6750 XT or ACME One"
    ):
        registry.requested_gpus(["Voodoo 2"])


@pytest.mark.parametrize(
    ("text", "near"),
    [("gfx9999", "gfx909"), ("gfx1013a", "gfx1013"), ("RX 6750XT", ""), ("RX 6755 XT", "RX 6750 XT")],
)
def test_a_gpu_that_nobody_makes_is_answered_with_the_nearest(text: str, near: str) -> None:
    if not near:
        assert [str(gpu.target) for gpu in registry.requested_gpus([text])] == ["gfx1031"]
        return
    with pytest.raises(UsageError, match=f"--gpu {text}: .*; names near it: .*{near}"):
        registry.requested_gpus([text])
