"""index.feed: a feed that a parser reads, whatever a wheel says."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from relink.indexes.build.feed import atom_feed

ATOM = "{http://www.w3.org/2005/Atom}"
CHANGE = {
    "project": "demo",
    "version": "1.0",
    "wheel": "demo-1.0-py3-none-any.whl",
    "target": "one",
    "before": None,
    "after": "written",
    "text": "]]><script>\x00\x1b[2J",
}


SITE = "6a0c7d58-2f4c-5d0f-9f2e-0d7f5e6b1a37"


def parsed(*changes: tuple[float, dict[str, str | None]], site: str = SITE) -> ET.Element:
    told = [{"time": time, **change} for time, change in changes]
    return ET.fromstring(atom_feed("Changes", site, told))  # noqa: S314 (relink's own)


def test_entries() -> None:
    feed = parsed((86400.0, CHANGE), (0.0, CHANGE))
    assert feed.findtext(f"{ATOM}updated") == "1970-01-02T00:00:00Z"
    first, second = feed.findall(f"{ATOM}entry")
    assert first.findtext(f"{ATOM}title") == "demo 1.0 for one: written"
    assert "<script>\\x00\\x1b[2J" in (first.findtext(f"{ATOM}content") or "")
    ids = {entry.findtext(f"{ATOM}id") for entry in (feed, first, second)}
    assert len(ids) == 3
    assert parsed().findall(f"{ATOM}entry") == []


def test_sites_have_their_own_ids() -> None:
    one, other = parsed((0.0, CHANGE)), parsed((0.0, CHANGE), site=SITE.replace("6", "7"))
    for path in (f"{ATOM}id", f"{ATOM}entry/{ATOM}id"):
        assert one.findtext(path) != other.findtext(path)
