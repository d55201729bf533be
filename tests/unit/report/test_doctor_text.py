"""What `relink doctor` prints of the machine and of each prefix."""

from __future__ import annotations

from relink.gpu.amd.device import Devices, Doctor, Gpu, NodeAccess
from relink.gpu.amd.runtime import Capability
from relink.gpu.coverage import TargetId
from relink.planning.checks.machine import MachineCheck
from relink.report.doctor_text import doctor_text
from relink.system.findings.model import Finding, finding
from relink.vendors.protocol import Release
from relink.vendors.rocm.gpus import PrefixHealth, make_diagnosis

GFX1030, GFX1031 = TargetId("gfx1030"), TargetId("gfx1031")


def machine(*gpus: Gpu, nodes: tuple[NodeAccess, ...] = ()) -> Doctor:
    return Doctor(Devices(gpus, present=True), nodes, (), ())


def checked(found: Doctor, *prefixes: PrefixHealth, findings: tuple[Finding, ...] = ()) -> MachineCheck:
    return MachineCheck((make_diagnosis(found, prefixes),), findings)


def shown(found: MachineCheck) -> list[str]:
    return [line.plain for line in doctor_text(found)]


def test_gpus_and_what_they_pass_for() -> None:
    plain = Gpu(1, GFX1030, GFX1030, ("RX 6800", "RX 6900"))
    other = Gpu(2, GFX1030, GFX1031)
    text = shown(checked(machine(plain, other)))
    assert text[:3] == [
        "This machine",
        "  GPU gfx1030, node 1: RX 6800, RX 6900; xnack unknown",
        "  GPU gfx1030, node 2: unknown product; xnack unknown; really gfx1031",
    ]
    assert "  no GPU" not in text
    assert "  no GPU" in shown(checked(machine()))


def test_the_state_of_each_node() -> None:
    nodes = (
        NodeAccess("/dev/kfd", exists=True, accessible=True, group="render"),
        NodeAccess("/dev/dri/renderD128", exists=True, accessible=False),
        NodeAccess("/dev/dri/renderD129", exists=False, accessible=False),
    )
    lines = doctor_text(checked(machine(nodes=nodes)))
    found = {line.plain: line for line in lines}
    assert [*found][2:5] == [
        "  /dev/kfd: accessible (group render)",
        "  /dev/dri/renderD128: not accessible",
        "  /dev/dri/renderD129: not there",
    ]


def test_a_prefix_of_which_nothing_is_known_and_one_of_which_all_is() -> None:
    unknown = PrefixHealth("/opt/a", None, Capability(), ())
    runtime = Capability(
        hip=(7, 2), comgr_api=(3, 1), ccob=3, generic=True, kpack=False, agents=("gfx90a", "gfx1100")
    )
    known = PrefixHealth("/opt/b", Release("7.2.4", ".info/version", "rocm7.2.4"), runtime, ())
    text = shown(checked(machine(), unknown, known))
    first, second = (
        text.index("/opt/a  ROCm, release unknown"),
        text.index("/opt/b  ROCm 7.2.4 (by .info/version)"),
    )
    assert first < second
    assert [line.partition(": ")[2] for line in text[first + 1 : second - 1]] == ["unknown"] * 8
    assert "  HIP runtime: 7.2" in text[second:]
    assert "  generic targets: yes" in text[second:]
    assert "  kpack archives: no" in text[second:]
    assert "  compressed bundles up to version: 3" in text[second:]
    assert "  GPUs that the HSA runtime knows: 2, up to gfx1100" in text[second:]


def test_findings_come_last_with_their_remedies() -> None:
    lost = finding("RLK424", "/opt/a", "libamd_comgr was not found", "Install it.")
    text = shown(checked(machine(), PrefixHealth("/opt/a", None, Capability(), ()), findings=(lost,)))
    below = "\n".join(text[text.index("/opt/a  ROCm, release unknown") :])
    assert "RLK424" in below
    assert "Install it." in below
