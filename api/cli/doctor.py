"""``carillon doctor``: what an installation stands on, and what is lost where something is missing."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Literal

import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from rich.console import Console
from rich.table import Table
from rich.text import Text
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.namespace.v1 import NamespaceInfo
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    DescribeTaskQueueRequest,
    GetSystemInfoRequest,
    ListTaskQueuePartitionsRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError

from activities.clock import AHEAD_LIMIT
from infra.database.engine import Database
from infra.database.errors import DatabaseError
from infra.database.migration import configuration
from infra.settings import Settings
from infra.temporal.client import connect
from infra.temporal.clock import clock_offset
from infra.temporal.dynamic_config import DYNAMIC_CONFIG, DynamicValue
from infra.temporal.embedded import running_values
from infra.temporal.errors import SetupError
from infra.temporal.home import home_of
from infra.temporal.namespace import missing_search_attributes, retention
from workflows.contracts.names import DUE_QUEUE, MAIN_QUEUE, SEARCH_ATTRIBUTES
from workflows.domain.zones import tzdata_version

State = Literal["ok", "missing", "unknown", "note"]
_COLOURS: dict[State, str] = {"ok": "green", "missing": "bold red", "unknown": "yellow", "note": "dim"}


@dataclass(frozen=True)
class Finding:
    """One line of the report. ``missing`` makes the exit status 1; ``unknown`` could not be read."""

    subject: str
    state: State
    found: str
    advice: str = ""


async def examine(settings: Settings) -> list[Finding]:
    """Everything there is to know, whatever part of it is away."""
    findings = [finding async for finding in _temporal(settings)]
    findings += [finding async for finding in _database(settings)]
    findings.append(_callbacks(settings))
    findings.append(Finding("tzdata", "ok", tzdata_version()))
    return findings


def _callbacks(settings: Settings) -> Finding:
    if settings.public_url:
        return Finding("callbacks", "ok", f"targets report to {settings.public_url}")
    return Finding(
        "callbacks",
        "note",
        "no public URL",
        "Jobs whose targets report their own end are refused: set CARILLON_PUBLIC_URL for them.",
    )


def report(findings: list[Finding], *, as_json: bool, console: Console) -> int:
    """Prints the findings; the exit status."""
    if as_json:
        console.file.write(json.dumps([asdict(finding) for finding in findings], indent=2) + "\n")
    else:
        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column()
        table.add_column(overflow="fold")
        for finding in findings:
            table.add_row(f"[{_COLOURS[finding.state]}]{finding.state}[/]", _lines(finding))
        console.print(table)
    return int(any(finding.state == "missing" for finding in findings))


def _lines(finding: Finding) -> Text:
    """What was found, and below it what helps: in columns the names to copy would be broken."""
    text = Text.assemble((finding.subject, "bold"), ": ", finding.found)
    return text.append(f"\n{finding.advice}", "dim") if finding.advice else text


async def _temporal(settings: Settings) -> AsyncIterator[Finding]:
    try:
        client = await connect(settings)
        system = await client.workflow_service.get_system_info(GetSystemInfoRequest())
        described = await client.workflow_service.describe_namespace(
            DescribeNamespaceRequest(namespace=client.namespace)
        )
        if (home := home_of(client, settings)) is not None:
            home.compare(described.namespace_info.id)
        where = f"{system.server_version} at {settings.temporal_address}, namespace {client.namespace}"
        yield Finding("Temporal server", "ok", where)
    except (SetupError, RPCError) as error:
        yield Finding("Temporal server", "missing", str(error), "Nothing below it can be examined.")
        return
    values = running_values(_port(settings)) if _is_local(settings) else None
    for value in DYNAMIC_CONFIG:
        yield await _dynamic(value, client, described.namespace_info, values)
    yield await _attributes(client)
    yield await _retention(client, settings)
    yield await _clock(client)
    for finding in _limits(described.namespace_info):
        yield finding
    for queue in (MAIN_QUEUE, DUE_QUEUE):
        yield await _pollers(client, queue)


async def _dynamic(
    value: DynamicValue, client: Client, info: NamespaceInfo, values: dict[str, str] | None
) -> Finding:
    """What can be read is read: from the process on this machine, else from what the server tells."""
    wanted = f"{value.key}={value.value}"
    advice = f"Set {wanted}; without it {value.loss}."
    if values is not None:
        found = values.get(value.key)
        if found == value.value:
            return Finding(value.key, "ok", found)
        return Finding(value.key, "missing", "not set" if found is None else found, advice)
    if value.key == "frontend.WorkerCommandsEnabled":
        on = info.capabilities.worker_commands
        return Finding(value.key, "ok" if on else "missing", str(on).lower(), "" if on else advice)
    if value.key == "matching.numTaskqueueReadPartitions":
        try:
            partitions = await client.workflow_service.list_task_queue_partitions(
                ListTaskQueuePartitionsRequest(
                    namespace=client.namespace, task_queue=TaskQueue(name=MAIN_QUEUE)
                )
            )
        except RPCError:
            return Finding(value.key, "unknown", "the server does not say", advice)
        count = len(partitions.workflow_task_queue_partitions)
        return Finding(value.key, "ok" if count <= 1 else "note", str(count), "" if count <= 1 else advice)
    return Finding(value.key, "unknown", "cannot be read from a server", advice)


async def _attributes(client: Client) -> Finding:
    try:
        missing = await missing_search_attributes(client)
    except RPCError as error:
        return Finding("search attributes", "unknown", f"cannot be read: {error}")
    if not missing:
        return Finding("search attributes", "ok", ", ".join(SEARCH_ATTRIBUTES))
    names = " ".join(f"--name {name} --type Keyword" for name in missing)
    return Finding(
        "search attributes",
        "missing",
        f"not registered: {', '.join(missing)}",
        f"No job can be created without them: temporal operator search-attribute create {names}",
    )


async def _retention(client: Client, settings: Settings) -> Finding:
    found = await retention(client)
    enough = found >= settings.temporal_retention
    advice = "Histories of runs older than that cannot be read in Temporal's UI."
    text = f"{found / timedelta(days=1):g} days"
    return Finding("namespace retention", "ok" if enough else "note", text, "" if enough else advice)


async def _clock(client: Client) -> Finding:
    try:
        offset = await clock_offset(client, f"carillon-doctor {os.getpid()}@{socket.gethostname()}")
    except RPCError as error:
        return Finding("clock", "unknown", f"cannot be measured: {error}")
    if offset is None:
        return Finding("clock", "unknown", "the server does not say when a call came")
    ahead = offset.ahead / timedelta(milliseconds=1)
    text = f"{ahead:+.1f} ms against the server (± {offset.uncertainty / timedelta(milliseconds=1):.1f} ms)"
    if abs(offset.ahead) <= AHEAD_LIMIT + offset.uncertainty:
        return Finding("clock", "ok", text)
    return Finding(
        "clock", "missing", text, "Synchronise the clocks: workers do not hold runs, or fire them late."
    )


def _limits(info: NamespaceInfo) -> list[Finding]:
    limits = info.limits
    sizes = (
        f"payload {limits.blob_size_limit_error // 1024} KiB, memo {limits.memo_size_limit_error // 1024} KiB"
    )
    unreadable = "cannot be read from a server"
    return [
        Finding("size limits", "ok" if limits.blob_size_limit_error else "unknown", sizes),
        Finding(
            "frontend.namespaceRPS",
            "note",
            unreadable,
            "Requests a second of the namespace on one frontend; beyond it runs are late. Default 2400.",
        ),
        Finding(
            "frontend.namespaceRPS.visibility",
            "note",
            unreadable,
            "Visibility requests a second; only operators and the sweeper make any. Default 10.",
        ),
    ]


async def _pollers(client: Client, queue: str) -> Finding:
    """Whoever polled in the last minutes: the server forgets a dead worker only after a while."""
    kind = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
    request = DescribeTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=queue), task_queue_type=kind
    )
    answer = await client.workflow_service.describe_task_queue(request)
    workers = {poller.identity for poller in answer.pollers}
    advice = "" if workers else "No run starts before a worker does: carillon worker."
    return Finding(f"workers of {queue}", "ok" if workers else "note", str(len(workers)), advice)


async def _database(settings: Settings) -> AsyncIterator[Finding]:
    advice = "Runs go on without it; creating and listing jobs answer 503."
    try:
        database = Database.open(settings.database_url)
    except DatabaseError as error:
        yield Finding("database", "missing", str(error), advice)
        return
    try:
        await database.ping()
        yield Finding("database", "ok", database.dialect)
        current, head = await database.read(_revisions)
    except DatabaseError as error:
        yield Finding("database", "missing", str(error), advice)
        return
    finally:
        await database.close()
    if current == head:
        yield Finding("database schema", "ok", str(head))
    else:
        found = f"{current or 'empty'}, newest is {head}"
        yield Finding("database schema", "missing", found, "The API or a worker migrates it when it starts.")


def _revisions(connection: sa.Connection) -> tuple[str | None, str | None]:
    """The schema's revision in the database, and the newest one of this release."""
    head = ScriptDirectory.from_config(configuration(connection)).get_current_head()
    return MigrationContext.configure(connection).get_current_revision(), head


def _is_local(settings: Settings) -> bool:
    host = settings.temporal_address.rpartition(":")[0]
    return host in ("localhost", "::1", "[::1]") or host.startswith("127.")


def _port(settings: Settings) -> int:
    return int(settings.temporal_address.rpartition(":")[2])
