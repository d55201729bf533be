"""Pages of the indexes that a site has: one for each target.

Source: "Simple repository API" of the PyPA specifications: PEP 503 (HTML), PEP 691 (JSON), PEP 592 (yanks), PEP 658 and PEP 714
(metadata files), PEP 700 (sizes and versions).
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from relink.wheel.naming import WheelName

FILES = "files"
_UP = "../../../"  # from the page of a project to the top of the site


@dataclass(frozen=True, slots=True)
class SiteFile:
    """One wheel of an index.

    :ivar url: its address at the source, where it is not in the site; None for a file of the site.
    :ivar metadata: SHA-256 of its metadata file; None where there is none beside it.
    :ivar uploaded: when, in the form of PEP 700.
    """

    name: WheelName
    sha256: str
    size: int | None
    requires_python: str | None
    yanked: str | None
    url: str | None = None
    metadata: str | None = None
    uploaded: str | None = None

    @property
    def address(self) -> str:
        """Its address in the page of its project."""
        place = f"{FILES}/{self.sha256[:2]}/{self.sha256}/{quote(self.name.filename)}"
        return self.url or f"{_UP}{place}"


def project_pages(project: str, files: Iterable[SiteFile]) -> dict[str, bytes]:
    """Return the page of a project as HTML and as JSON, by name of file; of two files of a name the first is taken."""
    named: dict[str, SiteFile] = {}
    for file in sorted(files, key=lambda one: (one.name.version, one.name.filename, one.sha256)):
        named.setdefault(file.name.filename, file)
    own = list(named.values())
    return {
        "index.html": _html(f"Links for {project}", map(_anchor, own)),
        "index.json": _project_json(project, own),
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


def _anchor(file: SiteFile) -> str:
    attributes = {"href": f"{file.address}#sha256={file.sha256}"}
    if file.requires_python is not None:
        attributes["data-requires-python"] = file.requires_python
    if file.yanked is not None:
        attributes["data-yanked"] = file.yanked
    if file.metadata is not None:
        for key in ("data-core-metadata", "data-dist-info-metadata"):
            attributes[key] = f"sha256={file.metadata}"
    shown = " ".join(f'{key}="{html.escape(value)}"' for key, value in attributes.items())
    return f"<a {shown}>{html.escape(file.name.filename)}</a>"


def _project_json(project: str, files: Sequence[SiteFile]) -> bytes:
    rows: list[dict[str, Any]] = []
    for file in files:
        row = {
            "filename": file.name.filename,
            "url": file.address,
            "hashes": {"sha256": file.sha256},
            "yanked": file.yanked or file.yanked is not None,
            "size": file.size,
            "upload-time": file.uploaded,
            "requires-python": file.requires_python,
        }
        for key in ("core-metadata", "dist-info-metadata"):
            row[key] = file.metadata and {"sha256": file.metadata}
        rows.append({key: value for key, value in row.items() if value is not None})
    versions = dict.fromkeys(str(file.name.version) for file in files)
    # PEP 700 requires a size of every file from 1.1 on.
    version = "1.1" if all(file.size is not None for file in files) else "1.0"
    return json_bytes(
        {"meta": {"api-version": version}, "name": project, "versions": list(versions), "files": rows}
    )


def _html(title: str, links: Iterable[str]) -> bytes:
    lines = "".join(f"{link}<br>\n" for link in links)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="pypi:repository-version" content="1.0">\n'
        f"<title>{html.escape(title)}</title>\n</head>\n<body>\n<h1>{html.escape(title)}</h1>\n{lines}</body>\n</html>\n"
    ).encode()
