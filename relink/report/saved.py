"""Read the JSON that relink printed or wrote before: a report (``relink.report/1``) or a plan, as a :class:`Report`."""

from __future__ import annotations

from typing import Any

from relink.planning.model import model as plans
from relink.report.formats import SCHEMA as SEVERAL
from relink.report.model import SCHEMA, Report, from_json
from relink.system.bounded_json import parse_json
from relink.system.errors import UsageError
from relink.system.text import pluralize

__all__ = ["read_saved"]


def read_saved(text: str, name: str) -> tuple[Report, bool]:
    """Read what ``relink --json`` printed, or the ``relink.json`` of a wheel; the latter is a plan, and then True is returned.

    :param name: of the file, for messages.
    :raises UsageError: it is neither; says why.
    """
    try:
        data: Any = parse_json(text)
    except ValueError as error:
        raise UsageError(f"{name}: this is not JSON ({error})") from error
    # A list is what relink 0.1.0 printed of several wheels.
    reports = data.get("reports") if isinstance(data, dict) and data.get("schema") == SEVERAL else data
    if isinstance(reports, list):
        if len(reports) != 1:
            count = pluralize(len(reports), "report")
            raise UsageError(f"{name}: {count}; a page shows one: keep one of them in a file of its own")
        data = reports[0]
    schema = data.get("schema") if isinstance(data, dict) else None
    try:
        if schema == SCHEMA:
            return from_json(data), False
        if schema == plans.PLAN_SCHEMA:
            return Report((), plans.from_json(data, strict=False), None), True
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from error
    raise UsageError(
        f"{name}: this is no report of relink (`relink WHEEL --json` prints one, {SCHEMA}) and no plan ({plans.PLAN_SCHEMA})"
    )
