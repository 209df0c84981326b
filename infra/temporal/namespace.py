"""What a namespace must have before jobs run in it: search attributes and a long enough retention."""

from __future__ import annotations

from datetime import timedelta

from google.protobuf.duration_pb2 import Duration
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.namespace.v1 import NamespaceConfig
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, UpdateNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from workflows.contracts.names import SEARCH_ATTRIBUTES


async def missing_search_attributes(client: Client) -> tuple[str, ...]:
    """The attributes of :data:`SEARCH_ATTRIBUTES` that the namespace has not got as Keyword."""
    found = await client.operator_service.list_search_attributes(
        ListSearchAttributesRequest(namespace=client.namespace)
    )
    keyword = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
    return tuple(name for name in SEARCH_ATTRIBUTES if found.custom_attributes.get(name) != keyword)


async def ensure_search_attributes(client: Client) -> tuple[str, ...]:
    """Registers what is missing, on any server that lets us, and returns the names added.

    Needed on the embedded server too: its flags register attributes only in a new database.
    """
    missing = await missing_search_attributes(client)
    if missing:
        keyword = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
        request = AddSearchAttributesRequest(
            namespace=client.namespace, search_attributes=dict.fromkeys(missing, keyword)
        )
        try:
            await client.operator_service.add_search_attributes(request)
        except RPCError as error:
            if error.status is not RPCStatusCode.ALREADY_EXISTS:  # another process was faster
                raise
    return missing


async def retention(client: Client) -> timedelta:
    """How long the namespace keeps closed workflows."""
    found = await client.workflow_service.describe_namespace(
        DescribeNamespaceRequest(namespace=client.namespace)
    )
    return found.config.workflow_execution_retention_ttl.ToTimedelta()


async def ensure_retention(client: Client, least: timedelta) -> None:
    """Raises the namespace's retention to ``least`` when it is shorter."""
    if await retention(client) >= least:
        return
    ttl = Duration()
    ttl.FromTimedelta(least)
    await client.workflow_service.update_namespace(
        UpdateNamespaceRequest(
            namespace=client.namespace, config=NamespaceConfig(workflow_execution_retention_ttl=ttl)
        )
    )
