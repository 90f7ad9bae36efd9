"""The tests ask for the documentation and the OpenAPI description, and follow both."""

import argparse
import json
import re
import shlex
from html import unescape
from pathlib import Path
from urllib.parse import urlsplit

import jsonschema_rs
import pytest
from onnx import helper

from core.dialects import DIALECTS, GRPS
from core.dialects.rpcs import RPCS
from handler.edge.app import App
from handler.site import described, pages
from tests.handler.site.asking import ROOT, ask, serving
from tests.support.publishing import publish
from tests.support.zoo.models import graph


@pytest.fixture
def app() -> App:
    """The application over the sample models."""
    return serving()


def test_the_description_has_exactly_the_routes_of_the_protocols(app: App) -> None:
    """The document and the dialects' tables cannot drift apart."""
    listed = {
        (method.upper(), path)
        for path, methods in ask(app, "/openapi.json").value["paths"].items()
        for method in methods
    }
    assert listed == {(route.method, route.pattern) for dialect in DIALECTS for route in dialect.routes}


def test_the_description_names_the_server_as_the_client_reaches_it(app: App) -> None:
    """Tools put the prefix before every path."""
    assert ask(app, "/openapi.json").value["servers"] == [{"url": "/"}]
    assert ask(app, "/openapi.json", root="/Prod").value["servers"] == [{"url": "/Prod"}]


def test_the_description_has_the_version_of_the_distribution(app: App) -> None:
    """The document's version is the server's."""
    assert ask(app, "/openapi.json").value["info"]["version"] == app.registry.server().version


def commands(page: str) -> list[tuple[str, str, str, str]]:
    """Returns the curl lines of a page as method, URL, media type and body."""
    lines = [
        shlex.split(unescape(text))
        for text in re.findall(r'<pre class="copy" tabindex="0">(.*?)</pre>', page, re.DOTALL)
    ]
    parser = argparse.ArgumentParser()
    for option in ("-X", "-H", "-d"):
        parser.add_argument(option)
    parser.add_argument("url")
    found = []
    for program, *words in lines:
        assert program == "curl"
        said = parser.parse_args(words)
        name, _, media = (said.H or "content-type: ").partition(": ")
        assert name == "content-type"
        found.append((said.X or ("GET" if said.d is None else "POST"), said.url, media, said.d or ""))
    return found


def test_every_command_of_the_documentation_works(app: App) -> None:
    """Each curl line, unchanged, gets 200 from the sample models; inferences come first, because they load."""
    found = commands(ask(app, "/docs").text)
    assert len(found) >= sum(len(dialect.routes) for dialect in DIALECTS)
    turns = {"offline": -2, "online": -1, "infer": 0, "predict": 0, "unload": 2}
    found.sort(key=lambda command: turns.get(re.split("[/:]", urlsplit(command[1]).path)[-1], 1))
    for method, url, media, body in found:
        assert url.startswith(tuple(f"http://127.0.0.1:8080{dialect.prefix}" for dialect in DIALECTS))
        path, query = urlsplit(url).path, urlsplit(url).query
        assert ask(app, path, method, body.encode(), query=query, media=media).status == 200, (url, body)


def test_the_commands_have_every_method_of_every_route(app: App) -> None:
    """A command for POST counts with a body and without one."""
    asked = {(method, urlsplit(url).path) for method, url, _, _ in commands(ask(app, "/docs").text)}
    routes = {(route.method, route.pattern) for route in GRPS.routes}
    assert routes <= asked


def test_answers_to_several_examples_stand_below_their_commands(app: App) -> None:
    """JSON is formatted and anything else is unchanged; none of them is repeated among the statuses."""
    page = ask(app, "/docs").text
    operation = page[page.index("/grps/v1/infer/predict") :]
    operation = operation[: operation.index("</details>")]
    shown = dict(
        re.findall(
            r'<h3>([^<]*)</h3><pre class="copy" tabindex="0">[^<]*</pre><pre tabindex="0">([^<]*)</pre>', operation
        )
    )
    assert shown["bytes in and out"] == "dragoman"
    assert json.loads(unescape(shown["a stream of messages"]))["str_data"] == "dragoman"
    assert json.loads(unescape(shown["nested numbers in the answer, too"]))["ndarray"] == [[3.5, 4.0], [4.5, 5.0]]
    assert "SUCCESS" not in operation.partition("<h3>Answers</h3>")[2]


def test_the_keyboard_reaches_every_text_that_can_scroll(app: App) -> None:
    """Long schemas scroll. In some browsers only the mouse could do it."""
    page = ask(app, "/docs").text
    assert "<pre" in page
    assert [tag for tag in re.findall(r"<pre[^>]*>", page) if 'tabindex="0"' not in tag] == []


def test_a_protocol_is_called_as_it_is_spelled(app: App) -> None:
    """The name of a tag is for programs."""
    assert "<h2>GRPS</h2>" in ask(app, "/docs").text


def test_the_answer_shown_for_an_inference_is_what_comes(app: App) -> None:
    """It is the first example's answer, literally."""
    operation = ask(app, "/openapi.json").value["paths"]["/v2/models/{model}/infer"]["post"]
    request = next(iter(operation["requestBody"]["content"]["application/json"]["examples"].values()))["value"]
    answer = ask(app, "/v2/models/half_plus_three/infer", "POST", json.dumps(request).encode())
    assert answer.value == operation["responses"]["200"]["content"]["application/json"]["example"]


@pytest.mark.parametrize("host", ["a.example:8080", "[::1]:3000"])
def test_commands_name_the_host_that_was_asked(app: App, host: str) -> None:
    """A line can then be pasted unchanged."""
    assert f"http://{host}/v2/health/live" in ask(app, "/docs", host=host).text


@pytest.mark.parametrize(("scheme", "expected"), [("https", "https"), ("http", "http"), ("", "http"), ("<b>", "http")])
def test_commands_name_the_scheme_of_the_request(app: App, scheme: str, expected: str) -> None:
    """The scheme is http if the server does not name one, as in ASGI, or names one other than https."""
    assert f"curl {expected}://127.0.0.1:8080/v2/health/live" in ask(app, "/docs", scheme=scheme).text


@pytest.mark.parametrize("host", ["evil.example/<script>", "a b", "x';rm -rf ~;'", "", "[zz]"])
def test_commands_do_not_repeat_a_host_that_is_none(app: App, host: str) -> None:
    """Whatever the header contains, the page stays a page and a line stays one command."""
    text = ask(app, "/docs", host=host).text
    assert "curl http://localhost/v2/health/live" in text
    assert "evil" not in text


def test_commands_name_models_that_are_served(tmp_path: Path) -> None:
    """Over a repository of another model no command names a sample model, and those that are there work."""
    (tmp_path / "mine").symlink_to(ROOT / "models" / "species")
    app = serving(tmp_path)
    page = ask(app, "/docs").text
    found = commands(page)
    assert "/v2/models/mine/config" in {urlsplit(url).path for _, url, _, _ in found}
    assert not re.search(r"half_plus_three|iris", " ".join(f"{url} {body}" for _, url, _, body in found))
    for method, url, media, body in found:
        path = urlsplit(url).path
        turned = path.endswith(("/ready", "line", "unload")) or "series" in path
        assert turned or ask(app, path, method, body.encode(), query=urlsplit(url).query, media=media).status == 200, (
            url
        )


def test_remote_calls_are_listed(app: App) -> None:
    """OpenAPI cannot describe them, so the page has a table of all of them."""
    page = ask(app, "/docs").text
    assert [method.path for method in RPCS if f"<code>{method.path}</code>" not in page] == []


def test_models_in_memory_have_typed_operations(app: App) -> None:
    """Names, datatypes, ranks and an example that works; a model that is not in memory has none."""
    before = ask(app, "/openapi.json").value
    assert "/v2/models/iris/infer" not in before["paths"]
    for model in ("iris", "passengers", "flowers", "half_plus_three"):
        assert ask(app, f"/v2/models/{model}").status == 200
    document = ask(app, "/openapi.json").value
    schemas = document["components"]["schemas"]
    assert schemas["iris_Input"]["properties"]["name"]["const"] == "x"
    assert schemas["iris_Input"]["properties"]["datatype"]["const"] == "FP32"
    assert schemas["iris_Input"]["properties"]["shape"]["minItems"] == 2
    assert schemas["iris_RequestedOutput"]["properties"]["name"]["enum"] == ["label", "probabilities"]
    assert {each["$ref"] for each in schemas["passengers_AnyInput"]["oneOf"]} >= {
        "#/components/schemas/passengers_Input", "#/components/schemas/passengers_Input3"}  # fmt: skip
    typed = {path: methods["post"] for path, methods in document["paths"].items() if path not in before["paths"]}
    assert {
        "/v2/models/passengers/infer",
        "/v1/models/passengers:explain",
        "/v1/models/flowers:predict",
    } <= typed.keys()
    assert "/v1/models/half_plus_three:explain" not in typed
    ids = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    assert len(ids) == len(set(ids))
    for path, operation in typed.items():
        media = operation["requestBody"]["content"]["application/json"]
        forms = {"infer": {"tensors"}, "predict": {"rows", "columns"}, "explain": {"rows", "columns"}}
        found = {name.partition(" of ")[0] for name in media["examples"]}
        assert found == forms.get(re.split("[:/]", path)[-1], {"example"})
        for body in (example["value"] for example in media["examples"].values()):
            answer = ask(app, path, "POST", json.dumps(body).encode())
            assert answer.status == 200, (path, body)
            described = operation["responses"]["200"]["content"]["application/json"]["schema"]
            for schema, value in ((media["schema"], body), (described, answer.value)):
                name = schema["$ref"].partition("schemas/")[2]
                assert name.startswith((operation["tags"][0].removeprefix("model "), "V1Numbers", "V1Classes"))
                jsonschema_rs.validate({**schema, "components": document["components"]}, value)


def test_models_are_described_once(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each costs 7 ms, and anonymous clients ask for the pages. A model that is loaded later is described, too."""
    made: list[str] = []
    typed = described.TypedModel
    monkeypatch.setattr(described, "TypedModel", lambda spec, name: (made.append(name), typed(spec, name))[1])
    assert ask(app, "/v2/models/iris").status == 200
    pages = [ask(app, path).text for path in ("/openapi.json", "/docs", "/openapi.json")]
    assert (made, pages[0]) == (["iris"], pages[2])
    assert ask(app, "/v2/models/strings").status == 200
    assert "/v2/models/strings/infer" in ask(app, "/openapi.json").value["paths"]
    assert made == ["iris", "strings"]


def test_a_page_of_the_documentation_is_made_once(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs 60 ms, and anonymous clients ask for it. Another host, prefix or model makes another one."""
    made: list[str] = []
    page = pages.Documentation
    monkeypatch.setattr(pages, "Documentation", lambda *about: (made.append(about[1]), page(*about))[1])
    first = ask(app, "/docs").text
    for number in range(pages.PAGES - 1):
        assert f"http://{number}.example/" in ask(app, "/docs", host=f"{number}.example").text
    assert ask(app, "/docs").text == first
    assert len(made) == pages.PAGES
    assert "/Prod/v2/health/live" in ask(app, "/docs", root="/Prod").text
    assert ask(app, "/v2/models/iris").status == 200
    assert "/v2/models/iris/infer" in ask(app, "/docs").text
    assert len(made) == pages.PAGES + 2


@pytest.mark.parametrize(("inputs", "is_typed"), [(10, True), (1000, False)])
def test_a_model_with_very_many_inputs_has_the_general_operations(
    tmp_path: Path, inputs: int, *, is_typed: bool
) -> None:
    """Describing a table of thousands of columns took many seconds of CPU, and its page had megabytes."""
    columns = [(f"x{index}", "FP32", [None, 1]) for index in range(inputs)]
    nodes = [helper.make_node("Sum", [name for name, _, _ in columns], ["y"])]
    publish(tmp_path, "wide", 1, graph("wide", nodes, columns, [("y", "FP32", [None, 1])]).SerializeToString())
    app = serving(tmp_path)
    assert ask(app, "/v2/models/wide").status == 200
    document = ask(app, "/openapi.json").value
    assert ("/v2/models/wide/infer" in document["paths"]) is is_typed
    assert ("model wide" in ask(app, "/docs").text.lower()) is is_typed
    assert "/v2/models/{model}/infer" in document["paths"]


def test_names_that_are_no_identifiers_become_some(tmp_path: Path) -> None:
    """Two names may be one identifier: the second gets a number."""
    for name in ("my model", "my-model", "+"):
        (tmp_path / name).symlink_to(ROOT / "models" / "species")
    app = serving(tmp_path)
    for name in ("my%20model", "my-model", "%2B"):
        assert ask(app, "/v2/models/" + name.replace("%20", " ").replace("%2B", "+")).status == 200
    document = ask(app, "/openapi.json").value
    assert {"my_model_InferRequest", "my_model_2_InferRequest", "model_InferRequest"} <= document["components"][
        "schemas"
    ].keys()
    assert "/v2/models/my%20model/infer" in document["paths"]


def test_an_operation_links_to_its_types(app: App) -> None:
    """Each link leads to a schema of the page."""
    assert ask(app, "/v2/models/iris").status == 200
    page = ask(app, "/docs").text
    links = set(re.findall(r'href="#(schema-[^"]*)"', page))
    assert {"schema-iris_PredictRequest", "schema-iris_PredictResponse", "schema-InferRequest"} <= links
    assert links <= set(re.findall(r'id="(schema-[^"]*)"', page))
