/* The machine's peaks, against which a profile is read. */
#include <string.h>

#include "core/alloc.h"
#include "graph/program.h"
#include "kernels/kernels.h"
#include "thread/pool.h"

#define COPY_BYTES ((size_t)64 << 20)
#define PROBE_NS 50000000

/* An inner tile that stays in the first cache: 6 KiB of panel, 9 KiB of x. */
enum { TILE_K = 96, TILE_M = 24, TILE_N = 16, TILE_CALLS = 200 };
enum { TILE_FLOATS = TILE_K * TILE_N + TILE_M * TILE_K + TILE_M * TILE_N };

typedef struct probe {
    char *from, *to; /* COPY_BYTES each; tiles take their operands from `from` */
    int n_threads;
} probe;

static void copy_task(void *ctx, int64_t task, int worker) {
    const probe *p = ctx;
    (void)worker;
    const size_t share = COPY_BYTES / (size_t)p->n_threads;
    memcpy(p->to + (size_t)task * share, p->from + (size_t)task * share, share);
}

static void tile_task(void *ctx, int64_t task, int worker) {
    const probe *p = ctx;
    (void)worker;
    float *panel = (float *)(void *)p->from + task * TILE_FLOATS;
    float *x = panel + TILE_K * TILE_N, *y = x + TILE_M * TILE_K;
    for (int i = 0; i < TILE_CALLS; i++)
        pyg_k->gemm_tile(TILE_K, panel, TILE_N, x, TILE_K, TILE_M, y, TILE_N, TILE_N, 0);
}

/* The best of the runs that fit the time: a peak is not an average. */
static double best_seconds(pyg_task_fn fn, probe *p) {
    const int64_t start = pyg_now_ns();
    int64_t best = INT64_MAX, now = start;
    do {
        const int64_t before = now;
        pyg_pool_run(fn, p, p->n_threads);
        now = pyg_now_ns();
        if (now - before < best) best = now - before;
    } while (now - start < PROBE_NS);
    return (double)(best > 0 ? best : 1) * 1e-9;
}

pyg_status pyg_measure_peak(int n_threads, double *bytes_per_s, double *flops_per_s) {
    if (n_threads < 1 || n_threads > PYG_MAX_THREADS)
        return pyg_fail(PYG_STATUS_param, "peak: threads must be in [1, %d], got %d",
                        PYG_MAX_THREADS, n_threads);
    _Static_assert(PYG_MAX_THREADS * TILE_FLOATS * sizeof(float) <= COPY_BYTES, "tiles fit");
    void *memory;
    PYG_TRY(pyg_alloc(&memory, 2 * COPY_BYTES, "peak"));
    probe p = {memory, (char *)memory + COPY_BYTES, n_threads};
    pyg_status status = pyg_pool_reserve(n_threads);
    if (status == PYG_OK) status = pyg_pool_begin(n_threads, NULL, NULL);
    if (status == PYG_OK) {
        *bytes_per_s = 2.0 * (double)COPY_BYTES / best_seconds(copy_task, &p);
        const double flops = 2.0 * TILE_K * TILE_M * TILE_N * TILE_CALLS * n_threads;
        *flops_per_s = flops / best_seconds(tile_task, &p);
        pyg_pool_end();
    }
    pyg_free(memory);
    return status;
}
