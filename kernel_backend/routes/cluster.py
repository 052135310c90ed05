"""List the routes of accounts, queue, nodes, pools, webhooks, and of the service itself."""

from __future__ import annotations

from kernel_backend.model.cluster.accounting import SpendingReport
from kernel_backend.model.cluster.accounts import Account, AuditEntry, Priority, Self, UseOverTime, Waiting
from kernel_backend.model.cluster.pool_check import PoolCheck, PoolCheckRequest
from kernel_backend.model.cluster.pools import PoolSettings, PoolStatus
from kernel_backend.model.disk import DiskReport
from kernel_backend.model.views.overview import NodeUse, Overview
from kernel_backend.model.webhooks.records import NewWebhook, Tried, Webhook
from kernel_backend.routes.operations import CSV, INT, JSON, PROMETHEUS, Endpoint, Operation, Query, reads, verb, whole

SPENT = {"by": Query("string", "month"), "since": INT, "until": INT}
ACCOUNT = "/api/accounts/{kind}/{name}"

CLUSTER: tuple[Endpoint, ...] = (
    reads(
        "/api/me",
        "quotas.me",
        "Return the calling user, and the quotas and slot usage of the user and of their groups.",
        Self,
        page=True,
    ),
    reads(
        "/api/accounts",
        "quotas.accounts",
        "List accounts with quotas and usage: all accounts for admins, their own and their groups' for other users.",
        {"accounts": Account},
        page=True,
    ),
    Endpoint(f"{ACCOUNT}/quota", {"PUT": Operation(Account, body=JSON), "DELETE": Operation(Account)}),
    reads(
        f"{ACCOUNT}/use",
        "quotas.use",
        "Return how many slots an account held over time; by default in the last week.",
        UseOverTime,
        query={"since": INT, "until": INT, "points": whole(200, 1, 2000)},
    ),
    reads(
        "/api/queue",
        "cluster.queue",
        "List the queued requests of each pool in scheduling order. Requests of other users are anonymous.",
        {"queue": Waiting},
        query={"limit": whole(1000, 1, 100_000)},
        page=True,
    ),
    Endpoint("/api/queue/{number}/priority", {"POST": Operation(Overview, body=Priority, again=True)}),
    Endpoint(
        "/api/queue/{number}/first",
        verb("cluster.first", "Move an experiment ahead of all queued requests. For admins."),
    ),
    reads(
        "/api/usage",
        "spending.report",
        "Return slot-hours, energy and cost of trainings, summed by user, group, month or experiment.",
        SpendingReport,
        query=SPENT,
    ),
    Endpoint("/api/usage.csv", {"GET": Operation(CSV, query=SPENT)}),
    Endpoint("/api/disk", {"GET": Operation(DiskReport, query={"everyone": INT, "largest": INT})}),
    reads(
        "/api/nodes",
        "cluster.nodes",
        "List the nodes, and the gangs and notebook servers on their slots.",
        {"nodes": NodeUse},
        page=True,
    ),
    Endpoint(
        "/api/nodes/{name}/drain",
        verb(
            "cluster.drain",
            "Drain a node: start no new gangs on it. Running gangs continue. For admins.",
            answer=NodeUse,
        ),
    ),
    Endpoint(
        "/api/nodes/{name}/undrain",
        verb(
            "cluster.drain",
            "Undrain a node: start gangs on it again. For admins.",
            answer=NodeUse,
            fixed={"drained": False},
        ),
    ),
    reads(
        "/api/pools",
        "pools.statuses",
        "List the pools: settings, nodes, slots in use, the number of queued requests, and problems.",
        {"pools": PoolStatus},
        page=True,
    ),
    Endpoint(
        "/api/pools/{name}",
        {
            "PUT": Operation(
                PoolStatus, body=PoolSettings, verb="pools.put", does="Add a pool, or replace its settings. For admins."
            ),
            "DELETE": Operation(
                PoolStatus, verb="pools.remove", does="Remove a pool that no unfinished experiment uses. For admins."
            ),
        },
    ),
    Endpoint(
        "/api/pools/{name}/check",
        {
            "POST": Operation(
                PoolCheck,
                body=PoolCheckRequest,
                optional=True,
                verb="pools.check",
                does="Check a pool by a probe on two of its nodes; takes up to two minutes. For admins.",
            )
        },
    ),
    Endpoint(
        "/api/webhooks",
        {
            "GET": Operation(
                {"webhooks": Webhook},
                query={"everyone": whole(0)},
                verb="webhooks.webhooks",
                does="List the user's webhooks, or with `everyone=1` those of all users (admins); "
                "secrets are left out.",
            ),
            "POST": Operation(
                Webhook,
                body=NewWebhook,
                status=201,
                by_id=True,
                verb="webhooks.add",
                does="Add a webhook; the reply is the only one that contains its secret.",
            ),
        },
    ),
    Endpoint(
        "/api/webhooks/{number}",
        {"DELETE": Operation(Webhook, verb="webhooks.remove", does="Remove a webhook, and what waits for it.")},
    ),
    Endpoint(
        "/api/webhooks/{number}/test",
        {"POST": Operation(Tried, verb="webhooks.test", does="Send a test message to a webhook now.")},
    ),
    reads(
        "/api/audit",
        "quotas.audit",
        "List actions on shared settings and on other users' objects, newest first. For admins.",
        {"audit": AuditEntry},
        query={"before": INT, "limit": whole(100, 1, 1000), "search": Query("string", "")},
    ),
    Endpoint("/api/health", {"GET": Operation(JSON, page=True)}),
    Endpoint("/metrics", {"GET": Operation(PROMETHEUS)}),
    Endpoint("/api/openapi.json", {"GET": Operation(JSON)}),
)
