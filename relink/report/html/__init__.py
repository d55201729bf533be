"""The report as a page to look at."""

from relink.report.html.page import html_page

__all__ = ["html_page"]
