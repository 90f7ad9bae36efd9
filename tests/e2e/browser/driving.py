"""A page in Chromium that keeps a record of what it asks for and what its console says."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Page, expect, sync_playwright

EXPECTED = re.compile(r"Failed to load resource: (.* status of (400|401|403|404|503) |net::ERR_INTERNET_DISCONNECTED)")
"""What a browser writes for an answer that a scenario asks for; a script's error reads otherwise."""
expect.set_options(timeout=60_000)


@contextmanager
def browsing(url: str, axe: Path, **options: Any) -> Iterator[Page]:
    """Offers a page. At the end no request may have left the origin, and no script may have failed."""
    asked, said = [], []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        # A colour on its way to another one has a contrast of its own.
        context = browser.new_context(
            **{"viewport": {"width": 1200, "height": 900}, "reduced_motion": "reduce", **options}
        )
        context.set_default_timeout(60_000)
        context.add_init_script(path=axe)
        page = context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: said.append(str(error)))
        yield page
        browser.close()
    origin = urlsplit(url).netloc
    assert asked
    assert {urlsplit(each).netloc for each in asked if not each.startswith(("data:", "blob:"))} == {origin}, asked
    wrong = [text for text in said if not EXPECTED.search(text)]
    assert not wrong, wrong


def checked(page: Page) -> None:
    """Asserts that axe-core finds nothing, and that nothing is wider than the screen."""
    found = page.evaluate("axe.run().then(result => result.violations)")
    assert not found, [(page.url, each["id"], [node["html"] for node in each["nodes"]][:5]) for each in found]
    wide, screen = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide <= screen, page.url
