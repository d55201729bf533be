"""`relink config`: which settings hold here, and where each comes from."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from relink.cli.application import app
from relink.cli.formats import Shown
from relink.cli.options import takes_options


@app.command()
@takes_options("config")
def config(shown: Shown) -> None:
    """Print the settings that hold in this directory, and the file and line, variable or default that each comes from.

    Settings are in relink.toml, or in [tool.relink] of pyproject.toml, here or in a directory above; options win over them.
    Example: relink config
    """
    from relink.cli.settings_file import find_settings
    from relink.cli.terminal import print_json, say, show
    from relink.loader.target import find_target
    from relink.report.lines import Grid, Line
    from relink.system.shipped_files import load_schema
    from relink.vendors.registry import find_places

    found = find_settings(Path(os.path.curdir), os.environ)
    rows: dict[str, dict[str, Any]] = {}
    for key in load_schema("settings")["properties"]:
        if key in found.values:
            rows[key] = {"value": found.values[key], "source": f"{found.path}:{found.lines[key]}"}
        elif key == "prefix" and len(places := find_places(find_target(), os.environ)) == 1:
            rows[key] = {"value": [places[0].path], "source": places[0].found_by}
        else:
            rows[key] = {"value": None, "source": "not set"}
    if shown.as_json:
        path = str(found.path) if found.path else None
        print_json({"schema": "relink.settings/1", "file": path, "settings": rows})
        return
    for sentence in found.passed_over:
        say(sentence)
    table = Grid(show_header=False)
    for _ in range(3):
        table.add_column(overflow="fold")
    for key, row in rows.items():
        value = "" if row["value"] is None else json.dumps(row["value"], ensure_ascii=False)
        table.add_row(key, value, Line(row["source"], style="dim"))
    show(table)
