"""The receiving end of a connection: what aiohttp's parser is given, and when it is no answer.

aiohttp reads what honest servers send. Three things it leaves to its user, and targets do them: bytes
beside a whole answer in one segment (it throws the answer away), a body that breaks its own framing (it
tells nobody), and interim answers without end (it reads them in one go).
"""

from __future__ import annotations

import asyncio
import re
from functools import partial
from typing import Any, cast

from aiohttp import ClientPayloadError, TCPConnector
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import RawResponseMessage
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.streams import StreamReader

HEAD_BYTES = 256 * 1024
"""What may come before the end of an answer's head, interim answers (1xx) included: one each second for
two hours, and little enough to be read in one go without delaying other runs."""
HEADS_AT_ONCE = 1000
"""In one segment: more are no answer, for other runs wait while they are read."""
FIRST_FINAL = 200
SWITCHING = 101
_BLANK_LINE = re.compile(rb"\n\r?\n")
_LINE_ENDS = re.compile(rb"[\r\n]*")


class Answering(ResponseHandler):
    """A connection on which one answer is expected for each request, and nothing else.

    The head of an answer is parsed before anything behind it, so that its status stands whatever follows.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.spoilt = False
        """Something came that was not asked for: what comes next cannot be told from an answer."""
        self._asked = False
        self._answered = False
        """The final head has come; until the next request only its body may follow."""
        self._between_heads = True
        self._head_room = HEAD_BYTES
        self._line_end = b""

    def expect(self) -> None:
        """A request is about to be written."""
        self._asked, self._answered = True, False
        self._between_heads, self._head_room, self._line_end = True, HEAD_BYTES, b""

    @property
    def should_close(self) -> bool:
        return self.spoilt or super().should_close

    def data_received(self, data: bytes) -> None:
        if not data:  # the parser goes on with what it kept while nobody read
            self._feed(data)
            return
        if self.spoilt or not self._asked:
            self._spoil()
            return
        position = 0 if self._answered else self._heads(data)
        if self._exception is None and position < len(data):
            if self._payload is None or self._payload.is_eof():
                self._spoil()
            else:
                self._feed(data[position:])

    def _heads(self, data: bytes) -> int:
        """Feed the heads that ``data`` holds, one by one, and return where the final one ends."""
        position = 0
        for _ in range(HEADS_AT_ONCE):
            if self._between_heads and (blank := _LINE_ENDS.match(data, position)):
                position = blank.end()
            if position == len(data):
                break
            end = self._end_of_head(data, position)
            self._feed(data[position:end])
            position = end
            if self._answered or self._exception is not None:
                return position
        self._head_room -= len(data)
        if position < len(data) or self._head_room < 0:
            self._break_off("interim answers or headers without end")
        return position

    def _end_of_head(self, data: bytes, start: int) -> int:
        """Where the head that goes on at ``start`` ends; the end of ``data`` if that is later."""
        if start == 0 and self._line_end and (found := _BLANK_LINE.search(self._line_end + data[:2])):
            end = found.end() - len(self._line_end)
        else:
            found = _BLANK_LINE.search(data, start)
            end = len(data) if found is None else found.end()
        self._between_heads = found is not None
        self._line_end = b"" if found is not None else (self._line_end + data[start:][-2:])[-2:]
        return end

    def _feed(self, data: bytes) -> None:
        super().data_received(data)
        payload = self._payload
        if self._exception is not None and payload is not None and not payload.is_eof():
            payload.set_exception(ClientPayloadError("the body breaks its framing"))

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        """Called by the parser with each head that is whole."""
        if self._answered:
            self.spoilt = True  # a second answer to one request
            return
        status = data[0].code
        self._answered = status >= FIRST_FINAL or status == SWITCHING
        super().feed_data(data, size)

    def _spoil(self) -> None:
        self.spoilt = True
        if self.transport is not None:
            self.transport.close()

    def _break_off(self, why: str) -> None:
        self.set_exception(HttpProcessingError(message=why))
        if self.transport is not None:
            self.transport.close()


class Connector(TCPConnector):
    """Pools connections that are :class:`Answering`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._factory = cast("partial[ResponseHandler]", partial(Answering, loop=self._loop))
