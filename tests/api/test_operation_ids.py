"""What generated clients are named by, and the scope of each call: changed only on purpose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema_rs
from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR

from api.app import create_app
from tests.api.conftest import settings_in

DOCUMENT: dict[str, Any] = create_app(settings_in(Path("unused"))).openapi()

OPERATIONS = {
    "createJob": ("POST /v1/jobs", "jobs:write"),
    "listJobs": ("GET /v1/jobs", "jobs:read"),
    "getJob": ("GET /v1/jobs/{job_id}", "jobs:read"),
    "putJob": ("PUT /v1/jobs/{job_id}", "jobs:write"),
    "patchJob": ("PATCH /v1/jobs/{job_id}", "jobs:write"),
    "deleteJob": ("DELETE /v1/jobs/{job_id}", "jobs:write"),
    "createJobs": ("POST /v1/jobs/batch", "jobs:write"),
    "listGroups": ("GET /v1/groups", "jobs:read"),
    "getGroup": ("GET /v1/groups/{name}", "jobs:read"),
    "putGroup": ("PUT /v1/groups/{name}", "jobs:write"),
    "deleteGroup": ("DELETE /v1/groups/{name}", "jobs:write"),
    "changeJobs": ("POST /v1/jobs/bulk", "jobs:write"),
    "getBulk": ("GET /v1/bulk/{bulk_id}", "jobs:read"),
    "pauseJob": ("POST /v1/jobs/{job_id}/pause", "jobs:write"),
    "resumeJob": ("POST /v1/jobs/{job_id}/resume", "jobs:write"),
    "triggerJob": ("POST /v1/jobs/{job_id}/trigger", "jobs:write"),
    "skipOccurrence": ("POST /v1/jobs/{job_id}/skip", "jobs:write"),
    "unskipOccurrence": ("POST /v1/jobs/{job_id}/unskip", "jobs:write"),
    "backfillJob": ("POST /v1/jobs/{job_id}/backfill", "jobs:write"),
    "listBackfills": ("GET /v1/jobs/{job_id}/backfills", "jobs:read"),
    "getBackfill": ("GET /v1/jobs/{job_id}/backfills/{backfill_id}", "jobs:read"),
    "cancelBackfill": ("DELETE /v1/jobs/{job_id}/backfills/{backfill_id}", "jobs:write"),
    "listJobExecutions": ("GET /v1/jobs/{job_id}/executions", "jobs:read"),
    "listExecutions": ("GET /v1/executions", "jobs:read"),
    "getExecution": ("GET /v1/executions/{execution_id}", "jobs:read"),
    "cancelExecution": ("POST /v1/executions/{execution_id}/cancel", "jobs:write"),
    "rerunExecution": ("POST /v1/executions/{execution_id}/rerun", "jobs:write"),
    "listDeadLetters": ("GET /v1/dead-letters", "jobs:read"),
    "getDeadLetter": ("GET /v1/dead-letters/{letter_id}", "jobs:read"),
    "redriveDeadLetter": ("POST /v1/dead-letters/{letter_id}/redrive", "jobs:write"),
    "redriveDeadLetters": ("POST /v1/dead-letters/redrive", "jobs:write"),
    "discardDeadLetter": ("DELETE /v1/dead-letters/{letter_id}", "jobs:write"),
    "heartbeatCallback": ("POST /v1/callbacks/{token}/heartbeat", None),
    "completeCallback": ("POST /v1/callbacks/{token}/complete", None),
    "failCallback": ("POST /v1/callbacks/{token}/fail", None),
    "previewSchedule": ("POST /v1/schedules/preview", "jobs:read"),
    "streamEvents": ("GET /v1/events", "jobs:read"),
    "listAudit": ("GET /v1/audit", "jobs:read"),
    "getTenant": ("GET /v1/tenant", "jobs:read"),
    "patchTenant": ("PATCH /v1/tenant", "tenant:write"),
    "health": ("GET /healthz", None),
    "readiness": ("GET /readyz", None),
    "metrics": ("GET /metrics", None),
}


def test_operations_keep_their_ids_addresses_and_scopes() -> None:
    found = {}
    for path, item in DOCUMENT["paths"].items():
        for method, operation in item.items():
            scopes = [scope for entry in operation.get("security", []) for scope in entry["token"]]
            found[operation["operationId"]] = (f"{method.upper()} {path}", scopes[0] if scopes else None)
            assert len(scopes) <= 1
    assert found == OPERATIONS


def test_the_document_is_one_of_openapi_3_1() -> None:
    assert DOCUMENT["openapi"].startswith("3.1")
    OPENAPI_31_VALIDATOR.validate(DOCUMENT)
    broken = {**DOCUMENT, "paths": {"no-slash": {}}}
    assert not OPENAPI_31_VALIDATOR.is_valid(broken)


def test_every_schema_is_a_json_schema() -> None:
    for name, schema in DOCUMENT["components"]["schemas"].items():
        assert jsonschema_rs.meta.is_valid(
            {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
        ), name
