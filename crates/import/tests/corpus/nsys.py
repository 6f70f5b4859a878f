"""Makes the exports of this folder: two versions of NCCL's payloads, and two communicators of four ranks."""
import os
import sqlite3
import struct
import sys

KERNEL = {
    "AllReduce": "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
    "AllGather": "ncclDevKernel_AllGather_RING_LL",
    "Broadcast": "ncclDevKernel_Broadcast_RING_LL",
    "ReduceScatter": "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL",
    "Send": "ncclDevKernel_SendRecv",
    "Recv": "ncclDevKernel_SendRecv",
}
NUMBER = {"CommInitRank": 0, "AllGather": 4, "AllReduce": 5, "Broadcast": 6, "ReduceScatter": 7, "Send": 9, "Recv": 10}


def payload(numbers, small, call=None):
    body = struct.pack(f"<{len(numbers)}Q", *numbers) + struct.pack(f"<{len(small)}i", *small)
    if call is None:
        return body
    return struct.pack("<4I2Q", 1, 0, (1 << 24) + NUMBER[call], 0, len(body), 32 + len(body)) + body


def export(path, calls, ranks, launch=tuple(KERNEL)):
    if os.path.exists(path):
        os.remove(path)
    database = sqlite3.connect(path)
    database.execute("pragma page_size = 512")
    database.executescript("""
        create table StringIds(id integer primary key, value text);
        create table META_DATA_EXPORT(name text, value text);
        create table CUPTI_ACTIVITY_KIND_KERNEL(start integer, end integer, deviceId integer, streamId integer,
            correlationId integer, globalPid integer, shortName integer);
        create table CUPTI_ACTIVITY_KIND_RUNTIME(start integer, end integer, globalTid integer,
            correlationId integer, nameId integer);
        create table NVTX_EVENTS(start integer, end integer, text text, textId integer, globalTid integer,
            binaryData blob, domainId integer);
        insert into META_DATA_EXPORT values ('EXPORT_SCHEMA_VERSION', '3.11.0'),
            ('EXPORT_PARAM_INCLUDE_BLOBS', 'true');
    """)
    names = {}

    def name(text):
        if text not in names:
            names[text] = len(names) + 1
            database.execute("insert into StringIds values (?, ?)", (names[text], text))
        return names[text]

    for rank in range(ranks):
        process, at, correlation = (100 + rank) << 24, 1_000, 0
        for call, blob in calls(rank):
            correlation += 1
            database.execute("insert into NVTX_EVENTS values (?, ?, ?, null, ?, ?, 1)",
                             (at, at + 3_000, f"nccl{call}", process | 5, blob))
            if call in launch:
                database.execute("insert into CUPTI_ACTIVITY_KIND_RUNTIME values (?, ?, ?, ?, ?)",
                                 (at + 500, at + 2_000, process | 5, correlation, name("cudaLaunchKernelExC_v11060")))
                database.execute("insert into CUPTI_ACTIVITY_KIND_KERNEL values (?, ?, ?, 7, ?, ?, ?)",
                                 (at + 4_000, at + 54_000, rank, correlation, process, name(KERNEL.get(call, "ncclDevKernel"))))
            at += 60_000
    database.commit()
    database.close()


def each(rank, communicator):
    """All kinds of call over two ranks; `communicator` begins the payload or does not."""
    message = "Send" if rank == 0 else "Recv"
    yield "AllReduce", payload([*communicator, 4_096_000], [0, 0])
    yield "AllGather", payload([*communicator, 1_000], [])
    yield "Broadcast", payload([*communicator, 5_000], [1, 0])
    yield "ReduceScatter", payload([*communicator, 7_000], [0, 0])
    yield message, payload([*communicator, 9_000], [1 - rank, 0])


def groups(rank):
    """Calls that the end of their group launches: one alone, and messages of all to all, 100 bytes to rank 0 and 200 to rank 1."""
    yield "GroupStart", None
    yield "AllReduce", payload([77, 4_096], [0, 0])
    yield "GroupEnd", None
    yield "GroupStart", None
    for peer in (0, 1):
        yield "Send", payload([77, 100 + 100 * peer], [peer, 0])
        yield "Recv", payload([77, 100 + 100 * rank], [peer, 0])
    yield "GroupEnd", None
    yield "GroupStart", None
    yield "AllReduce", payload([77, 4_096], [0, 0])
    yield "AllReduce", payload([77, 8_192], [0, 0])
    yield "GroupEnd", None


def pairs(rank):
    """Four ranks in two communicators, whose places go against the ranks; rank 3 also calls one that no other names."""
    pair = 70 + rank // 2
    yield "CommInitRank", payload([pair], [2, 1 - rank % 2, 0, 0], "CommInitRank")
    yield "AllReduce", payload([pair, (1 + rank // 2) * 1_000_000], [0, 0], "AllReduce")
    yield "Broadcast", payload([pair, 5_000], [1, 0], "Broadcast")
    if rank == 3:
        yield "AllReduce", payload([99, 1_000_000], [0, 0], "AllReduce")


folder = sys.argv[1]
export(f"{folder}/old.sqlite", lambda rank: each(rank, []), 2)
export(f"{folder}/new.sqlite", lambda rank: each(rank, [77]), 2)
export(f"{folder}/groups.sqlite", groups, 2, ("GroupEnd",))
export(f"{folder}/pairs.sqlite", pairs, 4)
