#include "graph/graph.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"

static _Atomic uint64_t n_nodes_built;

uint64_t pyg_node_count(void) { return atomic_load(&n_nodes_built); }

pyg_status pyg_graph_new(pyg_graph **out) {
    void *p;
    PYG_TRY(pyg_alloc(&p, sizeof(pyg_graph), "graph"));
    *out = p;
    return PYG_OK;
}

void pyg_graph_free(pyg_graph *graph) {
    if (graph == NULL) return;
    pyg_free(graph->nodes);
    pyg_free(graph);
}

int32_t pyg_graph_n_nodes(const pyg_graph *graph) { return graph->n_nodes; }

/* Room for one more node, zeroed; it counts only once commit_node has run. */
static pyg_status next_node(pyg_graph *g, pyg_node **out) {
    if (g->n_nodes == g->capacity) {
        if (g->capacity > INT32_MAX / 2)
            return pyg_fail(PYG_STATUS_graph, "a graph holds at most 2^30 nodes");
        const int32_t capacity = g->capacity == 0 ? 64 : g->capacity * 2;
        void *p;
        PYG_TRY(pyg_alloc(&p, (size_t)capacity * sizeof(pyg_node), "graph nodes"));
        if (g->n_nodes > 0) memcpy(p, g->nodes, (size_t)g->n_nodes * sizeof(pyg_node));
        pyg_free(g->nodes);
        g->nodes = p;
        g->capacity = capacity;
    }
    pyg_node *node = &g->nodes[g->n_nodes];
    memset(node, 0, sizeof *node);
    for (int i = 0; i < PYG_MAX_SRC; i++) node->src[i] = -1;
    node->root = g->n_nodes;
    *out = node;
    return PYG_OK;
}

static void commit_node(pyg_graph *g, int32_t *id) {
    *id = g->n_nodes++;
    atomic_fetch_add(&n_nodes_built, 1);
}

static void set_name(pyg_node *node, const char *name) {
    if (name == NULL) name = "";
    size_t n = strlen(name);
    if (n >= PYG_MAX_NAME) { /* cut in front of a UTF-8 character, not inside it */
        n = PYG_MAX_NAME - 1;
        while (n > 0 && ((unsigned char)name[n] & 0xC0) == 0x80) n--;
    }
    memcpy(node->name, name, n);
    node->name[n] = '\0';
}

/* Puts the input's name in front of the last message. */
static pyg_status fail_input(pyg_status status, const char *name) {
    char why[256];
    snprintf(why, sizeof why, "%s", pyg_last_message());
    return pyg_fail(status, "input '%s': %s", name, why);
}

pyg_status pyg_graph_input(pyg_graph *graph, const char *name, pyg_dtype dtype, int ndim,
                           const int64_t *ne, int32_t *id) {
    if (!pyg_dtype_valid((int)dtype)) return pyg_fail(PYG_STATUS_dtype, "input: unknown dtype");
    if (name == NULL || name[0] == '\0')
        return pyg_fail(PYG_STATUS_param, "input: a name is needed");
    if (strlen(name) >= PYG_MAX_NAME)
        return pyg_fail(PYG_STATUS_param, "input: the name passes %d bytes", PYG_MAX_NAME - 1);
    for (int32_t i = 0; i < graph->n_nodes; i++)
        if (graph->nodes[i].op == PYG_NODE_INPUT && strcmp(graph->nodes[i].name, name) == 0)
            return pyg_fail(PYG_STATUS_graph, "input: there is an input '%s' already", name);
    pyg_node *node;
    PYG_TRY(next_node(graph, &node));
    const pyg_status status = pyg_tensor_init(&node->t, dtype, ndim, ne);
    if (status != PYG_OK) return fail_input(status, name);
    node->op = PYG_NODE_INPUT;
    node->bytes = pyg_extent_bytes(&node->t);
    node->writable = true;
    set_name(node, name);
    commit_node(graph, id);
    return PYG_OK;
}

static int64_t n_units(const pyg_tensor *t, int axis) {
    return axis == 0 ? t->ne[0] / pyg_dtype_row(t->dtype)->block : t->ne[axis];
}

/* False only when no two elements share a byte: each axis, by rising stride, steps over all of
 * those before it. */
static bool may_overlap(const pyg_tensor *t) {
    size_t span = (size_t)pyg_dtype_row(t->dtype)->bytes;
    bool used[PYG_MAX_DIMS] = {false};
    for (;;) {
        int next = -1;
        for (int i = 0; i < PYG_MAX_DIMS; i++)
            if (!used[i] && n_units(t, i) > 1 && (next < 0 || t->nb[i] < t->nb[next])) next = i;
        if (next < 0) return false;
        if (t->nb[next] < span) return true;
        used[next] = true;
        span += t->nb[next] * (size_t)(n_units(t, next) - 1);
    }
}

static pyg_status check_layout(const pyg_tensor *t, int writable) {
    const pyg_dtype_info *row = pyg_dtype_row(t->dtype);
    const size_t align = row->block == 1 ? (size_t)row->bytes : 1;
    const size_t bytes = pyg_extent_bytes(t);
    if (bytes > (size_t)1 << 62) return pyg_fail(PYG_STATUS_shape, "const: strides overflow");
    if (bytes == 0) return PYG_OK;
    if (t->data == NULL) return pyg_fail(PYG_STATUS_param, "const: no memory given");
    if ((uintptr_t)t->data > UINTPTR_MAX - bytes)
        return pyg_fail(PYG_STATUS_param, "const: the memory passes the address space");
    size_t bits = (size_t)(uintptr_t)t->data;
    for (int i = 0; i < PYG_MAX_DIMS; i++) bits |= t->nb[i];
    if (bits & (align - 1))
        return pyg_fail(PYG_STATUS_param, "const: %s needs memory aligned to %zu bytes", row->name,
                        align);
    if (row->block > 1 && t->nb[0] != (size_t)row->bytes)
        return pyg_fail(PYG_STATUS_shape, "const: the blocks of %s do not lie side by side",
                        row->name);
    if (writable && may_overlap(t))
        return pyg_fail(PYG_STATUS_shape, "const: elements of writable memory may overlap");
    return PYG_OK;
}

/* What the caller gave, with dense strides wherever an axis has one element, so that no op meets a
 * wild one. */
static pyg_status read_const(const pyg_tensor *given, int writable, pyg_tensor *out) {
    if (!pyg_dtype_valid((int)given->dtype))
        return pyg_fail(PYG_STATUS_dtype, "const: unknown dtype");
    PYG_TRY(pyg_tensor_init(out, given->dtype, given->ndim, given->ne));
    out->data = given->data;
    for (int i = 0; i < given->ndim; i++)
        if (n_units(out, i) > 1) out->nb[i] = given->nb[i];
    return check_layout(out, writable);
}

pyg_status pyg_graph_const(pyg_graph *graph, const pyg_tensor *tensor, const char *name,
                           int writable, int32_t *id) {
    pyg_tensor t;
    PYG_TRY(read_const(tensor, writable, &t));
    pyg_node *node;
    PYG_TRY(next_node(graph, &node));
    node->t = t;
    node->op = PYG_NODE_CONST;
    node->bytes = pyg_extent_bytes(&t);
    node->writable = writable != 0;
    set_name(node, name);
    commit_node(graph, id);
    return PYG_OK;
}

/* A view keeps inside its root's memory, whatever infer said. */
static pyg_status check_view(const pyg_op_row *row, const pyg_node *node) {
    const size_t extent = pyg_extent_bytes(&node->t);
    size_t end;
    if (extent == 0) return PYG_OK;
    if (__builtin_add_overflow(node->root_off, extent, &end) || end > node->bytes)
        return pyg_fail(PYG_STATUS_internal,
                        "%s: a view of %zu bytes at %zu leaves its root of %zu", row->name, extent,
                        node->root_off, node->bytes);
    return PYG_OK;
}

/* Constants meet by address, since two of them may lie over the same memory; the rest by root. */
static bool share_bytes(const pyg_node *a, const pyg_node *b) {
    const size_t n_a = pyg_extent_bytes(&a->t), n_b = pyg_extent_bytes(&b->t);
    uintptr_t at_a = a->root_off, at_b = b->root_off;
    if (n_a == 0 || n_b == 0) return false;
    if (a->t.data != NULL && b->t.data != NULL) {
        at_a = (uintptr_t)a->t.data;
        at_b = (uintptr_t)b->t.data;
    } else if (a->root != b->root) {
        return false;
    }
    return at_a < at_b + n_b && at_b < at_a + n_a;
}

/* A write whose other operands lie in the memory it writes would depend on the order of tasks. */
static pyg_status check_overlap(const pyg_graph *g, const pyg_op_row *row, const int32_t *src,
                                int n_src, int written) {
    const pyg_node *dst = &g->nodes[src[written]];
    for (int i = 0; i < n_src; i++) {
        if (i == written || src[i] < 0) continue;
        if (share_bytes(&g->nodes[src[i]], dst))
            return pyg_fail(PYG_STATUS_graph,
                            "%s: %s lies in the memory of %s, which is written: copy it with cont "
                            "first",
                            row->name, row->src_name[i], row->src_name[written]);
    }
    return PYG_OK;
}

/* Fills the node from what infer found. */
static pyg_status place_node(const pyg_graph *g, const pyg_op_row *row, const pyg_infer *in,
                             const int32_t *src, pyg_node *node) {
    node->t = in->out;
    node->t.data = NULL;
    node->writable = true;
    if (in->view_of < 0) {
        node->bytes = pyg_extent_bytes(&node->t);
        return PYG_OK;
    }
    const pyg_node *base = &g->nodes[src[in->view_of]];
    node->root = base->root;
    node->root_off = base->root_off + in->view_off;
    node->bytes = base->bytes;
    node->writable = base->writable;
    PYG_TRY(check_view(row, node));
    if (base->t.data != NULL) node->t.data = base->t.data + in->view_off;
    return PYG_OK;
}

static pyg_status gather_operands(const pyg_graph *g, const pyg_op_row *row, const int32_t *src,
                                  int n_src, pyg_operand *operands, pyg_infer *in) {
    if (n_src < row->n_required || n_src > row->n_src)
        return row->n_required == row->n_src
                   ? pyg_fail(PYG_STATUS_param, "%s: takes %d operands, got %d", row->name,
                              row->n_src, n_src)
                   : pyg_fail(PYG_STATUS_param, "%s: takes %d to %d operands, got %d", row->name,
                              row->n_required, row->n_src, n_src);
    for (int i = 0; i < n_src; i++) {
        if (src[i] == -1 && i >= row->n_required) continue;
        if (src[i] < 0 || src[i] >= g->n_nodes)
            return pyg_fail(PYG_STATUS_graph, "%s: operand %s is not a node of this graph",
                            row->name, row->src_name[i]);
        const pyg_node *node = &g->nodes[src[i]];
        operands[i] = (pyg_operand){node->t, node->name, node->writable};
        in->src[i] = &operands[i];
    }
    return PYG_OK;
}

pyg_status pyg_graph_truncate(pyg_graph *graph, int32_t n_nodes) {
    if (n_nodes < 0 || n_nodes > graph->n_nodes)
        return pyg_fail(PYG_STATUS_graph, "truncate: a graph of %d nodes has no first %d",
                        graph->n_nodes, n_nodes);
    graph->n_nodes = n_nodes;
    return PYG_OK;
}

pyg_status pyg_graph_op(pyg_graph *graph, int op, const int32_t *src, int n_src, const void *params,
                        int32_t *id) {
    const pyg_op_row *row = pyg_op_get(op);
    if (row == NULL) return pyg_fail(PYG_STATUS_param, "there is no op number %d", op);
    pyg_operand operands[PYG_MAX_SRC];
    pyg_infer in = {.op = row, .params = params, .view_of = -1};
    PYG_TRY(gather_operands(graph, row, src, n_src, operands, &in));
    PYG_TRY(pyg_params_check(row, params));
    PYG_TRY(row->infer(&in));
    if (row->flags & PYG_OP_WRITE) PYG_TRY(check_overlap(graph, row, src, n_src, in.view_of));
    pyg_node *node;
    PYG_TRY(next_node(graph, &node));
    node->op = op;
    for (int i = 0; i < n_src; i++) node->src[i] = src[i];
    memcpy(node->params, params, row->param_bytes);
    PYG_TRY(place_node(graph, row, &in, src, node));
    commit_node(graph, id);
    return PYG_OK;
}

static pyg_status check_id(const pyg_graph *graph, int32_t id) {
    if (id >= 0 && id < graph->n_nodes) return PYG_OK;
    return pyg_fail(PYG_STATUS_graph, "there is no node %d in this graph", (int)id);
}

pyg_status pyg_graph_set_name(pyg_graph *graph, int32_t id, const char *name) {
    PYG_TRY(check_id(graph, id));
    if (graph->nodes[id].op == PYG_NODE_INPUT)
        return pyg_fail(PYG_STATUS_graph, "the name of an input is fixed");
    set_name(&graph->nodes[id], name);
    return PYG_OK;
}

pyg_status pyg_graph_node(const pyg_graph *graph, int32_t id, pyg_node_info *out) {
    PYG_TRY(check_id(graph, id));
    const pyg_node *node = &graph->nodes[id];
    *out = (pyg_node_info){node->op,     node->name, &node->t,      node->src,
                           node->params, node->root, node->writable};
    return PYG_OK;
}
