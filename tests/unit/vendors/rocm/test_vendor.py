"""rocm.vendor: what relink doctor finds on a machine, and whose HIP takes related processors' code."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import MappingProxyType

import pytest

from relink.planning.checks.machine import MachineCheck, check_machine
from relink.providers.prefix import NIX_STORE, Provider
from relink.report.text import doctor_text
from relink.vendors.rocm.vendor import extended_by
from tests.support.cc import shared
from tests.unit.gpu.amd.build import entries_of, raw
from tests.unit.gpu.amd.test_device import node
from tests.unit.gpu.amd.test_runtime import READER_2, READER_3, lib
from tests.unit.gpu.amd.test_survey import fat


@pytest.fixture
def rocm(tmp_path: Path) -> Path:
    where = tmp_path / "rocm" / "lib"
    lib(where / "libamdhip64.so.7", "gfx11-generic", "libamd_comgr.so.3", versions="hip_7.2")
    lib(where / "libamd_comgr.so.3", READER_2, READER_3, versions="amd_comgr_2.8")
    lib(where / "libhsa-runtime64.so.1", "gfx11-generic")
    fat(where / "librocsolver.so.0", raw(entries_of("gfx1030", "gfx1100")), "libamdhip64.so.7")
    fat(where / "librocsparse.so.1", raw(entries_of("gfx1030")), "libamdhip64.so.7")
    return tmp_path / "rocm"


def machine(root: Path, *versions: int) -> Path:
    for number, version in enumerate(versions, 1):
        node(root, number, gfx_target_version=version, drm_render_minor=127 + number)
    for path in ("dev/kfd", "dev/dri/renderD128"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    return root


def codes(found: MachineCheck) -> set[tuple[str, str, str]]:
    return {(item.code, item.level, Path(item.subject).name) for item in found.findings}


def test_a_machine_in_order(tmp_path: Path, rocm: Path) -> None:
    found = check_machine([str(rocm)], str(machine(tmp_path / "root", 100300)), {})
    assert codes(found) == {("RLK425", "warning", "rocm"), ("RLK508", "warning", "rocm")}
    text = "\n".join(line.plain for line in doctor_text(found))
    assert "GPU gfx1030, node 1: RX 6800" in text
    assert "dev/kfd: accessible" in text
    assert "HIP runtime: 7.2" in text
    assert "compressed bundles up to version: 3" in text
    assert "kpack archives: no" in text
    assert "with libamdhip64.so.7: rocSOLVER, rocSPARSE" in text
    assert "all cover gfx1030" in text


def test_incoherence_names_the_library(tmp_path: Path, rocm: Path) -> None:
    found = check_machine([str(rocm)], str(machine(tmp_path / "root", 100300)), {})
    (coherence,) = (item for item in found.findings if item.code == "RLK425")
    assert coherence.level == "warning"
    assert "in common; librocsparse.so.1 (rocSPARSE) has no full code for gfx1100" in coherence.message
    assert not [item for item in found.findings if item.level == "error"]


def test_a_gpu_that_the_prefix_does_not_cover(tmp_path: Path, rocm: Path) -> None:
    found = check_machine([str(rocm)], str(machine(tmp_path / "root", 110000)), {})
    (gap,) = (item for item in found.findings if item.code == "RLK426")
    assert gap.level == "error"
    assert "librocsparse.so.1 (rocSPARSE): no full code for gfx1100" in gap.message
    assert "rocSPARSE with GPU_TARGETS=gfx1030;gfx1100" in gap.remedy


def test_a_gpu_without_its_nodes(tmp_path: Path, rocm: Path) -> None:
    """As in a container that was not given them: no group opens a node that is not there."""
    root = machine(tmp_path / "root", 100300)
    shutil.rmtree(root / "dev")
    found = check_machine([str(rocm)], str(root), {})
    lost = [item for item in found.findings if item.code == "RLK422"]
    assert lost
    for item in lost:
        assert item.message == "is not there, although the kernel lists a GPU"
        assert "--device /dev/kfd" in item.remedy
        assert "group" not in item.remedy
    assert "RLK421" not in {item.code for item in found.findings}


def test_an_incomplete_runtime(tmp_path: Path, rocm: Path) -> None:
    (rocm / "lib" / "libamd_comgr.so.3").unlink()
    found = check_machine([str(rocm)], str(machine(tmp_path / "root", 100300)), {})
    (lost,) = (item for item in found.findings if item.code == "RLK424")
    assert (lost.level, "libamd_comgr was not found" in lost.message) == ("error", True)
    text = "\n".join(line.plain for line in doctor_text(found))
    assert "compressed bundles up to version: unknown" in text


def test_a_library_of_another_runtime_than_the_prefix_has(tmp_path: Path, rocm: Path) -> None:
    fat(rocm / "lib" / "librocblas.so.4", raw(entries_of("gfx1030")), "libamdhip64.so.6")
    found = check_machine([str(rocm)], str(machine(tmp_path / "root", 100300)), {})
    (lost,) = (item for item in found.findings if item.code == "RLK424")
    assert lost.level == "warning"
    assert lost.message == "libamdhip64.so.6 is not in it; needed by librocblas.so.4 (rocBLAS)"
    (diagnosis,) = found.diagnoses
    assert diagnosis.prefixes[0]["runtime"]["hip"] == "7.2"


def test_hazards_of_the_environment(tmp_path: Path, rocm: Path) -> None:
    environment = {
        "HIP_USE_RUNTIME_UNBUNDLER": "1",
        "LD_LIBRARY_PATH": "/x",
        "HSA_OVERRIDE_GFX_VERSION_1": "10.3.0",
        "HIP_VISIBLE_DEVICES": "0",
    }
    found = check_machine([str(rocm)], str(machine(tmp_path / "root", 100301)), environment)
    hazards = {item.subject: (item.level, item.message) for item in found.findings if item.code == "RLK423"}
    assert set(hazards) == set(environment)
    assert hazards["HIP_USE_RUNTIME_UNBUNDLER"][0] == "warning"
    assert "fails on compressed bundles" in hazards["HIP_USE_RUNTIME_UNBUNDLER"][1]
    assert hazards["HIP_VISIBLE_DEVICES"][0] == "info"
    text = "\n".join(line.plain for line in doctor_text(found))
    assert "GPU gfx1030, node 1: RX 6700, RX 6700 XT, RX 6750 XT; xnack unknown; really gfx1031" in text


def test_the_group_that_is_missing(tmp_path: Path, rocm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = machine(tmp_path / "root", 100300)
    (root / "dev/kfd").chmod(0o660)
    monkeypatch.setattr("os.access", lambda *_: False)
    monkeypatch.setattr("os.getgroups", list)
    monkeypatch.setattr("os.getegid", lambda: 54321)
    found = check_machine([str(rocm)], str(root), {})
    lost = {Path(item.subject).name: item for item in found.findings if item.code == "RLK422"}
    assert "belongs to the group" in lost["kfd"].message
    assert lost["kfd"].remedy.startswith("usermod -aG ")


# Whose HIP runtime takes related processors' code, by where it comes from

HASH = "0123456789abcdfghijklmnpqrsvwxyz"


def hip_of(path: Path, kind: str = "prefix") -> Provider:
    libraries = MappingProxyType({path.name: (str(path),)})
    return Provider(kind, str(path.parent.parent), (str(path.parent),), libraries)


def test_the_name_of_a_store_path_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """nixpkgs' clr has the patch's functions; another package of that name, such as AMD's own build, may not have them."""
    monkeypatch.setenv("NIX_STORE_DIR", str(tmp_path))
    (tmp_path / f"{HASH}-clr-7.2.3" / "lib").mkdir(parents=True)
    found = hip_of(tmp_path / f"{HASH}-clr-7.2.3" / "lib" / "libamdhip64.so.7", NIX_STORE)
    assert extended_by([found], "libamdhip64.so.7") is None
    Path(found.find("libamdhip64.so.7") or "").write_bytes(b"\0isGfx1030EquivalentProcessor\0")
    assert "isGfx1030EquivalentProcessor" in (extended_by([found], "libamdhip64.so.7") or "")


@pytest.mark.parametrize(
    ("directory", "build", "whose"),
    [
        ("usr/lib/x86_64-linux-gnu", "6.1.40091", "Debian's HIP before 6.4.3"),
        ("usr/lib/x86_64-linux-gnu", "6.4.43484", None),
        ("usr/lib/x86_64-linux-gnu", "5.2.21153", None),
        ("opt/rocm-6.1.0/lib", "6.1.40091", None),
    ],
)
def test_of_debian(directory: str, build: str, whose: str | None, tmp_path: Path) -> None:
    real = tmp_path / directory / f"libamdhip64.so.{build}"
    real.parent.mkdir(parents=True)
    real.touch()
    link = real.with_name("libamdhip64.so.6")
    link.symlink_to(real.name)
    assert extended_by([hip_of(link)], "libamdhip64.so.6") == whose


PATCHED = """
static __attribute__((noinline)) int isGfx1030EquivalentProcessor(const char *name) { return name[6] >= '0' && name[6] < '7'; }
int takes(const char *name) { return isGfx1030EquivalentProcessor(name); }
"""


@pytest.mark.parametrize(
    ("source", "flags", "patched"),
    [
        (PATCHED, (), True),
        (PATCHED, ("-Wl,--strip-all",), False),
        ("int takes(const char *name) { return 0; }", (), False),
    ],
)
def test_the_functions_of_the_patch_in_the_library_itself(
    tmp_path: Path, source: str, flags: tuple[str, ...], patched: bool
) -> None:
    """Seen in a build of one's own that keeps local symbols."""
    hip = shared(tmp_path / "lib" / "libamdhip64.so.7", source, flags=list(flags))
    function = "isGfx1030EquivalentProcessor"
    whose = f"the HIP of {tmp_path}, which has the patch's function {function}" if patched else None
    assert extended_by([hip_of(hip)], "libamdhip64.so.7") == whose


def test_where_no_provider_has_it(tmp_path: Path) -> None:
    assert extended_by([hip_of(tmp_path / "librocblas.so.5")], "libamdhip64.so.7") is None
