"""Pages of the indexes that a site has: one for each target.

Source: "Simple repository API" of the PyPA specifications: PEP 503 (HTML), PEP 691 (JSON), PEP 592 (yanks), PEP 658 and PEP 714
(metadata files), PEP 700 (sizes and versions).
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from relink.wheel.naming import parse_wheel_name

FILES = "files"
_UP = "../../../"  # from the page of a project to the top of the site
parsed_name = lru_cache(10_000)(parse_wheel_name)  # of one wheel for each target


def listed_file(row: Any, record: Mapping[str, Any], originals: str) -> dict[str, Any] | None:
    """Return what an index has of a result, by the keys of PEP 691; None where that is nothing.

    :param row: as :meth:`relink.indexes.build.store.Store.listed` gives it, with its record.
    :param originals: as a recipe has it.
    """
    file, wheel, uploaded = record.get("file"), record.get("wheel"), row["uploaded"]
    original = row["status"] == "original"
    if wheel is None or (original and originals == "omit"):
        return None
    if not (original and uploaded) and (seconds := row["allocated"]) is not None:
        uploaded = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if original and originals == "link" and not wheel["url"].startswith("file:"):
        name, sha256, address = row["filename"], row["input"], wheel["url"]
        file = {"size": wheel["size"], "requires_python": None, "metadata": None}
    elif file is None:
        return None
    else:
        name, sha256 = file["filename"], file["sha256"]
        address = f"{_UP}{FILES}/{sha256[:2]}/{sha256}/{quote(name)}"
    metadata = file["metadata"] and {"sha256": file["metadata"]}
    found = {
        "filename": name,
        "url": address,
        "hashes": {"sha256": sha256},
        "yanked": row["yanked"] or row["yanked"] is not None,
        "size": file["size"],
        "upload-time": uploaded,
        "requires-python": file["requires_python"] or wheel["requires_python"],
        "core-metadata": metadata,
        "dist-info-metadata": metadata,
    }
    return {key: value for key, value in found.items() if value is not None}


def project_pages(project: str, files: Iterable[Mapping[str, Any]]) -> dict[str, bytes]:
    """Return the page of a project as HTML and as JSON, by name of file; of two files of a name the first is taken."""

    def order(file: Mapping[str, Any]) -> tuple[Any, ...]:
        return parsed_name(file["filename"]).version, file["filename"], file["hashes"]["sha256"]

    named: dict[str, Mapping[str, Any]] = {}
    for file in sorted(files, key=order):
        named.setdefault(file["filename"], file)
    data = {
        # PEP 700 requires a size of every file from 1.1 on.
        "meta": {"api-version": "1.1" if all("size" in file for file in named.values()) else "1.0"},
        "name": project,
        "versions": list(dict.fromkeys(str(parsed_name(name).version) for name in named)),
        "files": list(named.values()),
    }
    return {
        "index.html": _html(f"Links for {project}", map(_anchor, named.values())),
        "index.json": json_bytes(data),
    }


def list_pages(index: str, projects: Sequence[str]) -> dict[str, bytes]:
    """Return the page that lists the projects of an index, likewise."""
    links = (f'<a href="{project}/">{project}</a>' for project in projects)
    listed = [{"name": project} for project in projects]
    return {
        "index.html": _html(f"Index {index}", links),
        "index.json": json_bytes({"meta": {"api-version": "1.1"}, "projects": listed}),
    }


def json_bytes(data: Any) -> bytes:
    """Return JSON as a site has it."""
    return json.dumps(data, separators=(",", ":")).encode() + b"\n"


def _anchor(file: Mapping[str, Any]) -> str:
    attributes = {"href": f"{file['url']}#sha256={file['hashes']['sha256']}"}
    if "requires-python" in file:
        attributes["data-requires-python"] = file["requires-python"]
    if yanked := file["yanked"]:
        attributes["data-yanked"] = "" if yanked is True else yanked
    for key in ("core-metadata", "dist-info-metadata"):
        if key in file:
            attributes[f"data-{key}"] = f"sha256={file[key]['sha256']}"
    shown = " ".join(f'{key}="{html.escape(value)}"' for key, value in attributes.items())
    return f"<a {shown}>{html.escape(file['filename'])}</a>"


def _html(title: str, links: Iterable[str]) -> bytes:
    lines = "".join(f"{link}<br>\n" for link in links)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="pypi:repository-version" content="1.0">\n'
        f"<title>{html.escape(title)}</title>\n</head>\n<body>\n<h1>{html.escape(title)}</h1>\n{lines}</body>\n</html>\n"
    ).encode()
