"""Formats numbers, times, settings and untrusted text in the same way in `report.html`, `junit.xml`, `summary.md` and
the other pages."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from ackproof.rundir.documents import Scalar

ABSENT: Final = "—"
_ACTING: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_SHORT: Final = re.compile(r"\[([^\[\]]+)\]\Z")
_DOTTED: Final = re.compile(r"([A-Za-z0-9_-]+)\Z")


def visible(text: str) -> str:
    """Return `text` with control and direction-changing characters, except line feed and tab, as escapes.

    Names and messages from a cluster are untrusted: a right-to-left override could change what a line seems to say."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_written_out, text))


def _written_out(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in _ACTING:
        return character
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def number(value: int | None) -> str:
    """Return a number with thousands separators; `ABSENT` for None."""
    return ABSENT if value is None else f"{value:,}"


def number_range(values: Sequence[int]) -> str:
    """Return a single value, or the smallest and the largest, as text: `3`, `3–12`; `ABSENT` without values."""
    if not values:
        return ABSENT
    low, high = min(values), max(values)
    return number(low) if low == high else f"{low:,}–{high:,}"


def plural(count: int, one: str, many: str | None = None) -> str:
    """Return a count with its noun: `1 case`, `2 cases`. `one`: the singular. `many`: the plural, by default the
    singular + s."""
    return f"{count:,} {one if count == 1 else (many or one + 's')}"


def share(part: int, whole: int) -> str:
    """Return `part` of `whole` as a percentage; `ABSENT` if `whole` is 0. A part above 0 never becomes 0 %,
    and a part below the whole never 100 %."""
    if whole <= 0:
        return ABSENT
    ratio = part / whole
    if part and ratio < 0.001:
        return "< 0.1 %"
    if part < whole and ratio > 0.999:
        return "> 99.9 %"
    return f"{ratio:.1%}".replace(".0%", "%").replace("%", " %")


def duration(milliseconds: float | None) -> str:
    """Return a duration in ms as text, with about three digits and a suitable unit; `ABSENT` for None."""
    if milliseconds is None:
        return ABSENT
    if milliseconds < 1:
        return f"{milliseconds:.2g} ms"
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def size(count: int) -> str:
    """Return the size of a file as text: `512 B`, `3.4 kB`, `1.2 MB`."""
    for unit, power in (("MB", 10**6), ("kB", 10**3)):
        if count >= power:
            return f"{count / power:.3g} {unit}"
    return f"{count} B"


def moment(t_ns: int | None) -> str:
    """Return a time since the run's start as text in seconds; `ABSENT` for None."""
    return ABSENT if t_ns is None else f"{t_ns / 1e9:.3f} s"


def wall(wall_ns: int) -> str:
    """Return a time since the Unix epoch as UTC text, to the second; `ABSENT` if it is not above 0 or out of
    range.
    """
    if wall_ns <= 0:
        return ABSENT
    try:
        return datetime.fromtimestamp(wall_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, OSError, ValueError):
        return ABSENT


def short_setting(path: str) -> str:
    """Return the short name of a setting: `topics.orders.config[min.insync.replicas]` becomes
    `min.insync.replicas`.
    """
    name = _SHORT.search(path) or _DOTTED.search(path)
    return name[1] if name else path


def setting_names(paths: Sequence[str]) -> dict[str, str]:
    """Return the short name of each setting, by path. Settings whose short names are equal keep their paths."""
    short = {path: short_setting(path) for path in paths}
    names = list(short.values())
    return {path: name if names.count(name) == 1 else path for path, name in short.items()}


def scalar(value: Scalar) -> str:
    """Return a setting's value as an experiment file writes it: `null`, `true`, `3`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def one_line(text: str, limit: int = 400) -> str:
    """Return the text on one line, cut to `limit` characters; a cut text ends with an ellipsis."""
    folded = " ".join(text.split())
    return folded if len(folded) <= limit else folded[: limit - 1] + "…"


def joined(parts: Sequence[str]) -> str:
    """Return texts as an English list: `a`, `a and b`, `a, b and c`."""
    if len(parts) <= 1:
        return "".join(parts)
    return ", ".join(parts[:-1]) + " and " + parts[-1]
