"""Sphinx's configuration for the documentation site; scripts/make_site.py copies this directory beside the pages."""

from __future__ import annotations

import relink

project = "relink"
author = "the relink authors"
copyright = author  # noqa: A001 (Sphinx's own name)
version = release = relink.__version__

extensions = ["myst_parser"]
myst_heading_anchors = 4  # links to headings are those of Markdown in a checkout
smartquotes = False  # --option stays --option
highlight_language = "text"

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["relink.css"]
html_title = f"relink {release}"
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
