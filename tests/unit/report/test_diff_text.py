"""How two wheels differ, for people and as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from relink.report.diff_text import (
    MemberChange,
    WheelDiff,
    WheelSide,
    diff_findings,
    to_json,
    to_text,
)

OLD = WheelSide("/in/old.whl", "0" * 64, "demo", "1.0", ("py3-none-any",), 100)
NEW = WheelSide("/out/new.whl", "1" * 64, "demo", "1.0+rocm7", ("py3-none-any",), 101)
CHANGE = MemberChange("demo/a.so", 10, 10, 0o100755, 0o100755)


def compared(**facts: Any) -> WheelDiff:
    usual: dict[str, Any] = {
        "old": OLD,
        "new": NEW,
        "renamed": (),
        "added": (),
        "removed": (),
        "changed": (),
        "unchanged": 2,
        "planned": True,
        "verdict": "unexplained",
        "unexplained": (),
    }
    return WheelDiff(**(usual | facts))


def shown(verbose: bool = False, **facts: Any) -> list[str]:
    return [line.plain for line in to_text(compared(**facts), verbose=verbose)]


@pytest.mark.parametrize(
    ("facts", "last"),
    [
        ({"verdict": "identical"}, "identical"),
        ({"verdict": "same content"}, "same content, packed differently"),
        (
            {"verdict": "only what the plan says", "reference": "of p.json", "added": ("a",)},
            "made again: equal (0 changed, 1 added, 0 removed, 2 unchanged); the plan is of p.json",
        ),
        (
            {"verdict": "unexplained", "reference": "of p.json", "unexplained": ("x", "y")},
            "made again: 2 differences (0 changed, 0 added, 0 removed, 2 unchanged); the plan is of p.json",
        ),
        (
            {"verdict": "not judged"},
            (
                "0 changed, 0 added, 0 removed, 2 unchanged; nothing is judged: "
                "--prefix DIR or --plan FILE compares with what relink makes of OLD"
            ),
        ),
    ],
)
def test_the_last_line_is_the_verdict(facts: dict[str, Any], last: str) -> None:
    assert shown(**facts)[-1] == last
    assert compared(**facts).ok is (facts["verdict"] != "unexplained")


def test_what_was_taken_is_told_before_the_verdict() -> None:
    assert shown(verdict="only what the plan says", notes=("taken from NEW: x",))[-2] == "taken from NEW: x"


def test_a_changed_member() -> None:
    change = MemberChange("demo/a.so", 10, 12, 0o100644, 0o100755)
    assert shown(changed=(change,))[2:-1] == [
        "changed  demo/a.so  10 -> 12 bytes",
        "    mode 100644 -> 100755",
    ]
    assert shown(changed=(CHANGE,))[2:-1] == ["changed  demo/a.so  10 bytes"]


def test_much_is_shortened_unless_it_is_asked_for() -> None:
    names = tuple(f"demo/{number}" for number in range(45))
    facts: dict[str, Any] = {
        "added": names,
        "changed": (CHANGE,) * 41,
        "unexplained": names,
    }
    text = shown(**facts)
    assert "added    … and 5 more (--verbose shows them)" in text
    assert "… and 1 more changed members (--verbose shows them)" in text
    assert len([line for line in text if line.startswith("unexplained: ")]) == 45  # never shortened
    whole = shown(verbose=True, **facts)
    assert not [line for line in whole if "--verbose" in line or "more" in line]


def test_json_has_everything() -> None:
    data = json.loads(json.dumps(to_json(compared(changed=(CHANGE,), renamed=(("a", "b"),)))))
    assert data["schema"] == "relink.comparison/1"
    assert data["old"]["path"] == "/in/old.whl"
    assert data["renamed"] == [["a", "b"]]
    assert data["changed"][0]["path"] == "demo/a.so"


def test_each_unexplained_difference_is_a_finding_about_the_new_wheel() -> None:
    found = diff_findings(compared(unexplained=("demo/a.so: x", "demo/b.so: added")))
    assert [(item.code, item.subject, item.message) for item in found] == [
        ("RLK621", "new.whl", "demo/a.so: x; relinking the old wheel anew does not give this"),
        ("RLK621", "new.whl", "demo/b.so: added; relinking the old wheel anew does not give this"),
    ]
    assert {item.level for item in found} == {"error"}
    assert diff_findings(compared(verdict="only what the plan says", added=("x",))) == ()
