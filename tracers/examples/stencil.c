/* Heat on a square, five-point stencil, on a grid of ranks: halos by non-blocking messages, a residual by all-reduce every 10 steps.
 *
 * mpirun -n 4 stencil [points a side = 512] [steps = 100]. Prints the heat that is left; it is the same for any number of ranks.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int side = argc > 1 ? atoi(argv[1]) : 512, steps = argc > 2 ? atoi(argv[2]) : 100;
    int ranks, dims[2] = {0, 0}, periods[2] = {0, 0}, at[2], rank;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Dims_create(ranks, 2, dims);
    MPI_Comm grid;
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &grid);
    MPI_Comm_rank(grid, &rank);
    MPI_Cart_coords(grid, rank, 2, at);
    int up, down, left, right;
    MPI_Cart_shift(grid, 0, 1, &up, &down);
    MPI_Cart_shift(grid, 1, 1, &left, &right);
    int first_row = side * at[0] / dims[0], rows = side * (at[0] + 1) / dims[0] - first_row;
    int first_column = side * at[1] / dims[1], columns = side * (at[1] + 1) / dims[1] - first_column;
    int width = columns + 2;
    size_t cells = (size_t)(rows + 2) * (size_t)width;
    double *now = calloc(cells, sizeof *now), *next = calloc(cells, sizeof *next);
    if (!now || !next) MPI_Abort(MPI_COMM_WORLD, 1);
    for (int row = 0; row < rows; row++)
        for (int column = 0; column < columns; column++)
            now[(row + 1) * width + column + 1] = (first_row + row) * 3 % 7 + (first_column + column) * 5 % 11;
    MPI_Datatype line;
    MPI_Type_vector(rows, 1, width, MPI_DOUBLE, &line);
    MPI_Type_commit(&line);
    double heat = 0;
    for (int step = 1; step <= steps; step++) {
        MPI_Request requests[8];
        MPI_Irecv(&now[1], columns, MPI_DOUBLE, up, 0, grid, &requests[0]);
        MPI_Irecv(&now[(rows + 1) * width + 1], columns, MPI_DOUBLE, down, 1, grid, &requests[1]);
        MPI_Irecv(&now[width], 1, line, left, 2, grid, &requests[2]);
        MPI_Irecv(&now[width + columns + 1], 1, line, right, 3, grid, &requests[3]);
        MPI_Isend(&now[rows * width + 1], columns, MPI_DOUBLE, down, 0, grid, &requests[4]);
        MPI_Isend(&now[width + 1], columns, MPI_DOUBLE, up, 1, grid, &requests[5]);
        MPI_Isend(&now[width + columns], 1, line, right, 2, grid, &requests[6]);
        MPI_Isend(&now[width + 1], 1, line, left, 3, grid, &requests[7]);
        MPI_Waitall(8, requests, MPI_STATUSES_IGNORE);
        double own = 0;
        for (int row = 1; row <= rows; row++)
            for (int column = 1; column <= columns; column++) {
                int cell = row * width + column;
                next[cell] = 0.2 * (now[cell] + now[cell - 1] + now[cell + 1] + now[cell - width] + now[cell + width]);
                own += next[cell];
            }
        double *swap = now;
        now = next;
        next = swap;
        if (step % 10 == 0 || step == steps) MPI_Allreduce(&own, &heat, 1, MPI_DOUBLE, MPI_SUM, grid);
    }
    if (rank == 0) printf("heat %.9e\n", heat);
    MPI_Type_free(&line);
    MPI_Comm_free(&grid);
    free(now);
    free(next);
    MPI_Finalize();
    return 0;
}
