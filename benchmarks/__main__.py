"""python -m benchmarks [--quick] [--full] [suite ...]: runs all SUITES, or those named; then prints rows with a bar."""

import argparse
from collections.abc import Callable
from functools import partial

from benchmarks import (
    abuse,
    batch,
    batching,
    connect,
    console,
    grps,
    json_tensors,
    loading,
    observation,
    overload,
    per_request,
    pipelines,
    rpc,
    streaming,
    v1,
    workers,
)
from benchmarks.measure import Row, table


def cold_start(*, quick: bool) -> list[Row]:
    from benchmarks import cold_start as measured  # noqa: PLC0415 - needs boto3 and the end-to-end tests' tools

    return measured.main(quick=quick)


def fetch(*, quick: bool, full: bool = False) -> list[Row]:
    from benchmarks import fetch as measured  # noqa: PLC0415 - needs boto3 and obstore

    return measured.main(quick=quick, full=full)


def strategies(*, quick: bool) -> list[Row]:
    from benchmarks import strategies as measured  # noqa: PLC0415 - the same

    return measured.main(quick=quick)


SUITES: dict[str, Callable[..., list[Row]]] = {
    "tensors": json_tensors.main,
    "v1": v1.main,
    "grps": grps.main,
    "requests": per_request.main,
    "rpc": rpc.main,
    "connect": connect.main,
    "observation": observation.main,
    "console": console.main,
    "overload": overload.main,
    "pipelines": pipelines.main,
    "batching": batching.main,
    "batch": batch.main,
    "workers": workers.main,
    "streaming": streaming.main,
    "fetch": fetch,
    "loading": loading.main,
    "cold-start": cold_start,
    "strategies": strategies,
    "abuse": abuse.main,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("suites", nargs="*", metavar="|".join(SUITES), help="the suites to run, in order; default: all")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a rough figure, not one to quote")
    parser.add_argument("--full", action="store_true", help="fetch: 1 GB, too, in 4 GB of memory or temporary folder")
    arguments = parser.parse_args()
    if unknown := set(arguments.suites) - set(SUITES):
        parser.error(f"{', '.join(sorted(unknown))}: expected {', '.join(SUITES)}")
    rows: list[Row] = []
    suites = SUITES | {"fetch": partial(fetch, full=arguments.full)}
    for name in arguments.suites or suites:
        rows += suites[name](quick=arguments.quick)
    print(table("All rows with a bar", [row for row in rows if row.bar is not None]))


if __name__ == "__main__":
    main()
