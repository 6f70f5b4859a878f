/* What the wrappers of MPI calls share: the clock, the buffer of records, communicators and persistent requests.
 *
 * File `windtunnel-mpi.RANK.wtm`: eight bytes "WTMPI\0\0\1" (the last is the version), rank and size of MPI_COMM_WORLD, records.
 * A record is: operation, nanoseconds since the end of the record before, nanoseconds that the call took, number of arguments,
 * arguments. All numbers are LEB128; arguments are signed (zigzag). Docs: docs/traces.md.
 *
 * Life cycle: MPI_Init opens the file and sets the clock; every wrapped call appends to a buffer of 1 MiB, which goes out by one write
 * when it is full; MPI_Finalize ends the file. If the file cannot be written the program goes on untraced, with one line on stderr.
 */
#ifndef WINDTUNNEL_MPI_TRACE_H
#define WINDTUNNEL_MPI_TRACE_H

#include <mpi.h>
#include <stdint.h>

enum operation {
    WT_COMMUNICATOR = 1, /* id, members by rank of MPI_COMM_WORLD */
    WT_CLOCK = 2,        /* instant that all ranks share, in ns since this file's first record */
    WT_SEND = 3,         /* communicator, peer, tag, bytes */
    WT_RECEIVE = 4,      /* communicator, peer, tag, bytes */
    WT_ISEND = 5,        /* … and request */
    WT_IRECEIVE = 6,     /* … and request */
    WT_SENDRECV = 7,     /* communicator, peer, tag, bytes of what is sent; peer, tag, bytes of what comes */
    WT_WAIT = 8,         /* polls without success, ns in them, requests that have ended */
    WT_COLLECTIVE = 9,   /* kind, communicator, root, bytes, request or 0, bytes of each member where they differ */
    WT_OTHER = 10,       /* bytes, letters of the name behind MPI_ */
    WT_FINALIZE = 11,
};

enum kind {
    WT_BARRIER = 1,
    WT_BROADCAST = 2,
    WT_REDUCE = 3,
    WT_ALL_REDUCE = 4,
    WT_GATHER = 5,
    WT_SCATTER = 6,
    WT_ALL_GATHER = 7,
    WT_ALL_TO_ALL = 8,
    WT_REDUCE_SCATTER = 9,
    WT_SCAN = 10,
};

/* A peer that is nobody (MPI_PROC_NULL), and any (MPI_ANY_SOURCE, MPI_ANY_TAG). */
enum { WT_NOBODY = -2, WT_ANY = -1 };

/* Nanoseconds of a clock that never goes back. */
int64_t wt_now(void);

/* Keeps a call that began at `start` and has just ended, with its arguments. */
void wt_record(enum operation op, int64_t start, int count, const int64_t *arguments);

/* The same with further arguments behind them, which may be many. */
void wt_record_list(enum operation op, int64_t start, int count, const int64_t *arguments, int more, const int64_t *list);

/* A call that moves nothing which is modelled, by its name. */
void wt_other(const char *name, int64_t start, int64_t bytes);

/* The number of a communicator; one that is new is written down with its members. */
int64_t wt_communicator(MPI_Comm comm);
void wt_forget(MPI_Comm comm);
int wt_size(MPI_Comm comm);
int wt_rank(MPI_Comm comm);

int64_t wt_bytes(int count, MPI_Datatype type);
int64_t wt_peer(int peer);
int64_t wt_tag(int tag);

/* Counts a test without success; the next wait tells of it. */
void wt_poll(int64_t start);
void wt_waited(int64_t start, int count, const int64_t *requests);

void wt_open(int64_t start);
void wt_close(int64_t start);
void wt_flush(void);

/* Requests are told apart by their handles: a pointer with OpenMPI, a number with MPICH. */
#define WT_REQUEST(request) ((int64_t)(intptr_t)(request))

#endif
