/* Ping-pongs from which `windtunnel calibrate loggops` takes the parameters of LogGOPS, as Hoefler et al. measure them (Netgauge,
 * "Low-Overhead LogGP Parameter Assessment for Modern Interconnection Networks", IPDPS 2007): rank 0 sends n messages of `bytes` with
 * `delay` between them, rank 1 answers the last.
 *
 * mpirun -n 2 loggops [largest message = 4194304] [repeats = 50] > pingpong.csv. A line a measurement: n, bytes, delay, and the least
 * and the median round trip, in ns.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, repeats;
static char *data;

static double busy_until(double end) {
    double now;
    while ((now = MPI_Wtime()) < end) {
    }
    return now;
}

static double round_trip(int n, int bytes, double delay) {
    double begun = MPI_Wtime();
    if (rank == 0) {
        for (int at = 0; at < n; at++) {
            MPI_Send(data, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
            if (at + 1 < n && delay > 0) busy_until(MPI_Wtime() + delay);
        }
        MPI_Recv(data, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        for (int at = 0; at < n; at++) MPI_Recv(data, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(data, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
    }
    return MPI_Wtime() - begun;
}

static int by_size(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static double measure(int n, int bytes, double delay) {
    double *took = malloc((size_t)repeats * sizeof *took);
    if (!took) MPI_Abort(MPI_COMM_WORLD, 1);
    for (int warm = 0; warm < 3; warm++) round_trip(n, bytes, delay);
    for (int at = 0; at < repeats; at++) {
        /* Both have come, and the one that answers is asleep in no barrier any more. */
        MPI_Barrier(MPI_COMM_WORLD);
        took[at] = round_trip(n, bytes, delay);
    }
    qsort(took, (size_t)repeats, sizeof *took, by_size);
    double median = took[repeats / 2];
    if (rank == 0) {
        printf("%d,%d,%.0f,%.1f,%.1f\n", n, bytes, delay * 1e9, took[0] * 1e9, median * 1e9);
        fflush(stdout);
    }
    MPI_Bcast(&median, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    free(took);
    return median;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int largest = argc > 1 ? atoi(argv[1]) : 4194304, ranks;
    repeats = argc > 2 ? atoi(argv[2]) : 50;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2 || repeats < 1 || largest < 1) {
        if (rank == 0) fprintf(stderr, "expected two ranks, and numbers above 0\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    data = calloc((size_t)largest, 1);
    if (!data) MPI_Abort(MPI_COMM_WORLD, 1);
    memset(data, 1, (size_t)largest);
    if (rank == 0) printf("messages,bytes,delay_ns,min_ns,median_ns\n");
    /* Sizes by halves of powers of two: 1, 2, 3, 4, 6, 8, 12, … */
    for (int64_t bytes = 1; bytes <= largest; bytes = bytes & (bytes - 1) ? bytes / 3 * 4 : bytes < 2 ? 2 : bytes / 2 * 3) {
        double one = measure(1, (int)bytes, 0);
        measure(16, (int)bytes, 0);
        /* With a delay of a whole round trip each message is on its own: what remains is the sender's overhead. */
        measure(16, (int)bytes, one);
    }
    free(data);
    MPI_Finalize();
    return 0;
}
