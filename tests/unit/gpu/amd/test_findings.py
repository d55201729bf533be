"""Remedies, and GPU code that a package of its own installs, in the layout of ROCm as pip installs it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from relink.elf.source import BufferSource
from relink.gpu.amd.device_code import DeviceCode, read_device_code, resolve_kpack
from relink.gpu.amd.findings import check_gpus, remedies
from relink.gpu.coverage import GpuPlan, TargetId
from relink.vendors.registry import requested_gpus
from relink.vendors.rocm.vendor import read_libraries
from tests.support import kpack_elf
from tests.support.cc import shared
from tests.support.command import Run
from tests.support.wheels import make_wheel
from tests.support.works import TAG
from tests.unit.gpu.amd import build
from tests.unit.gpu.amd.build import entries_of, raw
from tests.unit.gpu.amd.covering import beside, cover, tensile
from tests.unit.planning.checks.test_gpu import RUNTIME, codes, only

FAMILIES = " Where the index has none for gfx1100, that of its family: …-device-gfx110x or …-device-gfx11."
REFERENCE = {"kernel_name": "lib/libhipfft.so.0", "kpack_search_paths": ["../.kpack/fft_lib_@GFXARCH@.kpack"]}


def installed(site: Path, *targets: str, directory: str = "_rocm_sdk_libraries") -> Path:
    """libhipfft with its archives for `targets`."""
    library = site / directory / "lib" / "libhipfft.so.0"
    library.parent.mkdir(parents=True)
    library.write_bytes(build.library(kpack=build.msgpack(REFERENCE), kpack_wrappers=1))
    (site / directory / ".kpack").mkdir()
    for target in targets:
        data = build.kpack_archive({"lib/libhipfft.so.0#0": [target]})
        (site / directory / ".kpack" / f"fft_lib_{target}.kpack").write_bytes(data)
    return library


def checked(library: Path, *names: str, allow_gap: bool = False) -> GpuPlan:
    libraries = read_libraries([("libhipfft.so.0", str(library))])
    return check_gpus({}, libraries, RUNTIME, requested_gpus(names), allow_gap=allow_gap)


@pytest.mark.parametrize("others", [(), ("gfx1030",)])
def test_a_missing_device_package_is_named(tmp_path: Path, others: tuple[str, ...]) -> None:
    library = installed(tmp_path / "site-packages", *others)
    found = only(checked(library, "gfx1100"), "RLK427")
    assert found.level == "error"
    assert found.message.endswith("which is not installed: no fft_lib_gfx1100.kpack is there")
    assert (
        found.remedy
        == f"pip install rocm-sdk-device-gfx1100, in the environment of {tmp_path}/site-packages.{FAMILIES}"
    )
    assert only(checked(library, "gfx1100", allow_gap=True), "RLK427").level == "warning"
    assert "RLK401" not in codes(checked(library, "gfx1100"))


def test_with_the_package_nothing_is_missing(tmp_path: Path) -> None:
    library = installed(tmp_path, "gfx1030", "gfx1100")
    assert not {"RLK401", "RLK404", "RLK427"} & set(codes(checked(library, "gfx1100", "gfx1030")))


def test_a_torn_archive_is_unknown_and_not_missing(tmp_path: Path) -> None:
    library = installed(tmp_path, "gfx1100")
    archive = library.parents[1] / ".kpack" / "fft_lib_gfx1100.kpack"
    archive.write_bytes(archive.read_bytes()[:-2])
    plan = checked(library, "gfx1100")
    assert "RLK427" not in codes(plan)
    assert "fft_lib_gfx1100.kpack: torn" in only(plan, "RLK404").message


def test_code_that_was_built_in_is_no_matter_of_packages(tmp_path: Path) -> None:
    library = installed(tmp_path, directory="_rocm_sdk_libraries_gfx110X_all")
    library.write_bytes(build.library([build.raw(build.entries_of("gfx1100"))]))
    assert "RLK401" in codes(checked(library, "gfx1030"))
    assert "RLK427" not in codes(checked(library, "gfx1030"))


def test_a_library_that_is_reached_at_two_places_is_named_once(tmp_path: Path) -> None:
    data = build.library([build.raw(build.entries_of("gfx1100"))])
    places = [tmp_path / name / "libhipfft.so.0" for name in ("a", "b")]
    for place in places:
        place.parent.mkdir()
        place.write_bytes(data)
    libraries = read_libraries([("libhipfft.so.0", str(place)) for place in places])
    found = only(check_gpus({}, libraries, RUNTIME, requested_gpus(["gfx1030"])), "RLK401")
    assert found.message.endswith("of the ROCm libraries it reaches libhipfft.so.0 has none for gfx1030")
    assert found.remedy.count("libhipfft.so.0") == 1, found.remedy


def test_a_wheel_of_another_vendor(tmp_path: Path) -> None:
    library = installed(tmp_path, "gfx1030", directory="pkg")
    code: DeviceCode = resolve_kpack(read_device_code(BufferSource(library.read_bytes()), str(library)))
    plan = check_gpus({"pkg/lib/libhipfft.so.0": code}, (), RUNTIME, requested_gpus(["gfx1100"]))
    assert "its vendor names one for each GPU" in only(plan, "RLK427").remedy


def test_amds_pytorch(tmp_path: Path) -> None:
    library = installed(tmp_path, "gfx1030", directory="torch")
    code: DeviceCode = resolve_kpack(read_device_code(BufferSource(library.read_bytes()), str(library)))
    plan = check_gpus(
        {"torch/lib/libhipfft.so.0": replace(code, path="torch/lib/x.so")},
        (),
        RUNTIME,
        requested_gpus(["gfx1100"]),
    )
    remedy = only(plan, "RLK427").remedy
    assert remedy == f"pip install amd-torch-device-gfx1100, in the version of the wheel.{FAMILIES}"


FOO = {f"lib/libfoo.so#{number}": ["gfx1100"] for number in range(2)}


@pytest.mark.parametrize(
    ("archive", "exit_code", "told"),
    [
        (build.kpack_archive(FOO), 0, ""),
        (None, 1, "error RLK427 gfx1100: "),
        (build.kpack_archive(FOO)[:-9], 0, "foo_gfx1100.kpack: torn"),
        (build.kpack_archive(FOO, version=2), 0, "kpack version 2 is not known"),
    ],
    ids=["there", "missing", "torn", "of an unknown version"],
)
def test_archives_that_another_package_puts_into_the_directory_of_a_wheel(
    tmp_path: Path, run: Run, archive: bytes | None, exit_code: int, told: str
) -> None:
    """As amd-torch-device-gfx1100 does it for torch; the command line is asked for that GPU."""
    dependency = shared(tmp_path / "rocm" / "lib" / "libdep.so.1", "int dep(void){return 40;}")
    whole = kpack_elf.compile_input(tmp_path / "libfoo.so", dependency)
    reference = kpack_elf.reference("lib/libfoo.so", ["../.kpack/foo_@GFXARCH@.kpack"])
    library = kpack_elf.split(whole.read_bytes(), reference)
    wheel = make_wheel(
        tmp_path, {"torch/__init__.py": b"", "torch/lib/libfoo.so": library}, name="torch", tag=TAG
    )
    python = tmp_path / "venv" / "bin" / "python"
    place = tmp_path / f"venv/lib/python3.{sys.version_info[1]}/site-packages/torch/.kpack"
    place.mkdir(parents=True)
    if archive is not None:
        (place / "foo_gfx1100.kpack").write_bytes(archive)
    python.parent.mkdir()
    python.symlink_to(os.path.realpath(sys.executable))
    (tmp_path / "venv" / "pyvenv.cfg").write_text(
        f"home = {os.path.dirname(os.path.realpath(sys.executable))}\n"
    )
    words = (wheel, "--prefix", tmp_path / "rocm", "--python", python, "--gpu", "gfx1100", "--dry-run")
    code, out, err = run(*words, "--verbose")
    assert (code, told in out) == (exit_code, True), out + err
    assert ("RLK427" in out) == (archive is None)
    if archive is None:
        # As TheRock#7839: the package for another GPU is there.
        untried = "(not tried: it needs the network and changes the environment)"
        assert f"Next {untried}:\n    pip install amd-torch-device-gfx1100" in out
        why = "the package with this GPU's code is not installed (gfx1100): pip install amd-torch-device-gfx1100"
        assert why in out.splitlines()[0]


def test_remedies_for_the_owner_of_an_rx_6750_xt() -> None:
    wheel = cover(raw(entries_of("gfx1030", "gfx1100")), path="providers.so")
    blas = beside("librocblas.so.5", tensile(("gfx1030", "tuned fallback")), raw(entries_of("gfx1030")))
    found = remedies(
        TargetId("gfx1031"), [wheel, blas], releases=["onnxruntime-rocm 1.21"], runtime_generic=True
    )
    assert [r.kind for r in found] == ["release", "override", "rebuild", "rebuild"]
    assert "1.21" in found[0].text
    assert "HSA_OVERRIDE_GFX_VERSION=10.3.0" in found[1].text
    assert found[1].workaround
    assert "workaround" in found[1].text
    assert found[2].text == (
        "rebuild providers.so with GPU_TARGETS=gfx1030;gfx1031;gfx1100 (or gfx10-3-generic for the whole family)"
    )
    assert found[3].text.startswith("rebuild rocBLAS with GPU_TARGETS=gfx1030;gfx1031")


def test_the_override_must_hold_for_every_library() -> None:
    wheel = cover(raw(entries_of("gfx1030")))
    blas = beside("librocblas.so.5", tensile(("gfx1100", "tuned fallback")), raw(entries_of("gfx1100")))
    assert "override" not in [r.kind for r in remedies(TargetId("gfx1031"), [wheel, blas])]
    assert "override" in [r.kind for r in remedies(TargetId("gfx1031"), [wheel])]
    assert [r.kind for r in remedies(TargetId("gfx906"), [wheel])] == ["rebuild"]


def test_generic_code_comes_before_the_override_where_the_runtime_is_too_old() -> None:
    wheel = cover(raw(entries_of("gfx1030", "gfx10-3-generic")))
    assert remedies(TargetId("gfx1031"), [wheel], runtime_generic=True) == ()
    old = remedies(TargetId("gfx1031"), [wheel], runtime_generic=False)
    assert [r.kind for r in old] == ["generic", "override", "rebuild"]
    assert [r.workaround for r in old] == [False, True, False]
