"""THE table of metrics: the names of other servers and our own, each with the fact that it shows.

A fact is a number, or the steps of a histogram, under a name and label values; `facts` collects them. A row shows some
of a fact's label values under its own label names, and sums over the others.
"""

from typing import Final

from core.records import NamedTuple
from handler.edge.observe.counts import STEPS_NS, TFS_STEPS_NS

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"
SUMMARY: Final = "summary"
OWN: Final = "dragoman"
BY_MODEL: Final = ("model", "version")
US, SECONDS = 1e-3, 1e-9


class Family(NamedTuple):
    """One row. `shows`: for each label the index of the fact's label value, or a text.

    `scale`: by which the fact's numbers (of a histogram its nanoseconds) are multiplied. `ends`: of a histogram.
    """

    server: str
    name: str
    kind: str
    fact: str
    about: str
    labels: tuple[str, ...] = ()
    shows: tuple[int | str, ...] = (0, 1)
    scale: float = 1
    ends: tuple[int, ...] = STEPS_NS


def _triton(name: str, fact: str, about: str, scale: float = 1, kind: str = COUNTER) -> Family:
    return Family("triton", f"nv_inference_{name}", kind, fact, about, BY_MODEL, scale=scale)


def _own(name: str, fact: str, about: str, *labels: str, kind: str = COUNTER) -> Family:
    return Family(OWN, f"dragoman_{name}", kind, fact, about, labels)


def _kserve(name: str, fact: str, about: str) -> Family:
    labels, shows = ("model_name",), (0,)
    return Family("kserve", f"request_{name}_seconds", HISTOGRAM, fact, about, labels, shows, SECONDS)


def _mlserver(name: str, kind: str, fact: str, about: str, scale: float = 1) -> Family:
    return Family("mlserver", f"model_infer_request_{name}", kind, fact, about, BY_MODEL, scale=scale)


def _tfs(name: str, fact: str, about: str, label: str, shows: int | str) -> Family:
    labels, shown = ("model_name", "API", label), (0, "Predict", shows)
    return Family(
        "tfserving", f":tensorflow:serving:{name}", HISTOGRAM, fact, about, labels, shown, US, ends=TFS_STEPS_NS
    )


FAMILIES: Final = (
    _triton("request_success", "success", "inferences that succeeded"),
    Family("triton", "nv_inference_request_failure", COUNTER, "failure", "inferences that failed, by reason", ("model", "reason", "version"), (0, 2, 1)),
    _triton("count", "inferences", "rows that a model with a batch size has answered, and requests of any other"),
    _triton("exec_count", "runs", "runs of a model"),
    _triton("request_duration_us", "request_ns", "microseconds of inferences, in all", US),
    _triton("queue_duration_us", "queue_ns", "microseconds in the queue, with the wait for the model", US),
    _triton("compute_input_duration_us", "input_ns", "microseconds of reading and decoding requests", US),
    _triton("compute_infer_duration_us", "infer_ns", "microseconds of the model itself", US),
    _triton("compute_output_duration_us", "output_ns", "microseconds of encoding answers", US),
    _triton("pending_request_count", "pending", "requests that wait for a thread", kind=GAUGE),
    _kserve("preprocess", "decode_steps", "seconds of reading and decoding requests"),
    _kserve("predict", "infer_steps", "seconds of the model itself"),
    _kserve("postprocess", "encode_steps", "seconds of encoding answers"),
    _mlserver("success_total", COUNTER, "success", "inferences that succeeded"),
    _mlserver("failure_total", COUNTER, "failure", "inferences that failed"),
    _mlserver("duration", SUMMARY, "request", "seconds of inferences", SECONDS),
    Family("tfserving", ":tensorflow:serving:request_count", COUNTER, "outcome", "inferences by status", ("model_name", "status"), (0, 2)),
    _tfs("request_latency", "request_steps", "microseconds of requests", "entrypoint", 2),
    _tfs("runtime_latency", "run_steps", "microseconds of the model itself", "runtime", OWN),
    _own("requests_total", "requests", "requests by protocol and status", "protocol", "status"),
    _own("refusals_total", "refusals", "requests that were refused or failed, by protocol and reason", "protocol", "reason"),
    Family(OWN, "dragoman_request_duration_seconds", HISTOGRAM, "times", "seconds of requests, by protocol", ("protocol",), (0,), SECONDS),
    Family(OWN, "dragoman_received_bytes_total", COUNTER, "received", "bytes of requests' bodies", ("protocol",), (0,)),
    Family(OWN, "dragoman_sent_bytes_total", COUNTER, "sent", "bytes of answers' bodies", ("protocol",), (0,)),
    _own("payloads_total", "payloads", "inferences drawn for the payload log, by outcome", "outcome"),
    _own("cold_starts_total", "cold", "requests that waited for a load"),
    _own("loads_total", "loads", "loads that succeeded"),
    _own("load_failures_total", "load_failures", "loads that failed"),
    _own("load_seconds_total", "load_seconds", "seconds of the loads that succeeded"),
    _own("fetched_bytes_total", "fetched", "bytes of files that came from the store"),
    _own("cache_hits_total", "cache_hits", "loads that fetched nothing: the files were in the cache or on this machine"),
    _own("cache_misses_total", "cache_misses", "loads, and parts of loads, that fetched from the store"),
    _own("evictions_total", "evictions", "models that left the memory for others"),
    _own("models", "models", "model versions in memory", kind=GAUGE),
    _own("models_bytes", "models_bytes", "bytes that their loads were measured to take, where a memory limit is kept", kind=GAUGE),
    _own("resident_bytes", "resident", "bytes of this process in memory", kind=GAUGE),
    _own("queue", "queue", "requests that wait for a thread", kind=GAUGE),
    _own("processes", "processes", "processes whose numbers these are", kind=GAUGE),
)  # fmt: skip
