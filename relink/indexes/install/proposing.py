"""What mends an installed distribution that does not work: `relink repair` is planned for its files as they lie there.

Nothing is fetched and nothing is changed, so what the vendor's wheel has and the environment has not is not seen.
"""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from packaging.utils import canonicalize_name

from relink.gpu.coverage import RequestedGpu
from relink.indexes.install.environment import TargetEnvironment
from relink.indexes.install.installers import has_pip
from relink.indexes.install.replacing import are_as_recorded
from relink.loader.tables import Tables
from relink.loader.target import Target
from relink.planning.case import Case, open_providers
from relink.planning.options import Options
from relink.planning.reading import Wheel
from relink.planning.wheel_plan import plan_wheel
from relink.report.check_text import DOCTOR, Checked, Proposal
from relink.report.summary import list_serving_words, verdict
from relink.runs.relink_wheel import make_report
from relink.system.errors import NoPlaceError, RelinkError, UsageError
from relink.system.progress import Clock


def propose_again(environment: TargetEnvironment, checked: Checked, dist_info: Path) -> Proposal | None:
    """Propose to install a distribution again where an error is about a file that is not the one its wheel had, or is gone.

    :param dist_info: its directory.
    """
    site = dist_info.parent
    errors = (found for found in checked.findings if found.level == "error")
    with suppress(UsageError):
        if not are_as_recorded(dist_info, (os.path.relpath(site / found.subject, site) for found in errors)):
            pip = environment.python, "-m", "pip", "install", "--force-reinstall"
            uv = "uv", "pip", "install", f"--python={environment.python}", "--reinstall"
            words = pip if has_pip(environment.python) else uv
            command = shlex.join([*words, "--no-deps", f"{checked.name}=={checked.version}"])
            return Proposal(canonicalize_name(checked.name), command, (command,))
    return None


def propose(
    wheel: Wheel, target: Target, options: Options, gpus: tuple[RequestedGpu, ...], seen: Tables
) -> Proposal | None:
    """Plan the repair of a distribution, and return what to type; None where a repair changes nothing.

    :param options: those of the repair; their command is that for all distributions (`relink repair --all …`).
    """
    name = canonicalize_name(wheel.source.name.distribution)
    command = tuple(name if word == "--all" else word for word in options.command)
    options = replace(options, command=command)
    try:
        nowhere = None
        try:
            providers = open_providers(options, target, wheel.sought)
        except NoPlaceError as error:
            nowhere, providers = error.message, ()
        case = Case(wheel, target, providers, options, "run", gpus, seen=seen)
        planned = plan_wheel(case, None if nowhere else open_providers)
    except RelinkError:  # a ROCm that cannot be read: the machine is to be looked at
        return Proposal(name, DOCTOR[0], DOCTOR)
    if planned.plan.ok:
        if nowhere:  # a repair would find no ROCm, either
            return Proposal(name, DOCTOR[0], DOCTOR, nowhere)
        if words := list_serving_words(planned.plan.findings):
            again = shlex.join([*command, *words])
            return Proposal(name, again, (again,))
        return Proposal(name) if planned.plan.changed else None
    found = verdict(make_report(planned, options, Clock()))
    # Where nothing can be typed, the same command would be another one than the reader's.
    step = found.step if found.commands else (found.step or "").removesuffix(", then the same command")
    return Proposal(name, step, found.commands, nowhere)
