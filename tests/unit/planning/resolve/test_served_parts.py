"""resolve.served_parts: whether a member gets the vendor's libraries, by what is mapped for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from relink.planning.resolve.served_parts import has_vendors, mapped_for, variant_findings
from relink.providers.profiles import Profile
from tests.unit.planning.resolve.scenes import Scene


@pytest.mark.parametrize(
    ("soname", "where", "has"),
    [
        ("libamdhip64.so.7", "anywhere", True),  # by its name
        ("libown.so.1", "prefix/lib", True),  # by the provider's file
        ("libown.so.1", "anywhere", False),
        ("libstdc++.so.6", "prefix/lib", False),  # of every Linux
        ("libelse.so.1", "anywhere", False),
    ],
)
def test_what_is_the_vendors(tmp_path: Path, soname: str, where: str, has: bool) -> None:
    scene = Scene(tmp_path)
    scene.provide("lib/libown.so.1")
    scene.provide("lib/libstdc++.so.6")
    path = scene.library(tmp_path / where / soname)
    assert has_vendors(scene.context(), [(soname, str(path))]) is has


def test_what_python_has_for_itself_is_nobodys_part(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.provide("lib/libown.so.1")
    scene.member("demo/a.so", ["libown.so.1"])
    (outcome,) = scene.decide().outcomes.values()
    mapped = dict(mapped_for(outcome))
    assert mapped["libown.so.1"] == f"{scene.prefix}/lib/libown.so.1"
    assert "libpython3.11.so.1.0" not in mapped
    assert not {"libm.so.6", "libdl.so.2"} & mapped.keys()


def test_variants(tmp_path: Path) -> None:
    scene = Scene(tmp_path, profile=Profile("p"))
    scene.provide("lib/libown.so.1")
    context, own = scene.context(), [("libamdhip64.so.7", "/opt/lib/libamdhip64.so.7")]
    assert [*variant_findings(context, [], {})] == []
    assert [*variant_findings(context, ["a", "b"], {"a": [], "b": own})] == []
    # What a member that is no variant has does not count.
    (found,) = variant_findings(context, ["a", "b"], {"a": [], "c": own})
    assert (found.code, found.level, found.profile) == ("RLK104", "error", "p")
