"""The store paths that an output names, and garbage collector roots that keep them."""

from __future__ import annotations

from relink.planning.model import Plan
from relink.providers.nix_store import add_roots, store_path
from relink.providers.prefix import NIX_STORE
from relink.system.errors import ProviderError
from relink.system.findings.model import Finding, finding
from relink.system.text import join_truncated


def store_paths(plan: Plan) -> tuple[str, ...]:
    """Return the store paths that the files of a plan will name, in the plan's order; nothing where no provider is in a store."""
    if not any(provider.kind == NIX_STORE for provider in plan.providers):
        return ()
    texts = [
        text
        for file in plan.files
        for text in (*(file.rpath.after or "").split(":"), file.interpreter.after or "")
    ]
    return tuple(dict.fromkeys(path for text in texts if (path := store_path(text))))


def register_roots(plan: Plan, output: str, directory: str | None) -> tuple[Finding, ...]:
    """Register garbage collector roots for the store paths that an output names, or report what is at risk without.

    :param output: its path.
    :param directory: where the roots are created; None creates none.
    """
    paths = store_paths(plan)
    if not paths:
        text = "no store path is named, so there was nothing to register"
        return (finding("RLK702", output, text),) if directory else ()
    if directory is None:
        return (finding("RLK701", output, f"{len(paths)} store paths: {join_truncated(list(paths))}"),)
    try:
        links = add_roots(paths, directory)
    except (ProviderError, OSError) as error:
        return (finding("RLK703", output, str(error)),)
    text = f"{len(links)} in {directory}, one for each store path that the wheel names directly"
    return (finding("RLK702", output, text),)
