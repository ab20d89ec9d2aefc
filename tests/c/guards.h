/* Guarded programs: ops that write where they must not are caught, and named. */
#ifndef PYG_TESTS_C_GUARDS_H
#define PYG_TESTS_C_GUARDS_H

#include <math.h>
#include <string.h>

#include "check.h"
#include "graph/program.h"

enum { GUARD_ROW = 5 };

static int spill; /* where the false op writes, counted from its result or from x */
static const pyg_program *running;

static void run_spill(const pyg_task *task) {
    float *y = (float *)(void *)task->io.dst->data;
    for (int i = 0; i < GUARD_ROW; i++) y[i] = 1.0f;
    ((volatile char *)task->io.dst->data)[spill] = 1;
}

/* For an op whose result is one element. */
static void run_spill_source(const pyg_task *task) {
    *(float *)(void *)task->io.dst->data = 1.0f;
    ((volatile char *)task->io.src[0]->data)[spill] = 1;
}

/* In the scratch memory of the last thread, whichever runs the task. */
static void run_spill_scratch(const pyg_task *task) {
    run_spill(task);
    const size_t own = running->steps[0].plan.scratch_bytes;
    const size_t skip = (size_t)(running->n_threads - 1) * running->scratch_stride;
    ((volatile char *)running->bound)[running->scratch_off + skip + own] = 1;
}

static void run_spill_shared(const pyg_task *task) {
    run_spill(task);
    ((volatile char *)task->shared)[0] = 1; /* it asked for none */
}

/* Leaves the last element as it is. */
static void run_short(const pyg_task *task) {
    float *y = (float *)(void *)task->io.dst->data;
    for (int i = 0; i < GUARD_ROW - 1; i++) y[i] = 1.0f;
}

/* An op whose only parameter is the dtype of its result, left as it is. */
static void add_op(pyg_graph *g, const char *name, int32_t *id) {
    _Alignas(8) char params[PYG_MAX_PARAM_BYTES] = {0};
    const int64_t dtype = -1;
    memcpy(params, &dtype, sizeof dtype);
    int op = 0;
    while (strcmp(pyg_op_get(op)->name, name) != 0) op++;
    CHECK(pyg_graph_op(g, op, id, 1, params, id) == PYG_OK);
}

/* sqr of an input, then sum_rows, one of the two done by `run`. */
static pyg_status run_false_op(void (*run)(const pyg_task *), int step, int flags, float *sum) {
    pyg_graph *g = NULL;
    const int64_t ne[] = {GUARD_ROW};
    const float x[GUARD_ROW] = {0};
    int32_t id;
    CHECK(pyg_graph_new(&g) == PYG_OK);
    CHECK(pyg_graph_input(g, "x", PYG_DTYPE_f32, 1, ne, &id) == PYG_OK);
    add_op(g, "sqr", &id);
    add_op(g, "sum_rows", &id);
    pyg_program *p = NULL;
    CHECK(pyg_program_new(g, &id, 1, 2, NULL, flags, &p) == PYG_OK);
    pyg_op_row bad = *p->steps[step].op;
    bad.run = run;
    p->steps[step].op = &bad;
    running = p;
    const void *inputs[] = {x};
    void *outputs[] = {sum};
    const pyg_status status = pyg_program_run(p, inputs, outputs, NULL, NULL);
    pyg_program_free(p);
    pyg_graph_free(g);
    return status;
}

static void test_guards(void) {
    static const int inside[] = {0, 4 * GUARD_ROW - 1};
    static const int outside[] = {-1, -64, 4 * GUARD_ROW, 4 * GUARD_ROW + 63};
    static const char *const far[] = {" 1 bytes before", " 64 bytes before", " 1 bytes past",
                                      " 64 bytes past"};
    float sum;
    for (int flags = PYG_PROGRAM_GUARDED; flags < 4; flags++) {
        for (size_t i = 0; i < sizeof inside / sizeof inside[0]; i++) {
            spill = inside[i];
            CHECK(run_false_op(run_spill, 0, flags, &sum) == PYG_OK);
            CHECK(sum >= GUARD_ROW - 1 && sum <= GUARD_ROW + 1);
        }
        for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
            spill = outside[i];
            CHECK(run_false_op(run_spill, 0, flags, &sum) == PYG_STATUS_internal);
            CHECK(strncmp(pyg_last_message(), "sqr wrote", 9) == 0);
            CHECK(strstr(pyg_last_message(), far[i]) != NULL);
            /* the last step that uses it is watched too */
            CHECK(run_false_op(run_spill_source, 1, flags, &sum) == PYG_STATUS_internal);
            CHECK(strncmp(pyg_last_message(), "sum_rows wrote", 14) == 0);
            CHECK(strstr(pyg_last_message(), "the memory of sqr") != NULL);
        }
        spill = 0;
        CHECK(run_false_op(run_spill_scratch, 0, flags, &sum) == PYG_STATUS_internal);
        CHECK(strstr(pyg_last_message(), "past its scratch memory of ") != NULL);
        CHECK(run_false_op(run_spill_shared, 0, flags, &sum) == PYG_STATUS_internal);
        CHECK(strstr(pyg_last_message(), "shared memory of 0 bytes") != NULL);
    }
    /* what is not written is NaN */
    CHECK(run_false_op(run_short, 0, PYG_PROGRAM_GUARDED | PYG_PROGRAM_UNPLANNED, &sum) == PYG_OK);
    CHECK(isnan(sum));
}

#endif
