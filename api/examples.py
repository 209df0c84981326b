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
BULK: dict[str, Any] = {
    "Pause a team's jobs": {"filter": {"status": "active", "label": "team=billing"}, "action": "pause"},
    "What would be deleted": {
        "filter": {"status": ["completed"], "q": "import"},
        "action": "delete",
        "dry_run": True,
    },
}
PREVIEW: dict[str, Any] = {
    "Across a clock change": {
        "schedule": {"cron": "30 1 * * *", "timezone": "Europe/London"},
        "from": "2027-10-29T00:00:00Z",
        "count": 4,
    },
    "From now on": {"schedule": {"every": "PT90S"}, "count": 3},
}
