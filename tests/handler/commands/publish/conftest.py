"""A bucket's server, the commands as a user types them, and models to publish."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import onnx
import pytest

from core.errors import ModelNotLoadable
from core.operations import ModelRef
from core.tensor import Tensor
from handler.commands.publish.buckets.s3 import S3Bucket
from handler.lifecycle.registry import Registry
from handler.lifecycle.repository import Repository, Version
from handler.settings import Settings
from handler.stores import open_store
from tests.e2e import s3 as servers
from tests.support.registries import get
from tests.support.zoo import models as zoo


@pytest.fixture(autouse=True)
def _no_aws(no_aws: None) -> None:
    """Hides the machine's AWS configuration, which publishing also reads."""


@pytest.fixture(scope="session")
def server() -> Iterator[servers.Store]:
    """A real S3 server that is empty."""
    with servers.running() as running:
        yield running


class Bucket(NamedTuple):
    """A bucket of a single test."""

    name: str
    client: Any
    variables: dict[str, str]

    @property
    def uri(self) -> str:
        return f"s3://{self.name}/models"

    def keys(self) -> list[str]:
        """Returns the keys below the repository."""
        found = self.client.list_objects_v2(Bucket=self.name, Prefix="models/").get("Contents", ())
        return [each["Key"].removeprefix("models/") for each in found]

    def uploads(self) -> list[str]:
        """Returns the keys of multipart uploads in progress."""
        return [each["Key"] for each in self.client.list_multipart_uploads(Bucket=self.name).get("Uploads", ())]

    def put(self, path: str, content: bytes = b"", **metadata: str) -> None:
        """Writes an object below the repository. `metadata`: a push's objects have their sha256 there."""
        self.client.put_object(Bucket=self.name, Key=f"models/{path}", Body=content, Metadata=metadata)

    def get(self, path: str) -> bytes:
        content: bytes = self.client.get_object(Bucket=self.name, Key=f"models/{path}")["Body"].read()
        return content

    def settings(self) -> Settings:
        """Returns the settings of a server on this repository."""
        own = {name: value for name, value in self.variables.items() if name.startswith("DRAGOMAN_")}
        return Settings.from_env(own | {"DRAGOMAN_REPOSITORY": self.uri})

    def registry(self) -> Registry:
        return Registry(self.settings())

    def served(self, name: str) -> list[Version]:
        """Returns what a server that looks now would serve of a model."""
        return served(self.settings(), name)


@pytest.fixture
def bucket(server: servers.Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bucket:
    """A bucket of a test's own, with the environment that the commands read."""
    return new_bucket(server, monkeypatch, tmp_path)


def new_bucket(server: servers.Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bucket:
    """Makes a bucket, and sets the environment that the commands read."""
    name = f"b-{uuid4()}"
    server.client.create_bucket(Bucket=name)
    variables = server.variables(name) | {"DRAGOMAN_CACHE": str(tmp_path / "cache")}
    del variables["DRAGOMAN_REPOSITORY"]
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    return Bucket(name, server.client, variables)


@pytest.fixture
def theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Installs a third party's runtime of that name."""

    class Entry:
        def load(self) -> Any:
            return lambda source, settings: (source, settings)

    found = {("dragoman.backends", "theirs"): [Entry()]}
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group, name: found.get((group, name), []))


def around(patch: pytest.MonkeyPatch, *, before: Any = None, after: Any = None) -> None:
    """Calls `before` and `after` with each request of publishers to S3: its method, its key and its arguments."""
    call = S3Bucket._call

    def called(self: S3Bucket, method: str, key: str | None = None, **arguments: Any) -> Any:
        if before:
            before(method, key, arguments)
        answered = call(self, method, key, **arguments)
        if after:
            after(method, key, arguments)
        return answered

    patch.setattr(S3Bucket, "_call", called)


def adds(number: int, folder: Path, name: str = "model.onnx") -> Path:
    """Returns an ONNX file: with x = 0 it answers its number."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(zoo.adds(number).SerializeToString())
    return path


def large(number: int, folder: Path, megabytes: int = 30) -> Path:
    """Writes such a model with so many megabytes of weights in a file beside it; `number` is in them, too."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = np.full(megabytes * 125_000, number, np.int64)
    nodes = [
        onnx.helper.make_node("Gather", ["weights", "x"], ["picked"]),
        onnx.helper.make_node("Add", ["picked", "number"], ["sum"]),
        onnx.helper.make_node("Sub", ["sum", "number"], ["y"]),
    ]
    constants = {"weights": weights, "number": np.array([number])}
    model = zoo.graph("large", nodes, [("x", "INT64", [None])], [("y", "INT64", [None])], constants)
    onnx.save_model(
        model, folder / "model.onnx", save_as_external_data=True, location="weights.bin", size_threshold=1024
    )
    return folder


def served(settings: Settings, name: str) -> list[Version]:
    """Returns what a server that looks now would serve of a model; none if it has no complete version yet."""
    try:
        return list(Repository(open_store(settings)).look(name, None).versions)
    except ModelNotLoadable as error:
        assert "has no version" in error.message  # noqa: PT017 - the one failure that is an answer
        return []


def answer(models: Registry, name: str, version: int | None = None) -> int:
    """Returns what a server answers to x = 0."""
    ref = ModelRef(name, None if version is None else str(version))
    model = get(models, ref)
    assert model.spec.inputs is not None
    x = Tensor("x", model.spec.inputs[0].datatype, np.zeros(1, np.int64))
    return int(model.predict({"x": x}, ["y"], {})[0].array[0])
