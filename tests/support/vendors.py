"""A vendor for tests: it knows what it is told, and nothing else."""

from __future__ import annotations

from typing import Any

from relink.vendors.protocol import Gpus, Libraries, Packages, Places, Vendor

__all__ = ["fake_vendor"]

_PARTS = {"libraries": Libraries, "places": Places, "packages": Packages, "gpus": Gpus}


def fake_vendor(name: str = "vendor", product: str = "release", **answers: object) -> Vendor:
    """Return a vendor whose answers are arguments: ``fake_vendor("table", is_own=lambda soname: soname == "liba.so")``."""
    known = {name: part for part, kind in _PARTS.items() for name in kind.__struct_fields__}
    if unknown := answers.keys() - known.keys():
        raise AttributeError(f"{sorted(unknown)}: the protocol has no such names")
    parts: dict[str, Any] = {
        part: kind(**{key: answer for key, answer in answers.items() if known[key] == part})
        for part, kind in _PARTS.items()
    }
    return Vendor(name=name, product=product, **parts)
