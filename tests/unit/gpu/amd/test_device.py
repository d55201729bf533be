"""Local GPUs from a KFD tree, the override, and the facts that doctor shows."""

from __future__ import annotations

import grp
import os
from pathlib import Path

import pytest

from relink.gpu.amd.device import decode_version, doctor, find_gpus, parse_gpu
from relink.gpu.coverage import TargetId
from relink.system.errors import UsageError
from relink.vendors.registry import find_local_gpus, requested_gpus
from relink.vendors.rocm.vendor import diagnose

TREE = "sys/class/kfd/kfd/topology/nodes"
CPU = {
    "cpu_cores_count": 16,
    "simd_count": 0,
    "capability": 0,
    "gfx_target_version": 0,
    "drm_render_minor": 0,
}


def node(root: Path, number: int, **values: int) -> Path:
    """Write one node as the amdgpu driver shows it (a shortened copy of a real properties file)."""
    directory = root / TREE / str(number)
    directory.mkdir(parents=True)
    rows = CPU | {"simd_count": 80, "mem_banks_count": 1, "vendor_id": 4098, "device_id": 29663} | values
    text = "".join(f"{key} {value}\n" for key, value in rows.items())
    (directory / "properties").write_text(text)
    return directory


def targets(root: Path, **environment: str) -> list[str]:
    return [str(gpu.target) for gpu in find_gpus(root, environment).gpus]


@pytest.mark.parametrize(
    ("number", "processor"),
    [
        (100300, "gfx1030"),
        (90010, "gfx90a"),
        (90402, "gfx942"),
        (110501, "gfx1151"),
        (90012, "gfx90c"),
        (80003, "gfx803"),
        (120001, "gfx1201"),
        (0, None),
        (-5, None),
    ],
)
def test_version_numbers(number: int, processor: str | None) -> None:
    assert decode_version(number) == processor


@pytest.mark.parametrize(
    ("there", "why"),
    [
        ("dev/dxg", "so this is WSL"),
        (".dockerenv", "this is a container"),
        ("run/.containerenv", "--device /dev/kfd"),
    ],
)
def test_why_no_gpu_is_seen(tmp_path: Path, there: str, why: str) -> None:
    (tmp_path / there).parent.mkdir(exist_ok=True)
    (tmp_path / there).touch()
    with pytest.raises(UsageError, match=f"auto finds no GPU: no KFD topology: .*{why}"):
        requested_gpus(["auto"], str(tmp_path))
    (found,) = (one for one in diagnose((), str(tmp_path), {}).findings if one.code == "RLK421")
    assert why in found.message


def test_several_gpus_in_the_order_of_numbers(tmp_path: Path) -> None:
    node(tmp_path, 0, simd_count=0, gfx_target_version=0)
    node(tmp_path, 10, gfx_target_version=100306)
    node(tmp_path, 2, gfx_target_version=100301)
    found = find_gpus(tmp_path)
    assert found.present
    assert [(g.node, str(g.target)) for g in found.gpus] == [
        (2, "gfx1031"),
        (10, "gfx1036"),
    ]
    assert "RX 6750 XT" in found.gpus[0].products
    assert found.problems == ()


@pytest.mark.parametrize(
    ("capability", "target"),
    [(1 << 26, "gfx90a:sramecc+"), (1 << 19, "gfx90a:sramecc-"), (0xFFFFFFFF, "gfx90a:sramecc+")],
)
def test_sramecc_is_bit_26_and_xnack_stays_unknown(tmp_path: Path, capability: int, target: str) -> None:
    node(tmp_path, 1, gfx_target_version=90010, capability=capability)
    (gpu,) = find_gpus(tmp_path).gpus
    assert str(gpu.target) == target
    assert gpu.to_json()["xnack"] == "unknown"


def test_processors_without_sramecc_do_not_get_it(tmp_path: Path) -> None:
    node(tmp_path, 1, gfx_target_version=110000, capability=1 << 26)
    assert targets(tmp_path) == ["gfx1100"]


def test_the_override_comes_after_and_keeps_the_hardware(tmp_path: Path) -> None:
    node(tmp_path, 1, gfx_target_version=100301)
    node(tmp_path, 2, gfx_target_version=110003)
    assert targets(tmp_path, HSA_OVERRIDE_GFX_VERSION="10.3.0") == ["gfx1030", "gfx1030"]
    assert targets(tmp_path, HSA_OVERRIDE_GFX_VERSION="10.3.0", HSA_OVERRIDE_GFX_VERSION_2="11.0.0") == [
        "gfx1030",
        "gfx1100",
    ]
    assert targets(tmp_path, HSA_OVERRIDE_GFX_VERSION_1="9.0.10") == ["gfx90a", "gfx1103"]  # decimal: a is 10
    gpu = find_gpus(tmp_path, {"HSA_OVERRIDE_GFX_VERSION": "10.3.0"}).gpus[0]
    assert (gpu.overridden, str(gpu.physical)) == (True, "gfx1031")


def test_the_override_keeps_sramecc_where_the_other_has_it(tmp_path: Path) -> None:
    node(tmp_path, 1, gfx_target_version=90010, capability=1 << 26)
    assert targets(tmp_path, HSA_OVERRIDE_GFX_VERSION="9.4.2") == ["gfx942:sramecc+"]
    assert targets(tmp_path, HSA_OVERRIDE_GFX_VERSION="10.3.0") == ["gfx1030"]


@pytest.mark.parametrize("value", ["gfx1030", "10.3", "10.3.0.1", "64.0.0", "10.256.0", "10.3.x", ""])
def test_an_override_that_the_runtime_refuses_is_a_problem(tmp_path: Path, value: str) -> None:
    node(tmp_path, 1, gfx_target_version=100301)
    found = find_gpus(tmp_path, {"HSA_OVERRIDE_GFX_VERSION": value})
    assert str(found.gpus[0].target) == "gfx1031"
    assert any("HSA_OVERRIDE_GFX_VERSION" in p for p in found.problems)


def test_nodes_that_may_not_be_read_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node(tmp_path, 1, gfx_target_version=100301)
    hidden = node(tmp_path, 2, gfx_target_version=110000)
    real = os.open

    def refuse(path: os.PathLike[str], flags: int) -> int:
        if Path(path) == hidden / "properties":
            raise PermissionError(1, "Operation not permitted")
        return real(path, flags)

    monkeypatch.setattr(os, "open", refuse)
    found = find_gpus(tmp_path)
    assert [str(g.target) for g in found.gpus] == ["gfx1031"]
    assert found.problems == ("KFD node 2 cannot be read: Operation not permitted",)


def test_without_a_topology_nothing_is_known(tmp_path: Path) -> None:
    found = find_gpus(tmp_path)
    assert (found.present, found.gpus) == (False, ())
    assert "no KFD topology" in found.problems[0]


def test_the_other_place_of_the_topology(tmp_path: Path) -> None:
    node(tmp_path, 1, gfx_target_version=100301)
    other = tmp_path / "other/sys/devices/virtual/kfd/kfd/topology"
    other.mkdir(parents=True)
    (tmp_path / TREE).rename(other / "nodes")
    assert targets(tmp_path / "other") == ["gfx1031"]


def test_odd_properties_do_no_harm(tmp_path: Path) -> None:
    directory = node(tmp_path, 1)
    (directory / "properties").write_bytes(b"\xff\xfe\0\ngfx_target_version \nsimd_count 80\ncapability x\n")
    assert any("too old" in p for p in find_gpus(tmp_path).problems)
    (directory / "properties").write_text("gfx_target_version 99999999999999999999\n")
    assert len(find_gpus(tmp_path).gpus) == 1
    (tmp_path / TREE / "stray").mkdir()
    assert len(find_gpus(tmp_path).gpus) == 1


def test_doctor_collects_access_groups_and_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node(tmp_path, 1, gfx_target_version=100301)
    (tmp_path / "dev/dri").mkdir(parents=True)
    for name in ("dev/kfd", "dev/dri/renderD128", "dev/dri/card0"):
        (tmp_path / name).write_bytes(b"")
        (tmp_path / name).chmod(0o660)
    group = grp.getgrgid((tmp_path / "dev/kfd").stat().st_gid).gr_name
    environment = {
        "LD_LIBRARY_PATH": "/x",
        "HIP_USE_RUNTIME_UNBUNDLER": "1",
        "HSA_OVERRIDE_GFX_VERSION_1": "10.3.0",
        "HOME": "/",
    }
    fine = doctor(tmp_path, environment)
    assert [Path(n.path).name for n in fine.nodes] == ["kfd", "renderD128"]
    assert all(n.accessible and n.exists for n in fine.nodes)
    assert fine.missing_groups == ()
    assert [k for k, _ in fine.environment] == [
        "HIP_USE_RUNTIME_UNBUNDLER",
        "HSA_OVERRIDE_GFX_VERSION_1",
        "LD_LIBRARY_PATH",
    ]
    assert str(fine.devices.gpus[0].target) == "gfx1030"
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert doctor(tmp_path, {}).missing_groups == ()  # he is a member: it is something else
    assert doctor(tmp_path, {}).to_json()["nodes"][0]["accessible"] is False
    monkeypatch.setattr(os, "getegid", lambda: -1)
    monkeypatch.setattr(os, "getgroups", list)
    assert doctor(tmp_path, {}).missing_groups == (group,)


def test_doctor_without_devices(tmp_path: Path) -> None:
    found = doctor(tmp_path, {})
    assert [n.exists for n in found.nodes] == [False, False]
    assert found.missing_groups == ()
    assert found.to_json()["kfd"] is False


def test_a_target_and_a_product() -> None:
    named, product = requested_gpus(["gfx1100", " RX 6750 XT "])
    assert (named.target, named.name, named.local) == (TargetId("gfx1100"), "", False)
    assert str(named).startswith("gfx1100 (")
    assert (product.target, product.name) == (TargetId("gfx1031"), "RX 6750 XT")
    assert str(product) == "gfx1031 (RX 6750 XT)"


def test_each_architecture_comes_once_under_its_first_name() -> None:
    assert [wanted.name for wanted in requested_gpus(["RX 6750 XT", "gfx1031", "gfx1030"])] == [
        "RX 6750 XT",
        "",
    ]
    assert requested_gpus([]) == ()


@pytest.mark.parametrize("text", ["", "gfx", "RX 1 XT", "autos"])
def test_what_means_nothing(text: str) -> None:
    with pytest.raises(UsageError, match=f"--gpu {text}: no target id"):
        requested_gpus(["gfx1100", text])


def test_a_machine_without_a_gpu(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="auto finds no GPU: "):
        requested_gpus(["AUTO"], str(tmp_path), {})


def test_gpus_that_nobody_asked_for(tmp_path: Path) -> None:
    for number, version in enumerate((100300, 110000, 100300)):
        node(tmp_path, number, gfx_target_version=version)
    found = find_local_gpus(str(tmp_path), {})
    assert [(str(gpu.target), gpu.local, gpu.asked) for gpu in found] == [
        ("gfx1030", True, False),
        ("gfx1100", True, False),
    ]
    assert all(gpu.asked for gpu in requested_gpus(["auto"], str(tmp_path), {}))


def test_none_is_seen_where_there_is_none(tmp_path: Path) -> None:
    assert find_local_gpus(str(tmp_path), {}) == ()


@pytest.mark.parametrize(
    ("text", "override", "shown"),
    [
        ("gfx1031", "10.3.0", "gfx1030 (gfx1031 by HSA_OVERRIDE_GFX_VERSION)"),
        ("RX 6750 XT", "10.3.0", "gfx1030 (gfx1031 by HSA_OVERRIDE_GFX_VERSION)"),
        ("gfx1102", "11.0.0", "gfx1100 (gfx1102 by HSA_OVERRIDE_GFX_VERSION)"),
        ("gfx942", "10.3.0", "gfx942 (MI300A, MI300X, MI325X)"),
        ("gfx1250-strict", "10.3.0", "gfx1250-strict"),
    ],
)
def test_a_gpu_that_is_named_passes_for_another_by_the_value_known_for_it(
    text: str, override: str, shown: str
) -> None:
    assert str(parse_gpu(text, {"HSA_OVERRIDE_GFX_VERSION": override})) == shown
