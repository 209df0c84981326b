"""What reaches the target: one request, its headers, its body, its signature."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError

from activities.targets.http import HttpSender
from infra.signing import tenant_signing_secret
from tests.activities.targets.local_targets import (
    SIGNING_SECRET,
    Fired,
    MakeSender,
    Names,
    StartTarget,
    delivery,
    send,
)


async def test_a_delivery_tells_its_target_everything(sender: HttpSender, start_target: StartTarget) -> None:
    """Every header of the contract is there once, and the target's answer comes back."""
    target = await start_target()
    fired = Fired()
    before = datetime.now(UTC)
    answer = await send(sender, delivery(target.url, body={"a": 1}, number=2, attempt=3), fired=fired)
    assert (answer.outcome, answer.status_code, answer.answer) == ("succeeded", 200, "ok")
    assert (answer.error, answer.error_kind, answer.retryable) == (None, None, False)
    assert answer.written_at is not None
    assert before <= answer.written_at <= datetime.now(UTC)
    assert fired.times == 1
    (request,) = target.requests
    assert request.line == "POST /hook HTTP/1.1"
    key = "acme/daily:2026-12-01T09:00:00Z"
    expected = {
        "host": f"127.0.0.1:{target.port}",
        "user-agent": "Carillon/test",
        "accept": "*/*",
        "content-type": "application/json",
        "content-length": "7",
        "idempotency-key": key,
        "webhook-id": key,
        "carillon-job": "daily",
        "carillon-scheduled-time": "2026-12-01T09:00:00Z",
        "carillon-trigger": "schedule",
        "carillon-attempt": "3",
        "carillon-delivery": "2",
        "carillon-execution-id": f"{key}:3",
    }
    assert {name: request[name] for name in expected} == expected
    signed = {"webhook-timestamp", "webhook-signature", "traceparent"}
    assert {name.lower() for name, _ in request.headers} == set(expected) | signed
    assert request.body == b'{"a":1}'


@pytest.mark.parametrize(
    ("body", "headers", "sent", "content_type"),
    [
        pytest.param({"b": 1, "a": [None, "ü"]}, {}, '{"b":1,"a":[null,"ü"]}', "application/json", id="json"),
        pytest.param(None, {}, "", None, id="null-is-no-body"),
        pytest.param("", {}, '""', "application/json", id="empty-string-is-json"),
        pytest.param(0, {}, "0", "application/json", id="zero"),
        pytest.param(
            "a=b&c=d",
            {"content-type": "application/x-www-form-urlencoded"},
            "a=b&c=d",
            "application/x-www-form-urlencoded",
            id="text-under-its-own-type",
        ),
        pytest.param(
            "x",
            {"Content-Type": "application/vnd.api+json"},
            '"x"',
            "application/vnd.api+json",
            id="json-type",
        ),
        pytest.param("\ud800", {}, '"\\ud800"', "application/json", id="half-a-surrogate-pair-is-escaped"),
    ],
)
async def test_the_body(
    sender: HttpSender,
    start_target: StartTarget,
    body: Any,
    headers: dict[str, str],
    sent: str,
    content_type: str | None,
) -> None:
    target = await start_target()
    answer = await send(sender, delivery(target.url, body=body, headers=headers))
    assert answer.outcome == "succeeded"
    (request,) = target.requests
    assert request.body.decode() == sent
    assert request.get("content-type") == content_type
    assert request["content-length"] == str(len(sent.encode()))


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "PATCH", "POST"])
async def test_methods_without_a_body(sender: HttpSender, start_target: StartTarget, method: str) -> None:
    target = await start_target()
    answer = await send(sender, delivery(target.url, method=method))
    assert answer.outcome == "succeeded"
    assert target.requests[0].line == f"{method} /hook HTTP/1.1"
    assert ("content-length" in target.requests[0]) == (method != "GET")


async def test_nobody_waits_for_the_body_of_a_head(sender: HttpSender, start_target: StartTarget) -> None:
    async def head_only(request: object, writer: Any) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n")

    target = await start_target(head_only)
    for _ in range(2):
        answer = await send(sender, delivery(target.url, method="HEAD"))
        assert (answer.outcome, answer.answer) == ("succeeded", None)


async def test_headers_are_sent_unchanged(sender: HttpSender, start_target: StartTarget) -> None:
    """Awkward but legal values arrive as they were given: colons, nothing, length, other scripts."""
    target = await start_target()
    headers = {
        "X-Time": "1:2:3",
        "X-Empty": "",
        "X-Long": "v" * 1024,
        "x-Quoted": 'a "b"; c=\\d, e',
        "X-Tab": "a\tb",
        "X-Name": "Zoë",
        "User-Agent": "mine/1",
        "Accept": "text/plain",
        "Authorization": "Bearer t",
    }
    assert (await send(sender, delivery(target.url, headers=headers))).outcome == "succeeded"
    arrived = dict(target.requests[0].headers)
    assert {name: arrived[name] for name in headers} == headers
    assert len([name for name, _ in target.requests[0].headers if name.lower() == "user-agent"]) == 1


async def test_path_and_query_are_sent_as_written(sender: HttpSender, start_target: StartTarget) -> None:
    """A signed URL breaks if anybody normalises it."""
    target = await start_target()
    await send(sender, delivery(f"http://127.0.0.1:{target.port}/a/../b//%7Ec%2f?sig=%41+b|~&x=%20#frag"))
    assert target.requests[0].line == "POST /a/../b//%7Ec%2f?sig=%41+b|~&x=%20 HTTP/1.1"


@pytest.mark.parametrize("body", [None, {"any": "jsön"}], ids=["none", "json"])
async def test_the_signature_verifies_with_the_stock_library(
    sender: HttpSender, start_target: StartTarget, body: Any
) -> None:
    """Over the exact bytes, with the secret derived for the tenant, at the time of the firing."""
    target = await start_target()
    await send(sender, delivery(target.url, body=body))
    (request,) = target.requests
    secret = tenant_signing_secret(SIGNING_SECRET, "acme")
    Webhook(secret).verify(request.body, dict(request.headers), json_parse=body is not None)
    assert abs(int(request["webhook-timestamp"]) - datetime.now(UTC).timestamp()) < 60
    for stranger in (tenant_signing_secret(SIGNING_SECRET, "other"), tenant_signing_secret("x", "acme")):
        with pytest.raises(WebhookVerificationError):
            Webhook(stranger).verify(request.body, dict(request.headers))


async def test_both_secrets_are_valid_during_a_rotation(
    sender: HttpSender, start_target: StartTarget
) -> None:
    target = await start_target()
    secrets = (tenant_signing_secret("old", "acme"), tenant_signing_secret("new", "acme"))
    await send(sender, replace(delivery(target.url, body=1), signing_secrets=secrets))
    (request,) = target.requests
    for secret in secrets:
        assert Webhook(secret).verify(request.body, dict(request.headers)) == 1
    derived = tenant_signing_secret(SIGNING_SECRET, "acme")
    with pytest.raises(WebhookVerificationError):
        Webhook(derived).verify(request.body, dict(request.headers))


async def test_a_retry_carries_the_same_identity_and_bytes(
    sender: HttpSender, start_target: StartTarget
) -> None:
    """The target de-duplicates on key and body; attempt and delivery have headers of their own."""
    target = await start_target()
    body = json.loads('{"z": 1, "a": {"y": 2.50, "b": 1e3}}')
    await send(sender, delivery(target.url, body=body))
    await send(sender, delivery(target.url, body=body, number=2))
    await send(sender, delivery(target.url, body=body, attempt=2))
    first, again, second = target.requests
    assert first.body == again.body == second.body
    changing = {"carillon-delivery", "carillon-attempt", "carillon-execution-id", "traceparent"}
    changing |= {"webhook-timestamp", "webhook-signature"}
    for name, value in first.headers:
        if name.lower() not in changing:
            assert again[name] == second[name] == value
    assert first["traceparent"].split("-")[1] == again["traceparent"].split("-")[1]
    assert len({request["traceparent"] for request in target.requests}) == 3


async def test_traceparent_is_valid_and_stable(sender: HttpSender, start_target: StartTarget) -> None:
    target = await start_target()
    for _ in range(2):
        await send(sender, delivery(target.url))
    first, second = (request["traceparent"] for request in target.requests)
    assert first == second
    version, trace, span, flags = first.split("-")
    assert (version, len(trace), len(span), flags) == ("00", 32, 16, "01")
    assert int(trace, 16) > 0
    assert int(span, 16) > 0


async def test_no_cookie_is_kept(sender: HttpSender, start_target: StartTarget) -> None:
    """Targets of all tenants share the process; nothing one of them sets reaches the next."""
    target = await start_target()

    async def set_cookie(request: object, writer: Any) -> None:
        writer.write(b"HTTP/1.1 204 No Content\r\nSet-Cookie: a=b; Path=/\r\n\r\n")

    target.script = set_cookie
    for _ in range(2):
        assert (await send(sender, delivery(target.url))).outcome == "succeeded"
    assert "cookie" not in target.requests[1]


async def test_proxies_of_the_environment_are_not_used(
    make_sender: MakeSender, start_target: StartTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy would connect to whatever it resolves a name to, past every check."""
    proxy, target = await start_target(), await start_target()
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
    sender = make_sender(lookup=Names(target_test=["127.0.0.1"]))
    assert (await send(sender, delivery(f"http://target.test:{target.port}/"))).outcome == "succeeded"
    assert (proxy.connections, len(target.requests)) == (0, 1)
    assert target.requests[0]["host"] == f"target.test:{target.port}"


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        pytest.param({"url": "ftp://127.0.0.1/"}, "url", id="scheme"),
        pytest.param({"url": "http://u:p@127.0.0.1/"}, "url", id="userinfo"),
        pytest.param({"headers": {"Host": "evil"}}, "headers", id="reserved-header"),
        pytest.param({"headers": {"X-A": "b\r\nX-Evil: 1"}}, "headers", id="line-break"),
        pytest.param({"body": float("nan")}, "body", id="not-a-number"),
    ],
)
async def test_what_cannot_be_sent_is_final_and_not_sent(
    sender: HttpSender, start_target: StartTarget, changes: dict[str, Any], kind: str
) -> None:
    """A stored definition is checked again: rules may have changed since."""
    target = await start_target()
    fired = Fired()
    answer = await send(sender, delivery(**{"url": target.url, **changes}), fired=fired)
    assert (answer.outcome, answer.error_kind, answer.retryable) == ("failed", kind, False)
    assert (answer.written_at, fired.times, target.connections) == (None, 0, 0)
