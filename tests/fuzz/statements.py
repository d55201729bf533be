"""Statements (:mod:`relink.runs.statement`) and plans that somebody else wrote: values out of place, and damaged text.

An input is the text of a statement, and behind `SEPARATOR` perhaps the plan of the wheel that it is about. A statement that has a
wrong digest of the wheel is not read to its end, so `WHEEL` and `PLAN` in it stand for the digests as they come out.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from rich.console import Console

from relink.planning.model.model import plain
from relink.report.lines import show
from relink.report.text import findings_text
from relink.runs.statement import check_statement
from tests.fuzz.inputs import NUMBERS, Scene, edited_text
from tests.support.wheels import make_wheel
from tests.support.works import TAG

__all__ = ["PLAN", "SEPARATOR", "WHEEL", "check_statement_input", "make_statement_input"]

SEPARATOR: Final = b"\x1e"
WHEEL, PLAN = "<sha256 of the wheel>", "<sha256 of the plan>"
_PATHS: Final = (
    *(
        "/",
        "//",
        "/\0",
        "/\ud800",
        "/dev/zero",
        "/dev/tty",
        "/proc/self/mem",
        "/proc/self/environ",
        "/../etc/passwd",
    ),
    *("relative", "/nowhere", "/x" * 3000, "/" + "x" * 300, "/a b", "/%00", "/\udcff", "/\n"),
)
_ODD: Final[tuple[Any, ...]] = (
    *(
        None,
        True,
        0,
        -1,
        1.5,
        10**4000,
        float("nan"),
        "",
        "x",
        "\0",
        "a\0b",
        "\n",
        "\x1b[2J",
        "\ud800",
        "\udcff",
        "é",
    ),
    *(
        "x" * 5000,
        "file:///dev/zero",
        "file://",
        "file:///%00",
        WHEEL,
        PLAN,
        "0" * 64,
        [],
        {},
        [[]],
        [None],
        [{}],
    ),
    *({"": None}, {"sha256": 1}, {"digest": {"sha256": WHEEL}}, [{"digest": {"sha256": WHEEL}}], *_PATHS),
    *([{"name": [], "digest": {"sha256": {}}}], [{"uri": {}, "digest": {"sha256": PLAN}}]),
)


def _places(data: Any, *path: Any) -> Iterator[tuple[Any, ...]]:
    """Every place in JSON data, as keys and indices."""
    for key in data if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ():
        yield (*path, key)
        yield from _places(data[key], *path, key)


def _inside(data: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        data = data[key]
    return data


def misplaced(data: Any, rng: random.Random) -> Any:
    """Replace, remove, add, repeat and exchange values anywhere in JSON data, which is changed."""
    for _ in range(rng.choice((0, 1, 1, 2, 4))):
        places = [*_places(data)]
        if not places:
            break
        # A plan has many more places in its files than elsewhere; one of each depth is as good as another.
        depth = len(rng.choice(places))
        *parent, key = rng.choice([place for place in places if len(place) <= depth])
        holder = _inside(data, tuple(parent))
        match rng.randrange(6):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, list):
                holder.insert(key, holder[key])
            case 2:
                holder[key] = json.loads(json.dumps(_inside(data, rng.choice(places))))
            case 3 if isinstance(holder, dict) and isinstance(key, str):
                holder[rng.choice(("", "x", "\0", "uri", "digest", "sha256", "name"))] = holder.pop(key)
            case 4 if isinstance(holder[key], list):
                holder[key] = holder[key] * rng.choice((2, 50))
            case _:
                holder[key] = rng.choice((*_ODD, *NUMBERS))
    return data


def _text(data: Any, rng: random.Random) -> bytes:
    text = json.dumps(data, indent=rng.choice((None, 1))).encode()
    return edited_text(text, rng) if rng.random() < 0.2 else text


def make_statement_input(scene: Scene, rng: random.Random) -> bytes:
    """Make the text of a statement, and often a plan to go with it."""
    statement = json.loads((scene.scratch.parent / "statement.json").read_bytes())
    statement["subject"][0]["digest"]["sha256"] = WHEEL
    for item in statement["predicate"]["runDetails"]["byproducts"]:
        item["digest"]["sha256"] = PLAN
    plan = json.loads((scene.scratch.parent / "plan.json").read_bytes())
    if rng.random() < 0.3:
        # Only a library that both name is opened.
        path = rng.choice(_PATHS)
        plan["files"][0]["closure"][0][1] = path
        plan["target"]["sysroot"] = rng.choice(("/", "/nowhere", str(scene.works.prefix), *_PATHS))
        named = {"uri": "file://" + quote(path, errors="replace"), "digest": {"sha256": "0" * 64}}
        statement["predicate"]["buildDefinition"]["resolvedDependencies"].append(named)
        return _text(statement, rng) + SEPARATOR + _text(plan, rng)
    text = _text(misplaced(statement, rng) if rng.random() < 0.7 else statement, rng)
    return text if rng.random() < 0.3 else text + SEPARATOR + _text(misplaced(plan, rng), rng)


def check_statement_input(scene: Scene, data: bytes) -> None:
    """What agrees names the wheel and its plan by their digests; what does not agree is found, and can be shown."""
    text, apart, plan = data.partition(SEPARATOR)
    if not apart:
        plan = (scene.scratch.parent / "plan.json").read_bytes()
    members: dict[str, bytes | Path] = {
        "demo/a.so": scene.works.library,
        "demo-1.0.dist-info/relink.json": plan,
    }
    wheel = make_wheel(scene.scratch / "w", members, tag=TAG)
    digests = {WHEEL: hashlib.sha256(wheel.read_bytes()).hexdigest(), PLAN: hashlib.sha256(plan).hexdigest()}
    for mark, digest in digests.items():
        text = text.replace(mark.encode(), digest.encode())
    path = scene.scratch / "statement.json"
    path.write_bytes(text)
    findings = check_statement(path, wheel)
    show(Console(file=io.StringIO()), *findings_text(findings, verbose=True))
    json.dumps(plain(findings))
    assert all(found.code == "RLK620" and found.subject and found.message for found in findings)
    if not findings:
        assert all(digest.encode() in text for digest in digests.values())
