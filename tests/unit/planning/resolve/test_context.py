"""resolve.context: which provider serves a soname."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from relink.loader.seen_files import Files
from relink.loader.target import find_target
from relink.planning.resolve.context import ResolveContext
from relink.providers.prefix import NIX_STORE, open_prefix
from relink.vendors.rocm.vendor import rocm
from tests.support.cc import shared
from tests.support.elf_builder import SUPPORTED, WHY_NOT
from tests.support.two_prefixes import HELP, HSA, TwoPrefixes, build_two_prefixes

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)


@pytest.fixture
def both(tmp_path: Path) -> TwoPrefixes:
    return build_two_prefixes(tmp_path)


def test_what_comes_of_one_closure_counts_as_one_prefix(both: TwoPrefixes) -> None:
    """Each store path of a Nix closure is a provider, and the runtimes lie in several; so they do where each is named."""
    shared(both.second / "lib" / HSA, "int hsa(void){return 1;}")
    target = find_target()
    first, second = (open_prefix(str(path), target) for path in (both.first, both.second))
    context = ResolveContext(target, Files(), (first, second), {}, vendor=rocm)
    of_one = tuple(replace(provider, closure="/store/x") for provider in (first, second))
    packages = tuple(replace(provider, kind=NIX_STORE) for provider in (first, second))
    mixed = (first, replace(second, kind=NIX_STORE))
    identity = context.files.open(str(both.second / "lib" / HELP)).identity
    assert identity is not None
    driver = str(both.second / "lib" / HSA)
    for providers, expected in (
        ((first, second), (None, driver, False)),
        (of_one, (driver, None, True)),
        (packages, (driver, None, False)),
        (mixed, (None, driver, False)),
    ):
        context = replace(context, providers=providers)
        assert context.provider_path(HELP) == str(both.first / "lib" / HELP)
        assert (
            context.provider_path(HSA),
            context.withheld_path(HSA),
            context.is_providers(identity, HELP),
        ) == expected
