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
REPAIR = ("relink", "repair", "--all", "--python", "my venv/bin/python")


@pytest.mark.parametrize(
    ("distributions", "level", "text"),
    [
        ((WORKS,), "info", "Works: 1 package with native code in /v."),
        ((WORKS, PARTLY), "warning", "Works: 2 packages with native code in /v."),
        ((WORKS, BROKEN), "error", "onnxruntime-rocm does not work; 2 packages with native code in /v."),
        ((), "info", "Works: 0 packages with native code in /v."),
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
