"""A caller as the gate knows it: a name for the log, its rights, and the models that it may use."""

import re
from collections.abc import Iterable
from fnmatch import translate
from typing import Final

from core.wire import Right

GRANTS: Final = {
    "infer": frozenset({Right.INFER}),
    "read": frozenset({Right.READ}),
    "admin": frozenset({Right.INFER, Right.READ, Right.ADMIN}),
}
"""The rights that an operator grants, by their words. `infer` and `read` are independent; `admin` includes both."""
EVERY: Final = "*"
LONGEST_NAME: Final = 256
"""Characters of a model's name that is compared with patterns. S3's keys and file systems permit few more."""
MOST_REMEMBERED: Final = 256
"""Names of models that a caller has used. The next use is spared the comparison with patterns."""


class Caller:
    """A caller. `name`: for the log. `models`: matches the names of the models that it may use, None for every model.

    `why`: the text of the refusal for the right ADMIN, where the caller's place lacks it and not its credential.
    """

    __slots__ = ("_permitted", "models", "name", "rights", "why")

    def __init__(
        self, name: str, rights: frozenset[Right], models: re.Pattern[str] | None = None, why: str = ""
    ) -> None:
        self.name = name
        self.rights = rights
        self.models = models
        self.why = why
        self._permitted: set[str] = set()

    def may_use(self, model: str) -> bool:
        if self.models is None or model in self._permitted:
            return True
        if len(model) > LONGEST_NAME or self.models.fullmatch(model) is None:
            return False
        if len(self._permitted) >= MOST_REMEMBERED:
            self._permitted.clear()
        self._permitted.add(model)
        return True


def rights_of(words: Iterable[str]) -> frozenset[Right]:
    """Returns the rights that words grant. Raises ValueError for an unknown word."""
    granted: frozenset[Right] = frozenset()
    for word in words:
        if word not in GRANTS:
            raise ValueError(f"the rights are {', '.join(GRANTS)}")
        granted |= GRANTS[word]
    return granted


def scoped(words: Iterable[str], prefix: str) -> frozenset[Right]:
    """Returns the rights that a token's scopes grant: the words after the prefix. Ignores scopes of other services."""
    mine = (word.removeprefix(prefix) for word in words if word.startswith(prefix))
    return rights_of(word for word in mine if word in GRANTS)


def patterns(globs: Iterable[str]) -> re.Pattern[str] | None:
    """Returns the pattern of names that one of the globs matches, None if every name does.

    >>> bool(patterns(["iris*", "wine"]).fullmatch("iris_2")), patterns(["*"])
    (True, None)
    """
    globs = list(globs)
    return None if EVERY in globs else re.compile("|".join(map(translate, globs)) or "(?!)")
