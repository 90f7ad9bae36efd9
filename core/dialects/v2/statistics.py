"""The statistics extension's names and members, which REST and gRPC share."""

from typing import Any, Final

from core.statistics import Count, Statistics

STEPS: Final = ("compute_input", "compute_infer", "compute_output")
COUNTED: Final = ("success", "fail", "queue", *STEPS)


def members(stats: Statistics) -> dict[str, Any]:
    """Returns the JSON of one version's numbers."""
    return {
        "name": stats.name,
        "version": stats.version,
        "last_inference": stats.last_inference_ms,
        "inference_count": stats.inference_count,
        "execution_count": stats.execution_count,
        "inference_stats": {name: _counted(getattr(stats, name)) for name in COUNTED},
        "batch_stats": [
            {"batch_size": rows, **dict(zip(STEPS, map(_counted, steps), strict=True))}
            for rows, *steps in stats.batches
        ],
    }


def _counted(count: Count) -> dict[str, int]:
    return {"count": count.times, "ns": count.ns}
