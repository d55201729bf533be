"""GitHub's workflow commands, as GitHub reads them."""

from __future__ import annotations

import pytest

from relink.report.formats import FORMATS
from relink.report.formats.results import Results
from relink.system.findings.model import RULES, Finding
from tests.unit.report.formats.formatted import HOSTILE, commands, results

# GitHub


def test_commands_of_errors_come_first_and_infos_do_not_come() -> None:
    text = FORMATS["github"](
        results(
            Finding("RLK202", "warning", "a.so", "an empty entry", "Nothing."),
            Finding("RLK101", "error", "libx.so.1", "100% gone", "Add it."),
            Finding("RLK207", "info", "b.so", "left", "Nothing."),
        )
    )
    assert list(commands(text)) == [
        (
            "error",
            {"title": "RLK101 missing library"},
            "demo-1.0-py3-none-any.whl: libx.so.1: 100% gone\nAdd it.",
        ),
        (
            "warning",
            {"title": f"RLK202 {RULES['RLK202'].title}"},
            "demo-1.0-py3-none-any.whl: a.so: an empty entry\nNothing.",
        ),
    ]
    assert "100%25 gone%0AAdd it." in text


def test_one_cause_is_one_annotation() -> None:
    lost = [
        Finding(
            "RLK301", "error", f"{name}.so", "needs GLIBC_2.43", "Elsewhere.", cause="built for another glibc"
        )
        for name in "abc"
    ]
    ((_, _, message),) = commands(FORMATS["github"](results(*lost)))
    assert message == "demo-1.0-py3-none-any.whl: built for another glibc\nElsewhere."
    same = [Finding("RLK204", "warning", f"{name}.so", "gone", "Nothing.") for name in "abc"]
    ((_, _, message),) = commands(FORMATS["github"](results(*same)))
    assert message == "demo-1.0-py3-none-any.whl: a.so, b.so, c.so: gone\nNothing."


def test_a_finding_about_the_wheel_names_it_once() -> None:
    text = FORMATS["github"](
        results(Finding("RLK504", "warning", "demo-1.0-py3-none-any.whl", "tagged", "Nothing."))
    )
    assert [message for _, _, message in commands(text)] == ["demo-1.0-py3-none-any.whl: tagged\nNothing."]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_begin_no_command(name: str) -> None:
    hostile = Results(
        results(Finding("RLK101", "error", name, name, name), path=f"{name}.whl").outcomes, (name,)
    )
    assert [command for command, _, _ in commands(FORMATS["github"](hostile))] == ["error", "error"]


@pytest.mark.parametrize("code", RULES)
def test_every_title_survives_as_a_property(code: str) -> None:
    ((_, properties, _),) = commands(FORMATS["github"](results(Finding(code, "error", "x", "y", "z"))))
    assert properties == {"title": f"{code} {RULES[code].title}"}
