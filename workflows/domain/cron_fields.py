"""One field of a cron expression: its text, its bounds, its set of values.

Everything is compared with the bounds before anything is expanded, and a field's values are a bit
mask, so no text costs more than its length.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b

from workflows.domain.cron_days import MonthDay
from workflows.domain.errors import RuleError

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_LONG_NAMES = (
    *("january", "february", "march", "april", "june", "july", "august", "september", "october"),
    *("november", "december", "sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"),
    *("sept", "tues", "thur", "thurs"),
)


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """What a field may hold. ``top`` is the largest value written, ``end`` where ``N/step`` stops."""

    name: str
    low: int
    top: int
    end: int
    unit: str
    once: str
    """How often a step beyond the field's size would run."""
    names: tuple[str, ...] = ()
    hash_end: int = 0
    """Where ``H`` stops: a day of the month that every month has."""

    @property
    def size(self) -> int:
        return self.end - self.low + 1


MINUTE = FieldSpec("minute", 0, 59, 59, "minutes", "once an hour", hash_end=59)
HOUR = FieldSpec("hour", 0, 23, 23, "hours", "once a day", hash_end=23)
DAY = FieldSpec("day of month", 1, 31, 31, "days", "once a month", hash_end=28)
MONTH = FieldSpec("month", 1, 12, 12, "months", "once a year", names=MONTHS, hash_end=12)
WEEKDAY = FieldSpec("day of week", 0, 7, 6, "days", "once a week", names=WEEKDAYS, hash_end=6)
SPECS = (MINUTE, HOUR, DAY, MONTH, WEEKDAY)

Refuse = Callable[[str, str], RuleError]
"""Makes the error for a code and a message, with the pointer of the expression."""


@dataclass(slots=True)
class FieldValues:
    """A parsed field. ``mask`` has bit ``v`` for value ``v``; Sunday is 0 only."""

    star: bool = False
    mask: int = 0
    special: MonthDay | None = None
    nth: list[tuple[int, int]] = field(default_factory=list)
    last: list[int] = field(default_factory=list)
    hashed: bool = False


_NUMBER = re.compile(r"[0-9]+\Z")
_WORD = re.compile(r"[a-z]+\Z")
_HASH = re.compile(r"h(?:\(([0-9]+)-([0-9]+)\))?\Z")
_LAST_LESS = re.compile(r"l(?:-([0-9]+))?\Z")
_NEAREST = re.compile(r"([0-9]+)w\Z")


def parse_field(text: str, spec: FieldSpec, seed: str, refuse: Refuse) -> FieldValues:
    """Reads one field (lower case, without blanks); ``seed`` is what ``H`` is hashed on."""
    return _FieldParser(text, spec, seed, refuse).parse()


class _FieldParser:
    def __init__(self, text: str, spec: FieldSpec, seed: str, refuse: Refuse) -> None:
        self.text = text
        self.spec = spec
        self.seed = seed
        self.refuse = refuse
        self.values = FieldValues(star=text.startswith("*") or text == "?")

    def parse(self) -> FieldValues:
        if "?" in self.text:
            self._question_mark()
            return self.values
        if self.spec is DAY and self._special_day():
            return self.values
        for item in self.text.split(","):
            self._item(item)
        return self.values

    def fault(self, code: str, message: str) -> RuleError:
        return self.refuse(code, f"{self.spec.name} {_shown(self.text)}: {message}")

    def _question_mark(self) -> None:
        if self.text != "?":
            raise self.fault("cron_syntax", "'?' stands alone in its field; write '*' for a step or a list")
        if self.spec is not DAY and self.spec is not WEEKDAY:
            raise self.fault("cron_syntax", "'?' is for the two day fields; write '*'")
        self._span(self.spec.low, self.spec.end, 1)

    def _special_day(self) -> bool:
        """``L``, ``L-n``, ``LW``, ``nW``: alone in the field. False: the field has none of them."""
        if "l" not in self.text.replace("jul", "") and "w" not in self.text.replace("wed", ""):
            return False
        if "," in self.text:
            raise self.fault(
                "cron_special", "'L' and 'W' stand alone in this field; write a list of expressions instead"
            )
        if self.text == "lw":
            self.values.special = MonthDay("last_weekday")
        elif match := _LAST_LESS.match(self.text):
            less = int(match[1] or 0) if len(match[1] or "") <= 4 else 99
            if less > 30:
                raise self.fault("cron_value", "'L-n' goes back at most 30 days from the end of the month")
            self.values.special = MonthDay("last", less)
        elif match := _NEAREST.match(self.text):
            self.values.special = MonthDay("nearest_weekday", self._value(match[1]))
        else:
            raise self.fault(
                "cron_special",
                "write 'L' (last day), 'L-3' (three days before it), 'LW' (last Monday-to-Friday day) "
                "or '15W' (the one nearest to day 15)",
            )
        return True

    def _item(self, item: str) -> None:
        if not item:
            raise self.fault("cron_syntax", "a value is missing beside a comma")
        base, slash, step_text = item.partition("/")
        if self.spec is WEEKDAY and self._special_weekday(base, bool(slash)):
            return
        step = self._step(step_text, base) if slash else 1
        if base == "*":
            self._span(self.spec.low, self.spec.end, step)
        elif match := _HASH.match(base):
            self._hashed(match, step if slash else None)
        elif "-" in base:
            self._range(base, step)
        elif base:
            value = self._value(base)
            if self.spec is WEEKDAY:
                value %= 7
            self._span(value, None if slash else value, step)
        else:
            raise self.fault("cron_syntax", f"write '*/{step_text}' for a step over the whole field")

    def _range(self, base: str, step: int) -> None:
        start_text, _, end_text = base.partition("-")
        if not start_text or not end_text or "-" in end_text:
            raise self.fault("cron_syntax", f"{_shown(base)} is not a range; write it as '1-5'")
        if "*" in base:
            raise self.fault("cron_syntax", f"{_shown(base)} is not a range; '*' alone is every value")
        start, end = self._value(start_text), self._value(end_text)
        if start > end:
            raise self._reversed(base, start_text, end_text, step)
        self._span(start, end, step)

    def _reversed(self, base: str, start_text: str, end_text: str, step: int) -> RuleError:
        start, end = self._value(start_text), self._value(end_text)
        spec = self.spec
        shown_end = spec.names[spec.end - spec.low] if _WORD.match(start_text) else str(spec.end)
        shown_low = spec.names[0] if _WORD.match(end_text) else str(spec.low)
        if spec is WEEKDAY and start == 7:
            rewrite = f"{shown_low}-{end_text}" if end else "0"
        else:
            head = start_text if start == spec.end else f"{start_text}-{shown_end}"
            tail = end_text if end == spec.low else f"{shown_low}-{end_text}"
            rewrite = f"{head},{tail}"
        if step > 1:
            values = [*range(start, spec.end + 1), *range(spec.low, end + 1)]
            rewrite = ",".join(str(value) for value in values[::step])
        return self.fault(
            "cron_reversed_range", f"the range {_shown(base)} runs backwards; write '{rewrite}'"
        )

    def _special_weekday(self, base: str, stepped: bool) -> bool:
        """``5L``, ``friL``, ``fri#2``. False: the item is none of them."""
        if "#" in base:
            name, _, nth = base.partition("#")
            if stepped or not name or not _NUMBER.match(nth) or not 1 <= _bounded(nth) <= 5:
                raise self.fault("cron_special", "write the second Friday as 'fri#2' or '5#2', from #1 to #5")
            self.values.nth.append((self._value(name) % 7, _bounded(nth)))
            return True
        if "l" not in base:
            return False
        name = base[:-1] if base.endswith("l") else ""
        if name and not stepped and (_NUMBER.match(name) or name in WEEKDAYS):
            self.values.last.append(self._value(name) % 7)
            return True
        if base == "l":
            raise self.fault(
                "cron_special",
                "a bare 'L' is ambiguous; write 'sat' for Saturday, '5L' for the last Friday",
            )
        if base.startswith("l") and (_NUMBER.match(base[1:]) or base[1:] in WEEKDAYS):
            raise self.fault("cron_special", f"write '{base[1:]}L' for the last one of the month")
        raise self.fault("cron_special", "write the last Friday of the month as '5L' or 'friL'")

    def _step(self, text: str, base: str) -> int:
        spec = self.spec
        if not _NUMBER.match(text):
            raise self.fault("cron_syntax", f"the step {_shown(text)} is not a number; write '*/5'")
        step = _bounded(text)
        if step == 0:
            raise self.fault("cron_step", f"a step of zero never ends; write '{base or '*'}' for every value")
        if step > spec.size:
            every = "" if spec not in (MINUTE, HOUR) else _every(text, spec)
            raise self.fault(
                "cron_step",
                f"a step of {_short(text)} is larger than the field's {spec.size} values: it would run "
                f"{spec.once}, not every {_short(text)} {spec.unit}{every}",
            )
        return step

    def _value(self, text: str) -> int:
        spec = self.spec
        if _NUMBER.match(text):
            value = _bounded(text)
            if not spec.low <= value <= spec.top:
                raise self.fault(
                    "cron_value", f"{_shown(text)} is out of range; a {spec.name} is {spec.low} to {spec.top}"
                )
            return value
        if text in spec.names:
            return spec.names.index(text) + spec.low
        raise self.fault("cron_value", self._unknown(text))

    def _unknown(self, text: str) -> str:
        if text in _LONG_NAMES and text[:3] in self.spec.names:
            return f"names have three letters; write '{text[:3]}'"
        if text[:3] in (*MONTHS, *WEEKDAYS) and not self.spec.names:
            return f"{_shown(text)} is a name; this field takes numbers (order: minute hour day month week)"
        if text.startswith("h"):
            return "write 'H', 'H/15' or 'H(0-29)'"
        if text[:1] == "+" or not text[:1].isalnum():
            return f"{_shown(text)} is not a value; a {self.spec.name} is {self.spec.low} to {self.spec.top}"
        if self.spec.names:
            return f"{_shown(text)} is not a value; write a number or one of {', '.join(self.spec.names)}"
        return f"{_shown(text)} is not a value; write a number from {self.spec.low} to {self.spec.top}"

    def _hashed(self, match: re.Match[str], step: int | None) -> None:
        spec = self.spec
        low, end = spec.low, spec.hash_end
        if match[1] is not None:
            low, end = self._value(match[1]), self._value(match[2])
            if low > end:
                raise self._reversed(f"{match[1]}-{match[2]}", match[1], match[2], 1)
        size = end - low + 1
        digest = blake2b(f"{spec.name}\0{self.seed}".encode(), digest_size=8).digest()
        offset = int.from_bytes(digest, "big") % min(size, step or size)
        self.values.hashed = True
        if step is None:
            self._span(low + offset, low + offset, 1)
        else:
            self._span(low + offset, end, step)

    def _span(self, start: int, end: int | None, step: int) -> None:
        """Adds ``start``, ``start + step``, … up to ``end`` (None: the end of the field)."""
        stop = self.spec.end if end is None else max(end, start)
        for value in range(start, stop + 1, step):
            self.values.mask |= 1 << (value % 7 if self.spec is WEEKDAY else value)


def _every(text: str, spec: FieldSpec) -> str:
    digits = text.lstrip("0")
    if len(digits) > 6:
        return "; use `every` for that"
    return f'; use {{"every": "PT{digits}{spec.unit[0].upper()}"}} for that'


def _bounded(digits: str) -> int:
    """The number, or 10,000 for anything of more than four digits: beyond every bound."""
    digits = digits.lstrip("0")
    return int(digits or "0") if len(digits) <= 4 else 10_000


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "…"


def _shown(text: str) -> str:
    return repr(_short(text))
