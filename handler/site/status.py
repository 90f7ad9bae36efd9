"""The status page: this process, and every model that the caller may see, with its state."""

from html import escape
from urllib.parse import quote

from handler.site.frame import address
from handler.site.instance import duration, milliseconds, size
from handler.site.views import EntryView, StatusView

TONES = {"ready": "Ready", "loading": "Loading", "failed": "Failed", "idle": "Not loaded"}
"""The words for states that people read, in the order of the filters. The protocols' word is UNAVAILABLE for two."""
COLUMNS = ("Model", "Version", "State", "Requests", "Failed", "Median ms", "Loaded in")
NUMBERS = ("Requests", "Failed", "Median ms", "Loaded in")


def content(view: StatusView, start: str) -> str:
    """Returns the page's content as HTML. `start`: of links to the server's root."""
    heading = "<h1>Models</h1>"
    if view.trouble:
        return f'{heading}{facts(view)}<p class="bad" id="trouble" data-live>{escape(view.trouble)}</p>'
    if not view.models:
        return f'{heading}{facts(view)}<p id="models" data-live>The repository has no models.</p>'
    return f"{heading}{facts(view)}{_filters(view)}{_table(view, start)}{NOTE}"


NOTE = (
    '<p class="note">A model loads with its first request. The states are those of all workers of this server. '
    "The numbers are this process's own: other processes and instances have theirs.</p>"
)


def facts(view: StatusView) -> str:
    ready = sum(each.tone == "ready" for each in view.models)
    rows = {
        "Ready": f"{ready} of {len(view.models)}",
        "Requests": f"{sum(each.requests + each.failures for each in view.models):,}",
        "Memory": "unknown" if view.resident_bytes is None else size(view.resident_bytes),
        "Up": duration(view.up_seconds),
        "Version": view.version,
        "Platform": view.platform,
    }
    cells = (f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in rows.items())
    looked = view.looked.isoformat()
    return f'<dl class="facts" id="facts" data-live data-looked="{looked}">{"".join(cells)}</dl>\n'


def _filters(view: StatusView) -> str:
    counts = {tone: sum(each.tone == tone for each in view.models) for tone in TONES}
    chips = "".join(
        f'<label class="chip"><input type="checkbox" name="tone" value="{tone}"> {label} '
        f'<span id="count-{tone}" data-live>{counts[tone]}</span></label>'
        for tone, label in TONES.items()
    )
    return (
        '<form class="filters" id="filters" role="search" hidden><label class="grow"><span class="hidden">Filter the '
        'models</span><input type="search" id="filter" placeholder="Filter by name, version or reason" '
        f'autocomplete="off" spellcheck="false"></label><fieldset><legend class="hidden">States</legend>{chips}'
        '</fieldset><output id="shown" for="filter"></output></form>'
    )


def _table(view: StatusView, start: str) -> str:
    columns = "".join(f'<th scope="col"{" class=number" if name in NUMBERS else ""}>{name}</th>' for name in COLUMNS)
    rows = "\n".join(row(entry, start) for entry in view.models)
    return (
        f'<table class="models"><caption class="hidden">Models</caption><thead><tr>{columns}</tr></thead>\n'
        f'<tbody id="models" data-live>\n{rows}\n</tbody></table>\n'
    )


def row(entry: EntryView, start: str) -> str:
    """Returns a version's row, and its reason below its state."""
    name = escape(entry.model)
    loaded = "" if entry.load_seconds is None else f"{entry.load_seconds * 1e3:,.0f} ms"
    reason = entry.reason if entry.tone != "idle" or entry.reason != "not loaded yet" else ""
    numbers = (
        ("Requests", f"{entry.requests:,}" if entry.requests else ""),
        ("Failed", f"{entry.failures:,}" if entry.failures else ""),
        ("Median ms", milliseconds(entry.p50)),
        ("Loaded in", loaded),
    )
    return (
        f'<tr id="row-{quote(entry.model)}-{escape(entry.version)}" data-tone="{entry.tone}">'
        f'<th scope="row" data-label="Model"><a href="{escape(start + address(entry.model))}">{name}</a></th>'
        f'<td data-label="Version">{escape(entry.version)}</td>'
        f'<td data-label="State">{state(entry.tone)}{_reason(reason)}</td>'
        + "".join(f'<td data-label="{label}" class="number">{text}</td>' for label, text in numbers)
        + "</tr>"
    )


def state(tone: str) -> str:
    return f'<span class="state {tone}">{TONES[tone]}</span>'


def _reason(text: str) -> str:
    return f'<span class="reason">{escape(text)}</span>' if text else ""
