"""Requests that the documentation shows; tests run them."""

from __future__ import annotations

from typing import Any

TARGET: dict[str, Any] = {
    "type": "http",
    "url": "https://example.com/hooks/report",
    "body": {"report": "daily"},
}

CREATE: dict[str, Any] = {
    "Every weekday at nine": {
        "id": "daily-report",
        "description": "Sends the report of the day before",
        "labels": {"team": "billing"},
        "schedule": {"cron": "0 9 * * mon-fri", "timezone": "Europe/London"},
        "target": TARGET,
    },
    "Every ninety seconds": {"schedule": {"every": "PT90S"}, "target": TARGET},
    "Once in ten minutes": {"schedule": {"in": "PT10M"}, "target": TARGET},
    "A long job, whose target reports its end": {
        "schedule": {"cron": "0 2 * * *"},
        "target": TARGET,
        "completion": "callback",
        "timeout": "PT12H",
        "heartbeat_timeout": "PT1M",
    },
}
BATCH: dict[str, Any] = {
    "Two jobs": {
        "jobs": [
            {"id": "hourly", "schedule": {"cron": "0 * * * *"}, "target": TARGET},
            {"id": "nightly", "schedule": {"cron": "0 3 * * *"}, "target": TARGET},
        ]
    }
}
REPLACE: dict[str, Any] = {
    "A whole definition": {
        "schedule": {"cron": "30 6 * * *", "timezone": "America/New_York"},
        "target": TARGET,
        "retry": {"max_attempts": 3},
    }
}
PATCH: dict[str, Any] = {
    "Another schedule": {"schedule": {"every": "PT5M"}},
    "Priority and a label": {"priority": 2, "labels": {"team": "payments"}},
}
PAUSE: dict[str, Any] = {
    "For maintenance": {"reason": "database maintenance", "until": "2030-01-01T06:00:00Z"},
    "Until somebody resumes it": {},
}
RESUME: dict[str, Any] = {"Nothing to say": {}}
TRIGGER: dict[str, Any] = {
    "Now": {},
    "With a name and a body of its own": {"request": "rerun-2026-12-01", "body": {"report": "2026-12-01"}},
    "Beside a run that is active": {"force": True},
}
SKIP: dict[str, Any] = {"One occurrence": {"scheduled_time": "2030-01-01T09:00:00Z"}}
CANCEL: dict[str, Any] = {"Nothing to say": {}}
HEARTBEAT: dict[str, Any] = {"Nothing to say": {}}
COMPLETE: dict[str, Any] = {
    "Nothing to say": {},
    "With what came of it": {"answer": {"rows": 4711, "file": "report-2026-12-01.csv"}},
}
FAIL: dict[str, Any] = {
    "To be tried again": {"error": "the warehouse is locked", "retry_after": 120},
    "For good": {"error": "the customer is unknown", "retryable": False},
}
RERUN: dict[str, Any] = {
    "With the target's body": {"target_body": True},
    "Beside what is active, with a body of its own": {"force": True, "body": {"report": "2026-12-01"}},
}
REDRIVE: dict[str, Any] = {
    "In its turn": {},
    "Beside what is active": {"force": True},
}
REDRIVE_MANY: dict[str, Any] = {
    "All of a job's": {"job": "daily-report"},
    "Of one night": {"since": "2026-12-01T22:00:00Z", "until": "2026-12-02T06:00:00Z"},
}
BACKFILL: dict[str, Any] = {
    "What a day would run": {
        "from": "2026-11-02T00:00:00Z",
        "to": "2026-11-03T00:00:00Z",
        "only": "all",
        "dry_run": True,
    },
    "A day once more, every occurrence": {
        "from": "2026-11-02T00:00:00Z",
        "to": "2026-11-03T00:00:00Z",
        "only": "all",
    },
}
BULK: dict[str, Any] = {
    "Pause a team's jobs": {"filter": {"status": "active", "label": "team=billing"}, "action": "pause"},
    "What would be deleted": {
        "filter": {"status": ["completed"], "q": "import"},
        "action": "delete",
        "dry_run": True,
    },
}
GROUP: dict[str, Any] = {"Three at once": {"limit": 3}}
TENANT: dict[str, Any] = {
    "Where incidents are sent": {"alert_url": "https://example.com/hooks/alerts"},
    "Where the installation sends them": {"alert_url": None},
}
PREVIEW: dict[str, Any] = {
    "Across a clock change": {
        "schedule": {"cron": "30 1 * * *", "timezone": "Europe/London"},
        "from": "2027-10-29T00:00:00Z",
        "count": 4,
    },
    "From now on": {"schedule": {"every": "PT90S"}, "count": 3},
}

JOB: dict[str, Any] = {
    "id": "daily-report",
    "description": "Sends the report of the day before",
    "labels": {"team": "billing"},
    "priority": 3,
    "schedule": {"cron": "0 9 * * mon-fri", "timezone": "Europe/London", "gap": "shift", "fold": "first"},
    "spread": None,
    "starts_at": None,
    "ends_at": None,
    "max_runs": None,
    "except": [],
    "delete_after": "P7D",
    "target": {**TARGET, "method": "POST", "headers": {}, "success": ["2xx"]},
    "timeout": "PT5M",
    "max_duration": "P1D",
    "heartbeat_timeout": "PT30S",
    "max_reaps": 3,
    "completion": "response",
    "retry": {
        "max_attempts": 5, "initial_interval": "PT10S", "factor": 2.0, "max_interval": "PT10M", "jitter": 0.2,
    },
    "concurrency": {"policy": "forbid", "limit": 10, "max_queued": 10, "group": None},
    "catch_up": {"policy": "latest", "window": "P1D", "grace": "PT1M30S"},
    "alerts": {"no_success_for": None, "consecutive_skips": 3, "consecutive_failures": None},
    "pause_after": None,
    "tenant": "acme",
    "status": "active",
    "paused": False,
    "revision": 1,
    "created_at": "2026-11-30T16:00:00Z",
    "updated_at": "2026-11-30T16:00:00Z",
    "pause": None,
    "next_runs": [
        {
            "scheduled_time": "2026-12-02T09:00:00Z",
            "fires_at": "2026-12-02T09:00:00Z",
            "local": "2026-12-02T09:00:00+00:00",
        }
    ],
    "skips": [],
    "last_run": {
        "id": "YWNtZS9kYWlseS1yZXBvcnQ6MjAyNi0xMi0wMVQwOTowMDowMFo",
        "key": "acme/daily-report:2026-12-01T09:00:00Z",
        "scheduled_time": "2026-12-01T09:00:00Z",
        "trigger": "schedule",
        "outcome": "succeeded",
        "started_at": "2026-12-01T09:00:00.003000Z",
        "ended_at": "2026-12-01T09:00:00.250000Z",
        "reason": None,
    },
    "stats": {
        "runs": 1,
        "succeeded": 1,
        "dead_lettered": 0,
        "skipped": 0,
        "missed": 0,
        "consecutive_failures": 0,
        "last_success_at": "2026-12-01T09:00:00.250000Z",
    },
    "stale": False,
}  # fmt: skip
EXECUTION: dict[str, Any] = {
    "id": "YWNtZS9kYWlseS1yZXBvcnQ6MjAyNi0xMi0wMVQwOTowMDowMFo",
    "key": "acme/daily-report:2026-12-01T09:00:00Z",
    "job": "daily-report",
    "scheduled_time": "2026-12-01T09:00:00Z",
    "fires_at": "2026-12-01T09:00:00Z",
    "trigger": "schedule",
    "outcome": "succeeded",
    "started_at": "2026-12-01T09:00:00.003000Z",
    "ended_at": "2026-12-01T09:00:00.250000Z",
    "lateness_ms": 3,
    "reason": None,
    "count": 1,
    "last_scheduled_time": None,
    "revision": 1,
    "attempts": [
        {
            "attempt": 1,
            "delivery": 1,
            "execution_id": "acme/daily-report:2026-12-01T09:00:00Z:1",
            "started_at": "2026-12-01T09:00:00.003000Z",
            "ended_at": "2026-12-01T09:00:00.250000Z",
            "outcome": "succeeded",
            "status_code": 200,
            "error": None,
            "answer": "ok",
            "worker": "17@worker-1",
            "revision": 1,
        }
    ],
}
PROBLEM: dict[str, Any] = {
    "type": "urn:carillon:problem:invalid",
    "title": "The request is not valid",
    "status": 422,
    "detail": "`/schedule/every`: `every` is at least one second.",
    "errors": [{"pointer": "/schedule/every", "detail": "`every` is at least one second."}],
}
LETTER: dict[str, Any] = {
    "id": "YWNtZS9kYWlseS1yZXBvcnQ6MjAyNi0xMi0wMVQwOTowMDowMFo",
    "key": "acme/daily-report:2026-12-01T09:00:00Z",
    "job": "daily-report",
    "scheduled_time": "2026-12-01T09:00:00Z",
    "trigger": "schedule",
    "status": "open",
    "reason": "max_attempts",
    "last_attempt": 5,
    "status_code": 500,
    "error": "status 500",
    "opened_at": "2026-12-01T09:02:35.250000Z",
    "failed_at": "2026-12-01T09:02:35.250000Z",
    "expires_at": "2026-12-15T09:02:35.250000Z",
    "redrives": 0,
    "revision": 1,
}
BACKFILL_ANSWER: dict[str, Any] = {
    "id": "b1",
    "job": "daily-report",
    "from": "2026-11-02T00:00:00Z",
    "to": "2026-12-01T00:00:00Z",
    "only": "missing",
    "max_concurrent": 1,
    "dry_run": False,
    "status": "running",
    "reason": None,
    "total": 7,
    "started": 4,
    "succeeded": 2,
    "dead_lettered": 1,
    "cancelled": 0,
    "remaining": 3,
    "first": None,
    "by": "ops@acme.example",
    "created_at": "2026-12-01T10:00:00Z",
    "ended_at": None,
}
BULK_ANSWER: dict[str, Any] = {
    "id": "7d0c5b1e2f3a4b5c6d7e",
    "action": "pause",
    "dry_run": False,
    "state": "running",
    "matched": 412,
    "done": 200,
    "failed": 0,
    "problems": [],
    "sample": ["daily-report"],
    "by": "ops@acme.example",
    "started_at": "2026-12-01T10:00:00Z",
    "ended_at": None,
}
GROUP_ANSWER: dict[str, Any] = {
    "name": "warehouse",
    "limit": 1,
    "member_count": 2,
    "members": ["daily-report", "nightly-load"],
    "holders": [
        {
            "id": "YWNtZS9kYWlseS1yZXBvcnQ6MjAyNi0xMi0wMVQwOTowMDowMFo",
            "key": "acme/daily-report:2026-12-01T09:00:00Z",
            "job": "daily-report",
            "since": "2026-12-01T09:00:00.020000Z",
        }
    ],
    "held": 1,
    "waiting": [],
    "queued": 0,
    "stale": False,
}
TENANT_ANSWER: dict[str, Any] = {
    "tenant": "acme",
    "revision": 2,
    "updated_at": "2026-12-01T08:00:00Z",
    "alert_url": "https://example.com/hooks/alerts",
    "alerts": "tenant",
    "open_incidents": 1,
    "incidents": [
        {
            "id": "inc_4c0d5f1f9e6b7a8123456789",
            "kind": "dead_letter",
            "job": "daily-report",
            "key": "acme/daily-report:2026-12-01T09:00:00Z",
            "detail": "acme/daily-report:2026-12-01T09:00:00Z ended as a dead letter: max_attempts",
            "count": 1,
            "opened_at": "2026-12-01T09:02:31Z",
            "last_at": "2026-12-01T09:02:31Z",
            "notice": "delivered",
        }
    ],
}
ANSWERS: dict[str, dict[str, Any]] = {
    "JobAnswer": JOB,
    "ChangedJobAnswer": {**JOB, "in_flight": []},
    "ExecutionAnswer": EXECUTION,
    "CancelledExecutionAnswer": {**EXECUTION, "outcome": "cancelled", "reason": "asked", "in_flight": []},
    "LetterAnswer": LETTER,
    "LetterStoryAnswer": {
        **LETTER,
        "attempts": [
            {
                "attempt": 5,
                "delivery": 1,
                "execution_id": "acme/daily-report:2026-12-01T09:00:00Z:5",
                "started_at": "2026-12-01T09:02:35.003000Z",
                "ended_at": "2026-12-01T09:02:35.250000Z",
                "outcome": "failed",
                "status_code": 500,
                "error": "status 500",
                "answer": "no",
                "worker": "17@worker-1",
                "revision": 1,
            }
        ],
    },
    "BackfillAnswer": BACKFILL_ANSWER,
    "CancelledBackfillAnswer": {
        **BACKFILL_ANSWER,
        "status": "cancelled",
        "reason": "asked",
        "ended_at": "2026-12-01T10:05:00Z",
        "in_flight": [],
    },
    "BulkAnswer": BULK_ANSWER,
    "TenantAnswer": TENANT_ANSWER,
    "GroupAnswer": GROUP_ANSWER,
    "Problem": PROBLEM,
}
"""By the name of their schema."""
