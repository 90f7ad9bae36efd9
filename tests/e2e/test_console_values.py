"""Node runs the console's tensors.js: it reads tables as `dragoman infer` does, and writes numbers as numpy does."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.dtype import BF16, DATATYPES, NDArray
from core.float16 import bf16_from_float
from handler.commands.call import files
from tests.support.openapi import ROOT

CALL = """
import { readFileSync } from "node:fs";
const { csv, element, toBytes } = await import(process.argv[1]);
const elements = (datatype, texts) => texts.map((text) => element(text, datatype));
const calls = { csv, bytes: (datatype, texts) => [...toBytes({ datatype, data: elements(datatype, texts) })] };
const [name, ...rest] = JSON.parse(readFileSync(0, "utf8"));
let answer;
try { answer = { value: calls[name](...rest) }; } catch (error) { answer = { error: error.message }; }
console.log(JSON.stringify(answer));
"""
HALVES = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64)
BETWEEN = (HALVES[1:] + HALVES[:-1]) / 2
NUMBERS = {
    "FP16": [*HALVES, *BETWEEN, *-BETWEEN, 65519.0, -0.0, 0.1],
    "BF16": [*(1 + np.arange(1024) / 512), *(-0.1 * np.arange(50)), 1e-40, 3.39e38],
    "FP32": [0.1, 3.4028235e38, -1e-45],
    "FP64": [0.1, 1e308],
    **{f"INT{8 * size}": [-(2 ** (8 * size - 1)), -1, 2 ** (8 * size - 1) - 1] for size in (1, 2, 4)},
    **{f"UINT{8 * size}": [0, 2 ** (8 * size) - 1] for size in (1, 2, 4)},
    "INT64": [-(2**53) + 1, 2**53 - 1],
    "UINT64": [0, 2**53 - 1],
}


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Offer the script under a name that every Node reads as a module."""
    return shutil.copy(
        ROOT / "handler" / "site" / "assets" / "tensors.js", tmp_path_factory.mktemp("assets") / "tensors.mjs"
    )


def called(module: Path, *call: Any) -> Any:
    """Return the value of a call, or {"error": message}."""
    command = ("node", "--input-type=module", "--eval", CALL, str(module))
    done = subprocess.run(command, input=json.dumps(call), capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    return answer.get("value", answer)


def bits(datatype: str, values: list[Any]) -> NDArray[Any]:
    """Return numbers in the datatype, those of BF16 as their bits."""
    if DATATYPES[datatype] is BF16:
        return bf16_from_float(np.array(values))
    return np.array(values).astype(DATATYPES[datatype].numpy)


@pytest.mark.parametrize("datatype", NUMBERS)
def test_numbers_have_the_bytes_of_the_nearest_element(module: Path, datatype: str) -> None:
    """Of two that are equally near, the even one."""
    values = [each.item() if isinstance(each, np.generic) else each for each in NUMBERS[datatype]]
    found = called(module, "bytes", datatype, [str(each) for each in values])
    assert bytes(found) == bits(datatype, values).tobytes()


def test_floats_can_be_nan_and_infinite(module: Path) -> None:
    """A person types them as words."""
    for datatype in ("FP16", "BF16", "FP32", "FP64"):
        found = called(module, "bytes", datatype, ["nan", "inf", "-inf"])
        assert bytes(found) == bits(datatype, [float("nan"), float("inf"), -float("inf")]).tobytes(), datatype


@pytest.mark.parametrize(
    ("datatype", "text"),
    [
        *(("UINT8", "300"), ("UINT8", "-1"), ("INT8", "200"), ("INT8", "-129"), ("UINT64", "-1")),
        *(("INT32", "2147483648"), ("UINT64", "18446744073709551616000"), ("INT64", "-9223372036854777000")),
        *(("FP16", "65520"), ("BF16", "3.4e38"), ("FP32", "1e39"), ("FP32", "-1e400"), ("FP64", "1e400")),
    ],
)  # fmt: skip
def test_a_number_outside_of_the_datatype_is_refused(module: Path, datatype: str, text: str) -> None:
    """It was sent as another one, or as null."""
    assert called(module, "bytes", datatype, [text]) == {"error": f"'{text}' is out of range for {datatype}"}


@pytest.mark.parametrize(
    ("datatype", "text"),
    [
        *(("BOOL", "true,false\nfalse,true"), ("BOOL", "true"), ("BOOL", "a,b\ntrue,false")),
        *(("FP32", "nan,1\n2,3"), ("FP32", "a,b\n2,3"), ("FP32", "1,2\n2,3"), ("FP32", "x,2\n3,4")),
        *(("BYTES", "x\nhello"), ("BYTES", "a\nhello"), ("BYTES", "x"), ("FP32", '" x ",3\n1,2')),
    ],
)  # fmt: skip
def test_the_first_line_has_names_where_it_has_them_for_infer(
    module: Path, tmp_path: Path, datatype: str, text: str
) -> None:
    """A row of values is data, whatever the datatype; a line with the input's name is not."""
    (tmp_path / "x.csv").write_text(text)
    table = files.read(tmp_path / "x.csv")
    is_named = table.is_named(frozenset(("x",)), has_texts=DATATYPES[datatype].is_bytes)
    found = called(module, "csv", text, {"name": "x", "datatype": datatype})
    assert found["shape"] == list(table.rows(is_named=is_named).shape)


@pytest.mark.parametrize("text", ["1,abc\n2,3", "-inf,abc\n2,3", "NA,abc\n2,3", "abc,1"])
def test_a_text_in_the_first_row_of_numbers_is_named(module: Path, text: str) -> None:
    """The row is not taken for names."""
    found = called(module, "csv", text, {"name": "x", "datatype": "FP32"})
    assert found == {"error": f"'{'NA' if 'NA' in text else 'abc'}' is not a number: expected FP32"}
