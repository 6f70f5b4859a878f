/* What tracing costs a call: messages of no bytes to oneself, which MPI answers from memory. Run with and without the tracer:
 * the difference of the two figures is the tracer's.
 *
 * mpirun -n 1 overhead [rounds = 500000]. Prints ns a call.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rounds = argc > 1 ? atoi(argv[1]) : 500000;
    double best = 1e30;
    for (int part = 0; part < 10; part++) {
        double begun = MPI_Wtime();
        for (int round = 0; round < rounds / 10; round++) {
            MPI_Request requests[2];
            MPI_Irecv(NULL, 0, MPI_BYTE, 0, 0, MPI_COMM_SELF, &requests[0]);
            MPI_Isend(NULL, 0, MPI_BYTE, 0, 0, MPI_COMM_SELF, &requests[1]);
            MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        }
        double took = (MPI_Wtime() - begun) / (rounds / 10) / 3 * 1e9;
        if (took < best) best = took;
    }
    printf("%.1f ns a call\n", best);
    MPI_Finalize();
    return 0;
}
