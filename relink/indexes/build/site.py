"""A site of the results that hold: indexes of files, the matrix, the feed; see docs/index-building.md for what lies where.

It is written project by project, so that an index of a hundred thousand wheels needs no more memory than its largest project, and
not at all where nothing of what it is made of has changed.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from relink import __version__
from relink.indexes.build.matrix import PROJECTS, Cell, matrix_data, matrix_page
from relink.indexes.build.pages import json_bytes, list_pages, listed_file, parsed_name, project_pages
from relink.indexes.build.publishing import Write, publish, shows
from relink.indexes.build.recipe import Recipe
from relink.indexes.build.store import Store, now
from relink.system.text import escaped

_CHANGES = 500  # that the page and the feed show
_FEED = 100
ONE_PAGE = 15_000
"""Results that one page shows; where there are more, each project has a page."""


def publish_site(store: Store, site: Path, recipe: Recipe) -> bool:
    """Publish what holds, where it is not shown yet. A wheel that its source has no more stays, until it is pruned or denied."""
    superseded, indexes = now() - recipe.superseded, store.indexes()
    targets = [target for target in recipe.targets if target.name in indexes]
    told = [[asdict(target), indexes[target.name]] for target in targets]
    facts = json.dumps([__version__, recipe.originals, told, store.digest(superseded)])
    basis = hashlib.sha256(facts.encode()).hexdigest()
    if shows(site, basis):
        return False
    store.note_changes()
    changes = store.changes(_CHANGES)
    many = store.count("written", "original", "refused", "failed") > ONE_PAGE

    def write_pages(write: Write) -> None:
        projects: dict[str, list[str]] = {target.name: [] for target in targets}
        listed: list[str] = []

        def cells() -> Iterator[Cell]:
            for project in store.projects():
                own: list[Cell] = []
                files: dict[str, list[dict[str, Any]]] = {name: [] for name in projects}
                for row in store.listed(project, superseded):
                    if row["target"] not in files:
                        continue
                    record = store.parsed(row["body"])
                    if row["until"] is None:
                        own.append(Cell(parsed_name(row["filename"]), row["target"], row["status"], record))
                    if file := listed_file(row, record, recipe.originals):
                        files[row["target"]].append(file)
                for name in (name for name in files if files[name]):
                    projects[name].append(project)
                    for page, content in project_pages(project, files[name]).items():
                        write(f"{name}/simple/{project}/{page}", content)
                own.sort(key=lambda cell: (cell.name.version, cell.name.filename, cell.target))
                if many and own:
                    listed.append(project)
                    about = [change for change in changes if change["project"] == project]
                    data = matrix_data(targets, indexes, own, about)
                    write(f"{PROJECTS}/{project}.json", json_bytes(data))
                    write(f"{PROJECTS}/{project}.html", matrix_page(data, project).encode())
                yield from (cell for cell in own if not many or cell.name.version == own[-1].name.version)

        data = matrix_data(targets, indexes, cells(), changes)
        for name, known in projects.items():
            for page, content in list_pages(name, known).items():
                write(f"{name}/simple/{page}", content)
        data |= {PROJECTS: listed} if many else {}
        write("matrix.json", json_bytes(data))
        write("index.html", matrix_page(data).encode())
        write("changes.atom", atom_feed("Changes of the index", store.site_id(), changes[:_FEED]))

    publish(store, site, basis, write_pages)
    return True


def atom_feed(title: str, site: uuid.UUID, changes: Sequence[Mapping[str, Any]]) -> bytes:
    """Return changes of a site as an Atom feed (RFC 4287).

    :param changes: the newest first; each has time (seconds since 1970), project, version, target, before and after.
    """
    feed = Element("feed", xmlns="http://www.w3.org/2005/Atom")
    SubElement(feed, "id").text = site.urn
    SubElement(feed, "title").text = escaped(title)
    SubElement(feed, "updated").text = _time(changes[0]["time"] if changes else 0)
    SubElement(SubElement(feed, "author"), "name").text = "relink"
    SubElement(feed, "link", href="index.html")
    for change in changes:
        seconds = change["time"]
        entry = SubElement(feed, "entry")
        what = f"{change['project']} {change['version']} for {change['target']}"
        SubElement(entry, "id").text = uuid.uuid5(site, f"{seconds} {change['wheel']} {change['target']}").urn
        SubElement(entry, "title").text = escaped(f"{what}: {change['after']}")
        SubElement(entry, "updated").text = _time(seconds)
        SubElement(entry, "link", href="index.html")
        before = change["before"] or "new"
        SubElement(entry, "content", type="text").text = escaped(
            f"{change['wheel']}: {before} → {change['after']}. {change['text']}"
        )
    indent(feed)
    text: bytes = tostring(feed, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
