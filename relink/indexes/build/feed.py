"""Changes of a site as an Atom feed (RFC 4287)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from relink.system.text import escaped

__all__ = ["atom_feed"]

_NAMESPACE = "http://www.w3.org/2005/Atom"
_EPOCH = 0.0


def atom_feed(title: str, site: str, changes: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the feed.

    :param site: a UUID of the site.
    :param changes: the newest first; each has time (seconds since 1970), project, version, target, before and after.
    """
    feed = Element("feed", xmlns=_NAMESPACE)
    SubElement(feed, "id").text = uuid.UUID(site).urn
    SubElement(feed, "title").text = escaped(title)
    SubElement(feed, "updated").text = _time(changes[0]["time"] if changes else _EPOCH)
    SubElement(SubElement(feed, "author"), "name").text = "relink"
    SubElement(feed, "link", href="index.html")
    for change in changes:
        seconds = change["time"]
        entry = SubElement(feed, "entry")
        what = f"{change['project']} {change['version']} for {change['target']}"
        SubElement(entry, "id").text = uuid.uuid5(
            uuid.UUID(site), f"{seconds} {change['wheel']} {change['target']}"
        ).urn
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
