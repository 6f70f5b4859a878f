/* Begin and end of MPI, messages, requests. */
#include "trace.h"

#include <stdlib.h>

int MPI_Init(int *argc, char ***argv) {
    int64_t start = wt_now();
    int status = PMPI_Init(argc, argv);
    wt_open(start);
    return status;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided) {
    int64_t start = wt_now();
    int status = PMPI_Init_thread(argc, argv, required, provided);
    wt_open(start);
    return status;
}

int MPI_Finalize(void) {
    wt_close(wt_now());
    return PMPI_Finalize();
}

int MPI_Abort(MPI_Comm comm, int code) {
    wt_flush();
    return PMPI_Abort(comm, code);
}

#define MESSAGE(op, comm, peer, tag, count, type) \
    int64_t message[4] = {wt_communicator(comm), wt_peer(peer), wt_tag(tag), wt_bytes(count, type)}; \
    wt_record(op, start, 4, message)

#define SEND(name) \
    int MPI_##name(const void *buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) { \
        int64_t start = wt_now(); \
        int status = PMPI_##name(buffer, count, type, to, tag, comm); \
        MESSAGE(WT_SEND, comm, to, tag, count, type); \
        return status; \
    }
SEND(Send)
SEND(Ssend)
SEND(Bsend)
SEND(Rsend)

int MPI_Recv(void *buffer, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status *result) {
    int64_t start = wt_now();
    int status = PMPI_Recv(buffer, count, type, from, tag, comm, result);
    MESSAGE(WT_RECEIVE, comm, from, tag, count, type);
    return status;
}

static void request(enum operation op, int64_t start, const int64_t *message, MPI_Request handle) {
    int64_t all[5] = {message[0], message[1], message[2], message[3], WT_REQUEST(handle)};
    wt_record(op, start, 5, all);
}

#define REQUEST(op, comm, peer, tag, count, type, handle) \
    int64_t message[4] = {wt_communicator(comm), wt_peer(peer), wt_tag(tag), wt_bytes(count, type)}; \
    request(op, start, message, handle)

#define ISEND(name) \
    int MPI_##name(const void *buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *handle) { \
        int64_t start = wt_now(); \
        int status = PMPI_##name(buffer, count, type, to, tag, comm, handle); \
        REQUEST(WT_ISEND, comm, to, tag, count, type, *handle); \
        return status; \
    }
ISEND(Isend)
ISEND(Issend)
ISEND(Ibsend)
ISEND(Irsend)

int MPI_Irecv(void *buffer, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *handle) {
    int64_t start = wt_now();
    int status = PMPI_Irecv(buffer, count, type, from, tag, comm, handle);
    REQUEST(WT_IRECEIVE, comm, from, tag, count, type, *handle);
    return status;
}

int MPI_Sendrecv(const void *out, int out_count, MPI_Datatype out_type, int to, int out_tag, void *in, int in_count,
                 MPI_Datatype in_type, int from, int in_tag, MPI_Comm comm, MPI_Status *result) {
    int64_t start = wt_now();
    int status = PMPI_Sendrecv(out, out_count, out_type, to, out_tag, in, in_count, in_type, from, in_tag, comm, result);
    int64_t both[7] = {wt_communicator(comm), wt_peer(to),     wt_tag(out_tag),            wt_bytes(out_count, out_type),
                       wt_peer(from),         wt_tag(in_tag), wt_bytes(in_count, in_type)};
    wt_record(WT_SENDRECV, start, 7, both);
    return status;
}

int MPI_Sendrecv_replace(void *buffer, int count, MPI_Datatype type, int to, int out_tag, int from, int in_tag, MPI_Comm comm,
                         MPI_Status *result) {
    int64_t start = wt_now();
    int status = PMPI_Sendrecv_replace(buffer, count, type, to, out_tag, from, in_tag, comm, result);
    int64_t bytes = wt_bytes(count, type);
    int64_t both[7] = {wt_communicator(comm), wt_peer(to), wt_tag(out_tag), bytes, wt_peer(from), wt_tag(in_tag), bytes};
    wt_record(WT_SENDRECV, start, 7, both);
    return status;
}

/* Handles are gone after a wait: they are kept before it. A few fit without asking for memory. */
struct handles {
    int64_t few[64], *list;
};

static int64_t *keep(struct handles *kept, int count, const MPI_Request *requests) {
    kept->list = count <= 64 ? kept->few : malloc((size_t)count * sizeof *kept->list);
    for (int at = 0; kept->list && at < count; at++) kept->list[at] = WT_REQUEST(requests[at]);
    return kept->list;
}

static void drop(struct handles *kept) {
    if (kept->list != kept->few) free(kept->list);
}

int MPI_Wait(MPI_Request *handle, MPI_Status *result) {
    int64_t start = wt_now(), waited = WT_REQUEST(*handle);
    int status = PMPI_Wait(handle, result);
    wt_waited(start, 1, &waited);
    return status;
}

int MPI_Waitall(int count, MPI_Request *requests, MPI_Status *results) {
    struct handles kept;
    int64_t start = wt_now(), *list = keep(&kept, count, requests);
    int status = PMPI_Waitall(count, requests, results);
    wt_waited(start, list ? count : 0, list);
    drop(&kept);
    return status;
}

int MPI_Waitany(int count, MPI_Request *requests, int *index, MPI_Status *result) {
    struct handles kept;
    int64_t start = wt_now(), *list = keep(&kept, count, requests);
    int status = PMPI_Waitany(count, requests, index, result);
    if (list && *index != MPI_UNDEFINED) wt_waited(start, 1, &list[*index]);
    drop(&kept);
    return status;
}

static void some(int64_t start, const int64_t *list, int ended, const int *indices) {
    int64_t few[64], *which = ended <= 64 ? few : malloc((size_t)ended * sizeof *which);
    if (!which || !list) return;
    for (int at = 0; at < ended; at++) which[at] = list[indices[at]];
    wt_waited(start, ended, which);
    if (which != few) free(which);
}

int MPI_Waitsome(int count, MPI_Request *requests, int *ended, int *indices, MPI_Status *results) {
    struct handles kept;
    int64_t start = wt_now(), *list = keep(&kept, count, requests);
    int status = PMPI_Waitsome(count, requests, ended, indices, results);
    if (*ended != MPI_UNDEFINED) some(start, list, *ended, indices);
    drop(&kept);
    return status;
}

int MPI_Test(MPI_Request *handle, int *flag, MPI_Status *result) {
    int64_t start = wt_now(), waited = WT_REQUEST(*handle);
    int status = PMPI_Test(handle, flag, result);
    if (*flag) wt_waited(start, 1, &waited);
    else wt_poll(start);
    return status;
}

int MPI_Testall(int count, MPI_Request *requests, int *flag, MPI_Status *results) {
    struct handles kept;
    int64_t start = wt_now(), *list = keep(&kept, count, requests);
    int status = PMPI_Testall(count, requests, flag, results);
    if (*flag) wt_waited(start, list ? count : 0, list);
    else wt_poll(start);
    drop(&kept);
    return status;
}

int MPI_Testany(int count, MPI_Request *requests, int *index, int *flag, MPI_Status *result) {
    struct handles kept;
    int64_t start = wt_now(), *list = keep(&kept, count, requests);
    int status = PMPI_Testany(count, requests, index, flag, result);
    if (!*flag) wt_poll(start);
    else if (list && *index != MPI_UNDEFINED) wt_waited(start, 1, &list[*index]);
    drop(&kept);
    return status;
}

int MPI_Testsome(int count, MPI_Request *requests, int *ended, int *indices, MPI_Status *results) {
    struct handles kept;
    int64_t start = wt_now(), *list = keep(&kept, count, requests);
    int status = PMPI_Testsome(count, requests, ended, indices, results);
    if (*ended == 0) wt_poll(start);
    else if (*ended != MPI_UNDEFINED) some(start, list, *ended, indices);
    drop(&kept);
    return status;
}

/* The receive behind a probe waits for the message: the probe's own time is no computation. */
int MPI_Probe(int from, int tag, MPI_Comm comm, MPI_Status *result) {
    int64_t start = wt_now();
    int status = PMPI_Probe(from, tag, comm, result);
    wt_waited(start, 0, NULL);
    return status;
}

int MPI_Iprobe(int from, int tag, MPI_Comm comm, int *flag, MPI_Status *result) {
    int64_t start = wt_now();
    int status = PMPI_Iprobe(from, tag, comm, flag, result);
    if (*flag) wt_waited(start, 0, NULL);
    else wt_poll(start);
    return status;
}

/* Requests that are begun again and again. */
static struct persistent {
    MPI_Request handle;
    enum operation op;
    int64_t message[4];
} *lasting;
static int lasting_used, lasting_room;

static void remember(MPI_Request handle, enum operation op, const int64_t *message) {
    if (lasting_used == lasting_room) {
        int room = lasting_room ? 2 * lasting_room : 16;
        struct persistent *list = realloc(lasting, (size_t)room * sizeof *list);
        if (!list) return;
        lasting = list;
        lasting_room = room;
    }
    struct persistent one = {handle, op, {message[0], message[1], message[2], message[3]}};
    lasting[lasting_used++] = one;
}

#define SEND_INIT(name) \
    int MPI_##name(const void *buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *handle) { \
        int status = PMPI_##name(buffer, count, type, to, tag, comm, handle); \
        int64_t message[4] = {wt_communicator(comm), wt_peer(to), wt_tag(tag), wt_bytes(count, type)}; \
        remember(*handle, WT_ISEND, message); \
        return status; \
    }
SEND_INIT(Send_init)
SEND_INIT(Ssend_init)
SEND_INIT(Bsend_init)
SEND_INIT(Rsend_init)

int MPI_Recv_init(void *buffer, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *handle) {
    int status = PMPI_Recv_init(buffer, count, type, from, tag, comm, handle);
    int64_t message[4] = {wt_communicator(comm), wt_peer(from), wt_tag(tag), wt_bytes(count, type)};
    remember(*handle, WT_IRECEIVE, message);
    return status;
}

static void started(int64_t start, MPI_Request handle) {
    for (int at = 0; at < lasting_used; at++)
        if (lasting[at].handle == handle) request(lasting[at].op, start, lasting[at].message, handle);
}

int MPI_Start(MPI_Request *handle) {
    int64_t start = wt_now();
    int status = PMPI_Start(handle);
    started(start, *handle);
    return status;
}

int MPI_Startall(int count, MPI_Request *requests) {
    int64_t start = wt_now();
    int status = PMPI_Startall(count, requests);
    for (int at = 0; at < count; at++) started(at ? wt_now() : start, requests[at]);
    return status;
}

int MPI_Request_free(MPI_Request *handle) {
    for (int at = 0; at < lasting_used; at++)
        if (lasting[at].handle == *handle) lasting[at] = lasting[--lasting_used];
    return PMPI_Request_free(handle);
}
