"""A stand-in for a throttled store, as a plug-in of the function under test: files come slowly from a folder.

`slow://FOLDER`: nothing is copied; a file under TMPDIR records a fetch's progress, and survives its process like
the parts of a real one. SLOW_BYTES_PER_SECOND is the speed. The function imports this module; the tests do not.
"""

import os
import time
from pathlib import Path
from typing import Any

from handler.stores.directory import DirectoryStore

STEP = 0.05  # seconds: well below the time that a fetch may take to stop at its deadline


class SlowStore(DirectoryStore):
    """Delivers the folder's files slowly."""

    def __init__(self, settings: Any) -> None:
        super().__init__(settings._replace(repository=settings.repository.removeprefix("slow://")))

    def fetch(self, model: str, version: str, files: Any, progress: Any) -> Any:
        """Fetches the bytes that an earlier process did not fetch."""
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
