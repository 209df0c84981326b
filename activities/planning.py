"""The planning activity: the only place where a running job's zone arithmetic happens."""

from __future__ import annotations

from collections.abc import Callable

from temporalio import activity
from temporalio.exceptions import ApplicationError

from workflows.contracts.failures import RULE_BROKEN
from workflows.contracts.names import PLAN_ACTIVITY
from workflows.contracts.planning import Plan, PlanInput, TenantHints
from workflows.domain import planning
from workflows.domain.errors import RuleError


class Planning:
    """``hints_of``: a tenant's plan as this worker last knew it; it must not wait for anything."""

    def __init__(self, hints_of: Callable[[str], TenantHints]) -> None:
        self._hints_of = hints_of

    @activity.defn(name=PLAN_ACTIVITY)
    async def plan(self, asked: PlanInput) -> Plan:
        """It may not wait for anything. Raises ``RuleBroken`` if the schedule cannot be read."""
        try:
            plan = planning.plan(asked)
        except RuleError as error:
            raise ApplicationError(str(error), type=RULE_BROKEN, non_retryable=True) from None
        return plan.model_copy(update={"hints": self._hints_of(asked.tenant)})
