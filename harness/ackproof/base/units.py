"""Durations, sizes and rates: text in a file, plain numbers (seconds, bytes, records per second) in Python.

A file must give the unit (`5s`, `100B`, `5000/s`); Python code may give the number alone. `FROM_FILE` is the
validation context that marks values of a file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Final, TypeAlias, TypeVar

from pydantic import BeforeValidator, PlainSerializer, ValidationInfo, WithJsonSchema
from pydantic_core import PydanticCustomError

from ackproof.base.advice import Advice, advice_of, expected

T = TypeVar("T")

FROM_FILE: Final = {"source": "file"}
WRONG: Final = "wrong"
"""Type of validation errors whose message is shown to the user unchanged."""
UNKNOWN: Final = "unknown"
"""Type of the validation errors that `unknown` makes. Their context has the kind of name and the valid names."""

_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(us|ms|s|m|min|h)\Z")
_SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_SIZE: Final = re.compile(r"([0-9]+) ?(B|kB|KB|KiB|MB|MiB|GB|GiB)\Z")
_BYTES: Final = {
    "B": 1,
    "kB": 1 << 10,
    "KB": 1 << 10,
    "KiB": 1 << 10,
    "MB": 1 << 20,
    "MiB": 1 << 20,
    "GB": 1 << 30,
    "GiB": 1 << 30,
}
_SHARE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?%\Z")
_RATE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?/ ?(s|min)\Z")
LONGEST: Final = 24 * 3600.0
"""Longest duration that is accepted as text, in seconds."""
LARGEST: Final = 1 << 40
"""Greatest size that is accepted as text, in bytes."""
FASTEST: Final = 1e9
"""Greatest rate that is accepted as text, in records per second."""

DURATION_PATTERN: Final = r"^[0-9]+(\.[0-9]+)? ?(us|ms|s|m|min|h)$"
SHIFT_PATTERN: Final = r"^[+-]?[0-9]+(\.[0-9]+)? ?(us|ms|s|m|min|h)$"
SIZE_PATTERN: Final = r"^[0-9]+ ?(B|kB|KB|KiB|MB|MiB|GB|GiB)$"
BYTE_RATE_PATTERN: Final = r"^[0-9]+ ?(B|kB|KB|KiB|MB|MiB|GB|GiB) ?/ ?s$"
SHARE_PATTERN: Final = r"^[0-9]+(\.[0-9]+)? ?%$"
RATE_PATTERN: Final = r"^([0-9]+(\.[0-9]+)? ?/ ?(s|min)|full)$"


def wrong(fact: str | ValueError, hint: str = "") -> PydanticCustomError:
    """Return a pydantic validation error whose message is shown to the user unchanged. `fact`: what is wrong, an
    `Advice`, or an error with one. `hint`: what to do about it."""
    text = advice_of(fact) if isinstance(fact, ValueError) else fact
    return PydanticCustomError(WRONG, "{text}", {"text": Advice(text, hint)})


def unknown(what: str, valid: Sequence[str], said: str | None = None) -> PydanticCustomError:
    """Return a pydantic validation error for a name that is not in `valid`. `what`: the kind of name, such as `role`.
    `said`: the unknown name, if it is only a part of the value in the file; else None."""
    return PydanticCustomError(UNKNOWN, "unknown {what}", {"what": what, "valid": valid, "said": said})


def parse_duration(text: str) -> float:
    """Return the seconds of a text such as 200ms, 5s, 1m or 2h. Raises ValueError for any other text, and above 24h."""
    match = _DURATION.match(text)
    if match is None:
        raise ValueError("a duration with its unit, such as 200ms, 5s, 1m or 2h")
    seconds = round(float(match[1]) * _SECONDS[match[2]], 9)
    if seconds > LONGEST:
        raise ValueError("a duration of at most 24h")
    return seconds


def duration_text(seconds: float) -> str:
    """Return a text in s, ms or us that `parse_duration` converts back to the same number, rounded to 1 ns.
    `seconds`: 0 to 24h; another number may raise ValueError."""
    for unit in ("s", "ms", "us"):
        number = f"{round(seconds / _SECONDS[unit], 9):.9f}".rstrip("0").rstrip(".")
        if "." not in number and parse_duration(f"{number}{unit}") == seconds:
            return f"{number}{unit}"
    return f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"


def rough_duration(seconds: float) -> str:
    """Return a duration in words for people, rounded: `40 s`, `3 min`, `2.5 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _parse_shift(text: str) -> float:
    """Return the seconds of a text such as +1h or -90s; negative for the past. Raises ValueError for any other text,
    and beyond 24h."""
    sign, length = (text[0], text[1:].lstrip()) if text[:1] in ("+", "-") else ("+", text)
    try:
        return -parse_duration(length) if sign == "-" else parse_duration(length)
    except ValueError as error:
        raise ValueError(f"{error}, or with a minus for the past, as -1h") from None


def shift_text(seconds: float) -> str:
    """Return a signed duration as text, such as `-90s`, for the field type `Shift`. Raises ValueError above 24h."""
    return f"{'-' if seconds < 0 else '+'}{duration_text(abs(seconds))}"


def parse_size(text: str) -> int:
    """Return the bytes of a text such as 16kB. kB, MB and GB are powers of 1024, as in Kafka's settings.
    Raises ValueError for any other text, and above 1 TiB."""
    match = _SIZE.match(text)
    if match is None or int(match[1][:20]) * _BYTES[match[2]] > LARGEST:
        raise ValueError("a size with its unit, such as 100B, 16kB or 1MB")
    return int(match[1]) * _BYTES[match[2]]


def size_text(size: int) -> str:
    """Return the shortest text that `parse_size` converts back to the same number."""
    for unit in ("GB", "MB", "kB"):
        if size and size % _BYTES[unit] == 0:
            return f"{size // _BYTES[unit]}{unit}"
    return f"{size}B"


def parse_rate(text: str) -> float | None:
    """Return the records per second of a text such as 5000/s or 60/min; None for `full` (full speed). Raises ValueError
    for any other text, for 0, and above 10⁹ per second."""
    if text == "full":
        return None
    match = _RATE.match(text)
    rate = float(match[1]) / (60 if match[2] == "min" else 1) if match is not None else 0.0
    if not 0 < rate <= FASTEST:
        raise ValueError("a rate above 0 such as 5000/s or 60/min, or full")
    return rate


def rate_text(rate: float | None) -> str:
    """Return the text that `parse_rate` converts back to the same number; `full` for None. A rate below 10⁻⁴ per second
    is rounded to 12 decimals."""
    if rate is None:
        return "full"
    return f"{rate!r}".removesuffix(".0") + "/s" if rate >= 1e-4 else f"{rate:.12f}/s"


def _parse_byte_rate(text: str) -> int:
    """Return the bytes per second of a text such as 50KB/s. Raises ValueError for any other text."""
    size, slash, unit = text.rpartition("/")
    try:
        if not slash or unit.strip() != "s":
            raise ValueError
        return parse_size(size.strip())
    except ValueError:
        raise ValueError("bytes per second such as 50KB/s or 1MB/s") from None


def parse_share(text: str) -> float:
    """Return the share (0 … 1) of a text such as 30%. Raises ValueError for any other text, and above 100%."""
    match = _SHARE.match(text)
    if match is None or float(match[1]) > 100:
        raise ValueError("a share such as 30%")
    return float(match[1]) / 100


def share_text(share: float) -> str:
    """Return a share (0 … 1) as a percentage with at most 10 digits, which `parse_share` reads."""
    return f"{share * 100:.10g}%"


def write_like(example: str, number: float) -> str | None:
    """Return `number` as text of the same kind as `example`: 0.5 becomes `500ms` if the example is `2s`. Return None if
    the example is no duration, size, byte rate or share. Raises ValueError for a duration that `duration_text` refuses.
    """
    if _DURATION.match(example.lstrip("+-")):
        return duration_text(number)
    if _SIZE.match(size := example.rpartition("/")[0] or example):
        return size_text(int(number)) + example[len(size) :]
    return share_text(number) if _SHARE.match(example) else None


def _measured(
    parse: Callable[[str], float | None],
    write: Callable[[T], str],
    pattern: str,
    examples: Sequence[str],
    unit: str,
    *,
    may_be_none: bool = False,
) -> tuple[BeforeValidator, PlainSerializer, WithJsonSchema]:
    """Return pydantic's validator, serializer and schema of a number with a unit. In a file the number needs its unit;
    Python code may omit it.

    `parse` and `write` convert from and to text. `pattern`, `examples`: for the schema. `unit`: suggested if a file
    gives a number without a unit. `may_be_none`: Python code may give None too.
    """

    def read(value: object, info: ValidationInfo) -> object:
        if isinstance(value, str):
            try:
                return parse(value)
            except ValueError as error:
                raise wrong(f"expected {error}, not '{value[:60]}'") from error
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            if info.context is FROM_FILE:
                raise wrong(
                    f"the number {value} lacks a unit", f"write e.g. {examples[0]} (or {value:g}{unit})"
                )
            return value
        if value is None and may_be_none and info.context is not FROM_FILE:
            return None
        raise wrong(expected(f"a text such as {examples[0]}"))

    schema = WithJsonSchema({"type": "string", "pattern": pattern, "examples": list(examples)})
    return BeforeValidator(read), PlainSerializer(write, return_type=str), schema


Duration: TypeAlias = Annotated[
    float, *_measured(parse_duration, duration_text, DURATION_PATTERN, ("5s", "200ms", "1m"), "ms")
]
"""Seconds. In a file: `5s`, `200ms`, `1m`."""

Shift: TypeAlias = Annotated[float, *_measured(_parse_shift, shift_text, SHIFT_PATTERN, ("+1h", "-90s"), "s")]
"""Seconds forwards, or backwards if negative. In a file: `1h`, `+1h`, `-90s`."""

Size: TypeAlias = Annotated[
    int, *_measured(parse_size, size_text, SIZE_PATTERN, ("100B", "16kB", "1MB"), "B")
]
"""Bytes. In a file: `100B`, `16kB`, `1MB`; kB is 1024 B."""

Rate: TypeAlias = Annotated[
    float | None,
    *_measured(parse_rate, rate_text, RATE_PATTERN, ("5000/s", "full"), "/s", may_be_none=True),
]
"""Records per second; None for full speed. In a file: `5000/s`, `full`."""

ByteRate: TypeAlias = Annotated[
    int,
    *_measured(
        _parse_byte_rate, lambda rate: f"{size_text(rate)}/s", BYTE_RATE_PATTERN, ("50KB/s", "1MB/s"), "B/s"
    ),
]
"""Bytes per second. In a file: `50KB/s`; KB is 1024 B."""

Share: TypeAlias = Annotated[float, *_measured(parse_share, share_text, SHARE_PATTERN, ("30%",), "%")]
"""A share from 0 to 1. In a file: `30%`."""
