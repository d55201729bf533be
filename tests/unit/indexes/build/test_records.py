"""index.records: what is kept of a result, and the command that gives it again."""

from __future__ import annotations

import shlex

from relink.indexes.build.recipe import IndexTarget
from relink.indexes.build.records import TEXT, record_of, record_of_error
from relink.system.errors import WheelError
from relink.wheel.naming import parse_wheel_name
from tests.support.reports import isa_block, sample_report

NAME = parse_wheel_name("demo-1.0-py3-none-any.whl")
TARGET = IndexTarget("one", ("/a b", "/c"), interpreter="/ld.so", gpus=("RX 6750 XT",), stub=("auto",))


def test_a_command_to_type() -> None:
    words = shlex.split(record_of(sample_report(), NAME, TARGET)["command"])
    assert words[:2] == ["relink", "demo==1.0"]
    assert words[2:] == [
        *("--prefix", "/a b", "--prefix", "/c", "--interpreter", "/ld.so"),
        *("--gpu", "RX 6750 XT", "--stub", "auto"),
    ]


def test_what_is_kept_is_short() -> None:
    from dataclasses import replace  # noqa: PLC0415

    block = isa_block()
    block["gpus"] = [{"target": "gfx9", "state": "slow"}]
    record = record_of(replace(sample_report(gone=20), isa=block), NAME, TARGET)
    assert record["gpus"] == {"gfx9": "slow"}
    assert all(len(cause["subjects"]) <= 6 for cause in record["causes"])
    assert {cause["level"] for cause in record["causes"]} <= {"error", "warning"}
    shown = record_of_error(WheelError("x" * 9999))
    assert len(shown["verdict"]["text"]) == len(shown["causes"][0]["message"]) == TEXT


def test_a_directory_of_a_task_is_not_kept() -> None:
    text = record_of(sample_report(output=True), NAME, TARGET)["verdict"]["text"]
    assert "Written to demo-1.0+rocm7.whl" in text
