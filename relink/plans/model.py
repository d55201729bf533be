"""The plan: what every NEEDED resolves to, what will be edited and why. Plain data, to JSON and back."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from relink.bounded_json import parse_json
from relink.errors import UsageError
from relink.findings.model import Finding, has_errors
from relink.plans.additions import Stub
from relink.plans.files import (
    Action,
    FilePlan,
    FileRecord,
    InterpreterChange,
    NeededDecision,
    Origin,
    RpathChange,
    Strategy,
)
from relink.plans.reliance import Reliance

__all__ = [
    "Action",
    "FilePlan",
    "InterpreterChange",
    "Load",
    "NeededDecision",
    "Origin",
    "Plan",
    "ProviderFacts",
    "RpathChange",
    "Strategy",
    "Stub",
    "TargetFacts",
    "WheelFacts",
    "from_json",
    "plain",
    "to_json",
    "typed",
]

PLAN_SCHEMA = "relink.plan/1"
_LEFT_OUT = {
    "stubs",
    "options",
    "relies_on",
    "sites",
    "relocatable",
    "metadata",
}  # where there is none


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
    :ivar digest: of the libraries that the result has of it (:func:`relink.plans.basis.with_digests`); in the plan of an output.
    """

    kind: str
    path: str
    rocm_version: str | None
    evidence: str | None = None
    found_by: str | None = None
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class LibraryFacts:
    """A library outside of the wheel that a plan rests on.

    :ivar path: as the target sees it.
    :ivar digest: of what linking depends on (:func:`relink.elf.digest.linking_digest`).
    :ivar sha256: of the whole content, hex; None where it was not computed.
    """

    path: str
    digest: str
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Basis:
    """What a plan was made from, on the machine that made it. A plan inside of a wheel has none.

    :ivar wheel: the input's absolute path.
    """

    wheel: str
    libraries: tuple[LibraryFacts, ...]


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
    :ivar options: the options that decided it (:func:`relink.options.deciding`).
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
        return not (self.changed or self.stubs)

    def save(self, path: Path | str) -> None:
        """Write the plan as JSON. The libraries that it rests on are read once more, whole, so that any change is seen.

        :raises UsageError: the file cannot be written, or a library cannot be read.
        """
        from relink.plans import saved  # noqa: PLC0415  # it needs this module

        saved.save(self, Path(path))

    @classmethod
    def load(cls, path: Path | str) -> Plan:
        """Read a plan that :meth:`save` wrote.

        :raises UsageError: it is no plan.
        """
        from relink.plans import saved  # noqa: PLC0415

        return saved.load(Path(path))


def to_json(plan: Plan) -> dict[str, Any]:
    """Return the plan as JSON data; the inverse of :func:`from_json`."""
    data = {"schema": PLAN_SCHEMA, **plain(plan)}
    return {key: value for key, value in data.items() if value or key not in _LEFT_OUT}


def plain(value: Any) -> Any:
    """Turn dataclasses and tuples into what JSON has: objects with the fields as keys, and lists."""
    if isinstance(value, FilePlan):
        value = FileRecord.of(value)
    if isinstance(value, Finding):
        return _finding(value)
    if isinstance(value, ProviderFacts):
        unsaid = {name for name in ("found_by", "digest") if getattr(value, name) is None}
        return {name: item for name, item in dataclasses.asdict(value).items() if name not in unsaid}
    if isinstance(value, FileRecord) and not value.versions:
        return {
            field.name: plain(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if field.name != "versions"
        }
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return value


def _finding(found: Finding) -> dict[str, Any]:
    """Leave out what says nothing more: the subjects where there is one, and what is None of cause, brief and step."""
    data = {field.name: plain(getattr(found, field.name)) for field in dataclasses.fields(found)}
    if found.subjects == (found.subject,):
        del data["subjects"]
    for key in ("cause", "brief", "step"):
        if data[key] is None:
            del data[key]
    return data


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
    return cast("Plan", typed(Plan, read, "plan", strict=strict))


def typed(kind: Any, value: Any, where: str, *, strict: bool = True) -> Any:
    """Turn JSON data into `kind`, checking every step; `where` names the place in messages.

    :param strict: a key that `kind` does not know is an error; otherwise it is passed over.
    :raises UsageError: the data does not fit.
    """
    if kind is FilePlan:
        record = typed(FileRecord, value, where, strict=strict)
        try:
            return record.plan()
        except ValueError as error:
            raise UsageError(f"{where}.{error}") from error
    origin = typing.get_origin(kind)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if not isinstance(value, dict):
            raise UsageError(f"{where}: an object was expected")
        hints = typing.get_type_hints(kind)
        fields = {field.name: field for field in dataclasses.fields(kind)}
        unknown = sorted(set(value) - set(fields))
        missing = sorted(
            name
            for name, field in fields.items()
            if name not in value
            and field.default is dataclasses.MISSING
            and field.default_factory is dataclasses.MISSING
        )
        if missing or (unknown and strict):
            raise UsageError(f"{where}: unknown keys {unknown}, missing keys {missing}")
        return kind(
            **{
                name: typed(hints[name], item, f"{where}.{name}", strict=strict)
                for name, item in value.items()
                if name in fields
            }
        )
    if origin is tuple:
        arguments = typing.get_args(kind)
        if not isinstance(value, list):
            raise UsageError(f"{where}: a list was expected")
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(
                typed(arguments[0], item, f"{where}[{number}]", strict=strict)
                for number, item in enumerate(value)
            )
        if len(value) != len(arguments):
            raise UsageError(f"{where}: {len(arguments)} items were expected")
        pairs = enumerate(zip(arguments, value, strict=True))
        return tuple(typed(part, item, f"{where}[{number}]", strict=strict) for number, (part, item) in pairs)
    if origin in (dict, Mapping):
        if not isinstance(value, dict):
            raise UsageError(f"{where}: an object was expected")
        item_kind = typing.get_args(kind)[1]
        return {key: typed(item_kind, item, f"{where}.{key}", strict=strict) for key, item in value.items()}
    if origin in (typing.Union, types.UnionType):
        if value is None:
            return None
        kinds = [part for part in typing.get_args(kind) if part is not type(None)]
        if len(kinds) > 1 and not isinstance(value, dict | list):  # plain values alone come in several kinds
            return typed(next((part for part in kinds if type(value) is part), kinds[0]), value, where)
        return typed(kinds[0], value, where, strict=strict)
    if origin is Literal:
        if value not in typing.get_args(kind):
            raise UsageError(f"{where}: {value!r} is none of {typing.get_args(kind)}")
        return value
    if kind is Any:
        return value
    if kind is float and type(value) is int:
        return float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise UsageError(f"{where}: {kind.__name__} was expected")
    return value
