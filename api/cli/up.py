"""``carillon up``: a whole installation on one machine, from an empty directory to the first job."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError

from api.cli.banner import Ready, print_ready
from api.cli.ports import choose_ports
from api.cli.supervisor import Child, ChildSpec, Supervisor
from api.cli.token import DEFAULT_SCOPE, issue_token
from infra.installation import Installation, settings_for
from infra.settings import Settings
from infra.temporal.binary import find_binary
from infra.temporal.client import connect_when_ready
from infra.temporal.embedded import EmbeddedServer
from infra.temporal.errors import SetupError
from infra.temporal.home import namespace_id
from infra.temporal.namespace import ensure_retention, ensure_search_attributes
from workflows.contracts.names import MAIN_QUEUE

HOST = "127.0.0.1"
LOOPBACK = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
WORKER_GRACE = timedelta(seconds=5)
_START_WITHIN = timedelta(seconds=60)


@dataclass(frozen=True)
class UpOptions:
    data_dir: Path | None = None
    api_port: int = 8080
    temporal_port: int = 7233
    ui_port: int = 8233
    listen_port: int = 8090
    workers: int = 1
    durable: bool = False


def up(options: UpOptions) -> int:
    """Runs until a signal or a child that cannot be kept alive; the exit status."""
    began = time.monotonic()
    given = Settings() if options.data_dir is None else Settings(data_dir=options.data_dir)
    binary = find_binary(given.temporal_bin, environment=os.environ)
    installation = Installation(given.data_dir)
    with installation.locked():
        ports = choose_ports(
            HOST,
            {
                "--api-port": options.api_port,
                "--temporal-port": options.temporal_port,
                "--ui-port": options.ui_port,
            },
        )
        installation.ensure_secrets()
        server = EmbeddedServer(
            binary=binary,
            data_dir=installation.data_dir,
            port=ports["--temporal-port"],
            ui_port=ports["--ui-port"],
            durable=options.durable,
            host=HOST,
        )
        values = _joining(given, installation, server, ports["--api-port"])
        installation.write_settings(
            values, listen_port=options.listen_port, ui_url=f"http://{HOST}:{server.ui_port}"
        )
        settings = settings_for(installation.data_dir, **values)
        variables = _variables({**values, "data_dir": str(installation.data_dir)})
        environment = {**os.environ, **variables, "NO_COLOR": "1"}  # they write to files
        return asyncio.run(_Up(options, installation, server, settings, environment, began).run())


def _joining(
    given: Settings, installation: Installation, server: EmbeddedServer, api_port: int
) -> dict[str, Any]:
    """The settings, as JSON values, that make a process part of this installation.

    Addresses are ours to say; the rest is a default that the environment of ``carillon up`` goes before.
    """
    chosen = {
        "temporal_address": server.address,
        "temporal_namespace": "default",
        "temporal_tls": False,
        "api_host": HOST,
        "api_port": api_port,
        "durable": server.durable,
        "allow_networks": [str(network) for network in dict.fromkeys((*LOOPBACK, *given.allow_networks))],
    }
    defaults = {
        "database_url": installation.database_url,
        "public_url": f"http://{HOST}:{api_port}",
        "worker_grace": f"PT{WORKER_GRACE.seconds}S",
    }
    return chosen | {name: value for name, value in defaults.items() if name not in given.model_fields_set}


def _variables(values: Mapping[str, Any]) -> dict[str, str]:
    """The settings as environment variables."""
    return {
        f"CARILLON_{name.upper()}": value if isinstance(value, str) else json.dumps(value)
        for name, value in values.items()
    }


class _Up:
    """One run: start, serve, stop."""

    def __init__(
        self,
        options: UpOptions,
        installation: Installation,
        server: EmbeddedServer,
        settings: Settings,
        environment: dict[str, str],
        began: float,
    ) -> None:
        self._options = options
        self._installation = installation
        self._server = server
        self._settings = settings
        self._environment = environment
        self._began = began
        self._stop = asyncio.Event()
        self._supervisor = Supervisor(_say)

    async def run(self) -> int:
        self._catch_signals()
        start = asyncio.create_task(self._start())
        stop = asyncio.create_task(self._stop.wait())
        failure = asyncio.create_task(self._supervisor.failure())
        try:
            await asyncio.wait({start, stop, failure}, return_when=asyncio.FIRST_COMPLETED)
            if start.done():
                print_ready(start.result(), sys.stdout)
                await asyncio.wait({stop, failure}, return_when=asyncio.FIRST_COMPLETED)
            if stop.done():
                _say("stopping (again to hurry)")
                return 0
            _say(str(failure.result()))
            return 1
        finally:
            for task in (start, stop, failure):
                task.cancel()
            await self._supervisor.stop()

    def _catch_signals(self) -> None:
        def ask_to_stop() -> None:
            if self._stop.is_set():
                self._supervisor.kill()
            self._stop.set()

        loop = asyncio.get_running_loop()
        # SIGINT even where the shell had it ignored, as for a background job; SIGHUP not under nohup.
        loop.add_signal_handler(signal.SIGINT, ask_to_stop)
        loop.add_signal_handler(signal.SIGTERM, ask_to_stop)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            loop.add_signal_handler(signal.SIGHUP, ask_to_stop)

    async def _start(self) -> Ready:
        [temporal] = self._supervisor.start(self._temporal_spec(), stop_turn=2)
        [api] = self._supervisor.start(self._api_spec(), stop_turn=0)  # it waits for the server by itself
        client = await connect_when_ready(self._settings, within=_START_WITHIN)
        temporal.was_up = True
        self._installation.write_namespace_id(await namespace_id(client))
        await ensure_search_attributes(client)
        await ensure_retention(client, self._settings.temporal_retention)
        workers = self._supervisor.start(
            *(self._worker_spec(n + 1) for n in range(self._options.workers)), stop_turn=1
        )
        await _within(_START_WITHIN, "the API", self._installation.logs, _api_ready(self._settings))
        api.was_up = True
        await _within(_START_WITHIN, "the workers", self._installation.logs, _polling(client, workers))
        for worker in workers:
            worker.was_up = True
        return self._ready()

    def _temporal_spec(self) -> ChildSpec:
        return ChildSpec(
            "temporal",
            self._server.command(),
            self._installation.logs / "temporal.log",
            environment=self._environment,
            directory=self._installation.data_dir,
            stop_within=3,
            show_warnings=False,  # it warns of every connection that a restart or its own stop cuts
            quiet="Frontend is not healthy yet",  # what it answers to those who wait for its start
        )

    def _api_spec(self) -> ChildSpec:
        return ChildSpec(
            "api",
            (*_carillon(), "api"),
            self._installation.logs / "api.log",
            environment=self._environment,
            stop_within=3,
        )

    def _worker_spec(self, number: int) -> ChildSpec:
        environment = dict(self._environment)
        if self._settings.metrics_port:  # one port a process
            environment["CARILLON_METRICS_PORT"] = str(self._settings.metrics_port + number - 1)
        return ChildSpec(
            f"worker-{number}",
            (*_carillon(), "worker"),
            self._installation.logs / f"worker-{number}.log",
            environment=environment,
            # After its grace it has 3 s to store what it knows.
            stop_within=self._settings.worker_grace.total_seconds() + 4,
        )

    def _ready(self) -> Ready:
        listen = f"{sys.argv[0]} listen --port {self._options.listen_port}"
        if self._options.data_dir is not None:
            listen += f" --data-dir {shlex.quote(str(self._options.data_dir))}"
        return Ready(
            api_url=f"http://{HOST}:{self._settings.api_port}",
            ui_url=f"http://{HOST}:{self._server.ui_port}",
            temporal_address=self._server.address,
            data_dir=str(self._installation.data_dir),
            logs=str(self._installation.logs),
            workers=self._options.workers,
            token=issue_token(
                self._settings,
                tenant="demo",
                scope=DEFAULT_SCOPE,
                subject="carillon up",
                ttl=timedelta(days=1),
            ),
            listen_url=f"http://{HOST}:{self._options.listen_port}",
            listen_command=listen,
            seconds=time.monotonic() - self._began,
        )


def _carillon() -> tuple[str, ...]:
    """This program, by the interpreter that runs it."""
    script = Path(sys.executable).absolute().parent / "carillon"
    return (sys.executable, str(script)) if script.exists() else (sys.executable, "-m", "api.cli.main")


async def _within(limit: timedelta, who: str, logs: Path, condition: Callable[[], Awaitable[bool]]) -> None:
    end = time.monotonic() + limit.total_seconds()
    while not await condition():
        if time.monotonic() > end:
            raise SetupError(f"{who} did not get ready in {limit.seconds} s; see {logs}", code="start_slow")
        await asyncio.sleep(0.05)


def _api_ready(settings: Settings) -> Callable[[], Awaitable[bool]]:
    def ask() -> bool:
        try:
            with urllib.request.urlopen(f"http://{HOST}:{settings.api_port}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False

    return lambda: asyncio.to_thread(ask)


def _polling(client: Client, workers: list[Child]) -> Callable[[], Awaitable[bool]]:
    """Whether each worker asks the server for work."""

    async def ask() -> bool:
        if not workers:
            return True
        request = DescribeTaskQueueRequest(
            namespace=client.namespace,
            task_queue=TaskQueue(name=MAIN_QUEUE),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
        )
        try:
            answer = await client.workflow_service.describe_task_queue(request)
        except RPCError:
            return False
        return len({poller.identity for poller in answer.pollers}) >= len(workers)

    return ask


def _say(text: str) -> None:
    with suppress(OSError):
        print(f"carillon: {text}", file=sys.stderr, flush=True)  # noqa: T201
