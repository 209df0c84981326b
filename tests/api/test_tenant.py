"""A tenant's own settings and its open incidents."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from api.problems import Kind
from api.routers.tenant import SHOWN, TenantAnswer
from tests.api.conftest import client_of
from tests.api.test_problems import assert_problem
from workflows.contracts.incident import Incident

SETTLING = "jobs:read tenant:write"
HOOK = "https://alerts.example.com/hook"
NOW = datetime(2026, 12, 1, 9, tzinfo=UTC)


def read(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    TenantAnswer.model_validate_json(answer.text)
    document: dict[str, Any] = answer.json()
    assert answer.headers["etag"] == f'"{document["revision"]}"'
    return document


async def test_a_tenant_that_has_settled_nothing_has_the_defaults(offline: FastAPI) -> None:
    async with client_of(offline, "settled-nothing") as api:
        assert read(await api.get("/v1/tenant")) == {
            "tenant": "settled-nothing",
            "revision": 1,
            "updated_at": None,
            "alert_url": None,
            "alerts": None,
            "open_incidents": 0,
            "incidents": [],
        }


async def test_an_alert_url_is_set_reset_and_noted(offline: FastAPI) -> None:
    """What changes nothing is neither a revision nor an entry; another tenant sees nothing of it."""
    async with client_of(offline, "settles", SETTLING) as api, client_of(offline, "beside") as other:
        first = read(await api.patch("/v1/tenant", json={"alert_url": HOOK}))
        assert (first["alert_url"], first["alerts"], first["revision"]) == (HOOK, "tenant", 2)
        assert read(await api.patch("/v1/tenant", json={"alert_url": HOOK})) == first
        assert read(await api.patch("/v1/tenant", json={})) == first
        assert read(await api.get("/v1/tenant")) == first
        assert read(await other.get("/v1/tenant"))["alert_url"] is None
        merge = {"content-type": "application/merge-patch+json"}
        reset = read(await api.patch("/v1/tenant", content='{"alert_url": null}', headers=merge))
        assert (reset["alert_url"], reset["revision"]) == (None, 3)
        noted = (await api.get("/v1/audit")).json()["items"]
        assert [(one["operation"], one["from_revision"], one["to_revision"]) for one in noted] == [
            ("patch tenant", 2, 3),
            ("patch tenant", 1, 2),
        ]


async def test_what_settles_nothing_leaves_no_trace(offline: FastAPI) -> None:
    async with client_of(offline, "undecided", SETTLING) as api:
        first = read(await api.get("/v1/tenant"))
        assert read(await api.patch("/v1/tenant", json={"alert_url": None})) == first
        refused = await api.patch("/v1/tenant", json={"alert_url": HOOK}, headers={"if-match": '"7"'})
        assert refused.status_code == 412
        assert read(await api.get("/v1/tenant")) == first


async def test_a_change_is_made_of_the_revision_it_names(offline: FastAPI) -> None:
    async with client_of(offline, "careful", SETTLING) as api:
        await api.patch("/v1/tenant", json={"alert_url": HOOK}, headers={"if-match": '"1"'})
        for body in ({"alert_url": None}, {}):
            refused = await api.patch("/v1/tenant", json=body, headers={"if-match": '"1"'})
            assert assert_problem(refused, 412)["type"] == Kind.REVISION_MISMATCH.uri
        repeated = await api.patch("/v1/tenant", json={"alert_url": HOOK}, headers={"if-match": '"1"'})
        assert read(repeated)["revision"] == 2
        changed = await api.patch("/v1/tenant", json={"alert_url": None}, headers={"if-match": '"2"'})
        assert read(changed)["revision"] == 3


REFUSED: dict[str, tuple[Any, str, Kind]] = {
    "no URL": ({"alert_url": "alerts"}, "/alert_url", Kind.INVALID),
    "an empty one": ({"alert_url": ""}, "/alert_url", Kind.INVALID),
    "a private address": ({"alert_url": "http://10.0.0.1/"}, "/alert_url", Kind.INVALID),
    "with a password": ({"alert_url": "https://me:secret@example.com/"}, "/alert_url", Kind.INVALID),
    "a number": ({"alert_url": 1}, "/alert_url", Kind.INVALID),
    "what is not built": (
        {"alert_url": HOOK, "default_timezone": "Europe/London"}, "/default_timezone", Kind.NOT_BUILT,
    ),
    "what nobody knows": ({"alert_uri": HOOK}, "/alert_uri", Kind.INVALID),
}  # fmt: skip


@pytest.mark.parametrize(("body", "pointer", "kind"), REFUSED.values(), ids=REFUSED)
async def test_settings_that_are_refused_change_nothing(
    offline: FastAPI, body: Any, pointer: str, kind: Kind
) -> None:
    async with client_of(offline, "refused", SETTLING) as api:
        problem = assert_problem(await api.patch("/v1/tenant", json=body), 422)
        assert problem["type"] == kind.uri
        assert [entry["pointer"] for entry in problem["errors"]] == [pointer]
        assert read(await api.get("/v1/tenant"))["revision"] == 1


async def test_only_whoever_may_settle_does(offline: FastAPI) -> None:
    async with client_of(offline, "refused", "jobs:read jobs:write") as api:
        problem = assert_problem(await api.patch("/v1/tenant", json={"alert_url": HOOK}), 403)
        assert problem["scope"] == "tenant:write"


async def test_open_incidents_are_shown_newest_first_and_counted(offline: FastAPI) -> None:
    def incident(number: int, **fields: Any) -> Incident:
        opened = NOW + timedelta(seconds=number)
        return Incident.model_validate(
            {
                "id": f"inc_{number}", "tenant": "troubled", "kind": "missed", "subject": "report",
                "job": "report", "opened_at": opened, "last_at": opened, **fields,
            }
        )  # fmt: skip

    log = offline.state.carillon.incidents
    await log.store([incident(number) for number in range(SHOWN + 2)])
    await log.store([incident(500, closed_at=NOW), incident(501, tenant="other")])
    async with client_of(offline, "troubled") as api:
        found = read(await api.get("/v1/tenant"))
    assert found["open_incidents"] == SHOWN + 2
    assert len(found["incidents"]) == SHOWN
    assert found["incidents"][0] == {
        "id": f"inc_{SHOWN + 1}",
        "kind": "missed",
        "job": "report",
        "key": None,
        "detail": "",
        "count": 1,
        "opened_at": "2026-12-01T09:01:41Z",
        "last_at": "2026-12-01T09:01:41Z",
        "notice": "pending",
    }
