"""A stand-in for a throttled store, as a plug-in of the function under test: files come slowly from a folder.

`slow://FOLDER`: nothing is copied; how far a fetch is stands in a file under TMPDIR, and survives its process as the
parts of a real one do. SLOW_BYTES_PER_SECOND says how fast it goes. It is imported by the function, not by tests.
"""

import os
import time
from pathlib import Path
from typing import Any

from handler.stores.directory import DirectoryStore

STEP = 0.05  # seconds: well below what a fetch may take to stop at its deadline


class SlowStore(DirectoryStore):
    """Gives what the folder has, in its own time."""

    def __init__(self, settings: Any) -> None:
        super().__init__(settings._replace(repository=settings.repository.removeprefix("slow://")))

    def fetch(self, model: str, version: str, files: Any, progress: Any) -> Any:
        """Bytes that were done by an earlier process are done."""
        speed = float(os.environ["SLOW_BYTES_PER_SECOND"])
        record = Path(os.environ["TMPDIR"], f"fetched-{model}-{version}")
        progress.total = sum(file.size for file in files)
        progress.done = int(record.read_text()) if record.exists() else 0
        while progress.done < progress.total:
            if progress.left <= 0:
                raise progress.out_of_time(model)
            time.sleep(STEP)
            progress.add(min(int(speed * STEP), progress.total - progress.done))
            fresh = record.with_suffix(".new")
            fresh.write_text(str(progress.done))
            fresh.replace(record)
        return super().fetch(model, version, files, progress)
