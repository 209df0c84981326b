"""The beginning of an answer's body, within bounds of bytes; the deadline bounds its time."""

from __future__ import annotations

import codecs
import re
import zlib

from aiohttp import ClientError, ClientResponse

ANSWER_BYTES = 4096
"""What is kept, after decompression, as UTF-8, the mark of a cut included."""
READ_BYTES = 64 * 1024
"""What is read off the wire at most. Up to there the rest is read and dropped, so that the
connection can be used again and no target sees its client go in mid-answer without need."""
TRUNCATED = " …[truncated]"

_CHARSETS = {"utf-8", "ascii", "iso8859-1", "iso8859-15", "cp1252", "utf-16"}
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
"""A database column of text takes no NUL, and a terminal should obey no target."""


class Excerpt:
    """Collects the beginning of one body. What arrived is readable at any time, after an error too."""

    def __init__(self, response: ClientResponse) -> None:
        self._response = response
        self._encoding = response.headers.get("Content-Encoding", "").strip().lower()
        self._inflate = _Inflate(self._encoding) if self._encoding in ("gzip", "x-gzip", "deflate") else None
        self._kept = bytearray()
        self._cut = False
        self._whole = False

    async def read(self) -> bool:
        """Read within bounds; true if the body has been read to its end."""
        content = self._response.content
        received = 0
        try:
            while not content.at_eof():
                piece = await content.readany()
                received += len(piece)
                self._keep(piece)
                if received > READ_BYTES:
                    return False
        except (ClientError, OSError):
            return False  # The status has been said; a body that breaks off changes nothing about it.
        self._whole = True
        return True

    def _keep(self, piece: bytes) -> None:
        room = ANSWER_BYTES + 1 - len(self._kept)
        if room > 0 and self._inflate is not None:
            try:
                piece = self._inflate(piece, room)
            except zlib.error:
                self._cut = True
                piece = b""
        self._kept += piece[:room] if room > 0 else b""

    @property
    def text(self) -> str | None:
        """At most 4 KiB; None if nothing of a body arrived."""
        if not self._kept:
            return None
        if self._encoding not in ("", "identity") and self._inflate is None:
            return f"[not decoded: content-encoding {_UNPRINTABLE.sub('', self._encoding)[:40]}]"
        cut = self._cut or not self._whole or len(self._kept) > ANSWER_BYTES
        body, charset = bytes(self._kept), self._charset()
        if charset == "utf-16" and not body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            charset = "utf-16-le"  # as browsers take it; Python's own decoder would refuse it
        decoder = codecs.getincrementaldecoder(charset)("replace")
        return kept(decoder.decode(body, final=not cut), cut=cut)

    def _charset(self) -> str:
        found = re.search(r"charset=\"?([A-Za-z0-9_-]{1,20})", self._response.headers.get("Content-Type", ""))
        if found is None:
            return "utf-8"
        try:
            name = codecs.lookup(found[1]).name
        except LookupError:
            return "utf-8"
        # Not every Python codec is a character set, and some are slow or expand.
        return name if name in _CHARSETS else "utf-8"


def kept(text: str, *, cut: bool = False) -> str:
    """What is kept of an answer: at most 4 KiB, nothing unprintable; ``cut``: it is only a beginning."""
    text = _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)
    encoded = text.encode()
    if not cut and len(encoded) <= ANSWER_BYTES:
        return text
    return encoded[: ANSWER_BYTES - len(TRUNCATED.encode())].decode(errors="ignore") + TRUNCATED


class _Inflate:
    """gzip, or deflate with or without its zlib header, never giving more than it is asked for."""

    def __init__(self, encoding: str) -> None:
        self._object = zlib.decompressobj(wbits=31) if encoding != "deflate" else None

    def __call__(self, piece: bytes, room: int) -> bytes:
        if self._object is None:
            if not piece:
                return b""
            self._object = zlib.decompressobj(wbits=15 if piece[0] & 0x0F == 8 else -15)
        return self._object.decompress(self._object.unconsumed_tail + piece, room)
