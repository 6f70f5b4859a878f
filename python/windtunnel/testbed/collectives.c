/* The program of a rank of the testbed's MPI runs: collectives one after another, each begun by all ranks at one instant.
 *
 *   collectives PLAN
 *
 * PLAN has a program a line: its repetitions, and its operations in their order. An operation is NAME:BYTES with BYTES as
 * nccl-tests counts them (of an all-gather all that each receives, of an all-to-all all that each sends), barrier:0, or
 * compute:MICROSECONDS, which a rank spends asleep so that eight of them need no eight processors.
 *
 * Hosts of a testbed are namespaces of one machine and share its clock (CLOCK_MONOTONIC): a repetition begins at an instant
 * that all ranks agreed on. Rank 0 prints the connections as a line of JSON, each as rank, the other's address, the own port
 * and the other's; then a line a program: of each repetition when each rank began and ended, in seconds since that instant.
 * What a collective leaves is checked; what is wrong ends everything. */
#define _GNU_SOURCE
#include <mpi.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

enum { GAP_US = 20000, NAP_US = 50, OPERATIONS = 16, REPETITIONS = 64 };

static int rank, ranks;

/* Open MPI asks for messages without pause and yields in between (mpi_yield_when_idle). A rank that waits for the network
 * lets the processor alone instead: the cores are shared by all ranks, and by the kernel that carries their packets. */
int sched_yield(void) {
    struct timespec nap = {0, NAP_US * 1000};
    return nanosleep(&nap, NULL);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void sleep_until(double when) {
    struct timespec t = {(time_t)when, (long)(1e9 * (when - (double)(time_t)when))};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL)) {
    }
}

static void fail(const char *why) {
    fprintf(stderr, "rank %d: %s\n", rank, why);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

struct operation {
    char kind[24];
    long amount;
};

/* Elements are floats; what a rank contributes is its number, so that sums are known. */
static void perform(const struct operation *op, float *in, float *out) {
    MPI_Comm world = MPI_COMM_WORLD;
    int all = (int)(op->amount / (long)sizeof(float)), part = all / ranks;
    if (!strcmp(op->kind, "compute")) {
        sleep_until(now() + 1e-6 * (double)op->amount);
    } else if (!strcmp(op->kind, "barrier")) {
        MPI_Barrier(world);
    } else if (!strcmp(op->kind, "all_reduce")) {
        MPI_Allreduce(in, out, all, MPI_FLOAT, MPI_SUM, world);
    } else if (!strcmp(op->kind, "all_gather")) {
        MPI_Allgather(in, part, MPI_FLOAT, out, part, MPI_FLOAT, world);
    } else if (!strcmp(op->kind, "reduce_scatter")) {
        int counts[1024];
        for (int i = 0; i < ranks; i++) counts[i] = part;
        MPI_Reduce_scatter(in, out, counts, MPI_FLOAT, MPI_SUM, world);
    } else if (!strcmp(op->kind, "all_to_all")) {
        MPI_Alltoall(in, part, MPI_FLOAT, out, part, MPI_FLOAT, world);
    } else if (!strcmp(op->kind, "broadcast")) {
        MPI_Bcast(rank == 0 ? in : out, all, MPI_FLOAT, 0, world);
    } else {
        fail("no such collective");
    }
}

/* Whether `out` has what the collective says, at both ends. */
static int right(const struct operation *op, const float *in, const float *out) {
    int all = (int)(op->amount / (long)sizeof(float)), part = all / ranks;
    float sum = (float)(ranks * (ranks + 1) / 2);
    if (!strcmp(op->kind, "all_reduce")) return out[0] == sum && out[all - 1] == sum;
    if (!strcmp(op->kind, "reduce_scatter")) return out[0] == sum && out[part - 1] == sum;
    if (!strcmp(op->kind, "all_gather") || !strcmp(op->kind, "all_to_all"))
        return out[0] == 1.0f && out[part * ranks - 1] == (float)ranks;
    if (!strcmp(op->kind, "broadcast")) return (rank == 0 ? in : out)[all - 1] == 1.0f;
    return 1;
}

/* A message each way between every two ranks, so that all connections are there; then the connections. */
static void connect_all(char *told, size_t room) {
    char byte = 0, other;
    for (int i = 0; i < ranks; i++)
        for (int j = i + 1; j < ranks; j++) {
            if (rank == i || rank == j)
                MPI_Sendrecv(&byte, 1, MPI_CHAR, i + j - rank, 0, &other, 1, MPI_CHAR, i + j - rank, 0, MPI_COMM_WORLD,
                             MPI_STATUS_IGNORE);
            MPI_Barrier(MPI_COMM_WORLD);
        }
    size_t used = 0;
    told[0] = 0;
    for (int fd = 3; fd < 1024; fd++) {
        struct sockaddr_in own, to;
        socklen_t n = sizeof own, m = sizeof to;
        if (getsockname(fd, (struct sockaddr *)&own, &n) || getpeername(fd, (struct sockaddr *)&to, &m)) continue;
        char name[INET_ADDRSTRLEN];
        if (own.sin_family != AF_INET || !inet_ntop(AF_INET, &to.sin_addr, name, sizeof name)) continue;
        used += (size_t)snprintf(told + used, room - used, "%s[%d, \"%s\", %d, %d]", used ? ", " : "", rank, name,
                                 ntohs(own.sin_port), ntohs(to.sin_port));
        if (used >= room) fail("too many connections");
    }
}

static void print_connections(void) {
    enum { ROOM = 1 << 16 };
    char *told = malloc(ROOM), *every = malloc((size_t)ROOM * (size_t)ranks);
    if (!told || !every) fail("no memory");
    connect_all(told, ROOM);
    MPI_Gather(told, ROOM, MPI_CHAR, every, ROOM, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("{\"ways\": [");
        int any = 0;
        for (int i = 0; i < ranks; i++) {
            const char *text = every + (size_t)ROOM * (size_t)i;
            if (*text) printf("%s%s", any++ ? ", " : "", text);
        }
        printf("]}\n");
    }
    free(told);
    free(every);
}

static void run(int program, int repetitions, const struct operation *ops, int count, float *in, float *out) {
    /* What a program can write, and no more: to clear whole vectors on all ranks takes longer than most collectives. */
    size_t written = 0;
    for (int i = 0; i < count; i++)
        if (strcmp(ops[i].kind, "compute") && (size_t)ops[i].amount > written) written = (size_t)ops[i].amount;
    double times[REPETITIONS][2], *every = rank ? NULL : malloc(sizeof times * (size_t)ranks);
    for (int again = 0; again < repetitions; again++) {
        double mine = now(), due;
        MPI_Allreduce(&mine, &due, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        due += 1e-6 * GAP_US;
        memset(out, 0, written); /* pages are there, and old results are not */
        sleep_until(due);
        times[again][0] = now() - due;
        for (int i = 0; i < count; i++) perform(&ops[i], in, out);
        times[again][1] = now() - due;
        if (count == 1 && !right(&ops[0], in, out)) fail("a collective has a wrong result");
    }
    MPI_Gather(times, 2 * REPETITIONS, MPI_DOUBLE, every, 2 * REPETITIONS, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (rank) return;
    if (!every) fail("no memory");
    printf("{\"program\": %d, \"times\": [", program);
    for (int again = 0; again < repetitions; again++) {
        printf("%s[", again ? ", " : "");
        for (int i = 0; i < ranks; i++) {
            const double *one = every + 2 * (i * REPETITIONS + again);
            printf("%s[%.7f, %.7f]", i ? ", " : "", one[0], one[1]);
        }
        printf("]");
    }
    printf("]}\n");
    fflush(stdout);
    free(every);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    prctl(PR_SET_TIMERSLACK, 1UL);
    /* Before other programs of this machine, where that is allowed: hosts of a real network share no processor. */
    sched_setscheduler(0, SCHED_RR, &(struct sched_param){.sched_priority = 1});
    FILE *plan = argc == 2 ? fopen(argv[1], "r") : NULL;
    if (!plan || ranks > 64) fail("expected a plan, and at most 64 ranks");
    enum { ROOM = 1 << 25 };
    float *in = malloc(ROOM), *out = malloc(ROOM);
    if (!in || !out) fail("no memory");
    for (size_t i = 0; i < ROOM / sizeof *in; i++) in[i] = (float)(rank + 1);
    print_connections();
    char line[1024];
    for (int program = 0; fgets(line, sizeof line, plan); program++) {
        struct operation ops[OPERATIONS];
        int count = 0, repetitions = atoi(strtok(line, " \n"));
        if (repetitions < 1 || repetitions > REPETITIONS) fail("expected 1 to 64 repetitions");
        for (char *word; (word = strtok(NULL, " \n"));) {
            if (count == OPERATIONS || sscanf(word, "%23[a-z_]:%ld", ops[count].kind, &ops[count].amount) != 2 ||
                ops[count].amount < 0 || ops[count].amount > ROOM)
                fail("expected operations as NAME:NUMBER");
            count++;
        }
        run(program, repetitions, ops, count, in, out);
    }
    fclose(plan);
    free(in);
    free(out);
    MPI_Finalize();
    return 0;
}
