/* Builds a random graph, compiles it planned and unplanned, runs both, and compares every bit.
 *
 * What must hold: no call crashes; the planned program (memory shared, results in place, on one or
 * more threads, in memory full of rubbish or between guard bytes, twice) gives the same status,
 * outputs and written constants as the unplanned one; read-only constants stay as they are; nothing
 * leaks, with an allocation refused now and then. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "fuzz_build.h"
#include "graph/program.h"

enum { MAX_OUTPUTS = 4 };

static uint64_t n_built, n_run, n_faults, n_refused, n_nodes_run, op_run[PYG_N_OPS];
static uint64_t dtype_run[PYG_N_DTYPES];

typedef struct result {
    pyg_status status;
    char *outputs[MAX_OUTPUTS]; /* as large as the output, to the byte */
    char *written[FUZZ_MAX_LEAVES];
} result;

static size_t dense_bytes(const pyg_tensor *t) {
    return pyg_row_bytes(t->dtype, t->ne[0]) * (size_t)pyg_n_rows(t);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    pyg_ops_init();
    if (pyg_isa_init(getenv("PYGGML_ISA")) != PYG_OK) fuzz_fail("%s", pyg_last_message());
    return 0;
}

/* Runs into memory that is full of `rubbish`; keeps what came out. */
static void run_once(const fuzz_graph *f, pyg_program *p, const int32_t *ids, int n, int rubbish,
                     result *r) {
    const void *inputs[FUZZ_MAX_LEAVES];
    void *outputs[MAX_OUTPUTS];
    for (int i = 0; i < f->n_leaves; i++)
        if (f->leaves[i].bytes > 0)
            memcpy(f->leaves[i].data, f->leaves[i].saved, f->leaves[i].bytes);
    for (int i = 0; i < p->n_inputs; i++) {
        inputs[i] = NULL;
        for (int k = 0; k < f->n_leaves; k++)
            if (f->leaves[k].id == p->input_ids[i]) inputs[i] = f->leaves[k].data;
    }
    for (int i = 0; i < n; i++) {
        const size_t bytes = dense_bytes(&fuzz_node(f, ids[i])->t);
        outputs[i] = r->outputs[i] = malloc(bytes);
        if (bytes > 0) memset(outputs[i], 0xA5, bytes);
    }
    if (p->arena->bytes > 0) memset(p->arena->base, rubbish, p->arena->bytes);
    r->status = pyg_program_run(p, inputs, outputs, NULL, NULL);
    for (int i = 0; i < f->n_leaves; i++) {
        const fuzz_leaf *leaf = &f->leaves[i];
        r->written[i] = NULL;
        if (leaf->bytes == 0) continue;
        if (!leaf->writable) {
            if (memcmp(leaf->data, leaf->saved, leaf->bytes) != 0)
                fuzz_fail("leaf %d, which nothing may write, has changed", leaf->id);
            continue;
        }
        r->written[i] = malloc(leaf->bytes);
        memcpy(r->written[i], leaf->data, leaf->bytes);
    }
}

static void free_result(result *r, int n, int n_leaves) {
    for (int i = 0; i < n; i++) free(r->outputs[i]);
    for (int i = 0; i < n_leaves; i++) free(r->written[i]);
}

static void compare(const fuzz_graph *f, const int32_t *ids, int n, const result *a,
                    const result *b, const char *what) {
    if (a->status != b->status)
        fuzz_fail("%s: status %s, unplanned %s", what, pyg_status_name(a->status),
                  pyg_status_name(b->status));
    for (int i = 0; i < n && a->status == PYG_OK; i++) {
        const pyg_node *node = fuzz_node(f, ids[i]);
        const size_t bytes = dense_bytes(&node->t);
        if (bytes > 0 && memcmp(a->outputs[i], b->outputs[i], bytes) != 0)
            fuzz_fail("%s: output %d (node %d, %s) differs from the unplanned one", what, i, ids[i],
                      node->op < 0 ? "leaf" : pyg_op_get(node->op)->name);
    }
    for (int i = 0; i < f->n_leaves; i++)
        if (a->written[i] != NULL && memcmp(a->written[i], b->written[i], f->leaves[i].bytes) != 0)
            fuzz_fail("%s: constant %d holds other bytes than after the unplanned run", what,
                      f->leaves[i].id);
}

static void count_run(const pyg_program *p) {
    n_run++;
    for (int32_t i = 0; i < p->n_steps; i++) op_run[p->steps[i].op - pyg_op_get(0)]++;
    for (int32_t i = 0; i < p->n_slots; i++) dtype_run[p->slots[i].t.dtype]++;
    n_nodes_run += (uint64_t)p->n_steps;
}

static void run_both(const fuzz_graph *f, const int32_t *ids, int n, pyg_program *planned,
                     pyg_program *plain) {
    result expected, first, second;
    run_once(f, plain, ids, n, 0x00, &expected);
    run_once(f, planned, ids, n, 0xFF, &first);
    compare(f, ids, n, &first, &expected, "planned");
    run_once(f, planned, ids, n, 0x7E, &second);
    compare(f, ids, n, &second, &expected, "second run");
    if (expected.status != PYG_OK && expected.status != PYG_STATUS_index)
        fuzz_fail("a run ends with %s: %s", pyg_status_name(expected.status), pyg_last_message());
    n_faults += expected.status != PYG_OK;
    count_run(plain);
    free_result(&expected, n, f->n_leaves);
    free_result(&first, n, f->n_leaves);
    free_result(&second, n, f->n_leaves);
}

/* Sizes that no machine has are refused when compiled, whatever op made them. */
static void compile_all(const fuzz_graph *f) {
    pyg_program *p = NULL;
    int32_t last = f->g->n_nodes - 1;
    const size_t bytes = pyg_extent_bytes(&fuzz_node(f, last)->t);
    if (bytes > FUZZ_MAX_BYTES && bytes < (size_t)1 << 50) return;
    if (pyg_program_new(f->g, &last, 1, 1, NULL, 0, &p) == PYG_OK) pyg_program_free(p);
}

static void tell_outputs(const int32_t *ids, int n) {
    printf("outputs");
    for (int i = 0; i < n; i++) printf(" %d", ids[i]);
    printf("\n");
}

static void compile_and_run(const fuzz_graph *f, fuzz_bytes *b) {
    int32_t ids[MAX_OUTPUTS];
    const int n = 1 + (int)fuzz_pick(b, MAX_OUTPUTS - 1);
    ids[0] = f->pool[f->n_pool - 1];
    for (int i = 1; i < n; i++) { /* mostly late nodes, which reach many */
        const uint32_t late = f->n_pool > 4 && fuzz_pick(b, 3) ? (uint32_t)f->n_pool - 4 : 0;
        ids[i] = f->pool[late + fuzz_pick(b, (uint32_t)f->n_pool - late)];
    }
    if (fuzz_verbose) tell_outputs(ids, n);
    const int threads = fuzz_one_in(b, 16) ? 2 + (int)fuzz_pick(b, 3) : 1;
    pyg_program *planned = NULL, *plain = NULL;
    const int flags = fuzz_one_in(b, 4) ? PYG_PROGRAM_GUARDED : 0;
    pyg_status status = pyg_program_new(f->g, ids, n, threads, NULL, flags, &planned);
    if (status == PYG_OK)
        status = pyg_program_new(f->g, ids, n, 1, NULL, PYG_PROGRAM_UNPLANNED, &plain);
    if (status == PYG_OK)
        run_both(f, ids, n, planned, plain);
    else
        n_refused++;
    pyg_program_free(planned);
    pyg_program_free(plain);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_bytes b;
    fuzz_graph f;
    fuzz_start(&b, data, size);
    if (fuzz_one_in(&b, 32)) pyg_alloc_fail_in(1 + fuzz_pick(&b, 24));
    fuzz_build(&f, &b);
    if (f.n_pool > 0 && f.n_ops > 0) {
        n_built++;
        compile_and_run(&f, &b);
        if (fuzz_one_in(&b, 32)) compile_all(&f);
    }
    pyg_alloc_fail_in(0);
    fuzz_free(&f);
    if (pyg_alloc_live() != 0) fuzz_fail("%d allocations leak", (int)pyg_alloc_live());
    return 0;
}

int fuzz_report(uint64_t inputs) {
    int missing = fuzz_aliases == 0;
    printf("graphs built %llu, run and compared %llu (%.1f ops each), index faults %llu, refused "
           "%llu, constants over another %llu, isa %s\n",
           (unsigned long long)n_built, (unsigned long long)n_run,
           n_run > 0 ? (double)n_nodes_run / (double)n_run : 0.0, (unsigned long long)n_faults,
           (unsigned long long)n_refused, (unsigned long long)fuzz_aliases, pyg_isa());
    for (int i = 0; i < PYG_N_OPS; i++) {
        const pyg_op_row *row = pyg_op_get(i);
        const uint64_t ran = row->run == NULL ? fuzz_op_built[i] : op_run[i];
        missing += ran == 0;
        printf("op %-16s tried %9llu built %9llu run %9llu\n", row->name,
               (unsigned long long)fuzz_op_tried[i], (unsigned long long)fuzz_op_built[i],
               (unsigned long long)ran);
    }
    for (int i = 0; i < PYG_N_DTYPES; i++) {
        missing += dtype_run[i] == 0;
        printf("dtype %-10s nodes run %9llu\n", pyg_dtype_row((pyg_dtype)i)->name,
               (unsigned long long)dtype_run[i]);
    }
    (void)inputs;
    return missing > 0;
}
