"""What people do with the console. Run as a program: the name of a scenario, the server's URL, axe-core's file.

The fourth argument is a key, or the folder of the models or of the pictures. It runs in an environment of its own, with
playwright. A scenario fails by an assertion, whose text the test shows.
"""

import json
import re
import shutil
import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

from driving import browsing, checked
from playwright.sync_api import Page, Route, expect

MODELS = ("half_plus_three", "iris", "strings", "passengers", "flowers", "numbers", "species")
PROTOCOLS = ("V2", "V2 binary", "V1", "GRPS", "Connect")
ANSWERS = {"half_plus_three": "3.5", "iris": "setosa", "strings": "BYTES", "passengers": "lived", "numbers": "FP32"}
PROGRAMS = (("Python: tritonclient", ".py"), ("curl", ".sh"), ("Python: requests", ".py"), ("JavaScript", ".mjs"))
SCREENS = tuple(
    {"color_scheme": scheme, "viewport": {"width": width, "height": 800}}
    for scheme in ("light", "dark")
    for width in (1200, 360)
)
Scenario = Callable[[str, Path, str], None]
LOAD = "Load the model and show its form"


def form(page: Page, url: str, model: str) -> None:
    """Opens a model's page, and its form, by hand where the model is not in memory."""
    page.goto(f"{url}models/{model}")
    load(page)


def load(page: Page) -> None:
    """Opens the form of the model whose page is there."""
    page.wait_for_selector("#trial button:visible")
    if page.get_by_role("button", name=LOAD).count():
        page.get_by_role("button", name=LOAD).click()
    expect(page.locator("#form")).to_be_visible()


def send(page: Page) -> str:
    """Sends the request that the form shows, and returns the answer's text."""
    expect(page.get_by_role("button", name="Send")).to_be_enabled()
    page.get_by_role("button", name="Send").click()
    page.wait_for_selector("#answer .status")
    return page.inner_text("#answer")


def protocols(url: str, axe: Path, _: str) -> None:
    """Every sample model answers in every protocol, and the languages' snippets hold the request."""
    with browsing(url, axe) as page:
        for model in MODELS:
            form(page, url, model)
            for protocol in PROTOCOLS:
                page.get_by_role("tab", name=protocol, exact=True).click()
                answer = send(page)
                assert answer.startswith("200 in "), (model, protocol, answer)
                if protocol != "V1":
                    assert ANSWERS.get(model, "") in answer, (model, protocol, answer)
                for language in ("curl", "Python: requests", "JavaScript"):
                    page.get_by_role("tab", name=language).click()
                    shown = page.inner_text(".wire")
                    assert page.evaluate("location.host") in shown, (model, protocol, language)
            page.get_by_role("tab", name="gRPC").click()
            expect(page.get_by_role("button", name="Send")).to_be_disabled()
        late(page, url)
        form(page, url, "passengers")
        page.get_by_role("tab", name="Explain").click()
        assert "Contributions" in send(page)
        expect(page.locator(".bars .fill.less")).not_to_have_count(0)


def late(page: Page, url: str) -> None:
    """An answer that comes when another tab is chosen does not appear there, and does not let that one send."""
    form(page, url, "iris")
    page.get_by_role("button", name="Pause").click()
    held: list[Route] = []
    page.route("**/infer", lambda route: held.append(route))  # noqa: PLW0108 - playwright marks a handler by an attribute
    page.get_by_role("tab", name="V2", exact=True).click()
    with page.expect_request("**/infer"):
        page.get_by_role("button", name="Send").click()
    page.get_by_role("tab", name="gRPC").click()
    with page.expect_response("**/models/iris"):  # the look that follows the answer
        held[0].continue_()
    expect(page.get_by_role("button", name="Send")).to_be_disabled()
    expect(page.locator("#answer")).to_be_empty()
    page.unroute("**/infer")


def failing(url: str, axe: Path, _: str) -> None:
    """A model that cannot be loaded says why; a wrong value is named before it is sent; a refusal is shown."""
    with browsing(url, axe) as page:
        page.goto(f"{url}models/broken")
        page.get_by_role("button", name=LOAD).click()
        expect(page.locator("#trial .bad")).to_contain_text("cannot be loaded")
        expect(page.locator(".version")).to_contain_text("Failed")
        checked(page)
        form(page, url, "iris")
        page.get_by_label("x, sepal width, row 1").fill("wide")
        expect(page.locator(".sending")).to_contain_text("'wide' is not a number: expected FP32")
        expect(page.get_by_role("button", name="Send")).to_be_disabled()
        page.get_by_label("x, sepal width, row 1").fill("3.5")
        page.get_by_role("button", name="As JSON").click()
        page.get_by_label("x as JSON").fill("[[1, 2, 3]]")
        assert "400 in " in send(page)
        assert "expects [-1, 4]" in page.inner_text("#answer")
        page.goto(f"{url}nothing/here")
        expect(page.locator("h1")).to_have_text("Not found")
        checked(page)


def digits(url: str, axe: Path, _: str) -> None:
    """An answer shows every digit of a whole number that no double can hold, in each protocol."""
    with browsing(url, axe) as page:
        form(page, url, "ids")
        for protocol in PROTOCOLS:
            page.get_by_role("tab", name=protocol, exact=True).click()
            assert send(page).startswith("200 in "), protocol
            assert page.locator("#answer .grid td").all_text_contents() == ["9007199254740993"], protocol
        form(page, url, "names")
        checked(page)


def forms(url: str, axe: Path, _: str) -> None:
    """Models with unusual inputs, outputs and signatures get requests that they take, in each protocol."""
    with browsing(url, axe) as page:
        for model, value in (("total", "1"), ("named", "6"), ("undescribed", "8"), ("added", "8")):
            form(page, url, model)
            for protocol in PROTOCOLS:
                page.get_by_role("tab", name=protocol, exact=True).click()
                assert send(page).startswith("200 in "), (model, protocol, page.inner_text("#answer"))
                assert page.locator("#answer .grid td").all_text_contents() == [value], (model, protocol)
        page.get_by_label("Send it").check()
        page.get_by_label("c, row 1").fill("2")
        for protocol in PROTOCOLS:
            page.get_by_role("tab", name=protocol, exact=True).click()
            send(page)
            assert page.locator("#answer .grid td").all_text_contents() == ["3"], protocol
        checked(page)
        form(page, url, "floats")
        page.get_by_label("INPUT0, row 1").fill("-inf")
        page.get_by_role("button", name="Add a row").click()
        page.get_by_label("INPUT0, row 2").fill("nan")
        for protocol in PROTOCOLS:
            page.get_by_role("tab", name=protocol, exact=True).click()
            assert send(page).startswith("200 in "), (protocol, page.inner_text("#answer"))
            assert page.locator("#answer .grid td").all_text_contents() == ["-Infinity", "NaN"], protocol


def wrong(url: str, axe: Path, _: str) -> None:
    """What a person writes for inputs that are not described is refused in words, and never sent as it was before."""
    known = {"name": "x", "shape": [1], "datatype": "FP32", "data": [5]}
    with browsing(url, axe) as page:
        form(page, url, "undescribed")
        for protocol, change, text in (
            ("V2 binary", {"datatype": "FP23"}, "datatype 'FP23' is unknown"),
            ("V1", {"shape": None}, "'x' has no shape"),
            ("V1", {"shape": [3]}, "'x' has 1 elements; its shape [3] needs 3"),
        ):
            page.get_by_role("tab", name=protocol, exact=True).click()
            page.get_by_label("inputs as JSON").fill(json.dumps([known]))
            send(page)
            page.get_by_label("inputs as JSON").fill(json.dumps([{**known, "data": [99], **change}]))
            expect(page.locator(".sending")).to_contain_text(text)
            expect(page.get_by_role("button", name="Send")).to_be_disabled()
            expect(page.locator(".wire")).to_have_count(0)


def programs(url: str, axe: Path, folder: str) -> None:
    """Leaves the programs that the console writes, for the test to run them."""
    kept = Path(folder).with_name("programs")
    kept.mkdir()
    with browsing(url, axe) as page:
        for model in ("half_plus_three", "strings", "flags", "floats"):
            form(page, url, model)
            if model == "floats":
                page.get_by_label("INPUT0, row 1").fill("nan")
            for protocol, languages in (("V2", PROGRAMS), ("V1", PROGRAMS[1:])):
                page.get_by_role("tab", name=protocol, exact=True).click()
                for language, ending in languages:
                    page.get_by_role("tab", name=language).click()
                    (kept / f"{model}-{protocol}-{len(list(kept.iterdir()))}{ending}").write_text(
                        page.inner_text(".wire")
                    )


def files(url: str, axe: Path, _: str) -> None:
    """A CSV file, an array of numpy and an image become the input's rows."""
    rows = [5.1, 3.5, 1.4, 0.2, 6.3, 3.3, 6.0, 2.5]
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4), }".ljust(117) + b"\n"
    array = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + struct.pack("<8f", *rows)
    table = b"a,b,c,d\n5.1,3.5,1.4,0.2\n6.3,3.3,6.0,2.5\n"
    with browsing(url, axe) as page:
        form(page, url, "iris")
        for name, content in (("rows.csv", table), ("rows.npy", array), ("rows.json", b"[[5,3,1,0],[6,3,6,2]]")):
            page.set_input_files("input[type=file]", [{"name": name, "mimeType": "", "buffer": content}])
            expect(page.locator(".field .told")).to_contain_text(f"{name} has the shape [2, 4]")
            answer = send(page)
            assert "Row 2: virginica" in answer, (name, answer)
        page.set_input_files("input[type=file]", [{"name": "x.npy", "mimeType": "", "buffer": b"no array"}])
        expect(page.locator(".field .told")).to_contain_text("not an .npy file")
        page.get_by_role("button", name="Add a row").click()
        assert "Row 3: " in send(page)
        form(page, url, "words")
        quoted = b'"Smith, John"\r\n"say ""yes"""\r\n"two\nlines"\r\n'
        page.set_input_files("input[type=file]", [{"name": "words.csv", "mimeType": "", "buffer": quoted}])
        expect(page.locator(".field .told")).to_contain_text("words.csv has the shape [3]")
        send(page)
        assert page.locator("#answer .grid td").all_text_contents() == ["Smith, John", 'say "yes"', "two\nlines"]
        form(page, url, "pictures")
        page.set_input_files("input[type=file]", [{"name": "red.png", "mimeType": "image/png", "buffer": red(6, 4)}])
        expect(page.locator(".field .told")).to_contain_text("red.png has the shape [1, 3, 2, 2]")
        expect(page.get_by_role("img", name="red.png as the model gets it")).to_be_visible()
        assert send(page).startswith("200 in ")
        assert '"data": [1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0]' in page.inner_text(".wire")
        form(page, url, "large")
        expect(page.locator(".field .told")).to_have_text("A row has 12,288 elements: drop a file.")
        page.set_input_files("input[type=file]", [{"name": "red.png", "mimeType": "image/png", "buffer": red(6, 4)}])
        assert send(page).startswith("200 in ")
        checked(page)


def red(width: int, height: int) -> bytes:
    """Returns a PNG file of red pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\xff\0\0" * width) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def live(url: str, axe: Path, _: str) -> None:
    """Numbers and charts follow requests without a reload, buttons load and unload, and Pause stops the looks."""
    with browsing(url, axe) as page:
        form(page, url, "half_plus_three")
        page.get_by_label("x as JSON").fill("[4, 5]")
        for _ in range(3):
            send(page)
        before = int(page.inner_text("#numbers td.number >> nth=0"))
        expect(page.locator("#charts .bar").first).to_be_visible()
        send(page)
        expect(page.locator("#numbers td.number").first).to_have_text(str(before + 1))
        expect(page.locator("#charts svg.chart").first).to_have_attribute(
            "aria-label", f"{before + 1} requests answered in ten minutes, 0 failed"
        )
        assert page.get_by_label("x as JSON").input_value() == "[4, 5]"
        expect(page.locator("#protocols")).to_have_count(0)
        page.get_by_role("tab", name="V1", exact=True).click()
        send(page)
        expect(page.locator("#numbers tbody tr")).to_have_count(3)  # all, V1 and V2
        page.get_by_role("radio", name="V1").check()
        expect(page.locator("#charts svg.chart").first).to_have_attribute(
            "aria-label", "1 request answered in ten minutes, 0 failed"
        )
        checked(page)
        send(page)
        expect(page.locator("#charts svg.chart").first).to_have_attribute("aria-label", re.compile("^2 requests"))
        expect(page.get_by_role("radio", name="V1")).to_be_checked()
        page.get_by_role("button", name="Unload").click()
        expect(page.locator("#done")).to_have_text("Unloaded.")
        expect(page.locator(".version")).to_contain_text("Not loaded")
        page.get_by_role("button", name="Load", exact=True).click()
        expect(page.locator("#done")).to_have_text("Loaded.")
        expect(page.locator("#form")).to_be_visible()
        page.get_by_role("button", name="Pause").click()
        shown = page.inner_text("#looked")
        looks = []
        page.on("request", lambda request: looks.append(request.url))
        page.wait_for_timeout(5000)  # that nothing happens can only be seen by waiting
        assert looks == []
        page.get_by_role("button", name="Resume").click()
        expect(page.locator("#looked")).not_to_have_text(shown)


def many(url: str, axe: Path, _: str) -> None:
    """Three hundred models are filtered by words and states, and stay so while the page looks again."""
    with browsing(url, axe) as page:
        page.goto(url)
        rows = page.locator("#models tr")
        expect(rows).to_have_count(300)
        page.keyboard.press("/")
        page.keyboard.type("m-1 7")
        expect(page.locator("#shown")).to_have_text("20 of 300 shown")
        before = page.inner_text("#looked")
        expect(page.locator("#looked")).not_to_have_text(before)
        assert page.locator("#models tr:visible").count() == 20
        page.get_by_label("Failed").check()
        expect(page.locator("#shown")).to_have_text("0 of 300 shown")
        page.get_by_label("Failed").uncheck()
        page.locator("#filter").fill("")
        expect(page.locator("#models tr:visible")).to_have_count(300)
        checked(page)


def coming(url: str, axe: Path, folder: str) -> None:
    """An open page follows models, a table and trouble that come and go: each look shows what a reload would."""
    models, away = Path(folder), Path(f"{folder}.away")
    kept = away / "iris"
    with browsing(url, axe) as page:
        page.goto(url)
        expect(page.locator("#models tr")).to_have_count(len(list(models.iterdir())))
        models.rename(away)
        expect(page.locator("main")).to_contain_text("is not a directory")
        expect(page.locator("#models")).to_have_count(0)
        page.keyboard.press("/")
        models.mkdir()
        expect(page.locator("main")).to_contain_text("The repository has no models.")
        expect(page.locator("#trouble")).to_have_count(0)
        shutil.copytree(kept, models / "iris")
        expect(page.locator("tbody#models > tr")).to_have_count(1)
        page.keyboard.press("/")
        page.keyboard.type("flowers")
        expect(page.locator("#shown")).to_have_text("0 of 1 shown")
        checked(page)
        shutil.rmtree(models / "iris")
        expect(page.locator("main")).to_contain_text("The repository has no models.")
        expect(page.locator("#looked")).to_contain_text("As of")


def screens(url: str, axe: Path, _: str) -> None:
    """axe-core finds nothing, and nothing is cut off: in light and dark, wide and narrow, with a long name."""
    for screen in SCREENS:
        with browsing(url, axe, **screen) as page:
            page.goto(url)
            expect(page.locator("#filters")).to_be_visible()
            checked(page)
            form(page, url, "iris")
            send(page)
            checked(page)
            page.get_by_role("tab", name="Explain").click()
            send(page)
            checked(page)
            form(page, url, "long" * 60)
            checked(page)
            page.goto(f"{url}docs")
            checked(page)
            page.get_by_role("searchbox").fill("infer")
            page.locator("summary:visible").first.click()
            expect(page.get_by_role("button", name="Copy").first).to_be_visible()
            checked(page)


def keyboard(url: str, axe: Path, _: str) -> None:
    """Without a mouse: from the table to a model, through its fields and tabs, to an answer."""

    def focused() -> str:
        return page.evaluate(
            "(document.activeElement.getAttribute('aria-label') || document.activeElement.textContent).trim()"
        )

    def tab_to(text: str) -> None:
        for _ in range(80):
            page.keyboard.press("Tab")
            if focused() == text:
                return
        raise AssertionError(f"Tab does not reach {text!r}")

    with browsing(url, axe) as page:
        page.goto(url)
        expect(page.locator("#filters")).to_be_visible()
        page.keyboard.press("Tab")
        assert focused() == "Skip to the content"
        page.keyboard.press("Enter")
        tab_to("iris")
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_have_text("iris")
        page.wait_for_selector("#trial button:visible")
        if page.get_by_role("button", name=LOAD).count():
            tab_to(LOAD)
            page.keyboard.press("Enter")
        expect(page.locator("#form")).to_be_visible()
        tab_to("x, petal width, row 1")
        page.keyboard.type("0.4")
        tab_to("V2")
        page.keyboard.press("ArrowRight")
        assert focused() == "V2 binary"
        page.keyboard.press("End")
        assert focused() == "Explain"
        page.keyboard.press("Home")
        tab_to("Send")
        page.keyboard.press("Enter")
        expect(page.locator("#answer .status")).to_contain_text("200 in")
        assert '"data": [5.1, 3.5, 1.4, 0.4]' in page.inner_text(".wire")


def staged(url: str, axe: Path, _: str) -> None:
    """Below a stage every link, file and request keeps its prefix."""
    with browsing(url, axe) as page:
        page.on("response", lambda response: outside.append(response.url) if response.status == 404 else None)
        outside: list[str] = []
        page.goto(url.rstrip("/"))  # a stage without a slash at its end
        page.get_by_role("link", name="iris").click()
        form(page, url, "iris")
        for protocol in PROTOCOLS:
            page.get_by_role("tab", name=protocol, exact=True).click()
            assert send(page).startswith("200 in ")
        assert "/Prod/inference.GRPCInferenceService/ModelInfer" in page.inner_text(".wire")
        page.get_by_role("button", name="Unload").click()
        expect(page.locator("#done")).to_have_text("Unloaded.")
        page.get_by_role("link", name="API").click()
        page.get_by_role("link", name="openapi.json").click()
        assert '"servers":[{"url":"/Prod"}]' in page.content()
        assert outside == []


def behind_a_key(url: str, axe: Path, key: str) -> None:
    """A key is asked for once in a tab, shown nowhere, and forgotten on request; its caller sees its models only."""
    with browsing(url, axe) as page:
        page.goto(url)
        checked(page)
        page.get_by_label("Key or token").fill("dgm_wrong")
        page.get_by_role("button", name="Continue").click()
        expect(page.locator("#why")).to_have_text("the key is not valid")
        page.get_by_label("Key or token").fill(f"{key}\u200b")
        page.keyboard.press("Enter")
        expect(page.locator("#why")).to_contain_text("a character that no key can have")
        page.get_by_label("Key or token").fill(key)
        page.context.set_offline(True)
        page.keyboard.press("Enter")
        expect(page.locator("#why")).to_contain_text("does not answer")
        page.context.set_offline(False)
        page.get_by_label("Key or token").fill(key)
        page.keyboard.press("Enter")
        expect(page.locator("#models tr")).to_have_count(1)
        page.get_by_role("link", name="iris").click()
        expect(page.locator("h1")).to_have_text("iris")
        expect(page.get_by_role("button", name="Unload")).to_be_disabled()
        load(page)
        assert send(page).startswith("200 in ")
        assert "$DRAGOMAN_KEY" in page.inner_text(".wire")
        assert key not in page.content()
        assert key not in page.url
        page.goto(f"{url}models/strings")
        expect(page.locator("main")).to_contain_text("does not permit the model 'strings'")
        page.goto(f"{url}docs")
        expect(page.locator("h1")).to_have_text("API")
        page.get_by_role("button", name="Forget the key").click()
        expect(page.locator("h1")).to_have_text("A key is needed")


def pictures(url: str, axe: Path, folder: str) -> None:
    """Makes the pictures of README and docs: the models after some requests, an answer of one, and its numbers."""
    with browsing(url, axe, viewport={"width": 1200, "height": 720}) as page:
        for model in MODELS:
            form(page, url, model)
            for _ in range(3):
                send(page)
        page.goto(url)
        expect(page.locator("#models")).to_contain_text("iris")
        page.screenshot(path=f"{folder}/models.png")
        form(page, url, "iris")
        send(page)
        page.set_viewport_size({"width": 1200, "height": 900})
        page.get_by_role("heading", name="Try it").evaluate("heading => { heading.scrollIntoView(); scrollBy(0, -16) }")
        page.screenshot(path=f"{folder}/try-it.png")
        for protocol in (*PROTOCOLS, "Explain") * 3:
            page.get_by_role("tab", name=protocol, exact=True).click()
            send(page)
        rows = ("all", "V1", "V2", "GRPS", "Connect", "the pipeline that asks iris", "explanations")
        expect(page.locator("#numbers tbody tr")).to_have_count(len(rows))
        page.set_viewport_size({"width": 1200, "height": 760})
        page.get_by_role("heading", name="Numbers").evaluate(
            "heading => { heading.scrollIntoView(); scrollBy(0, -16) }"
        )
        page.screenshot(path=f"{folder}/numbers.png")


SCENARIOS: dict[str, Scenario] = {
    each.__name__: each
    for each in (
        protocols,
        digits,
        failing,
        forms,
        wrong,
        programs,
        files,
        live,
        many,
        coming,
        screens,
        keyboard,
        staged,
        behind_a_key,
        pictures,
    )
}

if __name__ == "__main__":
    SCENARIOS[sys.argv[1]](sys.argv[2], Path(sys.argv[3]), sys.argv[4])
