"""The planning activity: the only place where a running job's zone arithmetic happens."""

from __future__ import annotations

from temporalio import activity
from temporalio.exceptions import ApplicationError

from workflows.contracts.failures import RULE_BROKEN
from workflows.contracts.names import PLAN_ACTIVITY
from workflows.contracts.planning import Plan, PlanInput
from workflows.domain import planning
from workflows.domain.errors import RuleError


@activity.defn(name=PLAN_ACTIVITY)
async def plan(asked: PlanInput) -> Plan:
    """Run locally, beside the workflow task. Raises ``RuleBroken`` if the schedule cannot be read."""
    try:
        return planning.plan(asked)
    except RuleError as error:
        raise ApplicationError(str(error), type=RULE_BROKEN, non_retryable=True) from None
