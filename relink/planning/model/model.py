"""The plan: what every NEEDED resolves to, what will be edited and why. Plain data, to JSON and back."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from relink.elf.stub import StubFunction
from relink.planning.model.basis import Basis, provider_digests, with_contents
from relink.planning.model.files import (
    ChangedRequirement,
    FilePlan,
    Origin,
    Reliance,
    Stub,
)
from relink.system.atomic import save
from relink.system.bounded_json import JSON_LIMIT, parse_json, typed
from relink.system.errors import UsageError
from relink.system.findings.model import Finding, has_errors
from relink.system.safe_open import read_text

PLAN_SCHEMA = "relink.plan/1"


@dataclass(frozen=True, slots=True)
class Load:
    """One object asking for another, as it will be after the edit: an edge of the dependency graph.

    :ivar requester: the path of the object that needs it; members are shown as ``$WHEEL/…``.
    :ivar resolved: the path that serves it, or None where nothing does; `found_by` is the loader rule that finds it.
    """

    requester: str
    soname: str
    resolved: str | None
    found_by: str | None
    origin: Origin


@dataclass(frozen=True, slots=True)
class DlopenEdge:
    """A library that an object opens by dlopen, as far as that is known.

    :ivar known_by: ``note``, ``profile NAME: REASON``, or ``string``: a name in its data, which may be there for another reason.
    :ivar resolved: the path that the loader finds, or None; `found_by` is its rule.
    """

    opener: str
    name: str
    known_by: str
    resolved: str | None
    found_by: str | None


@dataclass(frozen=True, slots=True)
class WheelFacts:
    """The input: its path as given, sha256 (hex), and what its name says."""

    path: str
    sha256: str
    name: str
    version: str
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """The loader that the plan was made for."""

    interpreter: str
    glibc: str
    directories: tuple[str, ...]
    python: str | None = None
    sysroot: str = "/"


@dataclass(frozen=True, slots=True)
class ProviderFacts:
    """One provider, with the ROCm release it was found to be and what says so.

    :ivar found_by: where it was found, if the user did not name it.
    :ivar digest: of the libraries that the result has of it (:func:`with_digests`); in the plan of
        an output.
    """

    kind: str
    path: str
    rocm_version: str | None
    evidence: str | None = None
    found_by: str | None = None
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """All decisions about one wheel. ``apply`` carries it out and decides nothing.

    :ivar output: the file name of the result; the input's own where nothing changes.
    :ivar loads: who asks for whom in the closures of all files, each edge once.
    :ivar basis: what it was made from; None in a plan that a wheel contains.
    :ivar stubs: libraries that are written into the output.
    :ivar relies_on: other packages that members find in the same site-packages; `sites`: those that had them.
    :ivar relocatable: whether the result works wherever these are installed beside it.
    :ivar metadata: the fields that are added to METADATA.
    :ivar opened: what the objects of all closures open by dlopen, as far as that is known, each edge once.
    :ivar options: the options that decided it (:func:`relink.planning.options.list_deciding_words`).
    :ivar requirements: the requirements in METADATA that change; `removed`: the members that the output has not.
    """

    wheel: WheelFacts
    output: str
    target: TargetFacts
    providers: tuple[ProviderFacts, ...]
    files: tuple[FilePlan, ...]
    findings: tuple[Finding, ...] = ()
    loads: tuple[Load, ...] = ()
    basis: Basis | None = None
    stubs: tuple[Stub, ...] = ()
    relies_on: tuple[Reliance, ...] = ()
    sites: tuple[str, ...] = ()
    relocatable: bool = False
    metadata: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    opened: tuple[DlopenEdge, ...] = ()
    requirements: tuple[ChangedRequirement, ...] = ()
    removed: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether no finding is an error: what :func:`relink.apply` requires."""
        return not has_errors(self.findings)

    @property
    def changed(self) -> tuple[FilePlan, ...]:
        """The files that change."""
        return tuple(file for file in self.files if file.changed)

    @property
    def empty(self) -> bool:
        """Whether nothing changes."""
        return not (self.changed or self.stubs or self.requirements or self.removed)

    def save(self, path: Path | str) -> None:
        """Write the plan as JSON. The libraries that it rests on are read once more, whole, so that any change is seen.

        :raises UsageError: the file cannot be written, or a library cannot be read.
        """
        basis = self.basis and with_contents(self.basis, self.target.sysroot)
        text = json.dumps(to_json(replace(self, basis=basis)), indent=1) + "\n"
        save(Path(path), text, "the plan")

    @classmethod
    def load(cls, path: Path | str) -> Plan:
        """Read a plan that :meth:`save` wrote.

        :raises UsageError: it is no plan.
        """
        try:
            text = read_text(Path(path), JSON_LIMIT)
        except (OSError, ValueError) as error:
            raise UsageError(f"{path}: the plan cannot be read ({error})") from error
        return from_json(text)


def with_digests(plan: Plan) -> Plan:
    """Return the plan with a digest for each provider (:func:`relink.planning.model.basis.provider_digests`).

    :raises UsageError: a library cannot be read.
    """
    digests = provider_digests((item.path for item in plan.providers), plan.files, plan.target.sysroot)
    pairs = zip(plan.providers, digests, strict=True)
    return replace(plan, providers=tuple(replace(provider, digest=digest) for provider, digest in pairs))


# Keys that JSON has only where they say something; none of them was in relink 0.1.0.
_LEFT_OUT: dict[type, frozenset[str]] = {
    FilePlan: frozenset({"versions"}),
    Finding: frozenset({"cause", "brief", "step", "choices", "without"}),
    Plan: frozenset(
        {
            "stubs",
            "opened",
            "options",
            "relies_on",
            "sites",
            "relocatable",
            "metadata",
            "requirements",
            "removed",
        }
    ),
    ProviderFacts: frozenset({"found_by", "digest"}),
    Stub: frozenset({"needed", "search_path", "search_kind"}),
    StubFunction: frozenset({"text"}),
}


def to_json(plan: Plan) -> dict[str, Any]:
    """Return the plan as JSON data; the inverse of :func:`from_json`."""
    return {"schema": PLAN_SCHEMA, **plain(plan)}


def plain(value: Any) -> Any:
    """Turn dataclasses and tuples into what JSON has: objects with the fields as keys, and lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        left_out = _LEFT_OUT.get(type(value), ())
        fields = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
        data = {
            name: plain(part)
            for name, part in fields
            if part not in (None, (), False) or name not in left_out
        }
        if isinstance(value, Finding) and value.subjects == (value.subject,):
            del data["subjects"]
        return data
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return value


def from_json(data: Mapping[str, Any] | str, *, strict: bool = True) -> Plan:
    """Read a plan that :func:`to_json` made, from data or text.

    :param strict: a key that this relink does not know is an error: what is to be carried out must be known in full.
    :raises UsageError: it is not one; names the place.
    """
    try:
        read = parse_json(data) if isinstance(data, str) else dict(data)
    except (ValueError, TypeError) as error:
        raise UsageError(f"the plan is not JSON ({error})") from error
    if not isinstance(read, dict) or read.pop("schema", None) != PLAN_SCHEMA:
        raise UsageError(
            f"this is not a plan of the kind that this relink writes ({PLAN_SCHEMA}); relink the vendor's wheel anew"
        )
    return plan_of(read, "plan", strict=strict)


def plan_of(data: Mapping[str, Any], where: str, *, strict: bool) -> Plan:
    """Read the fields of a plan.

    :param where: names the data in messages.
    :raises UsageError: it is none; names the place.
    """
    plan = cast("Plan", typed(Plan, data, where, strict=strict))
    for number, file in enumerate(plan.files):
        try:
            file.check()
        except ValueError as error:
            raise UsageError(f"{where}.files[{number}].{error}") from error
    return plan
