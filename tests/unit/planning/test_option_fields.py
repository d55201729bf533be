"""Options as fields of a dataclass."""

from __future__ import annotations

from dataclasses import dataclass

from relink.planning.option_fields import LINK, Option, mebibytes, option_table


@dataclass(frozen=True)
class Sample:
    """Two options, and a field that is none."""

    first_word: str | None = Option(("run",), LINK, "A word.").field(None)
    second: bool = Option(("run",), LINK, "A flag.", ("--other", "-o")).field(True)
    third: int = 3


def test_a_field_names_its_option() -> None:
    assert {name: option.names for name, option in option_table(Sample).items()} == {
        "first_word": ("--first-word",),
        "second": ("--other", "-o"),
    }
    assert Sample() == Sample(None, True, 3)


def test_mebibytes() -> None:
    assert (mebibytes(None), mebibytes(300)) == (None, 300 << 20)
