/* The peer of the all-reduce benchmark: sums of float tensors by MPI_Allreduce, in place.
 *
 *     mpicc -O3 -o allreduce allreduce.c && mpirun -np 2 ./allreduce MILLISECONDS BYTES...
 *
 * Prints one JSON list. As `phalanx bench allreduce` does: tensors are filled again before every call, a barrier
 * before every call, the time of a call is that of the slowest rank, the median over calls counts.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { WARM_UP = 3, LEAST_CALLS = 5, MOST_CALLS = 20000 };

static double seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Fills, waits for the others, sums; gives how long that took, and adds the CPU time. */
static double call(float *values, int count, int rank, double *cpu)
{
    for (int i = 0; i < count; i++)
        values[i] = (float)(rank + 1);
    MPI_Barrier(MPI_COMM_WORLD);
    double cpu_before = seconds(CLOCK_PROCESS_CPUTIME_ID), before = seconds(CLOCK_MONOTONIC);
    MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    double took = seconds(CLOCK_MONOTONIC) - before;
    *cpu += seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu_before;
    return took;
}

static void check(const float *values, int count, int ranks)
{
    float sum = (float)(ranks * (ranks + 1) / 2);
    for (int i = 0; i < count; i++)
        if (values[i] != sum) {
            fprintf(stderr, "the sum is %f where it should be %f\n", values[i], sum);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
}

static void measure(long bytes, double time, int rank, int ranks, const char *end)
{
    int count = (int)(bytes / (long)sizeof(float));
    float *values = aligned_alloc(4096, (size_t)((bytes + 4095) / 4096 * 4096));
    double *times = malloc(MOST_CALLS * sizeof(double)), cpu = 0;
    if (!values || !times)
        MPI_Abort(MPI_COMM_WORLD, 2);
    call(values, count, rank, &cpu);
    check(values, count, ranks);
    double before = seconds(CLOCK_MONOTONIC);
    for (int i = 0; i < WARM_UP; i++)
        call(values, count, rank, &cpu);
    double wanted = time / ((seconds(CLOCK_MONOTONIC) - before) / WARM_UP);
    int calls = wanted < LEAST_CALLS ? LEAST_CALLS : wanted > MOST_CALLS ? MOST_CALLS : (int)wanted;
    MPI_Bcast(&calls, 1, MPI_INT, 0, MPI_COMM_WORLD);
    cpu = 0;
    for (int i = 0; i < calls; i++)
        times[i] = call(values, count, rank, &cpu);
    MPI_Reduce(rank ? times : MPI_IN_PLACE, times, calls, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(rank ? &cpu : MPI_IN_PLACE, &cpu, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        qsort(times, (size_t)calls, sizeof(double), ascending);
        double middle = times[calls / 2];
        printf("{\"ranks\": %d, \"bytes\": %ld, \"algbw_gb_s\": %.6f, \"latency_us\": %.3f, \"cpu_us\": %.3f}%s", ranks,
               bytes, (double)bytes / middle / 1e9, middle * 1e6, cpu / calls * 1e6, end);
    }
    free(values);
    free(times);
}

int main(int argc, char **argv)
{
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 3)
        MPI_Abort(MPI_COMM_WORLD, 2);
    if (rank == 0)
        printf("[");
    for (int i = 2; i < argc; i++)
        measure(atol(argv[i]), atof(argv[1]) / 1e3, rank, ranks, i + 1 < argc ? ", " : "]\n");
    MPI_Finalize();
    return 0;
}
