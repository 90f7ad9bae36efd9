"""`dragoman infer` against a server that runs: every protocol, every datatype, every form of an input."""

import json
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from core.dtype import BYTES, DATATYPES
from core.tensor import Tensor, TensorSpec
from handler.commands.call import defaults, inputs, protocols, samples, shown, transport
from handler.commands.call.protocols import ModelAnswer
from handler.commands.call.served import CalledModel, described
from handler.commands.options import CommandOptions
from handler.commands.refused import Refused
from tests.handler.edge.client import ROOT
from tests.support.ports import free_port
from tests.support.publishing import publish, say
from tests.support.server import Server, serve_rpc
from tests.support.zoo import models as zoo_models
from tests.support.zoo import v1

Run = Callable[..., tuple[int, str, str]]
ROW = ("--input", "age=22", "--input", "fare=7.25", "--input", "sex=m", "--input", "port=S")
X = CalledModel("m", "", (TensorSpec("x", DATATYPES["FP32"], (-1, 2)),), None)


@pytest.fixture(scope="module")
def samples_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The sample models, over HTTP and gRPC."""
    with serve_rpc(tmp_path_factory.mktemp("s") / "log", REPOSITORY=str(ROOT / "models")) as server:
        yield server


@pytest.fixture(scope="module")
def zoo_server(tmp_path_factory: pytest.TempPathFactory, zoo: Path) -> Iterator[Server]:
    """Models of every datatype."""
    with serve_rpc(tmp_path_factory.mktemp("z") / "log", REPOSITORY=str(zoo)) as server:
        yield server


def place(server: Server, protocol: str) -> tuple[str, ...]:
    return "--protocol", protocol, "--url", server.rpc_netloc if protocol == "grpc" else f"http://{server.netloc}"


@pytest.mark.parametrize("protocol", protocols.PROTOCOLS)
def test_a_row_of_a_table_is_answered_over_every_protocol(samples_server: Server, run: Run, protocol: str) -> None:
    """Numbers and words, typed as the model declares them; the answer is a table, or JSON."""
    code, out, err = run("infer", "passengers", *ROW, *place(samples_server, protocol))
    assert (code, err) == (0, "")
    head, row = out.splitlines()[2:]
    assert re.split(r"  +", head) == ["output_label BYTES [1]", "output_probability FP32 [1, 2]"]
    assert row.split() == ["died", "[0.6582384,0.3417616]"]
    found = json.loads(run("infer", "passengers", *ROW, "--json", *place(samples_server, protocol))[1])
    assert [each["data"] for each in found["outputs"]] == [["died"], [0.6582384, 0.3417616]]
    (about,) = re.findall(r"\| `--json` \| (`model`.*) \|", (ROOT / "docs" / "command-line.md").read_text())
    assert [key for key in found if f"`{key}`" not in about] == []
    assert found["version"] in ("1", None)
    assert run("infer", "irsi", "--sample", *place(samples_server, protocol))[::2] == (
        1,
        "dragoman: model 'irsi' does not exist; did you mean iris?\n",
    )


@pytest.mark.parametrize("protocol", protocols.PROTOCOLS)
def test_a_sample_of_every_model_is_answered_over_every_protocol(
    samples_server: Server, run: Run, protocol: str
) -> None:
    """Also if V1 answers with a part of a model's outputs, which its signature names."""
    for model in sorted({path.parent.name for path in (ROOT / "models").glob("*/[0-9]*")}):
        code, out, err = run("infer", model, "--sample", "--rows", "2", "--json", *place(samples_server, protocol))
        assert (code, err) == (0, ""), model
        assert all(len(each["data"]) >= 2 for each in json.loads(out)["outputs"])


def test_every_protocol_is_a_choice_of_the_flag() -> None:
    """The flag's names are a list of their own, as the table takes long to import."""
    assert tuple(protocols.PROTOCOLS) == defaults.NAMES


@pytest.mark.parametrize("protocol", protocols.PROTOCOLS)
@pytest.mark.parametrize("datatype", [name for name in DATATYPES if name not in ("BF16", "BYTES")])
def test_every_datatype_goes_there_and_back(
    zoo_server: Server, run: Run, protocol: str, datatype: str, tmp_path: Path
) -> None:
    """An identity gives back the file's array, at the limits of its type, in a type that holds it."""
    dtype = DATATYPES[datatype].numpy
    limits = np.finfo(dtype) if dtype.kind == "f" else None if dtype.kind == "b" else np.iinfo(dtype)
    edge = [1, 0] if limits is None else [limits.min, limits.max]
    if (protocol, datatype) == ("grps", "UINT64"):
        edge = [0, 2**63 - 1]  # what GRPS can carry
    np.save(tmp_path / "x.npy", np.array([edge], dtype))
    model = zoo_models.DATATYPES[datatype].model
    code, out, err = run(
        "infer", model, "--file", f"INPUT0={tmp_path / 'x.npy'}", "--json", *place(zoo_server, protocol)
    )
    assert (code, err) == (0, "")
    (output,) = json.loads(out)["outputs"]
    assert np.array(output["data"], dtype).tolist() == np.array(edge, dtype).tolist()
    assert output["shape"] == [1, 2]


def test_v1_has_the_names_of_a_signature(launch: Callable[..., Server], run: Run, tmp_path: Path) -> None:
    """`--input` names tensors, as over other protocols. The server was sent these names, and no name of a signature."""
    plus = (ROOT / "models/half_plus_three/123/model.onnx").read_bytes()
    for model, name in (("default", "serving_default"), ("other", "special")):
        publish(tmp_path / "r", model, 1, plus)
        say(tmp_path / "r", model, signatures={name: {"inputs": {"a": "x"}, "outputs": {"b": "y"}}})
    publish(tmp_path / "r", "photo", 1, v1.photo().SerializeToString())
    say(tmp_path / "r", "photo", **v1.SETTINGS["photo"])
    server = launch(REPOSITORY=str(tmp_path / "r"))
    for model in ("default", "other"):
        words = (model, "--input", "x=[1, 2]", "--json", *place(server, "v1"))
        code, out, err = run("infer", *words)
        assert (code, err) == (0, "")
        assert json.loads(out)["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [2], "data": [3.5, 4.0]}]
        assert run("bench", *words, "--seconds", "0.1", "--concurrency", "1")[0] == 0
    told = "dragoman: model 'photo' has no V1 signature with the inputs 'jpeg': use another --protocol\n"
    assert run("infer", "photo", "--sample", *place(server, "v1"))[::2] == (1, told)


def test_an_optional_input_can_be_left_out(launch: Callable[..., Server], run: Run, tmp_path: Path) -> None:
    """Over gRPC the metadata does not name the optional ones."""
    node = helper.make_node("Add", ["x", "k"], ["y"])
    ports: Any = [("x", "FP32", [None]), ("k", "FP32", [None])], [("y", "FP32", [None])]
    model = zoo_models.graph("added", [node], *ports, {"k": np.array([7], np.float32)})
    publish(tmp_path / "r", "m", 1, model.SerializeToString())
    inputs = [f'input {{ name: "{name}" data_type: TYPE_FP32 dims: [-1] optional: true }} ' for name in "xk"]
    (tmp_path / "r/m/config.pbtxt").write_text("".join(('platform: "onnxruntime_onnx" ', *inputs)))
    server = launch(rpc=True, REPOSITORY=str(tmp_path / "r"))
    for protocol in protocols.PROTOCOLS:
        code, out, err = run("infer", "m", "--input", "x=[1, 2]", "--json", *place(server, protocol))
        assert (code, err) == (0, ""), protocol
        assert json.loads(out)["outputs"][0]["data"] == [8.0, 9.0]
    told = "model 'm' needs 'x' (FP32 [-1]); try: --input x=0.5, or --sample\n"
    assert run("infer", "m", *place(server, "grpc"))[2] == f"dragoman: {told}"


@pytest.mark.parametrize(("name", "content", "flag", "data"), [
    ("t.csv", b"age,fare,sex,port\n22,7.25,m,S\n30,8,f,C\n", "{}", ["died", "lived"]),
    ("t.json", b'{"age": [22, 30], "fare": [7.25, 8], "sex": ["m", "f"], "port": ["S", "C"]}', "{}", ["died", "lived"]),
])  # fmt: skip
def test_a_file_has_all_inputs_of_a_table(
    samples_server: Server, run: Run, tmp_path: Path, name: str, content: bytes, flag: str, data: list[str]
) -> None:
    """The columns of a CSV file, and the members of an object."""
    (tmp_path / name).write_bytes(content)
    words = ("infer", "passengers", "--file", flag.format(tmp_path / name), "--json", *place(samples_server, "v2"))
    code, out, _ = run(*words)
    assert code == 0
    assert json.loads(out)["outputs"][0]["data"] == data


@pytest.mark.parametrize(("words", "told"), [
    (("iris",), "model 'iris' needs 'x' (FP32 [-1, 4]); try: --input 'x=[0.5, 0.5, 0.5, 0.5]', or --sample"),
    (("iris", "--input", "x=[1, 1e400]"), "input 'x' is '[1, 1e400]'; expected FP32 in JSON"),
    (("iris", "--input", "x=abc"), "input 'x' is 'abc'; expected FP32 in JSON, such as 1 or [1, 2]"),
    (("iris", "--input", "x=[1, [2]]"), "input 'x': Encountered list at unexpected level"),
    (("iris", "--input", "x=[[1,2],[3]]"), "input 'x': Encountered list at unexpected size: 1 at level: 1"),
    (("iris", "--input", 'x=["a"]'), "input 'x' has 'a' where FP32 needs"),
    (("iris", "--input", "x=[1,2,3]"), "400 input 'x' has shape [3]; the model expects [-1, 4]"),
    (("iris", "--input", "y=1"), "model 'iris' has no input 'y'; expected x"),
    (("passengers", "--input", "aeg=1"), "model 'passengers' has no input 'aeg'; did you mean age?"),
    (("passengers", "--input", "22"), "--input 22 needs NAME= before it, one of age, fare, sex, port"),
    (("iris", "--input", "x=1", "--input", "x=2"), "input 'x' is given twice"),
    (("iris", "--input", "x=" + "[" * 100_000), "input 'x' has too many dimensions"),
    (("iris", "--input", "x=" + "[" * 65 + "]" * 65), "input 'x' has 65 dimensions; expected at most 32"),
    (("iris", "--file", "nowhere.npy"), "nowhere.npy cannot be read: No such file or directory"),
    (("iris", "--file", "x={bad.npy}"), "bad.npy is not a .npy file that can be read"),
    (("iris", "--file", "x={bad.csv}"), "bad.csv is not a .csv file that can be read: row 2 has 1 cells; expected 2"),
    (("iris", "--file", "x={empty.csv}"), "empty.csv is not a .csv file that can be read: it is empty"),
    (("iris", "--file", "x={bad.json}"), "bad.json is not a .json file that can be read"),
    (("iris", "--file", "x={bad.bin}"), "input 'x' is FP32; expected a .npy, .json or .csv file"),
    (("iris", "--file", "x={odd.npy}"), "input 'x' is an array of complex128, which has no datatype here"),
    (("iris", "--sample", "--input", "x=1"), "--sample makes all inputs: leave out --input and --file"),
    (("iris", "--sample", "--version", "9"), "9"),
    (("iris", "--sample", "--key", "@nowhere"), "--key @nowhere: No such file or directory"),
    (("iris", "--sample", "--key", "a\nb"), "--key has characters that a header cannot have"),
    (("iris", "--sample", "--key", "\u20ac", "--protocol", "grpc"), "--key has characters that a header cannot have"),
    (("", "--sample"), "MODEL is ''; expected a name"),
    (("\udcff", "--sample"), "MODEL is '\\udcff'; expected a name"),
    (("iris", "--sample", "--version", "\udcff"), "--version is '\\udcff'; expected a name"),
])  # fmt: skip
def test_what_is_wrong_is_one_line(
    samples_server: Server, run: Run, tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    """It names the input, its value and what was expected, before a request is sent. A wrong flag is code 2."""
    files = {"bad.npy": b"none", "bad.csv": b"1,2\n3\n", "empty.csv": b"\n", "bad.json": b"{", "bad.bin": b"\0"}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    np.save(tmp_path / "odd.npy", np.zeros(1, complex))
    words = tuple(re.sub(r"^x=\{(.*)\}$", rf"x={tmp_path}/\1", word) for word in words)
    code, out, err = run("infer", *words, *place(samples_server, "v2"))
    assert (code, out) == (2 if told.startswith(("--sample", "--key has", "MODEL", "--version")) else 1, "")
    assert err.startswith("dragoman: ")
    assert told in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(("words", "told"), [
    (("--url", "http://127.0.0.1:{}"), "does not answer: Connection refused; start `dragoman serve`"),
    (("--url", "127.0.0.1:{}", "--protocol", "grpc"), "Connection refused; start `dragoman serve --grpc-port`"),
    (("--url", "ftp://h"), "--url is 'ftp://h'; expected http://HOST:PORT or https://HOST"),
    (("--url", "http://[::1"), "--url is 'http://[::1'; expected http://HOST:PORT or https://HOST"),
    (("--url", "http://h:port"), "--url is 'http://h:port'; expected"),
    (("--url", "http://a..b"), "--url is 'http://a..b'; expected"),
    (("--url", "http://h\udcff"), "--url is 'http://h\\udcff'; expected"),
    (("--url", "http://127.0.0.1:{}/ü\udcff"), "/ü\\udcff'; expected"),
    (("--url", "http://127.0.0.1:{}/ü b"), "/ü b does not answer: Connection refused"),
    (("--url", "http://nohost.invalid"), "http://nohost.invalid does not answer: "),
])  # fmt: skip
def test_a_server_that_is_not_there_is_one_line(run: Run, words: tuple[str, ...], told: str) -> None:
    """With the cure."""
    code, _, err = run("infer", "m", "--sample", *(word.format(free_port()) for word in words))
    assert (code, told in err, err.count("\n")) == (2 if "expected" in told else 1, True, 1), err


@pytest.mark.parametrize("protocol", protocols.PROTOCOLS)
def test_a_proxy_is_not_asked(samples_server: Server, run: Run, protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is for the web, and may not reach the server. gRPC asked the one of the environment, unlike HTTP."""
    for name in ("http_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    monkeypatch.delenv("no_proxy", raising=False)
    assert run("infer", "half_plus_three", "--input", "x=[1]", *place(samples_server, protocol))[0] == 0


@pytest.mark.parametrize("protocol", ["v2", "grpc"])
def test_an_answer_that_is_late_names_the_flag(run: Run, protocol: str) -> None:
    """Perhaps the server runs, so the cure is not to start it."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"127.0.0.1:{silent.getsockname()[1]}"
        code, _, err = run("infer", "m", "--sample", "--timeout", "0.1", "--protocol", protocol, "--url", url)
    assert (code, err) == (1, f"dragoman: {url} does not answer within 0.1 s: raise --timeout, or set --url\n")


@pytest.mark.parametrize("command", [("infer", "iris", "--sample"), ("bench", "iris", "--sample", "--protocol", "v1")])
def test_a_port_of_grpc_is_named_as_such(samples_server: Server, run: Run, command: tuple[str, ...]) -> None:
    """The message had the bytes of its HTTP/2 frames."""
    code, _, err = run(*command, "--url", samples_server.rpc_netloc)
    told = "answers, but not over HTTP/1.1: use --protocol grpc for a port of gRPC, or name another port with --url"
    assert (code, err) == (1, f"dragoman: {samples_server.rpc_netloc} {told}\n")


@pytest.mark.parametrize("command", [("infer", "m", "--sample"), ("bench", "m", "--sample"), ("replay", "log")])
@pytest.mark.parametrize(("url", "told"), [
    ("http://user:s3cret@host", "it holds credentials; they belong in --"),
    ("user:s3cret@host:80/path", "it holds credentials; they belong in --"),
    ("http://s3cret@[::1]:80", "it holds credentials; they belong in --"),
    ("http://user:s3/cret@host", "it holds credentials; they belong in --"),
    ("http://host/path?key=s3cret", "it has a query or a fragment; expected http://HOST:PORT"),
    ("http://user:s3#cret@host", "it holds credentials; they belong in --"),
    ("host:1#s3cret", "it has a query or a fragment; expected http://HOST:PORT"),
])  # fmt: skip
def test_a_url_with_a_secret_is_refused_without_it(run: Run, command: tuple[str, ...], url: str, told: str) -> None:
    """It would not be sent, and the messages about the server would have it."""
    code, out, err = run(*command, "--url", url)
    assert (code, out, told in err, "cret" in err) == (2, "", True, False), err


def test_a_path_can_have_an_at_sign(run: Run) -> None:
    """It is part of a URL's path as any other character."""
    err = run("infer", "m", "--sample", "--url", f"http://127.0.0.1:{free_port()}/@stage")[2]
    assert "/@stage does not answer: Connection refused" in err


@pytest.mark.parametrize("body", [
    b"<h1>Not Found</h1>", b"", b"404", b'{"message": "Not Found"}',
    b'{"error": "there is nothing at \'/x/v2/models/m\'"}',
])  # fmt: skip
def test_the_404_of_another_server_says_so(body: bytes) -> None:
    """V2 is live without the model. A web server is not, and neither is a wrong path, as without a gateway's stage."""
    live = 404

    class Elsewhere:
        def call(self, packet: transport.Packet) -> transport.Landed:
            return transport.Landed(live if packet is transport.LIVE else 404, {}, body)

        def close(self) -> None: ...

    with pytest.raises(Refused, match=r"^404 /v2/models/m: another server is at --url"):
        described(Elsewhere(), "m", "", rpc=False)
    live, body = 200, b'{"error": "the model does not exist"}'
    with pytest.raises(Refused, match=r"^model 'm' does not exist$"):
        described(Elsewhere(), "m", "", rpc=False)


def test_a_key_opens_a_server(launch: Callable[..., Server], run: Run, tmp_path: Path) -> None:
    """From the flag, or from a file."""
    from hashlib import sha256  # noqa: PLC0415 - of this test

    server = launch(
        REPOSITORY=str(ROOT / "models"), AUTH="keys", KEYS=f"ci sha256:{sha256(b'k').hexdigest()} infer,read"
    )
    (tmp_path / "key").write_text("k\n")
    words = ("infer", "iris", "--sample", *place(server, "v2"))
    assert run(*words)[2].startswith("dragoman: model 'iris': 401 ")
    assert run(*words, "--key", "k")[0] == 0
    assert run(*words, "--key", f"@{tmp_path / 'key'}")[0] == 0
    assert transport.credentials("a.b.c") == {"authorization": "Bearer a.b.c"}


@pytest.mark.parametrize(("shape", "own", "expected"), [
    ((-1, 4), (4,), (1, 4)), ((-1, 1), (), (1, 1)), ((-1, 1), (3,), (3, 1)), ((-1,), (), (1,)), ((2, 2), (3,), (3,)),
    (None, (3,), (3,)), ((-1, -1), (2, 3, 4), (2, 3, 4)), ((-1, 2, 2), (2, 2), (1, 2, 2)),
])  # fmt: skip
def test_dimensions_that_were_left_out_are_added(
    shape: tuple[int, ...] | None, own: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    """One row, or a column; what fits neither stays for the server's own words."""
    tensor = Tensor("x", DATATYPES["FP32"], np.zeros(own, np.float32))
    assert inputs.fitted(tensor, shape).array.shape == expected


def read(model: CalledModel, *texts: str, file: tuple[str, ...] = ()) -> tuple[Tensor, ...]:
    return inputs.read(CommandOptions(input=texts, file=file, sample=False, rows=1), model)


def test_values_of_a_model_that_declares_nothing_are_guessed() -> None:
    """By JSON's own types."""
    model = CalledModel("m", "", None, None)
    found = read(model, "a=1", "b=[1.5, 2]", "c=word", "d=[true]", 'e=["x"]')
    assert [each.datatype.name for each in found] == ["INT64", "FP64", "BYTES", "BOOL", "BYTES"]
    with pytest.raises(Refused, match="does not declare its inputs"):
        read(model)
    with pytest.raises(Refused, match="does not declare its inputs"):
        samples.made(model, 1)
    with pytest.raises(Refused, match="needs NAME= before it"):
        read(model, "1")


def test_files_become_the_datatype_of_their_input(tmp_path: Path) -> None:
    """Doubles become FP32, numbers texts, bytes elements."""
    np.save(tmp_path / "d.npy", np.array([1.5, 2.5]))
    np.save(tmp_path / "i.npy", np.array([1, 2], np.int8))
    np.save(tmp_path / "s.npy", np.array(["a", "ü"]))
    np.save(tmp_path / "y.npy", np.array([[b"a"], [b"\xff"]]))
    np.savez(tmp_path / "x.npz", x=np.array([0.5]))
    (tmp_path / "t.csv").write_text("1,2\n3,4\n")
    (tmp_path / "b.jpg").write_bytes(b"\xff\xd8")
    path = str(tmp_path)

    def one(datatype: str, shape: tuple[int, ...], name: str) -> Any:
        model = CalledModel("m", "", (TensorSpec("x", DATATYPES[datatype], shape),), None)
        (tensor,) = read(model, file=(f"{path}/{name}",))
        assert tensor.datatype.name == datatype
        return tensor.array.tolist()

    assert one("FP32", (-1, 2), "d.npy") == [[1.5, 2.5]]
    assert one("FP32", (-1,), "x.npz") == [0.5]
    assert one("FP16", (-1,), "d.npy") == [1.5, 2.5]
    assert one("BF16", (-1,), "d.npy") == [0x3FC0, 0x4020]
    assert one("INT64", (-1,), "i.npy") == [1, 2]
    assert one("BYTES", (-1,), "i.npy") == [b"1", b"2"]
    assert one("BYTES", (-1, 1), "y.npy") == [[b"a"], [b"\xff"]]
    with pytest.raises(Refused, match=r"input 'x' has 'a' where FP32 needs numbers"):
        one("FP32", (-1, 1), "y.npy")
    assert one("BYTES", (-1,), "s.npy") == [b"a", "ü".encode()]
    assert one("FP32", (-1, 2), "t.csv") == [[1, 2], [3, 4]]
    assert one("BYTES", (-1, 2), "t.csv") == [[b"1", b"2"], [b"3", b"4"]]
    assert one("BYTES", (-1,), "b.jpg") == [b"\xff\xd8"]
    assert one("UINT8", (-1,), "b.jpg") == [0xFF, 0xD8]


def table(tmp_path: Path, text: str, datatype: str | None, shape: tuple[int, ...], flag: str = "{}") -> Any:
    """Returns what a CSV file becomes for a model with the input x, or for one that declares nothing."""
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    specs = None if datatype is None else (TensorSpec("x", DATATYPES[datatype], shape),)
    (tensor,) = read(CalledModel("m", "", specs, None), file=(flag.format(tmp_path / "t.csv"),))
    return tensor.array.tolist()


@pytest.mark.parametrize("flag", ["{}", "x={}"])
@pytest.mark.parametrize("datatype", ["BYTES", None])
def test_texts_of_a_table_stay_as_they_are_written(tmp_path: Path, datatype: str | None, flag: str) -> None:
    """A postal code is not a number, and a hash is not an infinite one."""
    cells = ["01234", "1.10", "1e5", "1e999", " 7", "1_0", *(["a"] if datatype is None else [])]
    expected = [[cell.encode()] for cell in cells]
    found = table(tmp_path, "x\n" + "\n".join(cells), datatype, (-1, 1), flag)
    assert found == (expected if datatype or flag == "x={}" else [cell for (cell,) in expected])


@pytest.mark.parametrize(("text", "datatype", "width", "expected"), [
    ("a,b\n1,2\n", "FP32", 2, [[1, 2]]),
    ("a,b\n", "BYTES", 2, [[b"a", b"b"]]),
    ("a,b\nc,d\n", "BYTES", 2, [[b"a", b"b"], [b"c", b"d"]]),
    ("a,b\n1,2\n", "BYTES", 2, [[b"a", b"b"], [b"1", b"2"]]),
    ("x\nc\n", "BYTES", 1, [[b"c"]]),
    ("NaN,1\n2,3\n", "BYTES", 2, [[b"NaN", b"1"], [b"2", b"3"]]),
    ("inf,-Infinity\n2,3\n", "FP32", 2, [[np.inf, -np.inf], [2, 3]]),
])  # fmt: skip
def test_the_first_line_of_a_table_has_names_by_the_rule_of_a_batch(
    tmp_path: Path, text: str, datatype: str, width: int, expected: list[Any]
) -> None:
    """Texts have names there only if one is the input's; numbers if no cell is a number or empty."""
    for flag in ("{}", "x={}"):
        assert table(tmp_path, text, datatype, (-1, width), flag) == expected


def test_a_table_for_a_model_that_declares_nothing_keeps_its_first_line(tmp_path: Path) -> None:
    """Words above words are rows; words above numbers are names."""
    assert table(tmp_path, "a,b\nc,d\n", None, (), "x={}") == [[b"a", b"b"], [b"c", b"d"]]
    assert table(tmp_path, "a,b\n1,2\n", None, (), "x={}") == [[1, 2]]


@pytest.mark.parametrize(("text", "told"), [
    ("1,\n2,3\n", "input 'x' has '' where FP32 needs numbers"),
    ("NA,1\n2,3\n", "input 'x' has 'NA' where FP32 needs numbers"),
    ("1,a\n2,3\n", "input 'x' has 'a' where FP32 needs numbers"),
    ("1,1e400\n", "input 'x' has '1e400' where FP32 needs numbers"),
    (f"1,{'9' * 5000}\n", "input 'x' has '999999"),
    ("1,1_0\n", "input 'x' has '1_0' where FP32 needs numbers"),
])  # fmt: skip
def test_a_cell_that_is_not_a_number_is_refused(tmp_path: Path, text: str, told: str) -> None:
    """In the first line, too: it is neither dropped nor guessed."""
    for flag in ("{}", "x={}"):
        with pytest.raises(Refused, match=told):
            table(tmp_path, text, "FP32", (-1, 2), flag)


def test_a_name_that_is_twice_in_a_table_is_refused(tmp_path: Path) -> None:
    """The first column of that name would be lost."""
    with pytest.raises(Refused, match="input 'x' is given twice"):
        table(tmp_path, "x,x\n1,2\n", "FP32", (-1,))


@pytest.mark.parametrize("datatype", DATATYPES)
def test_samples_have_the_declared_shape(datatype: str) -> None:
    """Open dimensions are the rows, then 1."""
    model = CalledModel("m", "", (TensorSpec("x", DATATYPES[datatype], (-1, 3, -1)),), None)
    (tensor,) = samples.made(model, 5)
    assert (tensor.array.shape, tensor.array.dtype) == ((5, 3, 1), DATATYPES[datatype].numpy)
    assert samples.made(model._replace(inputs=(TensorSpec("x", DATATYPES[datatype], None),)), 2)[0].array.shape == (2,)
    assert samples.flag(TensorSpec("x", DATATYPES[datatype], (-1, 2))).startswith("--input 'x=[")
    with pytest.raises(Refused, match="would have"):
        samples.made(model._replace(inputs=(TensorSpec("x", DATATYPES[datatype], (2**40,)),)), 1)


def test_a_table_stays_on_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    """Many rows are cut, and so are wide ones; what a model returns cannot steer the terminal."""
    evil = np.empty(60, object)
    evil[:] = [b"\x1b[2J\xff"] * 60
    wide, odd = np.zeros((60, 500), np.float32), np.full((2, 3), np.nan, np.float32)
    scalar = np.array(7, np.int64)
    fp32, int64 = DATATYPES["FP32"], DATATYPES["INT64"]
    outputs = (Tensor("e", BYTES, evil), Tensor("w", fp32, wide), Tensor("o", fp32, odd), Tensor("s", int64, scalar))
    shown.show(X, ModelAnswer("1", outputs), 0.001)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "m version 1, 1.0 ms"
    assert lines[3].split()[0] == "\\x1b[2J\\xff"
    assert lines[3].endswith("...")
    assert lines[-3] == "... and 10 more rows: --json prints them"
    assert lines[-2:] == ["o FP32 [2, 3]: [[NaN,NaN,NaN],[NaN,NaN,NaN]]", "s INT64 []: 7"]
    assert max(map(len, lines)) < 160
    document = json.loads(shown.document(X, ModelAnswer("", outputs), 0.001))
    assert document["outputs"][0]["data"][0] == {"b64": "G1sySv8="}
    assert document["outputs"][2]["data"][0] == "NaN"
    shown.show(X, ModelAnswer("", ()), 0.0)
    assert capsys.readouterr().out == "m, 0.0 ms\n\n"


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"outputs": [{}]}', b'{"outputs": 5}', b"\xff" * 99])
@pytest.mark.parametrize("protocol", protocols.PROTOCOLS)
def test_an_answer_that_is_none_is_one_line(protocol: str, body: bytes) -> None:
    """Whatever a server sends, the command has no traceback."""
    landed = transport.Landed(200, {}, body)
    if body == b"" and protocol in ("grpc", "connect"):
        assert protocols.answer(protocols.PROTOCOLS[protocol], X, landed).outputs == ()
        return
    if (protocol, body) == ("v1", b'{"outputs": 5}'):
        assert protocols.answer(protocols.PROTOCOLS[protocol], X, landed).outputs[0].array.tolist() == 5
        return
    with pytest.raises(Refused, match=r"^the answer (cannot be read|has no tensors): .{0,1000}$"):
        protocols.answer(protocols.PROTOCOLS[protocol], X, landed)


@pytest.mark.parametrize(("body", "told"), [
    (b"", "500"), (b"<html>", "500 <html>"), (b'{"error": "e"}', "500 e"), (b'{"message": "m"}', "500 m"),
    (b'{"status": {"code": 1, "msg": "s"}}', "500 s"), (b"[1]", "500 [1]"), (b'{"a": 1}', "500 {'a': 1}"),
])  # fmt: skip
def test_a_refusal_is_read_in_any_form(body: bytes, told: str) -> None:
    """Each protocol has another one, and proxies have their own."""
    assert transport.reason(transport.Landed(500, {}, body)) == told


def test_bytes_of_an_array_are_sent_as_they_are(tmp_path: Path) -> None:
    """A protocol that carries texts alone refuses them."""
    np.save(tmp_path / "y.npy", np.array([b"a", b"\xff"]))
    model = CalledModel("m", "", (TensorSpec("x", BYTES, (-1,)),), None)
    tensors = read(model, file=(str(tmp_path / "y.npy"),))
    for protocol in ("v2-binary", "grpc", "connect"):
        assert b"\1\0\0\0a\1\0\0\0\xff" in protocols.PROTOCOLS[protocol].write(model, tensors).body
    for protocol in ("v2", "grps"):
        with pytest.raises(Refused, match="input 'x' is not text: use v2-binary, v1, grpc or connect"):
            protocols.PROTOCOLS[protocol].write(model, tensors)


def test_what_a_protocol_cannot_carry_is_said() -> None:
    """With those that can."""
    content = np.empty(1, object)
    content[:] = [b"\xff"]
    odd, bf16 = Tensor("x", BYTES, content), Tensor("x", DATATYPES["BF16"], np.zeros(1, np.uint16))
    for protocol, tensor in (("v2", odd), ("grps", odd), ("v2", bf16)):
        with pytest.raises(Refused, match="use "):
            protocols.PROTOCOLS[protocol].write(X, [tensor])
    packet = protocols.PROTOCOLS["v1"].write(X, [odd])
    assert json.loads(packet.body) == {"inputs": {"x": [{"b64": "/w=="}]}}


def test_a_server_that_refuses_a_body_early_is_heard(tmp_path: Path, run: Run) -> None:
    """It closes the connection while the body is being sent."""
    with serve_rpc(tmp_path / "log", REPOSITORY=str(ROOT / "models"), MAX_BODY_BYTES="100000") as server:
        url = f"http://{server.netloc}"
        for _ in range(3):
            code, _, err = run("infer", "iris", "--sample", "--rows", "1000000", "--url", url)
            assert (code, "at most 100000" in err) == (1, True)
