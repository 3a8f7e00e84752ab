"""What can be asked of a cluster, written once as steps: see `effects`."""

from __future__ import annotations

from levada.wire.calls.admin import AdminCalls
from levada.wire.calls.fetch import FetchCalls
from levada.wire.calls.groups import GroupCalls
from levada.wire.calls.produce import ProduceCalls
from levada.wire.calls.transactions import TransactionCalls


class Calls(ProduceCalls, FetchCalls, GroupCalls, TransactionCalls, AdminCalls):
    """All of them."""
