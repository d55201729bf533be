"""Pages in Debian's chromium, without a window and without network."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Error, Page, Request

Open: TypeAlias = "Callable[..., AbstractContextManager[Page]]"

SHOTS = Path(__file__).resolve().parents[2] / ".cache" / "screenshots"

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("chromium is not installed")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        try:
            # It gets a fresh user data directory, which playwright removes.
            started = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        except sync_api.Error as error:
            pytest.skip(f"{path} does not start here: {str(error).splitlines()[0]}")
        yield started
        started.close()


@pytest.fixture
def opened(browser: Browser) -> Open:
    """Open a file as a page of a width and colour scheme; what it says on the console, or asks the network for, is an error."""

    @contextmanager
    def go(path: Path, *, width: int = 1440, dark: bool = False, **more: Any) -> Iterator[Page]:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light", **more
        )
        said: list[str] = []
        asked_for: list[str] = []

        def on_console(message: ConsoleMessage) -> None:
            said.append(message.text)

        def on_error(error: Error) -> None:
            said.append(str(error))

        def on_request(asked: Request) -> None:
            asked_for.append(asked.url)

        try:
            page = context.new_page()
            page.on("console", on_console)
            page.on("pageerror", on_error)
            page.on("request", on_request)
            page.goto(path.as_uri())
            yield page
        finally:
            context.close()
        assert said == []
        assert [url for url in asked_for if not url.startswith("file:")] == []

    return go


def take_pictures(opened: Open, path: Path, name: str) -> list[Path]:
    """Keep what a page looks like on a phone and a desk, in both colour schemes: artefacts of the run, not in git."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    taken = []
    for width in (390, 1440):
        for dark in (False, True):
            taken.append(SHOTS / f"{name}-{width}-{'dark' if dark else 'light'}.png")
            with opened(path, width=width, dark=dark) as page:
                page.screenshot(path=taken[-1], full_page=True)
    return taken
