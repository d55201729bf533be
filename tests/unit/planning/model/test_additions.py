"""plans.additions: stubs in a plan that somebody else may have written."""

from __future__ import annotations

import pytest

from relink.planning.model.additions import Stub, check_places, is_plain
from relink.system.errors import UsageError


def test_where_relink_puts_them() -> None:
    check_places([Stub("demo.libs/relink-stubs/libb.so", "libb.so", "w")])


@pytest.mark.parametrize(
    "path",
    [
        "demo/liba.so.1",
        "liba.so.1",
        "demo.libs/liba.so.1",
        "demo.libs/relink-other/liba.so.1",
        "demo/relink-stubs/liba.so.1",
        "demo.libs/relink-stubs/libb.so.1",
        "demo.libs/relink-stubs/../liba.so.1",
        "../demo.libs/relink-stubs/liba.so.1",
        "demo.libs/relink-stubs/x/liba.so.1",
    ],
)
def test_where_it_does_not(path: str) -> None:
    with pytest.raises(UsageError, match="the plan has a stub there"):
        check_places([Stub(path, "liba.so.1", "w")])


def test_plain_names() -> None:
    assert is_plain("liba-2_x.so.1+b")
    assert not any(map(is_plain, ["", ".", "..", "a/b", "-a", "a b", "a\n", "$ORIGIN", "a:b", "a" * 300]))
