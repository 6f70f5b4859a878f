/* Conjugate gradient for the Laplacian of a line of planes (7-point, 3D), planes shared out to the ranks: blocking exchanges of a plane
 * with both neighbours, two all-reduces a step.
 *
 * mpirun -n 4 conjugate_gradient [points a side = 48] [steps = 50]. Prints the residual.
 */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int side, planes, rank, ranks;

static double *vector(void) {
    double *made = calloc((size_t)(planes + 2) * (size_t)side * (size_t)side, sizeof *made);
    if (!made) MPI_Abort(MPI_COMM_WORLD, 1);
    return made;
}

static double dot(const double *a, const double *b) {
    size_t plane = (size_t)side * (size_t)side;
    double own = 0, all = 0;
    for (size_t cell = plane; cell < plane * (size_t)(planes + 1); cell++) own += a[cell] * b[cell];
    MPI_Allreduce(&own, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

static void multiply(double *p, double *into) {
    int plane = side * side, up = rank ? rank - 1 : MPI_PROC_NULL, down = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;
    MPI_Sendrecv(p + plane, plane, MPI_DOUBLE, up, 0, p + (size_t)(planes + 1) * plane, plane, MPI_DOUBLE, down, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    MPI_Sendrecv(p + (size_t)planes * plane, plane, MPI_DOUBLE, down, 1, p, plane, MPI_DOUBLE, up, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    for (int z = 1; z <= planes; z++)
        for (int y = 0; y < side; y++)
            for (int x = 0; x < side; x++) {
                size_t cell = ((size_t)z * side + y) * side + x;
                double sum = 6.0 * p[cell] - p[cell - plane] - p[cell + plane];
                if (x) sum -= p[cell - 1];
                if (x + 1 < side) sum -= p[cell + 1];
                if (y) sum -= p[cell - side];
                if (y + 1 < side) sum -= p[cell + side];
                into[cell] = sum;
            }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int steps = argc > 2 ? atoi(argv[2]) : 50;
    side = argc > 1 ? atoi(argv[1]) : 48;
    planes = side * (rank + 1) / ranks - side * rank / ranks;
    size_t plane = (size_t)side * (size_t)side, end = plane * (size_t)(planes + 1);
    double *x = vector(), *r = vector(), *p = vector(), *ap = vector();
    for (size_t cell = plane; cell < end; cell++) r[cell] = p[cell] = 1.0;
    double squared = dot(r, r);
    for (int step = 0; step < steps; step++) {
        multiply(p, ap);
        double alpha = squared / dot(p, ap);
        for (size_t cell = plane; cell < end; cell++) {
            x[cell] += alpha * p[cell];
            r[cell] -= alpha * ap[cell];
        }
        double now = dot(r, r), beta = now / squared;
        squared = now;
        for (size_t cell = plane; cell < end; cell++) p[cell] = r[cell] + beta * p[cell];
    }
    if (rank == 0) printf("residual %.6e\n", sqrt(squared));
    free(x);
    free(r);
    free(p);
    free(ap);
    MPI_Finalize();
    return 0;
}
