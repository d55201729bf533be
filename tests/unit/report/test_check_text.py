"""report.check_text: the answer first and last, a line for each package that has something to say, and the next command."""

from __future__ import annotations

import pytest

from relink.report.check_text import Checked, EnvironmentCheck, Proposal, check_text, environment_verdict
from relink.system.findings.model import finding

WORKS = Checked("numpy", "2.1.0", "info", "works")
PARTLY = Checked("jax", "0.12.0", "warning", "works, without dense solvers (librocsolver.so.0)")
BROKEN = Checked(
    "onnxruntime-rocm", "1.22.2", "error", "its GPU part does not load: libhipblas.so.3 not found", needs=True
)
ON_GPU = Checked("torch", "2.13", "info", "works", needs=True)
OPENS = Checked("triton", "3.7", "info", "works", findings=(finding("RLK538", "triton", "m", level="info"),))
STOPPED = Checked("mlx", "1.0", "warning", "its import cannot be followed to the end: SyntaxError")
NONE = ", and none of them needs ROCm"
REPAIR = ("relink", "repair", "--all", "--python", "my venv/bin/python")


@pytest.mark.parametrize(
    ("distributions", "level", "text"),
    [
        ((WORKS,), "info", f"Works: 1 package with native code in /v{NONE}."),
        ((WORKS, ON_GPU), "info", "Works: 2 packages with native code in /v."),
        ((WORKS, OPENS), "info", "Works: 2 packages with native code in /v."),
        ((WORKS, STOPPED), "warning", "Works: 2 packages with native code in /v."),
        ((WORKS, PARTLY), "warning", f"Works: 2 packages with native code in /v{NONE}."),
        ((WORKS, BROKEN), "error", "onnxruntime-rocm does not work; 2 packages with native code in /v."),
        ((), "info", f"Works: 0 packages with native code in /v{NONE}."),
    ],
)
def test_the_answer(distributions: tuple[Checked, ...], level: str, text: str) -> None:
    check = EnvironmentCheck("/v", distributions)
    summed = environment_verdict(check)
    assert (summed.level, summed.text) == (level, text)
    assert check.ok == (level != "error")


def test_a_finding_about_several() -> None:
    check = EnvironmentCheck("/v", (WORKS,), (finding("RLK426", "rocm", "two releases", level="error"),))
    assert environment_verdict(check).text.startswith("Does not work together: ")
    assert not check.ok


def test_a_package_that_nobody_can_read_may_need_rocm() -> None:
    unread = finding("RLK554", "numpy-2.1.0", "was not looked at: no RECORD", level="warning")
    assert environment_verdict(EnvironmentCheck("/v", (WORKS,), (unread,))).text.endswith(" in /v.")


def test_the_lines() -> None:
    plain = Proposal("onnxruntime-rocm")
    check = EnvironmentCheck("/v", (WORKS, PARTLY, BROKEN), proposals=(plain,), repair=REPAIR)
    answer = "onnxruntime-rocm does not work; 3 packages with native code in /v."
    assert [line.plain for line in check_text(check, verbose=False)] == [
        answer,
        f"  jax 0.12.0: {PARTLY.text}",
        f"  onnxruntime-rocm 1.22.2: {BROKEN.text}",
        answer,
        "Next (not tried: it needs the network and changes the environment):",
        "    relink repair --all --python 'my venv/bin/python'",
    ]
    assert "  numpy 2.1.0: works" in [line.plain for line in check_text(check, verbose=True)]


def test_what_repair_cannot_mend_is_the_machines() -> None:
    check = EnvironmentCheck("/v", (BROKEN,))
    assert check_text(check, verbose=False)[-1].plain == "    relink doctor"


FOUND = Checked("jax-rocm7-pjrt", "0.12.0", "error", "does not load", needs=True)
ALONE = "relink repair {} --python 'my venv/bin/python'"
APT = "apt install -t experimental librocm-smi64-7"


def joined(*proposals: Proposal) -> list[str]:
    check = EnvironmentCheck("/v", (BROKEN, FOUND), proposals=proposals, repair=REPAIR)
    return [line.plain for line in check_text(check, verbose=False)][4:]


def proposed(name: str, *words: str, before: tuple[str, ...] = ()) -> Proposal:
    repair = " ".join([ALONE.format(name), *words])
    return Proposal(name, "; ".join([*before, repair]), (*before, repair))


def test_one_command_mends_all() -> None:
    first = proposed("jax-rocm7-pjrt", "--stub", "librccl.so.1", "--stub", "libamd_smi.so.26")
    second = proposed("onnxruntime-rocm", "--stub", "librccl.so.1", "--forward", "libx.so", before=(APT,))
    assert joined(first, second) == [
        "Next (not tried: it needs root and the network):",
        f"    {APT}",
        "then (not tried: it needs the network and changes the environment):",
        f"    {ALONE.format('--all')} --stub librccl.so.1 --stub libamd_smi.so.26 --forward libx.so",
    ]
    assert joined(first, Proposal("onnxruntime-rocm"))[1:] == [
        f"    {ALONE.format('--all')} --stub librccl.so.1 --stub libamd_smi.so.26"
    ]


def test_what_may_be_installed_in_place_of_a_stub_is_not_asked_for() -> None:
    stub = f"{ALONE.format('jax-rocm7-pjrt')} --stub librccl.so.1"
    either = Proposal("jax-rocm7-pjrt", f"{stub}; or, with librccl.so.1 itself: {APT}", (stub, APT))
    assert joined(either, Proposal("onnxruntime-rocm"))[1:] == [
        f"    {ALONE.format('--all')} --stub librccl.so.1"
    ]


def test_what_cannot_be_typed_is_told_beside() -> None:
    first = proposed("jax-rocm7-pjrt", "--stub", "librccl.so.1")
    lost = Proposal("onnxruntime-rocm", "a ROCm that has libx.so.1 (--prefix DIR)")
    assert joined(first, lost)[1:] == [
        f"    {ALONE.format('--all')} --stub librccl.so.1",
        "onnxruntime-rocm: a ROCm that has libx.so.1 (--prefix DIR)",
    ]


@pytest.mark.parametrize("words", [("--substitute", "a=b"), ("--allow-isa-gap",)])
def test_an_option_for_one_package_is_for_no_other(words: tuple[str, ...]) -> None:
    first, second = proposed("jax-rocm7-pjrt", *words), proposed("onnxruntime-rocm", "--stub", "librccl.so.1")
    commands = [line.strip() for line in joined(first, second) if line.startswith("    ")]
    assert commands == [*first.commands, *second.commands]


def test_a_variable_with_which_all_works() -> None:
    remedy = (
        "Set HSA_OVERRIDE_GFX_VERSION=10.3.0, a workaround that AMD does not support: every library takes it."
    )
    gap = finding("RLK401", "gfx1031", "none for gfx1031", remedy)
    lacking = Checked("jax", "0.12.0", "error", "has no code for this GPU", findings=(gap,))
    check = EnvironmentCheck("/v", (WORKS, lacking), repair=REPAIR)
    assert [line.plain for line in check_text(check, verbose=False)][-3:] == [
        "Next (not tried: it changes your shell):",
        "    export HSA_OVERRIDE_GFX_VERSION=10.3.0",
        "then the same command",
    ]
    export = "export HSA_OVERRIDE_GFX_VERSION=10.3.0"
    variable = proposed("onnxruntime-rocm", before=(export,))
    needs_more = Proposal("jax-rocm7-pjrt", f"{APT}; a ROCm that has libx.so (--prefix DIR)", (APT,))
    assert joined(needs_more, variable)[1:] == [f"    {export}", "then the same command"]
    lost = finding("RLK101", "libx.so.1", "missing", "Get it.")
    other = Checked("x", "1", "error", "does not load", findings=(lost,))
    both = EnvironmentCheck("/v", (lacking, other), repair=REPAIR)
    assert check_text(both, verbose=False)[-1].plain == "    relink doctor"
