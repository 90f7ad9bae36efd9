"""The statistics extension in JSON."""

from typing import Any

from core.statistics import COUNTED, STEPS, Count, Statistics


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
