"""Another language generates a client from the protos, and has everything: topics, publishing, reading, groups, typed errors."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import google.rpc.status_pb2

import levada
from levada.v1 import stream_pb2 as pb
from support.brokers import levada_only
from support.jars import cache_dir, need
from support.levada import LevadaBroker
from support.rpc import connect
from support.wait import wait_until

pytestmark = levada_only

PROGRAM = Path(__file__).parents[1] / "node" / "client.js"
PROTOS = Path(levada.__file__).parents[1]
#: google/rpc/*.proto, which every language has; this is where Python's are.
COMMON = Path(google.rpc.status_pb2.__file__).parents[2]


def test_a_client_in_node(tmp_path: Path) -> None:
    modules = cache_dir() / "node"
    need("gRPC for Node", (modules / ".complete").exists())
    need("Node", bool(shutil.which("node")))
    environment = {**os.environ, "NODE_PATH": str(modules / "node_modules")}
    with LevadaBroker(tmp_path / "broker") as broker:
        command = ["node", str(PROGRAM), broker.grpc, str(PROTOS), str(COMMON)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout)
        with connect(broker.grpc) as client:
            rows = client.stream.GetOffset(pb.GetOffsetRequest(group="node-group")).offsets
            describe = pb.DescribeGroupRequest(group="node-group")
            wait_until(
                lambda: not client.stream.DescribeGroup(describe).members, 20, "a member that hung up to be gone"
            )
    assert said["created"] == {"outcome": "CREATED", "partitions": 3, "router": "fnv1a64"}
    assert said["published"] == [[1, 0], [0, 0], [1, 1]]
    assert said["streamed"] == [[1, 2], [2, "UnknownTopic"], [3, 3]]
    assert said["read"] == [[1, "v2", 1], [2, "s1", 0]]
    assert said["subscribed"]["partitions"] == [0, 1, 2]
    assert sorted(said["subscribed"]["values"]) == ["s1", "s3", "v0", "v1", "v2"]
    assert said["subscribed"]["committed"] == {"id": 9, "errors": 0}
    assert [row.committed for row in rows if row.HasField("committed")] in ([4], [1])
    shrink = said["shrink"]
    assert (shrink["code"], shrink["reason"], shrink["domain"]) == (
        "FAILED_PRECONDITION",
        "PartitionsCannotShrink",
        "levada",
    )
    assert (said["range"]["code"], said["range"]["reason"]) == ("OUT_OF_RANGE", "OffsetOutOfRange")
    assert said["range"]["metadata"] == {"start": "0", "end": "4"}
    assert said["leader"] == ["n1", True]
