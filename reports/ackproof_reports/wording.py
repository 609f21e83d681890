"""How numbers, times, settings and untrusted text are written. English, plain, the same in all three reports."""

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
    r"""`text` with control and direction-changing characters written out (`\u202e`), so that none can act.

    Names and messages from a cluster are untrusted; a right-to-left override could make a line say another thing.
    """
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
    """A count with separators; absent where there is none."""
    return ABSENT if value is None else f"{value:,}"


def number_range(values: Sequence[int]) -> str:
    """One count, or the smallest and the largest of several."""
    if not values:
        return ABSENT
    low, high = min(values), max(values)
    return number(low) if low == high else f"{low:,}–{high:,}"


def plural(count: int, one: str, many: str | None = None) -> str:
    """A count with its noun."""
    return f"{count:,} {one if count == 1 else (many or one + 's')}"


def share(part: int, whole: int) -> str:
    """A percentage that never rounds something to nothing, nor nearly all to all."""
    if whole <= 0:
        return ABSENT
    ratio = part / whole
    if part and ratio < 0.001:
        return "< 0.1 %"
    if part < whole and ratio > 0.999:
        return "> 99.9 %"
    return f"{ratio:.1%}".replace(".0%", "%").replace("%", " %")


def duration(milliseconds: float | None) -> str:
    """A length of time, three digits or so."""
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
    """Return the size of a file in words."""
    for unit, power in (("MB", 10**6), ("kB", 10**3)):
        if count >= power:
            return f"{count / power:.3g} {unit}"
    return f"{count} B"


def moment(t_ns: int | None) -> str:
    """A time since the run's start, in seconds."""
    return ABSENT if t_ns is None else f"{t_ns / 1e9:.3f} s"


def wall(wall_ns: int) -> str:
    """A wall clock time in UTC, to the second; absent where the file does not say."""
    if wall_ns <= 0:
        return ABSENT
    try:
        return datetime.fromtimestamp(wall_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, OSError, ValueError):
        return ABSENT


def short_setting(path: str) -> str:
    """The name a reader knows: `topics.orders.config[min.insync.replicas]` → `min.insync.replicas`."""
    name = _SHORT.search(path) or _DOTTED.search(path)
    return name[1] if name else path


def setting_names(paths: Sequence[str]) -> dict[str, str]:
    """Short names of settings; where two would be the same, both keep their whole path."""
    short = {path: short_setting(path) for path in paths}
    names = list(short.values())
    return {path: name if names.count(name) == 1 else path for path, name in short.items()}


def scalar(value: Scalar) -> str:
    """A setting's value as an experiment file writes it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def one_line(text: str, limit: int = 400) -> str:
    """Whitespace folded, and cut with an ellipsis beyond `limit` characters."""
    folded = " ".join(text.split())
    return folded if len(folded) <= limit else folded[: limit - 1] + "…"


def joined(parts: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    if len(parts) <= 1:
        return "".join(parts)
    return ", ".join(parts[:-1]) + " and " + parts[-1]
