/* The C interface from C: a program without Python, and what Python cannot pass: strides, raw
 * parameters. */
#include "check.h"

#include <stdint.h>
#include <string.h>

#include "graph/plan.h"
#include "guards.h"
#include "ops/op.h"
#include "pyggml.h"

static _Alignas(64) float memory[64];

static pyg_tensor dense(int ndim, int64_t ne0, int64_t ne1) {
    pyg_tensor t = {.data = (char *)memory, .dtype = PYG_DTYPE_f32, .ndim = ndim};
    t.ne[0] = ne0;
    t.ne[1] = ne1;
    t.ne[2] = t.ne[3] = 1;
    t.nb[0] = sizeof(float);
    t.nb[1] = t.nb[2] = t.nb[3] = (size_t)ne0 * sizeof(float);
    return t;
}

static pyg_status add_const(pyg_graph *g, const pyg_tensor *t, int writable) {
    int32_t id;
    return pyg_graph_const(g, t, "c", writable, &id);
}

static void test_const_layouts(pyg_graph *g) {
    pyg_tensor t = dense(2, 4, 8);
    CHECK(add_const(g, &t, 1) == PYG_OK);
    t.nb[1] = 2; /* rows that are no multiple of the element apart */
    CHECK(add_const(g, &t, 0) == PYG_STATUS_param);
    t.nb[1] = 8; /* rows that share elements: fine to read, not to write */
    CHECK(add_const(g, &t, 0) == PYG_OK);
    CHECK(add_const(g, &t, 1) == PYG_STATUS_shape);
    t.nb[1] = 0;
    CHECK(add_const(g, &t, 0) == PYG_OK);
    CHECK(add_const(g, &t, 1) == PYG_STATUS_shape);
    t.nb[1] = (size_t)-16; /* backwards */
    CHECK(add_const(g, &t, 0) == PYG_STATUS_shape);
    t.nb[1] = (size_t)1 << 62;
    CHECK(add_const(g, &t, 0) == PYG_STATUS_shape);
    t.nb[1] =
        (size_t)1 << 60; /* fits in 2^62 from 0 on, but not from `data` to the end of memory */
    t.data = (char *)(UINTPTR_MAX - 63);
    CHECK(add_const(g, &t, 0) != PYG_OK);
    t = dense(2, 8, 4);
    t.nb[0] = 16; /* transposed: the other axis has the smaller stride */
    t.nb[1] = 4;
    CHECK(add_const(g, &t, 1) == PYG_OK);
    t.data = (char *)memory + 2;
    CHECK(add_const(g, &t, 0) == PYG_STATUS_param);
    t.data = NULL;
    CHECK(add_const(g, &t, 0) == PYG_STATUS_param);
}

static void test_const_shapes(pyg_graph *g) {
    pyg_tensor t = dense(2, 4, 8);
    t.ndim = 5;
    CHECK(add_const(g, &t, 0) == PYG_STATUS_shape);
    t.ndim = -1;
    CHECK(add_const(g, &t, 0) == PYG_STATUS_shape);
    t = dense(2, 4, -8);
    CHECK(add_const(g, &t, 0) == PYG_STATUS_shape);
    t = dense(2, (int64_t)1 << 62, 8);
    CHECK(add_const(g, &t, 0) == PYG_STATUS_shape);
    t = dense(2, 4, 8);
    t.dtype = PYG_N_DTYPES;
    CHECK(add_const(g, &t, 0) == PYG_STATUS_dtype);
    t = dense(2, 0, 8);
    t.data = NULL; /* nothing to point to */
    CHECK(add_const(g, &t, 1) == PYG_OK);
    t = dense(1, 64, 1);
    t.dtype = PYG_DTYPE_q8_0;
    t.nb[0] = 34;
    CHECK(add_const(g, &t, 0) == PYG_OK);
    t.nb[0] = 36;
    CHECK(add_const(g, &t, 0) == PYG_STATUS_shape);
    t.ne[0] = 33;
    CHECK(add_const(g, &t, 0) == PYG_STATUS_shape);
}

/* What lies beyond ndim, and the strides of axes of length 1, do not reach the ops. */
static void test_wild_fields_are_tamed(pyg_graph *g) {
    pyg_tensor t = dense(2, 4, 1);
    int32_t id;
    t.nb[1] = 3;
    t.ne[2] = t.ne[3] = INT64_MIN;
    t.nb[2] = t.nb[3] = SIZE_MAX;
    CHECK(pyg_graph_const(g, &t, "wild", 1, &id) == PYG_OK);
    pyg_node_info info;
    CHECK(pyg_graph_node(g, id, &info) == PYG_OK);
    CHECK(info.tensor->ne[2] == 1 && info.tensor->ne[3] == 1);
    CHECK(info.tensor->nb[1] == 16 && info.tensor->nb[3] == 16);
}

static void test_enum_range(pyg_graph *g) {
    int32_t x, pos, id, ids[2];
    const int64_t heads[3] = {4, 1, 2}, tokens[1] = {2};
    CHECK(pyg_graph_input(g, "heads", PYG_DTYPE_f32, 3, heads, &x) == PYG_OK);
    CHECK(pyg_graph_input(g, "pos", PYG_DTYPE_i32, 1, tokens, &pos) == PYG_OK);
    ids[0] = x;
    ids[1] = pos;
    pyg_rope_params p = {
        .n_dims = 4, .freq_base = 10000, .freq_scale = 1, .attn_factor = 1, .dtype = -1};
    for (int64_t mode = -1; mode <= 3; mode++) {
        const int known = mode == PYG_ROPE_NORM || mode == PYG_ROPE_NEOX;
        p.mode = mode;
        const pyg_status status = pyg_graph_op(g, PYG_OP_ID_rope, ids, 2, &p, &id);
        CHECK(status == (known ? PYG_OK : PYG_STATUS_param));
    }
    CHECK(strcmp(pyg_last_message(), "rope: mode must be in [0, 1], got 3") == 0);
}

static void test_numbers(pyg_graph *g) {
    const pyg_result_params none = {.dtype = -1};
    int32_t id, ids[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    CHECK(pyg_graph_op(g, -1, ids, 1, &none, &id) == PYG_STATUS_param);
    CHECK(pyg_graph_op(g, PYG_N_OPS, ids, 1, &none, &id) == PYG_STATUS_param);
    CHECK(pyg_graph_op(g, PYG_OP_ID_silu, ids, 8, &none, &id) == PYG_STATUS_param);
    CHECK(pyg_graph_op(g, PYG_OP_ID_silu, ids, -1, &none, &id) == PYG_STATUS_param);
    ids[0] = pyg_graph_n_nodes(g);
    CHECK(pyg_graph_op(g, PYG_OP_ID_silu, ids, 1, &none, &id) == PYG_STATUS_graph);
    ids[0] = -1;
    CHECK(pyg_graph_op(g, PYG_OP_ID_silu, ids, 1, &none, &id) == PYG_STATUS_graph);
    pyg_program *p = NULL;
    CHECK(pyg_program_new(g, ids, 1, 1, NULL, 0, &p) == PYG_STATUS_graph);
    ids[0] = 0;
    CHECK(pyg_program_new(g, ids, 0, 1, NULL, 0, &p) == PYG_STATUS_param);
    CHECK(pyg_program_new(g, ids, 1, 257, NULL, 0, &p) == PYG_STATUS_param);
    CHECK(pyg_program_new(g, ids, 1, -1, NULL, 0, &p) == PYG_STATUS_param);
    CHECK(p == NULL);
}

/* A sum over strided memory, run twice; the graph is gone by then. */
static void test_run(void) {
    pyg_graph *g = NULL;
    CHECK(pyg_graph_new(&g) == PYG_OK);
    pyg_tensor t = dense(2, 2, 3);
    t.nb[1] = 16; /* every second pair */
    for (int i = 0; i < 64; i++) memory[i] = (float)i;
    int32_t ids[2], sum;
    const int64_t shape[1] = {2};
    const pyg_result_params none = {.dtype = -1};
    CHECK(pyg_graph_const(g, &t, "", 0, &ids[0]) == PYG_OK);
    CHECK(pyg_graph_input(g, "x", PYG_DTYPE_f32, 1, shape, &ids[1]) == PYG_OK);
    CHECK(pyg_graph_op(g, PYG_OP_ID_add, ids, 2, &none, &sum) == PYG_OK);
    pyg_program *p = NULL;
    CHECK(pyg_program_new(g, &sum, 1, 2, NULL, 0, &p) == PYG_OK);
    pyg_graph_free(g);
    const float x[2] = {100, 200}, expected[6] = {100, 201, 104, 205, 108, 209};
    float y[6];
    const void *inputs[] = {x};
    void *outputs[] = {y};
    for (int i = 0; i < 2; i++) {
        memset(y, 0, sizeof y);
        CHECK(pyg_program_run(p, inputs, outputs, NULL, NULL) == PYG_OK);
        CHECK(memcmp(y, expected, sizeof y) == 0);
    }
    pyg_program_free(p);
}

static int64_t runs_of(const pyg_program *p, int32_t i) {
    pyg_kept_node node;
    CHECK(pyg_program_node(p, i, &node) == PYG_OK);
    CHECK((node.ns > 0) == (node.runs > 0));
    return node.runs;
}

/* What a program says of its nodes, its memory and its times. */
static void test_report(void) {
    pyg_graph *g = NULL;
    CHECK(pyg_graph_new(&g) == PYG_OK);
    const int64_t shape[1] = {4096};
    const pyg_result_params none = {.dtype = -1};
    int32_t x, id;
    CHECK(pyg_graph_input(g, "x", PYG_DTYPE_f32, 1, shape, &x) == PYG_OK);
    CHECK(pyg_graph_op(g, PYG_OP_ID_relu, &x, 1, &none, &id) == PYG_OK);
    CHECK(pyg_graph_set_name(g, id, "y") == PYG_OK);
    pyg_program *p = NULL;
    CHECK(pyg_program_new(g, &id, 1, 2, NULL, 0, &p) == PYG_OK);
    pyg_graph_free(g);
    static float data[4096], result[4096];
    const void *inputs[] = {data};
    void *outputs[] = {result};
    pyg_kept_node node;
    CHECK(pyg_program_node(p, -1, &node) == PYG_STATUS_param);
    CHECK(pyg_program_node(p, 2, &node) == PYG_STATUS_param);
    CHECK(pyg_program_node(p, 1, &node) == PYG_OK);
    CHECK(node.id == id && node.op == PYG_OP_ID_relu && strcmp(node.name, "y") == 0);
    CHECK(node.moved_bytes == 2 * 4 * 4096 && node.flops == 4096);
    CHECK(pyg_program_run(p, inputs, outputs, NULL, NULL) == PYG_OK);
    CHECK(runs_of(p, 1) == 0); /* not asked for */
    for (int round = 1; round <= 2; round++) {
        CHECK(pyg_program_profile(p, 1) == PYG_OK);
        CHECK(runs_of(p, 1) == 0);
        for (int i = 1; i <= round; i++)
            CHECK(pyg_program_run(p, inputs, outputs, NULL, NULL) == PYG_OK);
        CHECK(pyg_program_profile(p, 0) == PYG_OK);
        CHECK(pyg_program_run(p, inputs, outputs, NULL, NULL) == PYG_OK);
        CHECK(runs_of(p, 1) == round && runs_of(p, 0) == 0);
    }
    pyg_program_memory m;
    pyg_program_memory_of(p, &m);
    CHECK(m.arena == m.results + m.shared + 2 * m.scratch);
    CHECK(m.arena == pyg_program_arena_bytes(p) && m.results >= sizeof data && m.constants == 0);
    pyg_program_free(p);
    double bytes, flops;
    CHECK(pyg_measure_peak(0, &bytes, &flops) == PYG_STATUS_param);
    CHECK(pyg_measure_peak(2, &bytes, &flops) == PYG_OK);
    CHECK(bytes > 0 && flops > 0);
}

/* Odd sizes: every offset is a multiple of 64, what lives together is disjoint, and the biggest is
 * placed first: with the smallest first, 20 would come behind 8 and 9. */
static void test_plan(void) {
    pyg_lifetime items[] = {{9 * 64 - 63, 2, 3, 0}, {20 * 64 - 5, 3, 4, 0}, {8 * 64 - 1, 1, 2, 0},
                            {1, 0, 4, 0},           {5 * 64, 0, 1, 0},      {0, 0, 4, 0}};
    enum { N = sizeof items / sizeof items[0] };
    int32_t order[N];
    size_t total = 0;
    CHECK(pyg_plan_offsets(items, N, order, &total) == PYG_OK);
    CHECK(total == 30 * 64);
    for (int i = 0; i < N; i++) {
        CHECK(items[i].offset % 64 == 0);
        CHECK(items[i].offset + items[i].bytes <= total);
        for (int j = 0; j < i; j++) {
            const pyg_lifetime *a = &items[i], *b = &items[j];
            const int meet = a->first <= b->last && b->first <= a->last;
            CHECK(!meet || a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset);
        }
    }
}

int main(void) {
    pyg_ops_init();
    test_plan();
    CHECK(pyg_isa_init("bogus") == PYG_STATUS_param);
    CHECK(pyg_isa_init(NULL) == PYG_OK);
    pyg_graph *g = NULL;
    CHECK(pyg_graph_new(&g) == PYG_OK);
    test_const_layouts(g);
    test_const_shapes(g);
    test_wild_fields_are_tamed(g);
    test_enum_range(g);
    test_numbers(g);
    pyg_graph_free(g);
    test_run();
    test_report();
    test_guards();
    CHECK(pyg_alloc_live() == 0);
    return report();
}
