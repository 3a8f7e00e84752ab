from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from levada.engine.embedded.datadir import DataDir, DirectoryLock, boot_id, raise_file_limit
from levada.engine.embedded.meta import FORMAT_VERSION, Meta, new_cluster_id
from levada.engine.port import At
from levada.errors import DataFormatTooNew, DataInUse, StorageFailed
from levada.log.disk import Disk

A, B = At("a", 0), At("b.c-d", 12)


def open_dir(path: Path, boot: str = "boot-1") -> DataDir:
    return DataDir.open(path, Disk(), boot=boot)


def make_partition(data: DataDir, at: At) -> None:
    data.partition_path(at).mkdir()


def test_a_new_directory_gets_a_cluster_id_that_it_keeps(tmp_path: Path) -> None:
    first = open_dir(tmp_path / "not" / "there")
    assert len(first.cluster_id) == 22
    first.close()
    assert open_dir(tmp_path / "not" / "there").cluster_id == first.cluster_id


def test_the_epoch_grows_on_every_start_after_a_crash_and_on_no_other(tmp_path: Path) -> None:
    first = open_dir(tmp_path)
    assert (first.broker_epoch, first.was_clean) == (0, True)
    first.close()
    second = open_dir(tmp_path)
    assert (second.broker_epoch, second.was_clean) == (0, True)
    third = open_dir(tmp_path)
    assert (third.broker_epoch, third.was_clean) == (1, False)
    assert open_dir(tmp_path).broker_epoch == 2


def test_the_clean_flag_goes_before_anything_else_is_written(tmp_path: Path) -> None:
    class Recorded(Disk):
        written: list[tuple[str, bytes]] = []  # noqa: RUF012  # one list for the one test

        def atomic_write(self, path: str, data: bytes | bytearray | memoryview) -> None:
            self.written.append((Path(path).name, bytes(data)))
            super().atomic_write(path, data)

    open_dir(tmp_path).close()
    assert b"clean=true" in (tmp_path / "meta.properties").read_bytes()
    disk = Recorded()
    DataDir.open(tmp_path, disk)
    assert [name for name, _ in disk.written] == ["meta.properties"]
    assert b"clean=false" in disk.written[0][1]


def test_what_was_not_opened_since_a_crash_stays_unrecovered_over_clean_stops(tmp_path: Path) -> None:
    first = open_dir(tmp_path)
    make_partition(first, A)
    make_partition(first, B)
    crashed = open_dir(tmp_path)
    assert set(crashed.recovery.unrecovered) == {A, B}
    crashed.recovery.opened(A, 7)
    crashed.close()
    after = open_dir(tmp_path, boot="boot-2")
    assert after.was_clean
    assert after.recovery.of(A) == (7, True, True)
    assert after.recovery.of(B) == (None, False, False)


def test_a_start_that_dies_half_way_leads_to_the_same_answer(tmp_path: Path) -> None:
    class Dying(Disk):
        def atomic_write(self, path: str, data: bytes | bytearray | memoryview) -> None:
            if path.endswith("meta.properties"):
                raise OSError("killed here")
            super().atomic_write(path, data)

    make_partition(open_dir(tmp_path, boot="boot-1"), A)
    with pytest.raises(OSError, match="killed here"):
        DataDir.open(tmp_path, Dying(), boot="boot-2")
    after = open_dir(tmp_path, boot="boot-2")
    assert after.recovery.of(A).same_boot is False
    assert after.broker_epoch == 1


def test_a_checkpoint_that_cannot_be_read_costs_a_scan_and_nothing_else(tmp_path: Path) -> None:
    data = open_dir(tmp_path)
    make_partition(data, A)
    data.recovery.reached(A, 5)
    data.close()
    (tmp_path / "recovery-point-offset-checkpoint").write_bytes(b"garbage")
    assert open_dir(tmp_path).recovery.of(A).point is None


def test_producer_ids_are_never_given_twice(tmp_path: Path) -> None:
    data = open_dir(tmp_path)
    blocks = [data.first_producer_ids, data.reserve_producer_ids(), data.reserve_producer_ids()]
    crashed = open_dir(tmp_path)
    blocks += [crashed.first_producer_ids, crashed.reserve_producer_ids()]
    assert [len(block) for block in blocks] == [1000] * 5
    assert len(set().union(*blocks)) == 5000


def test_a_newer_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    open_dir(tmp_path).close()
    file = tmp_path / "meta.properties"
    file.write_bytes(b"format.version=2\nnothing.we.know=1\n")
    with pytest.raises(DataFormatTooNew, match="has format 2, this version of Levada reads up to 1"):
        open_dir(tmp_path)
    assert file.read_bytes() == b"format.version=2\nnothing.we.know=1\n"


def test_an_older_format_is_upgraded_step_by_step(tmp_path: Path) -> None:
    file = tmp_path / "meta.properties"
    old = Meta(cluster_id=new_cluster_id(), node_id=1)
    file.write_bytes(replace(old, format_version=FORMAT_VERSION - 1).encode())

    def upgrade(path: Path, disk: Disk) -> None:
        disk.atomic_write(str(path / "meta.properties"), old.encode())

    data = DataDir.open(tmp_path, Disk(), upgrades={FORMAT_VERSION - 1: upgrade})
    assert data.cluster_id == old.cluster_id
    assert f"format.version={FORMAT_VERSION}" in file.read_text()


def test_a_format_that_never_was_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_bytes(b"format.version=0\n")
    with pytest.raises(StorageFailed, match="which no version of Levada ever wrote"):
        open_dir(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "format.version=''"),
        (b"format.version=x\n", "format.version='x'"),
        (b"format.version=1\n", "lacks cluster.id"),
        (Meta(cluster_id="c", node_id=1).encode().replace(b"node.id=1", b"node.id=y"), "cannot be read"),
    ],
)
def test_a_broken_meta_file_is_named_with_what_is_wrong(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "meta.properties").write_bytes(content)
    with pytest.raises(StorageFailed, match=message):
        open_dir(tmp_path)


def test_topics_without_a_meta_file_are_not_taken_for_a_new_directory(tmp_path: Path) -> None:
    (tmp_path / "topics" / "t-0").mkdir(parents=True)
    with pytest.raises(StorageFailed, match=r"has topics but no meta\.properties"):
        open_dir(tmp_path)


def test_directories_that_are_no_partition_are_left_out(tmp_path: Path) -> None:
    data = open_dir(tmp_path)
    for at in (A, B):
        make_partition(data, at)
    deleted = data.deleted_path(uuid4(), 3)
    deleted.mkdir()
    (data.topics / "lost+found").mkdir()
    assert sorted(data.partitions()) == [A, B]
    assert data.deleted() == [deleted]


def test_only_one_process_has_a_directory_open(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib\n"
        "from levada.engine.embedded.datadir import DirectoryLock\n"
        "lock = DirectoryLock(pathlib.Path(sys.argv[1]))\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdin and holder.stdout
    with holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(DataInUse, match=f"process {holder.pid}"):
            DirectoryLock(tmp_path)
        holder.kill()
    lock = DirectoryLock(tmp_path)
    assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\n"
    lock.release()
    DirectoryLock(tmp_path).release()


def test_the_boot_is_known_here() -> None:
    assert boot_id() == boot_id() != ""


def test_the_limit_of_open_files_is_raised_to_what_is_allowed() -> None:
    import resource

    limit = raise_file_limit()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (limit, limit)
