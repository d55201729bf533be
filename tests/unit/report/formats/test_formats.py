"""The formats that programs read; here the one that is the documents themselves."""

from __future__ import annotations

import json

from relink.report.formats import FORMATS
from relink.report.formats.results import Results, WheelResult

ONE, TWO = (
    WheelResult(f"{name}.whl", None, (), {"schema": name, "text": "\udcff\n"}) for name in ("one", "two")
)


def test_one_wheel_is_one_document() -> None:
    text = FORMATS["json"](Results((ONE,)))
    assert json.loads(text) == ONE.document
    assert text.isascii()
    assert text.endswith("}\n")


def test_one_shape_for_one_and_many() -> None:
    alone = json.loads(FORMATS["json"](Results((ONE,), several=False)))
    assert alone == {**ONE.document, "reports": [ONE.document], "failures": []}
    many = json.loads(FORMATS["json"](Results((ONE, TWO), ("three.whl: no archive",), several=True)))
    assert many["reports"] == [ONE.document, TWO.document]
    assert (many["schema"], many["failures"]) == ("relink.reports/1", ["three.whl: no archive"])
    none = json.loads(FORMATS["json"](Results((), ("one.whl: no archive",), several=False)))
    assert (none["schema"], none["reports"], none["failures"]) == (
        "relink.reports/1",
        [],
        ["one.whl: no archive"],
    )


def test_nothing_stands_for_the_only_wheel_that_could_not_be_read() -> None:
    assert FORMATS["json"](Results((), ("one.whl: no archive",))) == ""


def test_the_other_formats_tell_failures_too() -> None:
    failed = Results((ONE,), ("two.whl: no archive",), several=True)
    assert "two.whl: no archive" in FORMATS["sarif"](failed)
    assert FORMATS["github"](failed) == "::error title=relink::two.whl: no archive\n"
