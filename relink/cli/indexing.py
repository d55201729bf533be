"""`relink index`: a whole index of wheels, relinked for several targets, as static files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from relink.cli.application import app
from relink.cli.formats import Shown
from relink.cli.options import takes_options
from relink.cli.pages import write_new
from relink.indexes.build.build_options import BuildOptions

index = typer.Typer(
    name="index",
    no_args_is_help=True,
    help="A whole index: every wheel of a recipe for every ROCm of it, as static files that pip and uv install from.",
)
app.add_typer(index)

Site = Annotated[Path, typer.Argument(metavar="SITE", help="A site that `relink index build` has made.")]


@index.command()
def init(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Where the recipe goes.")
    ] = Path("index.toml"),
) -> None:
    """Write a recipe to begin with: the ROCm, the Pythons and the GPUs of this machine, and the wheels that lie beside it.

    Example: relink index init -o index.toml
    """
    from relink.cli.terminal import show
    from relink.indexes.build.starting_recipe import starting_recipe

    content = starting_recipe(output.parent, os.environ)
    write_new(output, content)
    show(str(output))


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
    from relink.cli.terminal import print_json, show
    from relink.cli.watching import watched
    from relink.indexes.build.building import build as build_site
    from relink.indexes.build.metrics import summary_json, write_metrics
    from relink.indexes.build.recipe import read_recipe
    from relink.indexes.build.running import Summary
    from relink.report.lines import Line

    summary, ok = Summary(), False
    try:
        read = read_recipe(recipe)
        with watched(log, quiet=shown.quiet or shown.as_json) as say:
            summary = build_site(read, output, options, say)
        ok = summary.ok(read)
    finally:  # on every way out: what watches the figures has to see a run that ended early, too
        if metrics is not None:
            write_metrics(summary, metrics, ok=ok)
    if shown.as_json:
        print_json(summary_json(summary, ok=ok))
    else:
        show(Line(summary.sentence(), style="" if ok else "yellow"))
    if not ok:
        raise typer.Exit(1)


@index.command()
@takes_options("index check")
def check(
    site: Site,
    *,
    recipe: Annotated[
        Path | None,
        typer.Option(
            metavar="RECIPE", help="The site's index.toml: ask its targets' loaders about some wheels, too."
        ),
    ] = None,
    sample: Annotated[
        int, typer.Option(metavar="N", min=0, help="About how many wheels they are asked.")
    ] = 3,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="First write again what is lost beside wheels, and have the next build make damaged wheels and pages again.",
        ),
    ] = False,
    shown: Shown,
) -> None:
    """Check a site: every page, link and hash, RECORD and plan of each wheel. Exit code 1: something is wrong.

    Example: relink index check /srv/wheels --recipe index.toml --sample 10
    """
    from dataclasses import asdict

    from relink.cli.terminal import print_json, show
    from relink.indexes.build.checking import check_site, repair_site
    from relink.indexes.build.recipe import read_recipe
    from relink.report.lines import Line

    targets = {target.name: target for target in read_recipe(recipe).targets} if recipe else {}
    repaired = repair_site(site) if repair else ()
    found = check_site(site, sample, targets)
    if shown.as_json:
        print_json({"ok": not found.problems, **asdict(found), "repaired": repaired})
    else:
        show(*(Line(text) for text in repaired))
        show(*(Line(problem, style="red") for problem in found.problems))
        show(
            f"{found.pages} pages, {found.files} files, {found.verified} asked about; {len(found.problems)} problems"
        )
    if found.problems:
        raise typer.Exit(1)


@index.command("diff")
@takes_options("index diff")
def compare(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="A site.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="A site.")],
    shown: Shown,
) -> None:
    """Say what works in one site and not in the other. Exit code 1: something works less than before.

    Example: relink index diff /srv/wheels.relink/sites/1700000000000000000 /srv/wheels
    """
    from dataclasses import asdict

    from relink.cli.terminal import print_json, show
    from relink.indexes.build.site_diff import site_diff
    from relink.report.lines import Line

    changes = site_diff(old, new)
    if shown.as_json:
        print_json({"changes": [asdict(change) for change in changes]})
    else:
        for change in changes:
            gpu = f", {change.gpu}" if change.gpu else ""
            text = f"{change.wheel} for {change.target}{gpu}: {change.before or 'not there'} → {change.after or 'not there'}"
            show(Line(text, style="red" if change.worse else ""))
    if any(change.worse for change in changes):
        raise typer.Exit(1)


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
    from relink.cli.terminal import show
    from relink.indexes.build.pruning import prune as prune_site
    from relink.indexes.build.recipe import read_recipe

    gone = prune_site(read_recipe(recipe), output, keep)
    show(f"{gone.results} results and {gone.files} files removed, {gone.bytes >> 20} MiB")


@index.command()
def remove(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="The site's index.toml.")],
    release: Annotated[str, typer.Argument(metavar="NAME[==VERSION]", help="What goes, with all its files.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="SITE", help="The site.")],
) -> None:
    """Take releases out of a site at once. What a source still has comes back with the next build, unless the recipe denies it.

    Example: relink index remove index.toml onnxruntime-rocm==1.20.0 -o /srv/wheels
    """
    from relink.cli.terminal import show
    from relink.indexes.build.pruning import remove as remove_releases
    from relink.indexes.build.recipe import read_recipe, read_release

    gone = remove_releases(read_recipe(recipe), output, read_release(release))
    show(f"{gone.results} results and {gone.files} files removed, {gone.bytes >> 20} MiB")
