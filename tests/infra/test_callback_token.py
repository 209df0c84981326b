"""Callback tokens: what is sealed comes back whole, for the installation that sealed it, and for no other."""

from __future__ import annotations

import base64
import io
import logging
import re
from datetime import UTC, datetime, timedelta

import pytest

from infra.callback_token import TOKEN_MAX, CallbackTokens, NoCallbackToken, redact
from infra.telemetry import configure_logging
from workflows.contracts.attempt import HeartbeatDetails, Overrun
from workflows.contracts.callback import CallbackClaims

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
TENANT, JOB = "t" * 63, "j" * 128
KEY = f"{TENANT}/{JOB}:2026-12-01T12:00:00Z"
CLAIMS = CallbackClaims(
    task_token=base64.b64encode(bytes(range(256))).decode(),
    workflow_id=f"job/{TENANT}/{JOB}",
    run_id="0" * 36,
    activity_id="17",
    tenant=TENANT,
    job=JOB,
    key=KEY,
    attempt=3,
    beat=HeartbeatDetails(
        native_attempt=2, phase="fired", deliveries=2, reaps=1, started_at=NOON, worker="17@host", at=NOON
    ),
    sent_at=NOON,
    ends_at=NOON + timedelta(days=30),
    ends_by="max_duration",
    expires_at=NOON + timedelta(days=31),
    timeout_s=30 * 86400.0,
    overrun=Overrun(at=NOON, started_by=NOON, skips=3),
)
TOKENS = CallbackTokens("the secret of an installation")


def test_the_claims_come_back_whole_in_any_process_of_the_installation() -> None:
    token = TOKENS.seal(CLAIMS)
    assert CallbackTokens("the secret of an installation").open(token) == CLAIMS
    assert re.fullmatch(r"[A-Za-z0-9_-]+", token)
    assert len(token) < 2000, "the longest there is fits into the request line of any server"
    assert TOKENS.seal(CLAIMS) != token


def test_a_token_tells_nothing() -> None:
    raw = base64.urlsafe_b64decode(TOKENS.seal(CLAIMS)[2:] + "==")
    assert not any(part in raw for part in (b"t" * 8, b"j" * 8, b"2026", b"task_token"))


def test_no_token_is_taken_with_a_single_character_changed() -> None:
    token = TOKENS.seal(CLAIMS)
    for place in range(len(token) - 1):  # the last character may hold bits that say nothing
        other = "A" if token[place] != "A" else "B"
        with pytest.raises(NoCallbackToken) as refused:
            TOKENS.open(token[:place] + other + token[place + 1 :])
        assert token[:20] not in str(refused.value)


REFUSED = {
    "nothing": "",
    "a version alone": "c1",
    "too short": "c1A",
    "another version": "c2" + "A" * 100,
    "never sealed": "c1" + "A" * 100,
    "too long": "c1" + "A" * TOKEN_MAX,
    "padding": "c1" + "=" * 40,
    "not ASCII": "c1" + "ä" * 40,
    "a line break behind it": TOKENS.seal(CLAIMS) + "\n",
    "of another installation": CallbackTokens("another").seal(CLAIMS),
}


@pytest.mark.parametrize("token", REFUSED.values(), ids=REFUSED)
def test_what_was_not_sealed_here_is_refused(token: str) -> None:
    with pytest.raises(NoCallbackToken):
        TOKENS.open(token)


def test_without_a_secret_there_are_no_tokens() -> None:
    with pytest.raises(ValueError, match="CARILLON_SIGNING_SECRET"):
        CallbackTokens("")


def test_no_log_of_a_process_shows_a_token() -> None:
    """Whoever logs it, in a path or bare, in a message or in a stack trace."""
    token = TOKENS.seal(CLAIMS)
    stream = io.StringIO()
    root = logging.getLogger()
    before = root.handlers[:], root.level
    try:
        configure_logging("INFO", stream=stream)
        log = logging.getLogger("some.library")
        log.info("POST /v1/callbacks/%s/complete HTTP/1.1", token)
        log.warning("header Carillon-Callback: http://api/v1/callbacks/%s", token)
        try:
            raise ValueError(token)
        except ValueError:
            log.exception("it broke")
    finally:
        root.handlers[:], root.level = before
    assert token[:30] not in stream.getvalue()
    assert stream.getvalue().count("/callbacks/[redacted]") >= 2
    assert redact("POST /v1/callbacks/c1short/fail") == "POST /v1/callbacks/[redacted]/fail"
    assert redact("nothing to hide, not even in c1") == "nothing to hide, not even in c1"
