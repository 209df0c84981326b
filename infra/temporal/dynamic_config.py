"""The dynamic config a Temporal server needs for Carillon, and what is lost without each value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DynamicValue:
    """One key with its value as JSON text, as the server's command line and its documentation write it."""

    key: str
    value: str
    loss: str
    """What a server without it does worse."""
    embedded_only: bool = False
    """True for what suits one machine and is a matter of scale on a cluster."""


DYNAMIC_CONFIG = (
    DynamicValue(
        "matching.enableFairness",
        "true",
        "a tenant with many runs due at once delays every other tenant behind it",
    ),
    DynamicValue(
        "system.enableCancelActivityWorkerCommand",
        "true",
        "a pause, edit or cancel reaches a run only with its next heartbeat, up to a minute later",
    ),
    DynamicValue(
        "frontend.WorkerCommandsEnabled",
        "true",
        "a pause, edit or cancel reaches a run only with its next heartbeat, up to a minute later",
    ),
    DynamicValue(
        "history.timerProcessorMaxTimeShift",
        '"50ms"',  # a JSON string: without the inner quotes the server reads no duration
        "timers and native retry delays under a second take a whole second",
    ),
    DynamicValue(
        "matching.numTaskqueueReadPartitions",
        "1",
        "fairness holds per partition only, so with several a small tenant waits longer",
        embedded_only=True,
    ),
    DynamicValue(
        "matching.numTaskqueueWritePartitions",
        "1",
        "fairness holds per partition only, so with several a small tenant waits longer",
        embedded_only=True,
    ),
    DynamicValue(
        "history.timerQueueMaxReaderCount",
        "1",
        "a namespace with 500 timers under way is set aside for the others' sake, its timers minutes late",
        embedded_only=True,  # there is one namespace, and nobody to set it aside for
    ),
    DynamicValue(
        "history.timerProcessorUpdateAckInterval",
        '"5s"',
        "timers that are done stay in the reader for half a minute, and each new one is merged into them",
        embedded_only=True,  # all timers are in one shard; a cluster has many, with few timers each
    ),
    DynamicValue(
        "history.queueReaderStuckCriticalAttempts",
        "1000000",  # with timerProcessorMaxTimeShift at 50 ms a busy second is loaded more often than thrice
        "timers of a second that the server has loaded more than three times are set aside, and minutes late",
    ),
)
