"""The frame of every page: title, navigation, links that stay below a prefix, and the headers. Without FastAPI."""

from collections.abc import Mapping
from html import escape
from pathlib import Path
from string import Template
from typing import Any, Final
from urllib.parse import quote

from handler.site import assets

PAGE: Final = Template(Path(__file__).with_name("page.html").read_text("utf-8"))
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = (
    (b"content-type", b"text/html; charset=utf-8"),
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"vary", b"accept"),
)
LINKS: Final = {"": "Models", "docs": "API"}
SIGN_IN: Final = """<section class="card narrow"><h1>A key is needed</h1>
<p id="why" class="soft" role="status">$why</p>
<form id="sign-in"><label for="key">Key or token</label>
<input id="key" type="password" autocomplete="off" spellcheck="false" required>
<button class="primary">Continue</button></form>
<p class="note">It stays in this tab, is sent to this server only, and is forgotten when the tab is closed.</p>
</section>
"""


def root_of(scope: Mapping[str, Any]) -> str:
    """Returns the path in front of the server's: an API Gateway stage, a proxy's prefix, or ""."""
    return str(scope.get("root_path", "")).rstrip("/")


def start_of(scope: Mapping[str, Any], path: str) -> str:
    """Returns the prefix of links to the server's root. `path`: of the page, below the prefix.

    A known prefix is part of each link: behind a stage, relative links of /Prod (no slash) would leave the stage. An
    unknown one, which a proxy cut off, is why the other links are relative.
    """
    root = root_of(scope)
    return f"{quote(root)}/" if root else "../" * (path.count("/") - 1) or "./"


def page(
    scope: Mapping[str, Any], path: str, title: str, content: str, *, name: str = "dragoman", **more: str
) -> bytes:
    """Returns a page. `content`: HTML. `more`: `live`, the seconds between two looks; `kind`, for the script."""
    start = escape(start_of(scope, path))
    here = path.strip("/").partition("/")[0].replace("models", "")
    links = "\n".join(
        f'<a href="{start}{target}"{" aria-current=page" if target == here else ""}>{label}</a>'
        for target, label in LINKS.items()
    )
    known = {"live": "", "kind": "plain", **more}
    return PAGE.substitute(
        title=escape(title),
        name=escape(name),
        navigation=links,
        content=content,
        start=start,
        assets=start + assets.prefix(),
        **{key: escape(value) for key, value in known.items()},
    ).encode()


def sign_in(scope: Mapping[str, Any], path: str, why: str) -> bytes:
    """Returns the page that asks a browser for a key. `why`: why it is needed."""
    return page(scope, path, "A key is needed", Template(SIGN_IN).substitute(why=escape(why)), kind="sign-in")


def address(name: str) -> str:
    """Returns a model's page, relative to the server's root."""
    return f"models/{quote(name, safe='')}"
