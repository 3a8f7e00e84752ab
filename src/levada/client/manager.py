"""Topics, groups and the cluster: everything that is not a record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from levada.client.channel import CLUSTER, STREAM, Channel, texts
from levada.client.records import At
from levada.client.refusals import of_message
from levada.client.views import OUTCOMES, Group, GroupOffset, Node, Placement, Registration, Stats, Topic
from levada.errors import InvalidRequest
from levada.v1 import cluster_pb2 as cluster
from levada.v1 import stream_pb2 as pb

Start = Literal["earliest", "latest"]
_STARTS: Mapping[str, pb.Start] = {"earliest": pb.EARLIEST, "latest": pb.LATEST}


class AsyncManager:
    """`client.manager`: creates, shows, changes and deletes.

    await client.manager.create_topic("orders", partitions=4, settings={"levada.dedup": "id"})
    for topic in await client.manager.topics():
        print(topic.name, topic.partitions)
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    # Topics

    async def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        *,
        settings: Mapping[str, object] | None = None,
        replication_factor: int = 1,
    ) -> Topic:
        """Create a topic; `outcome` says what was done: "created", "same", or "expanded" where it had fewer partitions.

            topic = await client.manager.create_topic("orders", partitions=4)

        PartitionsCannotShrink, InvalidTopicName, InvalidConfig, ReservedName: then nothing has changed.
        """
        if partitions is not None and partitions < 1:
            raise InvalidRequest(f"topic {name}: {partitions} partitions were asked for; at least 1")
        answer = await self._stream(
            "CreateTopic",
            pb.CreateTopicRequest(
                name=name,
                partitions=partitions or 0,
                settings=texts(settings or {}),
                replication_factor=replication_factor,
            ),
            pb.CreateTopicResponse,
        )
        return Topic.of(answer.topic, outcome=OUTCOMES[answer.outcome])

    async def topics(self, *, internal: bool = False) -> list[Topic]:
        """All topics, by name; with `internal` also the broker's own."""
        answer = await self._stream("ListTopics", pb.ListTopicsRequest(internal=internal), pb.ListTopicsResponse)
        return [Topic.of(each) for each in answer.topics]

    async def topic(self, name: str) -> Topic:
        """One topic with its partitions (`places`) and all settings that hold (`details`). UnknownTopic."""
        answer = await self._stream("DescribeTopic", pb.DescribeTopicRequest(name=name), pb.DescribeTopicResponse)
        return Topic.of(answer.topic, places=answer.partitions, details=answer.settings)

    async def expand_topic(self, name: str, partitions: int) -> Topic:
        """Add partitions, up to this number. PartitionsCannotShrink, UnknownTopic."""
        answer = await self._stream(
            "ExpandTopic", pb.ExpandTopicRequest(name=name, partitions=partitions), pb.ExpandTopicResponse
        )
        return Topic.of(answer.topic)

    async def alter_topic(
        self,
        name: str,
        set: Mapping[str, object] | None = None,  # noqa: A002
        unset: Iterable[str] = (),
    ) -> Topic:
        """Change settings, all or none: those in `set`, and back to the default those in `unset`.

            await client.manager.alter_topic("orders", set={"retention.ms": 60_000}, unset=["levada.dedup"])

        UnknownTopic, InvalidConfig: then nothing has changed.
        """
        request = pb.AlterTopicRequest(name=name, set=texts(set or {}), unset=list(unset))
        return Topic.of((await self._stream("AlterTopic", request, pb.AlterTopicResponse)).topic)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with its records and offsets. UnknownTopic."""
        await self._stream("DeleteTopic", pb.DeleteTopicRequest(name=name), pb.DeleteTopicResponse)

    # Groups

    async def groups(self) -> list[Group]:
        """All groups, without their members and offsets."""
        answer = await self._stream("ListGroups", pb.ListGroupsRequest(), pb.ListGroupsResponse)
        return [Group.summary(each) for each in answer.groups]

    async def group(self, group: str) -> Group:
        """One group with its members and offsets. UnknownGroup."""
        answer = await self._stream("DescribeGroup", pb.DescribeGroupRequest(group=group), pb.DescribeGroupResponse)
        return Group.of(answer)

    async def register_group(self, topic: str, group: str, consumers: int) -> Registration:
        """Register a fixed group: consumer i of `consumers` owns every partition with partition % consumers == i.

            registration = await client.manager.register_group("orders", "billing", consumers=3)
            client.consumer("orders", group="billing", consumer=0, generation=registration.generation)

        With another number than before, a new generation begins and the consumers of the old one are fenced.
        """
        request = pb.RegisterGroupRequest(topic=topic, group=group, consumers=consumers)
        answer = await self._stream("RegisterGroup", request, pb.RegisterGroupResponse)
        return Registration(generation=answer.generation, same=answer.same)

    async def offsets(self, group: str, topic: str | None = None) -> list[GroupOffset]:
        """Where a group stands in every partition it has offsets in, or in every partition of one topic."""
        answer = await self._stream(
            "GetOffset", pb.GetOffsetRequest(group=group, topic=topic or ""), pb.GetOffsetResponse
        )
        return [GroupOffset.of(each) for each in answer.offsets]

    async def seek(
        self,
        group: str,
        topic: str,
        to: Start | int | None = None,
        *,
        partitions: Iterable[int] = (),
        timestamp_ms: int | None = None,
        shift: int | None = None,
        dry_run: bool = False,
    ) -> dict[At, int]:
        """Move a group's offsets; returns the new ones. Running members go on from there.

            await client.manager.seek("billing", "orders", "earliest")
            await client.manager.seek("billing", "orders", 1_000, partitions=[0])
            await client.manager.seek("billing", "orders", timestamp_ms=1_700_000_000_000)
            await client.manager.seek("billing", "orders", shift=-100)

        OffsetOutOfRange where a partition does not hold the offset. With `dry_run` nothing is changed.
        """
        if sum(each is not None for each in (to, timestamp_ms, shift)) != 1:
            raise InvalidRequest('say where to: "earliest", "latest", an offset, timestamp_ms=… or shift=…')
        where: dict[str, Any] = {}
        if isinstance(to, str):
            if to not in _STARTS:
                raise InvalidRequest(f'{to!r} is no place to seek to; "earliest", "latest" or an offset')
            where["start"] = _STARTS[to]
        elif to is not None:
            where["offset"] = to
        elif timestamp_ms is not None:
            where["timestamp_ms"] = timestamp_ms
        else:
            where["shift"] = shift
        request = pb.SeekRequest(group=group, topic=topic, partitions=list(partitions), dry_run=dry_run, **where)
        answer = await self._stream("Seek", request, pb.SeekResponse)
        return {At(each.topic, each.partition): each.offset for each in answer.offsets}

    async def commit(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Store offsets of a group that nobody reads for now.

            await client.manager.commit("billing", {("orders", 0): 15})

        Raises the first that was refused; all others are stored.
        """
        request = pb.CommitRequest(
            group=group,
            offsets=[
                pb.PartitionOffset(topic=topic, partition=partition, offset=offset)
                for (topic, partition), offset in offsets.items()
            ],
        )
        answer = await self._stream("Commit", request, pb.CommitResponse)
        for refused in answer.errors:
            raise of_message(refused.error)

    async def delete_group(self, group: str) -> None:
        """Forget a group that has no members, and its offsets. GroupNotEmpty, UnknownGroup."""
        await self._stream("DeleteGroup", pb.DeleteGroupRequest(group=group), pb.DeleteGroupResponse)

    # The cluster

    async def nodes(self) -> list[Node]:
        """All nodes."""
        answer = await self._cluster("GetNodes", cluster.GetNodesRequest(), cluster.GetNodesResponse)
        return [Node.of(each) for each in answer.nodes]

    async def join_node(self, id: str, address: str, *, timeout_ms: int = 0) -> list[Node]:  # noqa: A002
        """Add a node, or say where one is now; returns all."""
        request = cluster.JoinRequest(id=id, address=address, timeout_ms=timeout_ms)
        return [Node.of(each) for each in (await self._cluster("Join", request, cluster.JoinResponse)).nodes]

    async def leave_node(self, id: str) -> None:  # noqa: A002
        """Take a node out. UnknownNode."""
        await self._cluster("Leave", cluster.LeaveRequest(id=id), cluster.LeaveResponse)

    async def heartbeat(self, id: str) -> str:  # noqa: A002
        """A node's sign of life; returns the leader's id. UnknownNode."""
        answer = await self._cluster("Heartbeat", cluster.HeartbeatRequest(id=id), cluster.HeartbeatResponse)
        leader: str = answer.leader
        return leader

    async def placement(self, topic: str | None = None) -> list[Placement]:
        """Where the partitions of a topic, or of all, would lie."""
        request = cluster.GetPlacementRequest(topic=topic or "")
        answer = await self._cluster("GetPlacement", request, cluster.GetPlacementResponse)
        return [
            Placement(
                topic=each.topic,
                partition=each.partition,
                leader=each.leader,
                replicas=list(each.replicas),
                last_offset=each.last_offset,
            )
            for each in answer.partitions
        ]

    async def stats(self) -> Stats:
        """The broker in numbers."""
        answer = await self._cluster("GetStats", cluster.GetStatsRequest(), cluster.GetStatsResponse)
        return Stats(**{name: getattr(answer, name) for name in Stats.__dataclass_fields__})

    async def _stream(self, call: str, request: Any, answer: type[Any]) -> Any:
        return await self._channel.call(f"{STREAM}/{call}", request, answer)

    async def _cluster(self, call: str, request: Any, answer: type[Any]) -> Any:
        return await self._channel.call(f"{CLUSTER}/{call}", request, answer)
