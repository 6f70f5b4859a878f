/* The buffer of records, the clock, communicators. */
#define _GNU_SOURCE
#include "trace.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BUFFER ((size_t)1 << 20)
#define LONGEST ((size_t)10) /* bytes of a number */
#define BARRIERS 16

static struct {
    int file; /* below 0: not tracing */
    unsigned char *buffer;
    size_t used;
    int64_t first, end; /* ns: of the file, and of the record before */
    int64_t polls, polled;
    pthread_mutex_t lock;
} trace = {.file = -1, .lock = PTHREAD_MUTEX_INITIALIZER};

struct known {
    MPI_Comm comm;
    int64_t id;
    int size, rank;
};
static struct {
    struct known *list;
    int used, room;
    int64_t next;
} comms;

int64_t wt_now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void give_up(const char *what) {
    fprintf(stderr, "windtunnel-mpi: cannot %s the trace: %s; the program goes on untraced\n", what, strerror(errno));
    if (trace.file >= 0) close(trace.file);
    trace.file = -1;
}

static void flush(void) {
    for (size_t done = 0; trace.file >= 0 && done < trace.used;) {
        ssize_t wrote = write(trace.file, trace.buffer + done, trace.used - done);
        if (wrote > 0) done += (size_t)wrote;
        else if (errno != EINTR) give_up("write");
    }
    trace.used = 0;
}

void wt_flush(void) {
    pthread_mutex_lock(&trace.lock);
    flush();
    pthread_mutex_unlock(&trace.lock);
}

static inline void number(uint64_t value) {
    if (trace.used + LONGEST > BUFFER) flush();
    unsigned char *at = trace.buffer + trace.used;
    while (value >= 0x80) {
        *at++ = (unsigned char)(value | 0x80);
        value >>= 7;
    }
    *at++ = (unsigned char)value;
    trace.used = (size_t)(at - trace.buffer);
}

static inline void argument(int64_t value) {
    number(((uint64_t)value << 1) ^ (uint64_t)(value >> 63));
}

static uint64_t not_negative(int64_t value) {
    return value > 0 ? (uint64_t)value : 0;
}

/* With the lock held. */
static void append(enum operation op, int64_t start, int64_t end, int count, const int64_t *arguments, int more, const int64_t *list) {
    if (trace.file < 0) return;
    number(op);
    /* Of two threads in MPI at once the later record begins before the end of the one before: no gap. */
    number(not_negative(start - trace.end));
    number(not_negative(end - (start > trace.end ? start : trace.end)));
    number((uint64_t)count + (uint64_t)more);
    for (int at = 0; at < count; at++) argument(arguments[at]);
    for (int at = 0; at < more; at++) argument(list[at]);
    if (end > trace.end) trace.end = end;
}

void wt_record_list(enum operation op, int64_t start, int count, const int64_t *arguments, int more, const int64_t *list) {
    int64_t end = wt_now();
    pthread_mutex_lock(&trace.lock);
    append(op, start, end, count, arguments, more, list);
    pthread_mutex_unlock(&trace.lock);
}

void wt_record(enum operation op, int64_t start, int count, const int64_t *arguments) {
    wt_record_list(op, start, count, arguments, 0, NULL);
}

void wt_other(const char *name, int64_t start, int64_t bytes) {
    int64_t letters[65] = {bytes};
    int length = 0;
    for (; name[length] && length < 64; length++) letters[length + 1] = name[length];
    wt_record(WT_OTHER, start, length + 1, letters);
}

void wt_poll(int64_t start) {
    int64_t took = wt_now() - start;
    pthread_mutex_lock(&trace.lock);
    trace.polls++;
    trace.polled += took;
    pthread_mutex_unlock(&trace.lock);
}

void wt_waited(int64_t start, int count, const int64_t *requests) {
    int64_t end = wt_now();
    pthread_mutex_lock(&trace.lock);
    int64_t polls[2] = {trace.polls, trace.polled};
    trace.polls = trace.polled = 0;
    append(WT_WAIT, start, end, 2, polls, count, requests);
    pthread_mutex_unlock(&trace.lock);
}

static struct known describe(MPI_Comm comm) {
    struct known found = {.comm = comm, .id = comms.next};
    int inter = 0;
    PMPI_Comm_test_inter(comm, &inter);
    PMPI_Comm_size(comm, &found.size);
    PMPI_Comm_rank(comm, &found.rank);
    /* An intercommunicator is written down without members: no two of its groups are one. */
    int members = inter ? 0 : found.size;
    int *from = malloc(2 * (size_t)(members + 1) * sizeof *from);
    int64_t *list = malloc((size_t)(members + 1) * sizeof *list);
    if (from && list && members) {
        int *into = from + members;
        MPI_Group own, world;
        PMPI_Comm_group(comm, &own);
        PMPI_Comm_group(MPI_COMM_WORLD, &world);
        for (int at = 0; at < members; at++) from[at] = at;
        PMPI_Group_translate_ranks(own, members, from, world, into);
        for (int at = 0; at < members; at++) list[at] = into[at];
        PMPI_Group_free(&own);
        PMPI_Group_free(&world);
    } else {
        members = 0;
    }
    append(WT_COMMUNICATOR, trace.end, trace.end, 1, &found.id, members, list);
    free(from);
    free(list);
    return found;
}

/* With the lock held; NULL where there is no memory. */
static struct known *find(MPI_Comm comm) {
    for (int at = 0; at < comms.used; at++)
        if (comms.list[at].comm == comm) return &comms.list[at];
    if (comms.used == comms.room) {
        int room = comms.room ? 2 * comms.room : 16;
        struct known *list = realloc(comms.list, (size_t)room * sizeof *list);
        if (!list) return NULL;
        comms.list = list;
        comms.room = room;
    }
    comms.list[comms.used] = describe(comm);
    comms.next++;
    return &comms.list[comms.used++];
}

int64_t wt_communicator(MPI_Comm comm) {
    if (comm == MPI_COMM_NULL || trace.file < 0) return -1;
    pthread_mutex_lock(&trace.lock);
    struct known *known = find(comm);
    int64_t id = known ? known->id : -1;
    pthread_mutex_unlock(&trace.lock);
    return id;
}

void wt_forget(MPI_Comm comm) {
    pthread_mutex_lock(&trace.lock);
    for (int at = 0; at < comms.used; at++)
        if (comms.list[at].comm == comm) comms.list[at] = comms.list[--comms.used];
    pthread_mutex_unlock(&trace.lock);
}

int wt_size(MPI_Comm comm) {
    int size = 0;
    PMPI_Comm_size(comm, &size);
    return size;
}

int wt_rank(MPI_Comm comm) {
    int rank = 0;
    PMPI_Comm_rank(comm, &rank);
    return rank;
}

int64_t wt_bytes(int count, MPI_Datatype type) {
    int size = 0;
    if (type == MPI_DATATYPE_NULL) return 0;
    PMPI_Type_size(type, &size);
    return (int64_t)count * size;
}

int64_t wt_peer(int peer) {
    return peer == MPI_PROC_NULL ? WT_NOBODY : peer == MPI_ANY_SOURCE ? WT_ANY : peer;
}

int64_t wt_tag(int tag) {
    return tag == MPI_ANY_TAG ? WT_ANY : tag;
}

void wt_open(int64_t start) {
    int rank = 0, size = 0;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &size);
    const char *folder = getenv("WINDTUNNEL_MPI_DIR");
    char name[4096];
    snprintf(name, sizeof name, "%s/windtunnel-mpi.%d.wtm", folder && *folder ? folder : ".", rank);
    trace.buffer = malloc(BUFFER);
    trace.file = trace.buffer ? open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644) : -1;
    if (trace.file < 0) give_up("open");
    else memcpy(trace.buffer, "WTMPI\0\0\1", trace.used = 8);
    if (trace.file >= 0) {
        number((uint64_t)rank);
        number((uint64_t)size);
    }
    trace.first = trace.end = start;
    /* All leave a barrier together: the one that took the least time disturbed least. Every rank chooses the same one. */
    double took[BARRIERS];
    int64_t left[BARRIERS];
    for (int at = 0; at < BARRIERS; at++) {
        int64_t begun = wt_now();
        PMPI_Barrier(MPI_COMM_WORLD);
        left[at] = wt_now();
        took[at] = (double)(left[at] - begun);
    }
    PMPI_Allreduce(MPI_IN_PLACE, took, BARRIERS, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    int best = 0;
    for (int at = 1; at < BARRIERS; at++)
        if (took[at] < took[best]) best = at;
    int64_t shared = left[best] - trace.first;
    wt_record(WT_CLOCK, start, 1, &shared);
    wt_communicator(MPI_COMM_WORLD);
}

void wt_close(int64_t start) {
    wt_record(WT_FINALIZE, start, 0, NULL);
    pthread_mutex_lock(&trace.lock);
    flush();
    if (trace.file >= 0 && close(trace.file) != 0) give_up("close");
    trace.file = -1;
    pthread_mutex_unlock(&trace.lock);
}
