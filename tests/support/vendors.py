"""A vendor for tests: it knows what it is told, and nothing else."""

from __future__ import annotations

from relink.vendors.protocol import Vendor

__all__ = ["FakeVendor"]


class FakeVendor(Vendor):
    """A vendor whose answers are arguments: ``FakeVendor("table", is_own=lambda soname: soname == "liba.so")``."""

    def __init__(self, table: str = "vendor", **answers: object) -> None:
        self.table = table
        for name, answer in answers.items():
            if not hasattr(Vendor, name):
                raise AttributeError(f"{name}: the protocol has no such name")
            setattr(self, name, answer)
