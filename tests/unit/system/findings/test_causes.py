"""findings.causes: one cause is told once, with all its subjects."""

from __future__ import annotations

from dataclasses import replace

from relink.system.findings.causes import causes
from relink.system.findings.model import finding


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
