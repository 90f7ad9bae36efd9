"""The page of one model: its versions, its signature, its numbers; the console's script adds charts and a form."""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from html import escape
from typing import Any, Final

from handler.site.instance import milliseconds, size
from handler.site.numbers import ProtocolView
from handler.site.status import state
from handler.site.views import ModelView, TensorView, VersionView

NUMBERS: Final = ("Requests", "Failed", "p50 ms", "p95 ms", "p99 ms")
TRIED: Final = {"name", "loaded", "inputs", "outputs", "signatures", "explains", "example", "barred"}
CHARTED: Final[dict[str, Any]] = {"version": True, "spans": True, "protocols": {"__all__": {"name", "spans"}}}
ALL: Final = "All"
NOTE: Final = (
    '<p class="note">Times run from a request\'s arrival to its answer, for successes only. '
    "They can be off by an eighth. Each process counts for itself.</p>"
)


def content(view: ModelView, grpc_port: int | None) -> str:
    """Returns the page's content as HTML. The script's data is in data attributes.

    `grpc_port`: the port of gRPC, 0 for that of HTTP, None without gRPC.
    """
    looked = view.looked.isoformat()
    charts = escape(json.dumps([each.model_dump(mode="json", include=CHARTED) for each in view.versions]))
    trial = escape(view.model_dump_json(include=TRIED))
    port = "" if grpc_port is None else grpc_port
    form = (
        f'<div id="trial" data-live="attributes" data-grpc="{port}" data-json="{trial}">'
        '<p class="note">This needs a script.</p></div>'
    )
    return "\n".join(
        (
            f'<div class="title"><h1>{escape(view.name)}</h1>{_actions(view)}</div>',
            f'<p class="soft" id="about" data-live data-looked="{looked}">{_about(view)}</p>',
            _section("Versions", f'<div id="versions" data-live>{"".join(map(_version, view.versions))}</div>'),
            _section("Try it", form),
            _section(
                "Numbers", _numbers(view), f'<div id="charts" data-live="attributes" data-json="{charts}"></div>', NOTE
            ),
            _section("Signature", _signature(view)),
        )
    )


def _section(title: str, *content: str) -> str:
    label = f"h-{title.lower().replace(' ', '-')}"
    return f'<section aria-labelledby="{label}"><h2 id="{label}">{title}</h2>{"".join(content)}</section>'


def _actions(view: ModelView) -> str:
    """Returns the buttons that change state; disabled, with the reason, for a caller without the right."""
    off = f' disabled aria-describedby="barred" title="{escape(view.barred)}"' if view.barred else ""
    why = f'<span class="hidden" id="barred">{escape(view.barred)}</span>' if view.barred else ""
    buttons = (
        f'<button type="button" data-act="{act}"{off}>{label}</button>'
        for act, label in (("load", "Load"), ("unload", "Unload"))
    )
    return f'<div class="actions" id="actions" data-live>{"".join(buttons)}{why}</div><p id="done" role="status"></p>'


def _about(view: ModelView) -> str:
    if view.loaded is None:
        return "No version is in memory. The first request loads it; looking at this page does not."
    platform = f" ({escape(view.platform)})" if view.platform else ""
    return f"In memory{platform}. Form and signature are those of version {escape(view.loaded)}."


def _version(view: VersionView) -> str:
    facts: list[tuple[str, str]] = [
        ("Labels", ", ".join(view.labels)),
        ("Canary", "" if view.share is None else f"{view.share:.0%} of the requests without a version"),
        ("Files", "" if view.size is None else size(view.size)),
        ("Memory", "" if view.memory is None else size(view.memory)),
        ("Loaded in", "" if view.load_seconds is None else f"{view.load_seconds * 1e3:,.0f} ms"),
        ("Providers", view.providers),
        ("Signed by", view.signer),
        ("Digest", view.digest),
    ]
    title = f"Version {view.version}" if view.version else "Versions unknown"
    cells = "".join(f"<div><dt>{label}</dt><dd>{escape(text)}</dd></div>" for label, text in facts if text)
    reason = f'<p class="reason">{escape(view.reason)}</p>' if view.reason and view.reason != "not loaded yet" else ""
    return (
        f'<article class="version" data-tone="{view.tone}"><h3>{escape(title)} '
        f"{state(view.tone)}</h3>{reason}{f'<dl>{cells}</dl>' if cells else ''}"
        f"{_parity(view.parity)}</article>"
    )


def _parity(lines: Sequence[str]) -> str:
    """Returns what a conversion has measured: its sentence, and its notes below."""
    if not lines:
        return ""
    sentence, *notes = map(escape, lines)
    items = "".join(f"<li>{note}</li>" for note in notes)
    return f'<div class="parity"><h4>Converted from</h4><p>{sentence}</p>{f"<ul>{items}</ul>" if items else ""}</div>'


def _numbers(view: ModelView) -> str:
    rows = [row for each in view.versions for row in _counted(each)]
    table = _table("Numbers by version and protocol", ("Version", "Protocol", *NUMBERS), rows, numbers=NUMBERS)
    return f'<div id="numbers" data-live>{table}</div>'


def _counted(version: VersionView) -> Iterator[Sequence[str]]:
    """Yields a row for each protocol that has asked the version, behind one for all if they are several."""
    if len(version.protocols) != 1:
        yield version.version, ALL, *_row(version)
    for each in version.protocols:
        yield version.version, each.name, *_row(each)


def _row(counted: VersionView | ProtocolView) -> Sequence[str]:
    times = counted.times
    return (
        f"{counted.requests:,}",
        f"{counted.failures:,}",
        *(milliseconds(value) for value in (times.p50, times.p95, times.p99)),
    )


def _signature(view: ModelView) -> str:
    if view.loaded is None:
        text = "Only a model in memory knows its inputs and outputs."
        return f'<div id="signature" data-live><p class="soft">{text}</p></div>'
    parts = [_tensors("Inputs", view.inputs), _tensors("Outputs", view.outputs)]
    if view.signatures:
        rows = ((each.name, each.method, _pairs(each.inputs), _pairs(each.outputs)) for each in view.signatures)
        parts.append("<h3>TensorFlow Serving's signatures</h3>")
        parts.append(_table("Signatures", ("Name", "Method", "Inputs", "Outputs"), rows))
    return f'<div id="signature" data-live>{"".join(parts)}</div>'


def _tensors(title: str, tensors: Sequence[TensorView] | None) -> str:
    if tensors is None:
        return f'<h3>{title}</h3><p class="soft">The model does not describe them.</p>'
    columns = ("Name", "Datatype", "Shape", *(("Labels",) if any(each.labels for each in tensors) else ()))
    rows = (
        (
            each.name + (" (optional)" if each.optional else ""),
            each.datatype,
            "any" if each.shape is None else shape(each.shape),
            ", ".join(each.labels),
        )[: len(columns)]
        for each in tensors
    )
    return f"<h3>{title}</h3>" + _table(title, columns, rows)


def shape(sizes: Sequence[int]) -> str:
    """Returns a shape as people write it.

    >>> shape([-1, 4]), shape([])
    ('[any, 4]', '[]')
    """
    return f"[{', '.join('any' if each < 0 else str(each) for each in sizes)}]"


def _pairs(names: dict[str, str]) -> str:
    return ", ".join(alias if alias == tensor else f"{alias} = {tensor}" for alias, tensor in names.items())


def _table(
    caption: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Collection[str] = ()
) -> str:
    kinds = [" class=number" if name in numbers else "" for name in columns]
    head = "".join(f'<th scope="col"{kind}>{name}</th>' for name, kind in zip(columns, kinds, strict=True))
    body = "".join(
        f'<tr><th scope="row" data-label="{columns[0]}">{escape(first)}</th>'
        + "".join(
            f'<td data-label="{column}"{kind}>{escape(text)}</td>'
            for column, kind, text in zip(columns[1:], kinds[1:], rest, strict=True)
        )
        + "</tr>"
        for first, *rest in rows
    )
    return (
        f'<table><caption class="hidden">{caption}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    )
