"""plan.findings: every code is explained and used, and patterns select what they say."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import get_args

import pytest
from msgspec.structs import replace

import relink
from relink.system.errors import UsageError
from relink.system.findings.model import RULES, Finding, Level, causes, finding, has_errors, select_findings

SOURCE = Path(relink.__file__).parent
CODE = re.compile(r"\bRLK[0-9]{3}\b")


# The rules


@pytest.mark.parametrize("code", RULES)
def test_a_rule_is_complete(code: str) -> None:
    rule = RULES[code]
    assert re.fullmatch(r"RLK[1-9][0-9]{2}", rule.code)
    assert rule.code == code
    assert rule.level in get_args(Level)
    assert 3 < len(rule.title) < 70
    assert rule.title == rule.title.strip()
    assert rule.title[-1] not in ".:"
    for text in (rule.meaning, rule.fix):
        assert text.endswith((".", ")", "`"))
        assert "\n" not in text.strip()
        assert "  " not in text
    assert len(rule.meaning) > 30
    assert rule.fix.strip()


def test_titles_differ_and_codes_are_in_order() -> None:
    assert list(RULES) == sorted(RULES)
    assert len({rule.title for rule in RULES.values()}) == len(RULES)


def test_the_codes_in_the_source_are_the_rules() -> None:
    """A code that is not explained would be a KeyError at the user; a rule that is never used explains nothing."""
    used: dict[str, str] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for code in CODE.findall(path.read_text(encoding="utf-8")):
            used.setdefault(code, path.name)
    assert {code: name for code, name in used.items() if code not in RULES} == {}
    assert set(RULES) - set(used) == set()


def test_every_finding_is_made_with_a_code_that_can_be_seen() -> None:
    """Codes are literals: none is put together, so that the test above sees all of them."""
    for path in sorted(SOURCE.rglob("*.py")):
        for text in re.findall(r"""f?["'][^"'\n]*\bRLK[^"'\n]*["']""", path.read_text(encoding="utf-8")):
            assert not re.search(r"RLK\d{0,2}\{", text), f"{path.name}: {text}"


def test_references_to_other_rules_lead_somewhere() -> None:
    text = (SOURCE / "system/findings/rules.toml").read_text(encoding="utf-8")
    assert set(CODE.findall(text)) == set(tomllib.loads(text)) == set(RULES)


def test_a_finding_has_the_level_and_the_remedy_of_its_rule_or_its_own() -> None:
    rule = RULES["RLK101"]
    assert finding("RLK101", "liba.so", "m") == Finding("RLK101", "error", "liba.so", "m", rule.fix)
    own = finding("RLK101", "liba.so", "m", "do this", "warning")
    assert (own.remedy, own.level) == ("do this", "warning")
    with pytest.raises(KeyError):
        finding("RLK000", "x", "m")


def test_a_finding_is_about_its_subject_unless_more_are_given() -> None:
    alone = finding("RLK101", "liba.so", "m")
    assert (alone.subjects, alone.cause) == (("liba.so",), None)
    more = replace(
        finding("RLK101", "liba.so", "m"), subjects=("liba.so", "libb.so"), cause="libc.so is gone"
    )
    assert (more.subject, more.subjects, more.cause) == ("liba.so", ("liba.so", "libb.so"), "libc.so is gone")


def test_has_errors() -> None:
    info, warning, error = (finding("RLK101", "x", "m", level=level) for level in get_args(Level)[::-1])
    assert not has_errors([])
    assert not has_errors([info, warning])
    assert has_errors([info, error])


# Selection

MISSING = finding("RLK101", "libhip.so.7", "m")
EMPTY = finding("RLK202", "pkg/a.so", "m")
RELATIVE = finding("RLK203", "pkg/sub/b.so", "m")
UNUSED = finding("RLK109", "--allow", "m")
ALL = (MISSING, EMPTY, RELATIVE)


@pytest.mark.parametrize(
    ("chosen", "ignored", "kept"),
    [
        ([], [], ALL),
        # an error is kept whatever is chosen
        (["RLK202"], [], (MISSING, EMPTY)),
        (["rlk202"], [], (MISSING, EMPTY)),
        (["RLK2*"], [], ALL),
        (["rlk2?3"], [], (MISSING, RELATIVE)),
        (["*"], [], ALL),
        (["pkg/*"], [], ALL),
        (["pkg/*"], ["RLK101"], (EMPTY, RELATIVE)),
        (["libhip.so.*"], [], (MISSING,)),
        (["libhip.so.7", "RLK203"], [], (MISSING, RELATIVE)),
        ([], ["RLK2*"], (MISSING,)),
        ([], ["libhip*", "*b.so"], (EMPTY,)),
        (["RLK2*"], ["pkg/sub/*"], (MISSING, EMPTY)),
        # sonames without version
        ([], ["libhip.so"], (EMPTY, RELATIVE)),
        ([], ["libhip"], (EMPTY, RELATIVE)),
        ([], ["lib?ip"], (EMPTY, RELATIVE)),
        ([], ["libhip.so.6", "RLK109"], ALL),
        (["RLK101"], ["RLK101"], ()),
        # a code that did not come up is no mistake
        (["RLK101", "RLK601"], [], (MISSING,)),
        ([], ["RLK601"], ALL),
    ],
)
def test_select(chosen: list[str], ignored: list[str], kept: tuple[Finding, ...]) -> None:
    assert select_findings(ALL, chosen, ignored) == kept


def test_subjects_are_compared_as_they_are_written() -> None:
    (found,) = select_findings(ALL[1:], ["LIBHIP*"], [])
    assert (found.code, found.subject) == ("RLK109", "LIBHIP*")


def test_a_pattern_that_matches_nothing_is_said() -> None:
    said = finding("RLK109", "libnone*", "--select or --ignore: matches no finding of this run")
    assert select_findings(ALL, [], ["libnone*"]) == (*ALL, said)
    assert select_findings(ALL, ["libnone*", "RLK101"], []) == (MISSING, said)
    assert select_findings(ALL, ["libnone*"], ["libnone*"]) == (MISSING, said)
    assert select_findings(ALL, [], ["libnone*", "RLK109"]) == ALL
    assert select_findings((), ["RLK6*"], [])[0].subject == "RLK6*"
    assert select_findings(ALL, ["RLK101", "nope", "nope"], []) == (
        MISSING,
        finding("RLK109", "nope", "--select or --ignore: matches no finding of this run"),
    )


def test_errors_that_are_ignored_do_not_count() -> None:
    assert has_errors(select_findings(ALL, [], []))
    assert not has_errors(select_findings(ALL, [], ["libhip.so.7"]))


@pytest.mark.parametrize("pattern", ["RLK999", "rlk9*", "RLK1O1", "RLKx"])
def test_codes_that_do_not_exist(pattern: str) -> None:
    for chosen, ignored in (([pattern], []), ([], [pattern])):
        with pytest.raises(
            UsageError, match=f"^{re.escape(pattern)}: no rule has such a code; `relink rules`"
        ):
            select_findings(ALL, chosen, ignored)


def test_a_finding_about_a_pattern_can_be_selected_too() -> None:
    assert select_findings((UNUSED, *ALL), ["RLK109"], []) == (UNUSED, MISSING)


def test_the_same_fact_about_several_members_is_one_cause_that_lists_them() -> None:
    found = causes(
        [
            finding("RLK202", "a.so", "an empty entry"),
            finding("RLK203", "a.so", "relative"),
            finding("RLK202", "b.so", "an empty entry"),
        ]
    )
    assert [(item.code, item.subjects) for item in found] == [
        ("RLK202", ("a.so", "b.so")),
        ("RLK203", ("a.so",)),
    ]
    assert [len(item.findings) for item in found] == [2, 1]


def test_another_level_remedy_or_profile_is_another_cause() -> None:
    first = finding("RLK120", "a.so", "m")
    others = [
        finding("RLK120", "b.so", "m", level="info"),
        finding("RLK120", "b.so", "m", "Do that."),
        finding("RLK120", "b.so", "m", profile="rocm"),
        finding("RLK121", "b.so", "m", level="warning"),
        finding("RLK120", "b.so", "n"),
    ]
    assert [len(causes([first, other])) for other in others] == [2] * len(others)


def test_what_follows_from_a_cause_is_not_told_again() -> None:
    lost = replace(finding("RLK302", "liba.so", "imports fmod@G_2"), cause="the target has G_1")
    found = causes(
        [
            lost,
            replace(
                finding("RLK301", "libb.so", "needs G_2", "Take another loader."), cause="the target has G_1"
            ),
            finding("RLK302", "libc.so", "imports other@H_1"),
        ]
    )
    assert [(item.code, item.subjects) for item in found] == [
        ("RLK302", ("liba.so",)),
        ("RLK302", ("libc.so",)),
    ]
    assert (found[0].message, found[0].whole) == ("the target has G_1", True)
    assert (found[1].message, found[1].whole) == ("imports other@H_1", False)
    assert found[0].findings[0] is lost


def test_the_worst_speaks_for_all() -> None:
    mild = replace(finding("RLK131", "liba.so", "m", level="info"), cause="c")
    severe = replace(finding("RLK130", "libhip", "n", "Choose one.", level="error", step="--x"), cause="c")
    (found,) = causes([mild, severe])
    assert (found.code, found.level, found.remedy, found.step) == ("RLK130", "error", "Choose one.", "--x")
    assert found.subjects == ("libhip",)
    assert found.findings == (severe, mild)


def test_all_subjects_of_one_finding_count() -> None:
    (found,) = causes(
        [
            replace(finding("RLK421", "GPU", "none"), subjects=("GPU", "/dev/kfd")),
            finding("RLK421", "GPU", "none"),
        ]
    )
    assert found.subjects == ("GPU", "/dev/kfd")


def test_a_list_takes_the_message_without_its_evidence() -> None:
    (found,) = causes([finding("RLK101", "liba.so", "needed by x; looked in /y", brief="needed by x")])
    assert found.message == "needed by x"


def test_one_alone_has_its_own_message() -> None:
    (found,) = causes(
        [replace(finding("RLK301", "liba.so", "needs G_2 of libc.so.6"), cause="the target has G_1")]
    )
    assert (found.message, found.whole) == ("needs G_2 of libc.so.6", False)
