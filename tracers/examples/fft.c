/* Fourier transform of a square, rows shared out to the ranks: rows, an all-to-all transpose within MPI_Comm_split's communicator,
 * rows again, and back.
 *
 * mpirun -n 4 fft [points a side, a power of two = 256] [rounds = 10]. Prints how far the way back is off the start.
 */
#include <complex.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

typedef double complex number;

/* In place, radix 2; `sign` -1 is forward. */
static void transform(number *row, int n, int sign) {
    for (int at = 1, other = 0; at < n; at++) {
        int bit = n >> 1;
        for (; other & bit; bit >>= 1) other ^= bit;
        other ^= bit;
        if (at < other) {
            number swap = row[at];
            row[at] = row[other];
            row[other] = swap;
        }
    }
    for (int length = 2; length <= n; length <<= 1) {
        number turn = cexp(sign * 2 * M_PI / length * I);
        for (int begin = 0; begin < n; begin += length) {
            number factor = 1;
            for (int at = 0; at < length / 2; at++) {
                number low = row[begin + at], high = factor * row[begin + at + length / 2];
                row[begin + at] = low + high;
                row[begin + at + length / 2] = low - high;
                factor *= turn;
            }
        }
    }
}

static void transpose(number *rows, number *out, number *in, int side, int own, int ranks, MPI_Comm comm) {
    for (int to = 0; to < ranks; to++)
        for (int column = 0; column < own; column++)
            for (int row = 0; row < own; row++) out[(to * own + column) * own + row] = rows[row * side + to * own + column];
    MPI_Alltoall(out, own * own, MPI_C_DOUBLE_COMPLEX, in, own * own, MPI_C_DOUBLE_COMPLEX, comm);
    for (int from = 0; from < ranks; from++)
        for (int row = 0; row < own; row++)
            for (int column = 0; column < own; column++) rows[row * side + from * own + column] = in[(from * own + row) * own + column];
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int side = argc > 1 ? atoi(argv[1]) : 256, rounds = argc > 2 ? atoi(argv[2]) : 10, rank, ranks;
    MPI_Comm comm;
    MPI_Comm_split(MPI_COMM_WORLD, 0, 0, &comm);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    if (side % ranks || side & (side - 1)) {
        if (rank == 0) fprintf(stderr, "the side must be a power of two that the ranks divide\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    int own = side / ranks;
    size_t cells = (size_t)own * (size_t)side;
    number *rows = malloc(cells * sizeof *rows), *out = malloc(cells * sizeof *out), *in = malloc(cells * sizeof *in);
    if (!rows || !out || !in) MPI_Abort(MPI_COMM_WORLD, 1);
    for (size_t at = 0; at < cells; at++) rows[at] = (double)((at + cells * (size_t)rank) * 7 % 31);
    for (int round = 0; round < rounds; round++)
        for (int sign = -1; sign <= 1; sign += 2) {
            for (int row = 0; row < own; row++) transform(rows + (size_t)row * side, side, sign);
            transpose(rows, out, in, side, own, ranks, comm);
            for (int row = 0; row < own; row++) transform(rows + (size_t)row * side, side, sign);
            transpose(rows, out, in, side, own, ranks, comm);
            if (sign == 1)
                for (size_t at = 0; at < cells; at++) rows[at] /= (double)side * side;
        }
    double off = 0, most = 0;
    for (size_t at = 0; at < cells; at++) off = fmax(off, cabs(rows[at] - (double)((at + cells * (size_t)rank) * 7 % 31)));
    MPI_Reduce(&off, &most, 1, MPI_DOUBLE, MPI_MAX, 0, comm);
    if (rank == 0) printf("off by %.1e\n", most);
    MPI_Comm_free(&comm);
    free(rows);
    free(out);
    free(in);
    MPI_Finalize();
    return 0;
}
