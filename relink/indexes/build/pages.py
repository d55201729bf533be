"""Pages of the indexes that a site has: one for each target.

Source: "Simple repository API" of the PyPA specifications: PEP 503 (HTML), PEP 691 (JSON), PEP 592 (yanks), PEP 658 and PEP 714
(metadata files), PEP 700 (sizes and versions).
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from packaging.utils import NormalizedName

from relink.wheel.naming import WheelName

__all__ = ["FILES", "IndexPages", "SiteFile", "Write"]

FILES = "files"
_UP = "../../../"  # from the page of a project to the top of the site

_END = b"</body>\n</html>\n"

Write = Callable[[str, bytes], None]
"""Takes a path below the site and the content of the file; more content where the file has been written before."""


@dataclass(frozen=True, slots=True)
class SiteFile:
    """One wheel of an index.

    :ivar url: its address at the source, where it is not in the site; None for a file of the site.
    :ivar metadata: SHA-256 of its metadata file; None where there is none beside it.
    :ivar beside: endings of the files that lie beside it.
    :ivar uploaded: when, in the form of PEP 700.
    """

    name: WheelName
    sha256: str
    size: int | None
    requires_python: str | None
    yanked: str | None
    url: str | None = None
    metadata: str | None = None
    beside: tuple[str, ...] = ()
    uploaded: str | None = None

    @property
    def path(self) -> str:
        """Where it is, below the site, percent-encoded; its whole address where it is not in the site."""
        return self.url or f"{FILES}/{self.sha256[:2]}/{self.sha256}/{quote(self.name.filename)}"

    def address(self, up: str) -> str:
        """Its address in a page from which `up` leads to the top of the site."""
        return self.url or f"{up}{self.path}"


class IndexPages:
    """The pages of several indexes, written project by project, so that no more than one project is in memory.

    :param names: of the indexes.
    :ivar notes: a sentence for each file that is left out, since its index has another one of its name.
    """

    def __init__(self, names: Iterable[str], write: Write) -> None:
        self.notes: list[str] = []
        self._write = write
        self._projects: dict[str, list[str]] = {name: [] for name in names}
        for index in self._projects:
            write(_find_links(index), _begin(f"Wheels of {index}"))

    def add(self, project: NormalizedName, files: Mapping[str, Iterable[SiteFile]]) -> None:
        """Write the pages of a project.

        :param files: by the name of the index.
        """
        for index, own in files.items():
            named: dict[str, SiteFile] = {}
            for file in sorted(own, key=lambda one: (one.name.version, one.name.filename, one.sha256)):
                if named.setdefault(file.name.filename, file).sha256 != file.sha256:
                    self.notes.append(
                        f"{index}: {file.name.filename} is there with two contents; the first is taken"
                    )
            if named:
                self._projects[index].append(project)
                place, listed = f"{index}/simple/{project}", list(named.values())
                self._write(f"{place}/index.html", _project_html(project, listed))
                self._write(f"{place}/index.json", _project_json(project, listed))
                lines = _anchors(listed, "../", more=True)
                self._write(_find_links(index), "".join(f"{line}\n" for line in lines).encode())

    def finish(self) -> None:
        """Write the pages that list the projects."""
        for index, projects in self._projects.items():
            links = [f'<a href="{project}/">{project}</a><br>' for project in projects]
            self._write(f"{index}/simple/index.html", _document(f"Index {index}", links))
            listed = [{"name": project} for project in projects]
            self._write(
                f"{index}/simple/index.json", _json({"meta": {"api-version": "1.1"}, "projects": listed})
            )
            self._write(_find_links(index), _END)


def _find_links(index: str) -> str:
    return f"{index}/find-links.html"


def _project_html(project: str, files: Sequence[SiteFile]) -> bytes:
    return _document(f"Links for {project}", _anchors(files, _UP))


def _anchors(files: Iterable[SiteFile], up: str, *, more: bool = False) -> list[str]:
    """:param more: with links to what lies beside each file."""
    lines = []
    for file in files:
        attributes = {"href": f"{file.address(up)}#sha256={file.sha256}"}
        if file.requires_python is not None:
            attributes["data-requires-python"] = file.requires_python
        if file.yanked is not None:
            attributes["data-yanked"] = file.yanked
        if file.metadata is not None:
            attributes["data-core-metadata"] = attributes["data-dist-info-metadata"] = (
                f"sha256={file.metadata}"
            )
        shown = " ".join(f'{key}="{html.escape(value)}"' for key, value in attributes.items())
        lines.append(f"<a {shown}>{html.escape(file.name.filename)}</a>")
        if more:
            links = (f'<a href="{file.address(up)}{ending}">{ending}</a>' for ending in file.beside)
            lines[-1] = " ".join((lines[-1], *links))
        lines[-1] += "<br>"
    return lines


def _project_json(project: str, files: Sequence[SiteFile]) -> bytes:
    rows: list[dict[str, Any]] = []
    for file in files:
        row: dict[str, Any] = {
            "filename": file.name.filename,
            "url": file.address(_UP),
            "hashes": {"sha256": file.sha256},
            "yanked": file.yanked or file.yanked is not None,
        }
        if file.size is not None:
            row["size"] = file.size
        if file.uploaded is not None:
            row["upload-time"] = file.uploaded
        if file.requires_python is not None:
            row["requires-python"] = file.requires_python
        if file.metadata is not None:
            row["core-metadata"] = row["dist-info-metadata"] = {"sha256": file.metadata}
        rows.append(row)
    versions = dict.fromkeys(str(file.name.version) for file in files)
    # PEP 700 requires a size of every file from 1.1 on.
    version = "1.1" if all(file.size is not None for file in files) else "1.0"
    data = {"meta": {"api-version": version}, "name": project, "versions": list(versions), "files": rows}
    return _json(data)


def _json(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode() + b"\n"


def _document(title: str, lines: Iterable[str]) -> bytes:
    return _begin(title) + "".join(f"{line}\n" for line in lines).encode() + _END


def _begin(title: str) -> bytes:
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="pypi:repository-version" content="1.0">\n'
        f"<title>{html.escape(title)}</title>\n</head>\n<body>\n<h1>{html.escape(title)}</h1>\n"
    ).encode()
