"""The console script ``carillon``."""

from __future__ import annotations

import logging
import sys
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter, ValidationError
from rich.console import Console

from api.cli.leave import leave
from infra.installation import Installation, settings_for
from infra.telemetry import configure_logging
from infra.temporal.errors import SetupError

app = typer.Typer(
    name="carillon",
    help="A multi-tenant job scheduler on Temporal.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

DataDir = Annotated[
    Path | None,
    typer.Option(help="Directory of the installation. (default: CARILLON_DATA_DIR, else .carillon)"),
]
Port = Annotated[int | None, typer.Option(min=0, max=65535)]


def _duration(text: str) -> timedelta:
    try:
        return TypeAdapter(timedelta).validate_python(text)
    except ValidationError:
        raise typer.BadParameter(
            f"{text!r} is no duration; write PT12H, P7D or a number of seconds"
        ) from None


def _port_option(text: str) -> Any:
    return typer.Option(min=0, max=65535, help=f"{text}; 0 takes any free port.")


@app.command()
def up(
    data_dir: DataDir = None,
    api_port: Annotated[int, _port_option("Port of the API")] = 8080,
    temporal_port: Annotated[int, _port_option("Port of the embedded Temporal server")] = 7233,
    ui_port: Annotated[int, _port_option("Port of Temporal's web UI")] = 8233,
    listen_port: Annotated[
        int, typer.Option(min=1, max=65535, help="Port of `carillon listen`, for the example it prints.")
    ] = 8090,
    workers: Annotated[int, typer.Option(min=0, max=64, help="Worker processes; 0 starts none.")] = 1,
    durable: Annotated[
        bool, typer.Option("--durable", help="Wait for the disk at every commit: a power cut loses nothing.")
    ] = False,
) -> None:
    """Run a whole installation here: Temporal server, database, API and workers, until Ctrl-C."""
    from api.cli.up import UpOptions
    from api.cli.up import up as run_up

    raise typer.Exit(
        run_up(UpOptions(data_dir, api_port, temporal_port, ui_port, listen_port, workers, durable))
    )


@app.command()
def api(data_dir: DataDir = None, host: str | None = None, port: Port = None) -> None:
    """Serve the HTTP API."""
    fixed = {"api_host": host, "api_port": port}
    settings = settings_for(data_dir, **{name: value for name, value in fixed.items() if value is not None})
    configure_logging(settings.log_level)
    from api.cli.serve import serve

    serve(settings)


@app.command()
def worker(data_dir: DataDir = None) -> None:
    """Run jobs: one worker process."""
    settings = settings_for(data_dir)
    configure_logging(settings.log_level)
    from api.cli.worker import work

    work(settings)


@app.command()
def token(
    tenant: Annotated[str, typer.Option(help="Tenant that the token speaks for.")],
    scope: Annotated[
        str, typer.Option(help="Separated by blanks: jobs:read jobs:write tenant:write platform:admin.")
    ] = "jobs:read jobs:write",
    sub: Annotated[str, typer.Option(help="Who holds it; the audit log names it.")] = "carillon token",
    ttl: Annotated[
        timedelta, typer.Option(parser=_duration, metavar="DURATION", help="Valid for so long.")
    ] = "P1D",  # type: ignore[assignment]  # typer parses defaults
    data_dir: DataDir = None,
) -> None:
    """Print a token for the API."""
    from api.cli.token import issue_token

    typer.echo(issue_token(settings_for(data_dir), tenant=tenant, scope=scope, subject=sub, ttl=ttl))


@app.command(name="signing-secret")
def signing_secret(
    tenant: Annotated[str, typer.Option(help="Tenant whose deliveries are to be verified.")],
    data_dir: DataDir = None,
) -> None:
    """Print the secret with which a tenant's targets verify what they are sent."""
    from api.cli.signing_secret import signing_secret as secret_of

    typer.echo(secret_of(settings_for(data_dir), tenant))


@app.command()
def listen(
    data_dir: DataDir = None,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="(default: the one that carillon up printed, else 8090)"),
    ] = None,
    status: Annotated[int, typer.Option(min=200, max=599, help="Status of every answer.")] = 200,
) -> None:
    """Receive deliveries, print one line for each, and verify their signatures."""
    import asyncio

    from api.cli.listen import listen as run_listen

    settings = settings_for(data_dir)
    chosen = port or Installation(settings.data_dir).read().get("listen_port", 8090)
    raise typer.Exit(asyncio.run(run_listen(settings, host="127.0.0.1", port=chosen, status=status)))


@app.command()
def preview(
    expression: Annotated[str, typer.Argument(help="Cron text, a duration (PT90S) or an instant.")],
    timezone: Annotated[str | None, typer.Option(help="IANA name, as in Europe/London.")] = None,
    count: Annotated[int, typer.Option(min=1, max=100)] = 5,
) -> None:
    """Show when a schedule would run."""
    from api.cli.preview import show

    default = settings_for().default_timezone
    show(expression, timezone=timezone, default_timezone=default, count=count, console=Console())


@app.command()
def doctor(
    data_dir: DataDir = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Examine what an installation stands on; exit status 1 if something needed is missing."""
    import asyncio

    from api.cli.doctor import examine, report

    findings = asyncio.run(examine(settings_for(data_dir)))
    raise typer.Exit(report(findings, as_json=as_json, console=Console()))


def _variable(place: tuple[int | str, ...]) -> str:
    """The environment's name of a setting."""
    return "CARILLON_" + "_".join(map(str, place)).upper()


def main() -> None:
    """Runs the command line; mistakes of set-up are one line on standard error, with status 1."""
    status = 0
    try:
        app()
    except SetupError as error:
        print(f"carillon: {error}", file=sys.stderr)  # noqa: T201
        status = 1
    except ValidationError as error:
        problems = "; ".join(
            f"{_variable(e['loc'])}: {e['msg'].removeprefix('Value error, ')}" for e in error.errors()
        )
        print(f"carillon: the settings are not valid: {problems}", file=sys.stderr)  # noqa: T201
        status = 1
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except Exception as error:
        if logging.getLogger().handlers:  # a process that keeps a log: one line there
            logging.getLogger("carillon").critical("ended by %r", error, exc_info=True)
        else:
            traceback.print_exc()
        status = 1
    leave(status)


if __name__ == "__main__":
    main()
