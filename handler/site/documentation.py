"""The API documentation: every route with commands to copy, typed ones for each model in memory, and remote calls."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final
from urllib.parse import quote, urlencode

from core.rpc import Form

JSON: Final = "application/json"
LINE: Final = 140
"""The most characters of JSON that are shown in one line."""
FORMS: Final = {
    Form.UNARY: "one and one",
    Form.STREAM: "one, and a stream",
    Form.EXCHANGE: "streams both ways",
    Form.WATCH: "one, and one at each change",
}
CALLS: Final = (
    "By Connect and gRPC-Web on this port, with POST and JSON or protobuf; by gRPC on the port of "
    "<code>--grpc-port</code>, and on this one with <code>--http2</code>. <code>proto/</code> of the source has the "
    "messages."
)
FILTER: Final = (
    '<form class="filters" role="search" hidden><label class="grow"><span class="hidden">Filter the operations</span>'
    '<input type="search" id="filter" placeholder="Filter by path, method or summary" autocomplete="off" '
    'spellcheck="false"></label><output id="shown" for="filter"></output></form>'
)


class Documentation:
    """The description as a page. `base`: the server's URL as a client types it. `models`: versions by visible name.

    `start`: what links to the server's root begin with. Examples name models of the sample repository. Where those are
    not served, a command names one that is.
    """

    def __init__(self, document: Mapping[str, Any], base: str, models: Mapping[str, str], start: str) -> None:
        self._document = document
        self._base = base
        self._models = models
        self._start = escape(start)

    def content(self) -> str:
        """Returns the page's content as HTML."""
        info = self._document["info"]
        link = f'<a class="button" href="{self._start}openapi.json">openapi.json</a>'
        groups = (self._group(tag) for tag in self._document["tags"])
        schemas = (
            f'<details class="schema" id="schema-{escape(name)}"><summary><code>{escape(name)}</code>'
            f"<span>{text(schema.get('description', ''))}</span></summary><div>{_json(schema)}</div></details>"
            for name, schema in self._document["components"]["schemas"].items()
        )
        return "\n".join(
            (
                f'<div class="title"><h1>API</h1>{link}</div>',
                f'<p class="soft">{text(info["summary"])}</p><p>{text(info["description"])}</p>{FILTER}',
                *groups,
                _services(),
                '<section><h2 id="schemas">Schemas</h2>',
                *schemas,
                "</section>",
            )
        )

    def _group(self, tag: Mapping[str, str]) -> str:
        operations = "\n".join(
            self._operation(method, path, operation)
            for path, methods in self._document["paths"].items()
            for method, operation in methods.items()
            if tag["name"] in operation["tags"]
        )
        name = tag.get("x-displayName", tag["name"][:1].upper() + tag["name"][1:])
        about = f'<p class="soft">{text(tag["description"])}</p>'
        return f"<section><h2>{escape(name)}</h2>{about}\n{operations}</section>"

    def _operation(self, method: str, path: str, operation: Mapping[str, Any]) -> str:
        parameters = [self._resolved(parameter) for parameter in operation.get("parameters", ())]
        responses = ((status, self._resolved(response)) for status, response in operation["responses"].items())
        summary = (
            f'<b class="{method}">{method.upper()}</b><code>{escape(path)}</code>'
            f"<span>{text(operation['summary'])}</span>"
        )
        lines = [
            f'<details class="operation" id="{escape(operation["operationId"])}"><summary>{summary}</summary><div>',
            f"<p>{text(operation['description'])}</p>",
            *(f"<p><code>{escape(p['name'])}</code> {text(p['description'])}</p>" for p in parameters),
            *(
                f'<h3>{escape(label)}</h3><pre class="copy" tabindex="0">{escape(command)}</pre>{answer}'
                for label, command, answer in self._commands(method, path, operation, parameters)
            ),
            *_schemas(operation),
            "<h3>Answers</h3>",
            *(f"<p><code>{status}</code> {text(r['description'])}</p>{_example(r)}" for status, r in responses),
            "</div></details>",
        ]
        return "\n".join(lines)

    def _commands(
        self, method: str, path: str, operation: Mapping[str, Any], parameters: Sequence[Mapping[str, Any]]
    ) -> Iterator[tuple[str, str, str]]:
        """Yields a label, a shell command and its answer, if that is described, for each example of the request's body.

        An example may name its model (`x-path`) and its query (`x-query`).
        """
        known = {p["name"]: p.get("example", "") for p in parameters}
        answers = {
            name: _shown(media, answer["value"])
            for media, name, answer in _examples(operation["responses"]["200"])
            if name
        }
        examples = list(_examples(operation.get("requestBody", {})))
        values = self._served(known)
        if not examples and values is not None:
            option = " -X POST" if method == "post" else ""
            needed = {p["name"]: p["example"] for p in parameters if p["in"] == "query" and p["required"]}
            query = f"?{urlencode(needed)}" if needed else ""
            yield "Try it", f"curl{option} {shlex.quote(self._base + _filled(path, values) + query)}", ""
        for media, name, example in examples:
            asked = known | example.get("x-path", {})
            if self._lacks(asked, example):
                continue
            query = f"?{urlencode(example['x-query'])}" if "x-query" in example else ""
            url = shlex.quote(self._base + _filled(path, asked) + query)
            content = example["value"]
            data = shlex.quote(json.dumps(content, ensure_ascii=False) if media == JSON else content)
            command = f"curl {url} -H 'content-type: {media}' -d {data}"
            yield example.get("summary", "Try it"), command, answers.get(name, "")

    def _lacks(self, asked: Mapping[str, str], example: Mapping[str, Any]) -> bool:
        """Decides whether an example names a model that the caller does not see."""
        value = example["value"]
        named = (
            asked.get("model"),
            example.get("x-query", {}).get("model"),
            value.get("model") if isinstance(value, Mapping) else None,
        )
        return any(isinstance(name, str) and name and not self._has(name) for name in named)

    def _has(self, name: str) -> bool:
        """Decides whether a name, or a name with a version as GRPS writes it, is that of a visible model."""
        return name in self._models or name.rpartition("-")[0] in self._models

    def _served(self, known: Mapping[str, str]) -> Mapping[str, str] | None:
        """Returns the values of a path's places, with a model that is served; None if no command would work."""
        if known.get("model", "") in {"", *self._models}:
            return known
        if not self._models or "label" in known:
            return None
        name, version = next(iter(self._models.items()))
        return {**known, "model": quote(name, safe=""), **({"version": version} if "version" in known else {})}

    def _resolved(self, node: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the target of a local reference, or the node itself."""
        found: Any = self._document if "$ref" in node else node
        for step in node.get("$ref", "#").split("/")[1:]:
            found = found[step]
        return found  # type: ignore[no-any-return] # parsed JSON


def _schemas(operation: Mapping[str, Any]) -> Iterator[str]:
    """Yields a line with the types of JSON that go in and come out, where they have names."""
    bodies = (("Request", operation.get("requestBody", {})), ("Answer", operation["responses"]["200"]))
    named = ((way, body.get("content", {}).get(JSON, {}).get("schema", {}).get("$ref", "")) for way, body in bodies)
    links = [(way, escape(reference.rpartition("/")[2])) for way, reference in named if reference]
    if links:
        yield (
            "<p>"
            + ", ".join(f'{way}: <a href="#schema-{name}"><code>{name}</code></a>' for way, name in links)
            + "</p>"
        )


def _services() -> str:
    """Returns the table of remote calls, which OpenAPI cannot describe."""
    from core.dialects.rpcs import RPCS  # noqa: PLC0415 - protobuf, which servers of REST alone do without

    rows = "".join(
        f'<tr><th scope="row" data-label="Method"><code>{escape(method.path)}</code></th>'
        f'<td data-label="Requests and answers">{FORMS[method.form]}</td>'
        f'<td data-label="Right">{method.rpc.right.name.lower()}</td></tr>'
        for method in RPCS
    )
    head = "".join(f'<th scope="col">{name}</th>' for name in ("Method", "Requests and answers", "Right"))
    return (
        f'<section><h2 id="calls">Remote calls</h2><p class="soft">{CALLS}</p>'
        f'<table><caption class="hidden">Remote calls</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table>"
        "</section>"
    )


def _examples(body: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yields the media type, the name ("" for a single one) and the value of each example of a request or an answer."""
    for media, content in body.get("content", {}).items():
        alone = {"": {**content, "value": content["example"]}} if "example" in content else {}
        for name, example in content.get("examples", alone).items():
            yield media, name, example


def _shown(media: str, value: Any) -> str:
    return _json(value) if media == JSON else f'<pre tabindex="0">{escape(value)}</pre>'


def _filled(path: str, values: Mapping[str, str]) -> str:
    return re.sub(r"{(\w+)}", lambda match: values[match[1]], path)


def _example(response: Mapping[str, Any]) -> str:
    return "".join(_json(example["value"]) for _, name, example in _examples(response) if not name)


def text(plain: str) -> str:
    """Escapes a text, with text between backticks as code."""
    return re.sub("`([^`]*)`", r"<code>\1</code>", escape(plain))


def _json(value: Any) -> str:
    line = json.dumps(value, ensure_ascii=False)
    text = line if len(line) <= LINE else json.dumps(value, ensure_ascii=False, indent=2)
    return f'<pre tabindex="0">{escape(text)}</pre>'
