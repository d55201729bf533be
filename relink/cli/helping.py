"""Commands for people: this machine's state, the rules, a demonstration."""

from __future__ import annotations

from typing import Annotated

import typer

from relink.cli.application import app
from relink.cli.completion import rule_codes
from relink.cli.formats import Shown
from relink.cli.options import takes_options
from relink.planning.options import Options
from relink.system.errors import UsageError


@app.command()
@takes_options("doctor")
def doctor(options: Options, shown: Shown) -> None:
    """Check this machine and its ROCm: GPUs, access to them, environment, what the runtime can load, coherence.

    Exit code 1 if something is wrong. Example: relink doctor --prefix /opt/rocm
    """
    from relink.cli.terminal import print_json, show
    from relink.planning.checks.machine import diagnose, to_json
    from relink.report.doctor_text import doctor_text
    from relink.system.findings.model import has_errors

    found = diagnose(options.prefixes)
    if shown.as_json:
        print_json(to_json(found))
    else:
        show(*doctor_text(found))
    if has_errors(found.findings):
        raise typer.Exit(1)


@app.command()
def rules(
    code: Annotated[
        str | None, typer.Argument(metavar="CODE", help="For example RLK101.", autocompletion=rule_codes)
    ] = None,
) -> None:
    """List the finding codes, or explain one: what it means, what to do, and how it looks.

    Example: relink rules RLK101
    """
    from relink.cli.terminal import show
    from relink.report import text
    from relink.system.findings.model import RULES

    if code is None:
        show(text.rules_table())
        return
    rule = RULES.get(code.upper())
    if rule is None:
        raise UsageError(f"{code}: there is no such rule; `relink rules` lists them")
    show(*text.rule_text(rule))


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def demo(context: typer.Context) -> None:
    """Relink a real vendor wheel, install it and show the loader's map before and after (downloads 21 MB).

    Example: relink demo
    """
    from relink.runs import questions as queries

    raise typer.Exit(queries.run_demo(context.args))
