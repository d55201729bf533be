"""`relink index`: a whole index of wheels, relinked for several targets, as static files."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from relink.cli.application import app
from relink.cli.formats import Shown, print_document
from relink.cli.options import takes_options
from relink.cli.terminal import show, watch_build
from relink.indexes.build.running import BuildOptions
from relink.report.lines import Line

index = typer.Typer(
    name="index",
    no_args_is_help=True,
    help="A whole index: every wheel of a recipe for every ROCm of it, as static files that pip and uv install from.",
)
app.add_typer(index)

Site = Annotated[Path, typer.Argument(metavar="SITE", help="A site that `relink index build` has made.")]


@index.command()
@takes_options("index build")
def build(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="An index.toml.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="SITE", help="Where the site appears.")],
    options: BuildOptions,
    *,
    log: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Append what happens to it, a line of JSON each.")
    ] = None,
    metrics: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write figures of the run for Prometheus.")
    ] = None,
    shown: Shown,
) -> None:
    """Bring a site up to date: fetch what is new, relink what is new or rests on what has changed, publish.

    What is done is never done again. Exit code 1: something could not be done, or was refused where the recipe says fail.
    Example: relink index build index.toml -o /srv/wheels
    """
    from relink.indexes.build.building import build as build_site
    from relink.indexes.build.recipe import read_recipe
    from relink.indexes.build.running import Summary
    from relink.system.atomic import save_text

    summary, ok = Summary(), False
    try:
        read = read_recipe(recipe)
        with watch_build(log, quiet=shown.quiet or shown.as_json) as say:
            summary = build_site(read, output, options, say)
        ok = summary.ok(read.refused)
    finally:  # on every way out: what watches the figures has to see a run that ended early, too
        if metrics is not None:
            save_text(metrics, summary.metrics(ok=ok), "the figures")
    line = Line(summary.sentence(), style="" if ok else "yellow")
    print_document(shown, summary.data(ok=ok), [line], ok=ok)


@index.command()
@takes_options("index check")
def check(
    site: Site,
    *,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="First write again what is lost beside wheels, and have the next build make damaged wheels and pages again.",
        ),
    ] = False,
    shown: Shown,
) -> None:
    """Check a site: every page, link and hash, and what lies beside each wheel. Exit code 1: something is wrong.

    Example: relink index check /srv/wheels
    """
    import msgspec

    from relink.indexes.build.site import check_site, repair_site

    repaired = repair_site(site) if repair else ()
    found = check_site(site)
    lines = [*map(Line, repaired), *(Line(problem, style="red") for problem in found.problems)]
    lines.append(Line(f"{found.pages} pages, {found.files} files; {len(found.problems)} problems"))
    facts = {"ok": not found.problems, **msgspec.to_builtins(found), "repaired": repaired}
    document = {"schema": "relink.site/1", **facts}
    print_document(shown, document, lines, ok=not found.problems)


@index.command()
def prune(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="The site's index.toml.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="SITE", help="The site.")],
    keep: Annotated[
        int, typer.Option(metavar="N", min=1, help="Releases of each project and target that stay.")
    ],
) -> None:
    """Take old releases out of a site, and remove files that nothing names. The newest release that works always stays.

    A release that the recipe still asks for comes back with the next build: pass the same number there (latest = N).
    Example: relink index prune index.toml -o /srv/wheels --keep 5
    """
    from relink.indexes.build.recipe import read_recipe
    from relink.indexes.build.site import YOUNG, old_results, remove_results

    chosen = partial(old_results, keep=keep)
    results, files, size = remove_results(read_recipe(recipe), output, chosen, YOUNG)
    show(f"{results} results and {files} files removed, {size >> 20} MiB")


@index.command()
def remove(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="The site's index.toml.")],
    release: Annotated[str, typer.Argument(metavar="NAME[==VERSION]", help="What goes, with all its files.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="SITE", help="The site.")],
) -> None:
    """Take releases out of a site at once. What a source still has comes back with the next build, unless the recipe denies it.

    Example: relink index remove index.toml onnxruntime-rocm==1.20.0 -o /srv/wheels
    """
    from relink.indexes.build.recipe import read_recipe, read_release
    from relink.indexes.build.site import named_results, remove_results

    chosen = partial(named_results, requirement=read_release(release))
    results, files, size = remove_results(read_recipe(recipe), output, chosen)
    show(f"{results} results and {files} files removed, {size >> 20} MiB")
