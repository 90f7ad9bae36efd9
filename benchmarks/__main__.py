"""python -m benchmarks [--quick] [suite ...]: all of SUITES, or those named; then what has a bar."""

import argparse
from collections.abc import Callable

from benchmarks import connect, grps, json_tensors, per_request, rpc, v1
from benchmarks.measure import Row, table


def cold_start(*, quick: bool) -> list[Row]:
    from benchmarks import cold_start as measured  # noqa: PLC0415 - needs boto3 and what the end-to-end tests need

    return measured.main(quick=quick)


SUITES: dict[str, Callable[..., list[Row]]] = {
    "tensors": json_tensors.main,
    "v1": v1.main,
    "grps": grps.main,
    "requests": per_request.main,
    "rpc": rpc.main,
    "connect": connect.main,
    "cold-start": cold_start,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("suites", nargs="*", metavar="|".join(SUITES), help="which; default: all, one after the other")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a look, not a figure to quote")
    arguments = parser.parse_args()
    if unknown := set(arguments.suites) - set(SUITES):
        parser.error(f"{', '.join(sorted(unknown))}: expected {', '.join(SUITES)}")
    rows: list[Row] = []
    for name in arguments.suites or SUITES:
        rows += SUITES[name](quick=arguments.quick)
    print(table("All that has a bar", [row for row in rows if row.bar is not None]))


if __name__ == "__main__":
    main()
