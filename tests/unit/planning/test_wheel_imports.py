"""What an import says of findings about single files; the commands' tests have the import of a wheel."""

from __future__ import annotations

import pytest

from relink.loader.process import Failure
from relink.planning.processes import FailedOpening, ImportOutcome
from relink.planning.wheel_imports import apply_import
from relink.python.events import Event
from relink.system.findings.model import finding


def fails(*missing: str) -> FailedOpening:
    """A dlopen of the import that fails for want of libraries."""
    return FailedOpening(Event("library", "/site/a.so", "certain"), Failure("missing"), missing, "not found")


@pytest.mark.parametrize(
    ("outcome", "kept"),
    [
        (ImportOutcome({"a.so": "import"}), []),
        (ImportOutcome({"a.so": "import"}, failed=(fails("libx.so"),)), ["libx.so"]),
        (ImportOutcome({"a.so": "import"}, failed=(fails("liby.so"),)), ["liby.so"]),
        (ImportOutcome({"a.so": "import"}, stopped="ModuleNotFoundError: b"), ["libx.so"]),
        (ImportOutcome({"a.so": "import"}, assumed=frozenset({"b"})), ["libx.so"]),
        (ImportOutcome({"a.so": "later"}), ["libx.so"]),
    ],
)
def test_an_error_about_a_file_stays_where_the_import_has_it(outcome: ImportOutcome, kept: list[str]) -> None:
    found = apply_import([finding("RLK101", "libx.so", "not found")], outcome, "/site")
    assert [one.subject for one in found if one.level == "error"] == kept


def test_what_opens_an_installed_package_is_there() -> None:
    outcome = ImportOutcome({"a.so": "later"})
    found = finding("RLK101", "libx.so", "not found")
    assert apply_import([found], outcome, "/site", is_installed=True) == []
