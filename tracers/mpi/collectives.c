/* Collectives, blocking and not; communicators; calls that are counted and not modelled. */
#include "trace.h"

#include <stdlib.h>

/* Bytes are those of the whole vector: of an all-gather all that each receives, of an all-to-all all that this rank sends, of a
 * gather or scatter this rank's part. */
static void collective(enum kind kind, int64_t start, MPI_Comm comm, int root, int64_t bytes, int64_t request, int more,
                       const int64_t *list) {
    int64_t all[5] = {kind, wt_communicator(comm), root, bytes, request};
    wt_record_list(WT_COLLECTIVE, start, 5, all, more, list);
}

/* Bytes of each member from counts of elements; the sum goes to `sum`. To be freed. */
static int64_t *parts(int n, const int *counts, MPI_Datatype type, int64_t *sum) {
    int64_t *list = malloc((size_t)(n ? n : 1) * sizeof *list), size = wt_bytes(1, type);
    *sum = 0;
    for (int at = 0; list && at < n; at++) *sum += list[at] = counts[at] * size;
    return list;
}

/* Each call in two forms: X and, with a request behind its arguments, IX. */
#define UNPACK(...) __VA_ARGS__
#define BOTH(name, iname, parameters, arguments, kind, root, bytes, more, list, before, after) \
    int MPI_##name parameters { \
        int64_t start = wt_now(); \
        int status = PMPI_##name arguments; \
        before; \
        collective(kind, start, comm, root, bytes, 0, more, list); \
        after; \
        return status; \
    } \
    int MPI_##iname(UNPACK parameters, MPI_Request *handle) { \
        int64_t start = wt_now(); \
        int status = PMPI_##iname(UNPACK arguments, handle); \
        before; \
        collective(kind, start, comm, root, bytes, WT_REQUEST(*handle), more, list); \
        after; \
        return status; \
    }

#define NOTHING (void)0

BOTH(Barrier, Ibarrier, (MPI_Comm comm), (comm), WT_BARRIER, 0, 0, 0, NULL, NOTHING, NOTHING)

BOTH(Bcast, Ibcast, (void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm), (buffer, count, type, root, comm),
     WT_BROADCAST, root, wt_bytes(count, type), 0, NULL, NOTHING, NOTHING)

BOTH(Reduce, Ireduce, (const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm),
     (in, out, count, type, op, root, comm), WT_REDUCE, root, wt_bytes(count, type), 0, NULL, NOTHING, NOTHING)

BOTH(Allreduce, Iallreduce, (const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
     (in, out, count, type, op, comm), WT_ALL_REDUCE, 0, wt_bytes(count, type), 0, NULL, NOTHING, NOTHING)

BOTH(Scan, Iscan, (const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
     (in, out, count, type, op, comm), WT_SCAN, 0, wt_bytes(count, type), 0, NULL, NOTHING, NOTHING)

BOTH(Exscan, Iexscan, (const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
     (in, out, count, type, op, comm), WT_SCAN, 0, wt_bytes(count, type), 0, NULL, NOTHING, NOTHING)

BOTH(Reduce_scatter_block, Ireduce_scatter_block,
     (const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm), (in, out, count, type, op, comm),
     WT_REDUCE_SCATTER, 0, wt_bytes(count, type) * wt_size(comm), 0, NULL, NOTHING, NOTHING)

BOTH(Reduce_scatter, Ireduce_scatter,
     (const void *in, void *out, const int *counts, MPI_Datatype type, MPI_Op op, MPI_Comm comm), (in, out, counts, type, op, comm),
     WT_REDUCE_SCATTER, 0, sum, 0, NULL, int64_t sum; int64_t *list = parts(wt_size(comm), counts, type, &sum), free(list))

/* In place, the root's own part and its type stand in the arguments of what it receives (gather) or sends (scatter). */
BOTH(Gather, Igather,
     (const void *in, int count, MPI_Datatype type, void *out, int out_count, MPI_Datatype out_type, int root, MPI_Comm comm),
     (in, count, type, out, out_count, out_type, root, comm), WT_GATHER, root,
     in == MPI_IN_PLACE ? wt_bytes(out_count, out_type) : wt_bytes(count, type), 0, NULL, NOTHING, NOTHING)

BOTH(Scatter, Iscatter,
     (const void *in, int in_count, MPI_Datatype in_type, void *out, int count, MPI_Datatype type, int root, MPI_Comm comm),
     (in, in_count, in_type, out, count, type, root, comm), WT_SCATTER, root,
     out == MPI_IN_PLACE ? wt_bytes(in_count, in_type) : wt_bytes(count, type), 0, NULL, NOTHING, NOTHING)

#define ROOTED(count, type, counts, counts_type) \
    int64_t own = wt_bytes(count, type), sum = 0, *list = NULL; \
    int members = 0; \
    if (wt_rank(comm) == root && (list = parts(wt_size(comm), counts, counts_type, &sum))) \
        own = list[root], members = wt_size(comm)

BOTH(Gatherv, Igatherv,
     (const void *in, int count, MPI_Datatype type, void *out, const int *counts, const int *places, MPI_Datatype out_type, int root,
      MPI_Comm comm), (in, count, type, out, counts, places, out_type, root, comm), WT_GATHER, root, own, members, list,
     ROOTED(count, type, counts, out_type), free(list))

BOTH(Scatterv, Iscatterv,
     (const void *in, const int *counts, const int *places, MPI_Datatype in_type, void *out, int count, MPI_Datatype type, int root,
      MPI_Comm comm), (in, counts, places, in_type, out, count, type, root, comm), WT_SCATTER, root, own, members, list,
     ROOTED(count, type, counts, in_type), free(list))

BOTH(Allgather, Iallgather,
     (const void *in, int in_count, MPI_Datatype in_type, void *out, int count, MPI_Datatype type, MPI_Comm comm),
     (in, in_count, in_type, out, count, type, comm), WT_ALL_GATHER, 0, wt_bytes(count, type) * wt_size(comm), 0, NULL, NOTHING,
     NOTHING)

BOTH(Allgatherv, Iallgatherv,
     (const void *in, int in_count, MPI_Datatype in_type, void *out, const int *counts, const int *places, MPI_Datatype type,
      MPI_Comm comm), (in, in_count, in_type, out, counts, places, type, comm), WT_ALL_GATHER, 0, sum, 0, NULL,
     int64_t sum; int64_t *list = parts(wt_size(comm), counts, type, &sum), free(list))

BOTH(Alltoall, Ialltoall,
     (const void *in, int in_count, MPI_Datatype in_type, void *out, int count, MPI_Datatype type, MPI_Comm comm),
     (in, in_count, in_type, out, count, type, comm), WT_ALL_TO_ALL, 0, wt_bytes(count, type) * wt_size(comm), 0, NULL, NOTHING,
     NOTHING)

/* In place, what a rank sends is as much as it receives. */
BOTH(Alltoallv, Ialltoallv,
     (const void *in, const int *in_counts, const int *in_places, MPI_Datatype in_type, void *out, const int *counts,
      const int *places, MPI_Datatype type, MPI_Comm comm), (in, in_counts, in_places, in_type, out, counts, places, type, comm),
     WT_ALL_TO_ALL, 0, sum, list ? wt_size(comm) : 0, list, int64_t sum;
     int64_t *list = in == MPI_IN_PLACE ? parts(wt_size(comm), counts, type, &sum) : parts(wt_size(comm), in_counts, in_type, &sum),
     free(list))

int MPI_Alltoallw(const void *in, const int *in_counts, const int *in_places, const MPI_Datatype *in_types, void *out,
                  const int *counts, const int *places, const MPI_Datatype *types, MPI_Comm comm) {
    int64_t start = wt_now();
    int status = PMPI_Alltoallw(in, in_counts, in_places, in_types, out, counts, places, types, comm);
    int n = wt_size(comm);
    int64_t sum = 0, *list = malloc((size_t)n * sizeof *list);
    for (int at = 0; list && at < n; at++)
        sum += list[at] = in == MPI_IN_PLACE ? wt_bytes(counts[at], types[at]) : wt_bytes(in_counts[at], in_types[at]);
    collective(WT_ALL_TO_ALL, start, comm, 0, sum, 0, list ? n : 0, list);
    free(list);
    return status;
}

/* Communicators are written down as they are made, so that ones with the same members have the same number of them before. */
#define MAKES(name, parameters, arguments) \
    int MPI_##name parameters { \
        int64_t start = wt_now(); \
        int status = PMPI_##name arguments; \
        wt_other(#name, start, 0); \
        if (*made != MPI_COMM_NULL) wt_communicator(*made); \
        return status; \
    }
MAKES(Comm_dup, (MPI_Comm comm, MPI_Comm *made), (comm, made))
MAKES(Comm_dup_with_info, (MPI_Comm comm, MPI_Info info, MPI_Comm *made), (comm, info, made))
MAKES(Comm_split, (MPI_Comm comm, int color, int key, MPI_Comm *made), (comm, color, key, made))
MAKES(Comm_split_type, (MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *made), (comm, type, key, info, made))
MAKES(Comm_create, (MPI_Comm comm, MPI_Group group, MPI_Comm *made), (comm, group, made))
MAKES(Comm_create_group, (MPI_Comm comm, MPI_Group group, int tag, MPI_Comm *made), (comm, group, tag, made))
MAKES(Cart_create, (MPI_Comm comm, int n, const int *dims, const int *periods, int reorder, MPI_Comm *made),
      (comm, n, dims, periods, reorder, made))
MAKES(Cart_sub, (MPI_Comm comm, const int *remain, MPI_Comm *made), (comm, remain, made))
MAKES(Graph_create, (MPI_Comm comm, int n, const int *index, const int *edges, int reorder, MPI_Comm *made),
      (comm, n, index, edges, reorder, made))
MAKES(Dist_graph_create_adjacent,
      (MPI_Comm comm, int in, const int *sources, const int *weights, int out, const int *to, const int *out_weights, MPI_Info info,
       int reorder, MPI_Comm *made),
      (comm, in, sources, weights, out, to, out_weights, info, reorder, made))
MAKES(Intercomm_merge, (MPI_Comm comm, int high, MPI_Comm *made), (comm, high, made))

int MPI_Comm_free(MPI_Comm *comm) {
    wt_forget(*comm);
    return PMPI_Comm_free(comm);
}

/* One-sided calls move data of which no other rank's record tells: they are counted with their bytes. */
#define COUNTED(name, parameters, arguments, bytes) \
    int MPI_##name parameters { \
        int64_t start = wt_now(); \
        int status = PMPI_##name arguments; \
        wt_other(#name, start, bytes); \
        return status; \
    }
COUNTED(Put, (const void *data, int count, MPI_Datatype type, int peer, MPI_Aint at, int n, MPI_Datatype other, MPI_Win window),
        (data, count, type, peer, at, n, other, window), wt_bytes(count, type))
COUNTED(Get, (void *data, int count, MPI_Datatype type, int peer, MPI_Aint at, int n, MPI_Datatype other, MPI_Win window),
        (data, count, type, peer, at, n, other, window), wt_bytes(count, type))
COUNTED(Accumulate,
        (const void *data, int count, MPI_Datatype type, int peer, MPI_Aint at, int n, MPI_Datatype other, MPI_Op op, MPI_Win window),
        (data, count, type, peer, at, n, other, op, window), wt_bytes(count, type))
COUNTED(Win_fence, (int assert, MPI_Win window), (assert, window), 0)
COUNTED(Win_lock, (int type, int rank, int assert, MPI_Win window), (type, rank, assert, window), 0)
COUNTED(Win_unlock, (int rank, MPI_Win window), (rank, window), 0)
COUNTED(Win_flush, (int rank, MPI_Win window), (rank, window), 0)
COUNTED(File_read_at_all, (MPI_File file, MPI_Offset at, void *data, int count, MPI_Datatype type, MPI_Status *result),
        (file, at, data, count, type, result), wt_bytes(count, type))
COUNTED(File_write_at_all, (MPI_File file, MPI_Offset at, const void *data, int count, MPI_Datatype type, MPI_Status *result),
        (file, at, data, count, type, result), wt_bytes(count, type))
COUNTED(File_read_at, (MPI_File file, MPI_Offset at, void *data, int count, MPI_Datatype type, MPI_Status *result),
        (file, at, data, count, type, result), wt_bytes(count, type))
COUNTED(File_write_at, (MPI_File file, MPI_Offset at, const void *data, int count, MPI_Datatype type, MPI_Status *result),
        (file, at, data, count, type, result), wt_bytes(count, type))
COUNTED(File_write, (MPI_File file, const void *data, int count, MPI_Datatype type, MPI_Status *result),
        (file, data, count, type, result), wt_bytes(count, type))
COUNTED(File_read, (MPI_File file, void *data, int count, MPI_Datatype type, MPI_Status *result),
        (file, data, count, type, result), wt_bytes(count, type))
