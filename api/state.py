"""What lives as long as the application does."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from datetime import timedelta

from temporalio.service import RPCError

from api.audit import Audit
from api.auth.sources import key_source
from api.auth.verifier import TokenVerifier
from api.bulks import Bulks
from api.callbacks import Callbacks
from api.clock import Clock, RandomName, random_name, system_clock
from api.connection import Connection
from api.events import Streams
from api.groups import Groups
from api.jobs.cancelling import Cancelling
from api.jobs.changes import Changes
from api.jobs.creation import Creation
from api.jobs.editing import Editing
from api.jobs.locks import JobLocks
from api.jobs.refs import Refs
from api.jobs.rerunning import Rerunning
from api.jobs.sweeper import Sweeper
from api.letters import Letters
from api.once import Once
from api.overruns import Overruns
from api.rate import RequestRate
from infra.callback_token import CallbackTokens
from infra.database.audit import AuditLog
from infra.database.dead_letters import DeadLetters
from infra.database.engine import Database
from infra.database.errors import DatabaseError
from infra.database.executions import History
from infra.database.feed import Feed
from infra.database.groups import GroupIndex
from infra.database.idempotency import IdempotencyKeys
from infra.database.incidents import IncidentLog
from infra.database.jobs import JobIndex
from infra.database.tenants import Tenants
from infra.settings import Settings
from infra.temporal.errors import SetupError

log = logging.getLogger(__name__)

MIGRATION_RETRY_S = 2.0
PROBE = timedelta(seconds=1)


class AppState:
    """Connections and clocks. Built without touching the network; both servers may be away."""

    def __init__(
        self, settings: Settings, *, clock: Clock = system_clock, random_name: RandomName = random_name
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.random_name = random_name
        self.verifier = TokenVerifier(
            key_source(settings, time.monotonic),
            issuer=settings.jwt_issuer,
            audience=settings.jwt_audience,
            leeway=settings.jwt_leeway,
        )
        self.request_rate = RequestRate(settings.request_rate, time.monotonic)
        self.temporal = Connection(settings)
        self.database = Database.open(settings.database_url, durable=settings.durable)
        self.index = JobIndex(self.database)
        self.history = History(self.database)
        self.streams = Streams(Feed(self.database), clock, per_tenant=settings.max_event_streams)
        self.tenants = Tenants(self.database)
        self.incidents = IncidentLog(self.database)
        self.audit_log = AuditLog(self.database)
        self.audit = Audit(self.audit_log, clock, random_name)
        self.refs = Refs(self.index)
        self.creation = Creation(self.index, self.refs, settings)
        self.changes = Changes(self.temporal, self.index, self.refs, JobLocks())
        self.once = Once(IdempotencyKeys(self.database), clock, random_name)
        self.bulks = Bulks(self.temporal)
        self.letter_index = DeadLetters(self.database)
        self.letters = Letters(self.temporal, self.letter_index, self.history)
        self.rerunning = Rerunning(self.temporal, self.changes, self.history, self.letters)
        self.groups = Groups(self.temporal, GroupIndex(self.database))
        self.cancelling = Cancelling(self.temporal, self.changes, self.history, self.letters)
        secret = settings.signing_secret.get_secret_value()
        self.overruns = Overruns(self.temporal)
        self.callbacks = Callbacks(
            self.temporal, CallbackTokens(secret) if secret else None, clock, self.overruns
        )
        self.editing = Editing(self.temporal, self.changes, settings, clock)
        self._schema_ready = asyncio.Event()

    @property
    def migrated(self) -> bool:
        return self._schema_ready.is_set()

    async def wait_migrated(self) -> None:
        await self._schema_ready.wait()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Opens the connections, keeps at the migration until it succeeds, and closes all at the end."""
        sweeper = Sweeper(self.index, self.temporal, self.clock)
        tasks = [
            asyncio.create_task(self._migrate(), name="migrate"),
            asyncio.create_task(sweeper.run(), name="sweep reservations"),
            asyncio.create_task(self.audit.run(), name="write the audit log"),
            asyncio.create_task(self.streams.run(), name="look for events"),
            asyncio.create_task(self.temporal.watch(), name="look whose server it is"),
        ]
        try:
            yield
        finally:
            self.streams.end()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.overruns.close()
            await self.audit.close()
            await self.verifier.close()
            await self.temporal.close()
            await self.database.close()

    async def temporal_answers(self) -> bool:
        """Whether the server's frontend is serving; False within about a second if it is not."""
        try:
            async with asyncio.timeout(PROBE.total_seconds() * 2):
                client = await self.temporal.client()
                return await client.service_client.check_health(timeout=PROBE)
        except (SetupError, RPCError, TimeoutError) as error:
            log.info("Temporal does not answer: %s", error)
            return False

    async def _migrate(self) -> None:
        while not self.migrated:
            try:
                await self.database.migrate()
                self._schema_ready.set()
            except DatabaseError as error:
                log.warning("the database is not ready: %s", error)
                await asyncio.sleep(MIGRATION_RETRY_S)
            except Exception:  # a schema of another version, say: whoever mends it need not restart us
                log.exception("the database cannot be migrated")
                await asyncio.sleep(MIGRATION_RETRY_S)
