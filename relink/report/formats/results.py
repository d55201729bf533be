"""What one command found, in the form that every format is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from relink.system.findings.model import Finding


@dataclass(frozen=True, slots=True)
class WheelResult:
    """What a command found about one wheel.

    :ivar path: the wheel, as it was named.
    :ivar sha256: of the wheel, in hex; None where the command does not compute it.
    :ivar document: the JSON document, with its ``schema``.
    """

    path: str
    sha256: str | None
    findings: tuple[Finding, ...]
    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Results:
    """What a command found about all wheels that it was given.

    :ivar failures: the messages of the wheels that could not be read.
    :ivar several: whether more than one wheel was named; None where the command takes one only.
    """

    outcomes: tuple[WheelResult, ...]
    failures: tuple[str, ...] = ()
    several: bool | None = None
