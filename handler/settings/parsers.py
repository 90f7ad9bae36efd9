"""Parsers of DRAGOMAN_* values. Each takes the text and raises ValueError with what was expected."""

import re
from typing import Final

UNITS: Final = {"MB": 10**6, "GB": 10**9, "MiB": 2**20, "GiB": 2**30}


def text(value: str) -> str:
    return value


def flag(value: str) -> bool:
    known = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
    if value.lower() not in known:
        raise ValueError("true or false")
    return known[value.lower()]


def names(value: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for part in value.split(",") if (name := part.strip())))


ATTRIBUTE: Final = re.compile(r"\A([A-Za-z0-9.-]++)\s*+=\s*+")
"""How a part of a certificate's subject begins (RFC 4514, section 3)."""
LISTED: Final = re.compile(r"\s*([^,;\s]*://[^,]*|(?:\\.?|[^,;\\])*)([,;]?)", re.DOTALL)
"""One part of a list of names, and what ends it. A URI can have semicolons."""


def identities(value: str) -> tuple[str, ...]:
    """Returns names separated by commas or semicolons. Neighbouring parts of a subject are one name: CN=a,O=b.

    A comma or semicolon behind a backslash is part of its name (RFC 4514, section 2.4).
    """
    found: list[str] = []
    goes_on = False
    for text, end in LISTED.findall(value):
        part, is_subject = ATTRIBUTE.subn(r"\1=", text.strip())
        if goes_on and is_subject:
            found[-1] += f",{part}"
        elif part:
            found.append(part)
        goes_on = is_subject == 1 and end == ","
    return tuple(dict.fromkeys(found))


ORIGIN: Final = re.compile(r"\A(?:\*|[a-z][a-z0-9+.-]*+://[a-z0-9.\[\]:_-]++)")
ALGORITHMS: Final = frozenset(f"{family}{bits}" for family in ("RS", "PS", "ES") for bits in (256, 384, 512)) | {
    "EdDSA"
}
"""Asymmetric ones. With a symmetric one, every reader of the public key could sign tokens."""


def origins(value: str) -> tuple[str, ...]:
    found = names(value)
    if not all(ORIGIN.fullmatch(origin) for origin in found):
        raise ValueError("origins such as https://app.example.com, with commas between, or *")
    return found


def algorithms(value: str) -> frozenset[str]:
    found = frozenset(names(value))
    if not found or not found <= ALGORITHMS:
        raise ValueError(f"some of {', '.join(sorted(ALGORITHMS))}")
    return found


def positive(value: str) -> int:
    if not is_decimal(value, 19, 0) or not 0 < int(value) < 2**63:
        raise ValueError("a whole number above 0")
    return int(value)


MOST_WORKERS: Final = 256
MOST_THREADS: Final = 1024
"""The start of the server makes all of them, and writes nothing meanwhile: for half a minute if they are 20,000."""


def workers(value: str) -> int:
    if not is_decimal(value, 3, 0) or not 0 < int(value) <= MOST_WORKERS:
        raise ValueError(f"a whole number from 1 to {MOST_WORKERS}")
    return int(value)


def threads(value: str) -> int:
    if positive(value) > MOST_THREADS:
        raise ValueError(f"a whole number above 0, at most {MOST_THREADS}")
    return int(value)


def seconds(value: str) -> float:
    try:
        number = 0.0 if "_" in value else float(value)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise ValueError("seconds above 0")
    return number


def is_decimal(value: str, digits: int, places: int) -> bool:
    """Decides whether the text is a number without a sign. A pattern for each would be compiled at each start."""
    whole, point, rest = value.partition(".")
    parts = ((whole, digits), (rest, places)) if point else ((whole, digits),)
    return value.isascii() and all(part.isdigit() and len(part) <= most for part, most in parts)


def seconds_or_never(value: str) -> float:
    if not is_decimal(value, 9, 9):
        raise ValueError("a number of seconds, 0 for never")
    return float(value)


def leeway(value: str) -> float:
    if not is_decimal(value, 3, 3):
        raise ValueError("a number of seconds below 1000")
    return float(value)


def share(value: str) -> float:
    if not is_decimal(value, 1, 9) or float(value) > 1:
        raise ValueError("a number from 0 to 1")
    return float(value)


RIGHTS: Final = ("infer", "read", "admin")


def rights(value: str) -> tuple[str, ...]:
    found = names(value)
    if not found or not set(found) <= set(RIGHTS):
        raise ValueError(f"some of {', '.join(RIGHTS)}")
    return found


def size(value: str) -> int:
    unit = next((unit for unit in UNITS if value.endswith(unit)), "")
    number = value.removesuffix(unit).removesuffix(" ")
    if not is_decimal(number, 15, 3):
        raise ValueError(f"a number of bytes, or of {', '.join(UNITS)}; 0 for no limit")
    return int(float(number) * UNITS.get(unit, 1))


class OneOf:
    """Parses one of some words. Not a dataclass, whose module would take 8 ms of each cold start."""

    def __init__(self, choices: tuple[str, ...]) -> None:
        self.choices = choices

    def __call__(self, value: str) -> str:
        if value not in self.choices:
            raise ValueError(f"one of {', '.join(self.choices)}")
        return value


V1_DIALECTS: Final = ("auto", "tfs", "kserve")
GRPC_OUTPUTS: Final = ("mirror", "raw")
"""The words of settings of the server that a model's own settings override."""


def one_of(*choices: str) -> OneOf:
    return OneOf(choices)


def port(value: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", value) or not 0 < int(value) < 2**16:
        raise ValueError("1 to 65535")
    return int(value)


METRICS: Final = ("triton", "kserve", "mlserver", "tfserving", "emf")


def metrics(value: str) -> tuple[str, ...]:
    found = names(value)
    if found != ("off",) and (not found or not set(found) <= set(METRICS)):
        raise ValueError(f"off, or some of {', '.join(METRICS)}")
    return found


def namespace(value: str) -> str:
    """A namespace of CloudWatch's ("Metrics concepts")."""
    if not re.fullmatch(r"[A-Za-z0-9._/#:-]{1,255}", value) or value.startswith(("AWS/", ":")):
        raise ValueError("1 to 255 letters, digits and ._-/#:, not beginning with AWS/ or a colon")
    return value


LEVELS: Final = one_of("DEBUG", "INFO", "WARNING", "ERROR")


def level(value: str) -> str:
    return LEVELS(value.upper())


def base_path(value: str) -> str:
    return "/" + value.strip("/") if value.strip("/") else ""


def bucket_prefix(value: str) -> str:
    if not value.startswith("s3://") or value[5:6] in ("", "/"):
        raise ValueError("s3://bucket/prefix")
    return value


def bucket_or_folder(value: str) -> str:
    if value.startswith("s3://"):
        return bucket_prefix(value)
    if "://" in value.removeprefix("file://"):
        raise ValueError("s3://bucket/prefix or a folder")
    return value
