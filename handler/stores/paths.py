"""What a path in a setting or an option means, and whether it is a file or a folder.

`~` is a home folder, and file:// is followed by a whole path.
"""

import os
import stat
from errno import ELOOP
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from handler.settings import InvalidSettings

FILE: Final = "file://"
LOCAL: Final = ("", "localhost")
"""What a file URI may name as its host: RFC 8089, section 2."""


def expanded(path: str | Path) -> Path:
    """Returns a path with the home folder in the place of `~`. That of an unknown user stays, as in a shell."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - pathlib's own raises RuntimeError for an unknown user


def path_of(repository: str, setting: str = "DRAGOMAN_REPOSITORY") -> str:
    """Returns the path of a repository in a folder: a path as it is, or that of file://. Raises InvalidSettings."""
    if not repository.startswith(FILE):
        return repository
    host, separator, path = repository.removeprefix(FILE).partition("/")
    if host not in LOCAL or not separator:  # file://models/iris would be /iris, on a host called models
        expected = "expected a path, or file:// and a path from the root, such as file:///srv/models"
        raise InvalidSettings(f"{setting} is {repository[:256]!r}; {expected}", f"{setting}: {expected}")
    return unquote(f"/{path}")


def local(text: str | Path) -> Path:
    """Returns the path of a file or folder on this machine that an argument names. Raises InvalidSettings."""
    path = path_of(str(text), "the path")
    scheme, separator, _ = path.partition("://")
    if separator and scheme.isalnum():  # "://" would become ":/"
        raise InvalidSettings(f"{path!r} is not on this machine; expected a path: `dragoman pull` fetches a model")
    return Path(path)


def mode_of(path: Path) -> int:
    """Returns the st_mode of the file or folder at a path, 0 if the path is free. Raises OSError for any other failure.

    Path.exists and its like return False for any failure from Python 3.14 on: a lack of permission, a faulty disk.
    """
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a name with a NUL byte
        return 0
    except OSError as error:
        if error.errno == ELOOP:
            return 0
        raise


def exists(path: Path) -> bool:
    """Decides whether a path exists. Raises OSError as `mode_of` does."""
    return mode_of(path) != 0


def is_dir(path: Path) -> bool:
    """Decides whether a path is a folder. Raises OSError as `mode_of` does."""
    return stat.S_ISDIR(mode_of(path))


def is_file(path: Path) -> bool:
    """Decides whether a path is a regular file. Raises OSError as `mode_of` does."""
    return stat.S_ISREG(mode_of(path))
