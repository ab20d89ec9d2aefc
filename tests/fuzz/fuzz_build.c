#include "fuzz_build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRIES = 12, MAX_ELEMENTS = 2048 };

uint64_t fuzz_op_built[PYG_N_OPS], fuzz_op_tried[PYG_N_OPS], fuzz_aliases;

/* An operand before it exists: a node of the graph, or the shape of a leaf to come. */
typedef struct candidate {
    int32_t id; /* -1: a leaf to come */
    pyg_operand o;
} candidate;

const pyg_node *fuzz_node(const fuzz_graph *f, int32_t id) { return &f->g->nodes[id]; }

/* ---- shapes ---- */

static int64_t length(fuzz_bytes *b) {
    static const int64_t lengths[] = {1, 2, 2, 3, 4, 4, 5, 8, 8, 16, 32, 32, 7, 17, 33, 64, 0};
    return lengths[fuzz_pick(b, sizeof lengths / sizeof lengths[0])];
}

/* Whole blocks, and few elements; an axis of no elements may have long neighbours. */
static void tame(pyg_dtype dtype, int ndim, int64_t *ne) {
    const int64_t block = pyg_dtype_row(dtype)->block;
    if (ndim > 0) ne[0] = (ne[0] + block - 1) / block * block;
    int64_t n = 1;
    for (int i = 0; i < ndim; i++) {
        if (n * ne[i] > MAX_ELEMENTS && i > 0) ne[i] = 1;
        n *= ne[i];
    }
}

static pyg_dtype pick_dtype(fuzz_bytes *b) {
    const uint32_t i = fuzz_pick(b, 2 * PYG_N_DTYPES);
    return i < PYG_N_DTYPES ? (pyg_dtype)i : PYG_DTYPE_f32;
}

static bool make_spec(fuzz_bytes *b, pyg_dtype dtype, int ndim, int64_t *ne, candidate *out) {
    (void)b;
    if (ndim == 0 && pyg_dtype_row(dtype)->block > 1) return false;
    tame(dtype, ndim, ne);
    out->id = -1;
    out->o = (pyg_operand){.name = "", .writable = true};
    return pyg_tensor_init(&out->o.t, dtype, ndim, ne) == PYG_OK;
}

static bool fresh_spec(fuzz_bytes *b, candidate *out) {
    int64_t ne[PYG_MAX_DIMS] = {1, 1, 1, 1};
    const int ndim = (int)(fuzz_pick(b, 16) + 3) / 4; /* 0 is rare */
    for (int i = 0; i < ndim; i++) ne[i] = length(b);
    return make_spec(b, pick_dtype(b), ndim, ne, out);
}

/* A shape that has to do with those before it: their axes, kept, dropped, swapped or mixed. */
static bool related_spec(fuzz_bytes *b, const candidate *before, int n, bool index,
                         candidate *out) {
    const pyg_tensor *like = &before[fuzz_pick(b, (uint32_t)n)].o.t;
    int64_t ne[PYG_MAX_DIMS];
    memcpy(ne, like->ne, sizeof ne);
    int ndim = like->ndim;
    const uint32_t how = fuzz_pick(b, index ? 4 : 10);
    if (how < 2 && index) {
        ndim = 1;
        ne[0] = like->ne[fuzz_pick(b, PYG_MAX_DIMS)];
    } else if (how < 4 && index) {
        ndim = ndim > 1 ? ndim - 1 : 1;
        memmove(ne, ne + 1, (PYG_MAX_DIMS - 1) * sizeof ne[0]);
        ne[PYG_MAX_DIMS - 1] = 1;
        if (how == 3) ne[0] = length(b);
    } else if (how < 6 && how > 2 && ndim > 0) {
        ne[fuzz_pick(b, (uint32_t)ndim)] = how == 3 ? 1 : length(b);
    } else if (how == 6) {
        ndim = 1;
        ne[0] = like->ne[fuzz_pick(b, PYG_MAX_DIMS)];
    } else if (how == 7) {
        ndim = (int)fuzz_pick(b, PYG_MAX_DIMS + 1);
    } else if (how > 7) {
        ndim = 1 + (int)fuzz_pick(b, PYG_MAX_DIMS);
        for (int i = 0; i < ndim; i++) {
            const pyg_tensor *t = &before[fuzz_pick(b, (uint32_t)n)].o.t;
            const uint32_t axis = fuzz_pick(b, 6);
            ne[i] = axis < 4 ? t->ne[axis] : axis == 4 ? 1 : length(b);
        }
    }
    const pyg_dtype dtype = index             ? (fuzz_pick(b, 2) ? PYG_DTYPE_i32 : PYG_DTYPE_i64)
                            : fuzz_pick(b, 2) ? like->dtype
                                              : pick_dtype(b);
    return make_spec(b, dtype, ndim, ne, out);
}

/* Names of operands that hold indices or positions. */
static bool wants_index(const char *name) {
    return strcmp(name, "ids") == 0 || strcmp(name, "pos") == 0;
}

static bool from_pool(const fuzz_graph *f, candidate *out) {
    if (f->n_pool == 0) return false;
    const uint32_t back = fuzz_pick(f->bytes, 4) ? fuzz_pick(f->bytes, 3) : 255;
    const uint32_t at = back < (uint32_t)f->n_pool ? (uint32_t)f->n_pool - 1 - back
                                                   : fuzz_pick(f->bytes, (uint32_t)f->n_pool);
    const pyg_node *node = fuzz_node(f, f->pool[at]);
    out->id = f->pool[at];
    out->o = (pyg_operand){node->t, node->name, node->writable};
    return true;
}

static bool propose(const fuzz_graph *f, const pyg_op_row *row, int k, const candidate *before,
                    candidate *out) {
    fuzz_bytes *b = f->bytes;
    const bool index = wants_index(row->src_name[k]);
    if (fuzz_pick(b, 16) < (k == 0 ? 14 : index ? 2 : 6) && from_pool(f, out)) return true;
    if (k == 0 || fuzz_one_in(b, 16)) return fresh_spec(b, out);
    return related_spec(b, before, k, index, out);
}

/* ---- parameters ---- */

typedef struct slice {
    int64_t start[PYG_MAX_DIMS], step[PYG_MAX_DIMS], size[PYG_MAX_DIMS];
} slice;

/* A slice that fits the tensor. */
static slice pick_slice(fuzz_bytes *b, const pyg_tensor *t) {
    slice s;
    for (int i = 0; i < PYG_MAX_DIMS; i++) {
        const int64_t block = i == 0 ? pyg_dtype_row(t->dtype)->block : 1, n = t->ne[i] / block;
        s.start[i] = n > 0 && fuzz_one_in(b, 3) ? (int64_t)fuzz_pick(b, (uint32_t)n) : 0;
        s.step[i] = block == 1 && fuzz_one_in(b, 4) ? 2 : 1;
        s.size[i] = (n - s.start[i] + s.step[i] - 1) / s.step[i];
        if (s.size[i] > 1 && fuzz_one_in(b, 4)) s.size[i] = 1;
        s.start[i] *= block;
        s.size[i] *= block;
    }
    return s;
}

static void pick_sizes(fuzz_bytes *b, const pyg_tensor *t, const slice *s, int64_t *out) {
    const uint32_t how = fuzz_pick(b, 8);
    const int64_t n = pyg_n_elements(t);
    for (int i = 0; i < PYG_MAX_DIMS; i++) out[i] = how < 3 ? s->size[i] : t->ne[i];
    if (how == 3) {
        for (int i = 0; i < PYG_MAX_DIMS; i++) out[i] *= 1 + (int64_t)fuzz_pick(b, 2);
    } else if (how > 5) {
        const int64_t part = how == 6 || n == 0 ? 1 : t->ne[fuzz_pick(b, 4)];
        out[0] = n / part;
        out[1] = part;
        out[2] = out[3] = 1;
    }
}

static void pick_per_axis(fuzz_bytes *b, const pyg_param *p, const pyg_tensor *t, const slice *s,
                          int64_t *out) {
    for (int i = 0; i < PYG_MAX_DIMS; i++) out[i] = (int64_t)p->def;
    if (strcmp(p->name, "start") == 0) {
        memcpy(out, s->start, sizeof s->start);
    } else if (strcmp(p->name, "step") == 0) {
        memcpy(out, s->step, sizeof s->step);
    } else if (strcmp(p->name, "size") == 0) {
        pick_sizes(b, t, s, out);
    } else if (strcmp(p->name, "keep") == 0) {
        for (int i = 0; i < PYG_MAX_DIMS; i++) out[i] = s->size[i] != 1 || fuzz_pick(b, 2);
    } else {
        for (int i = 0; i < PYG_MAX_DIMS; i++) out[i] = i < t->ndim ? (int64_t)fuzz_pick(b, 4) : 0;
    }
    if (fuzz_one_in(b, 48)) out[fuzz_pick(b, PYG_MAX_DIMS)] = fuzz_edge(b);
}

static void pick_axes(fuzz_bytes *b, const pyg_tensor *t, int64_t *out) {
    for (int i = 0; i < PYG_MAX_DIMS; i++) out[i] = i;
    for (int i = t->ndim - 1; i > 0; i--) {
        const uint32_t j = fuzz_pick(b, (uint32_t)i + 1);
        const int64_t held = out[i];
        out[i] = out[j];
        out[j] = held;
    }
    if (fuzz_one_in(b, 48)) out[fuzz_pick(b, PYG_MAX_DIMS)] = fuzz_edge(b);
}

static int64_t pick_integer(fuzz_bytes *b, const pyg_param *p, const pyg_tensor *t) {
    if (fuzz_one_in(b, 48)) return fuzz_edge(b);
    if (p->kind == PYG_KIND_DTYPE)
        return fuzz_one_in(b, 4) ? (int64_t)fuzz_pick(b, PYG_N_DTYPES) : -1;
    if (p->kind == PYG_KIND_BOOL) return (int64_t)fuzz_pick(b, 2);
    if (p->kind == PYG_KIND_ENUM) {
        uint32_t n = 1;
        for (const char *c = p->choices; *c != '\0'; c++) n += *c == '|';
        return (int64_t)fuzz_pick(b, n);
    }
    if (strcmp(p->name, "ndim") == 0)
        return fuzz_pick(b, 4) ? t->ndim : 1 + (int64_t)fuzz_pick(b, PYG_MAX_DIMS);
    const uint32_t how = fuzz_pick(b, 8);
    if (how < 3 && p->def == p->def) return (int64_t)p->def;
    if (how < 5) return t->ne[fuzz_pick(b, PYG_MAX_DIMS)];
    return how == 5 ? 2 * (int64_t)fuzz_pick(b, 4) : (int64_t)fuzz_pick(b, 6);
}

static void pick_params(fuzz_bytes *b, const pyg_op_row *row, const pyg_tensor *t, char *params) {
    const slice s = pick_slice(b, t);
    memset(params, 0, PYG_MAX_PARAM_BYTES);
    for (int i = 0; i < row->n_params; i++) {
        const pyg_param *p = &row->params[i];
        int64_t axes[PYG_MAX_DIMS];
        if (p->kind == PYG_KIND_F32) {
            const bool usual = p->def == p->def && fuzz_pick(b, 3) > 0;
            const float v = usual ? (float)p->def : fuzz_float(b);
            memcpy(params + p->offset, &v, sizeof v);
        } else if (p->kind == PYG_KIND_PER_AXIS || p->kind == PYG_KIND_AXES) {
            if (p->kind == PYG_KIND_AXES)
                pick_axes(b, t, axes);
            else
                pick_per_axis(b, p, t, &s, axes);
            memcpy(params + p->offset, axes, sizeof axes);
        } else {
            const int64_t v = pick_integer(b, p, t);
            memcpy(params + p->offset, &v, sizeof v);
        }
    }
}

/* ---- nodes ---- */

static void to_pool(fuzz_graph *f, int32_t id) {
    const pyg_tensor *t = &fuzz_node(f, id)->t;
    int64_t n = 1; /* counts empty axes as one: strides stay small too */
    for (int i = 0; i < PYG_MAX_DIMS; i++)
        if (t->ne[i] > FUZZ_MAX_BYTES || (n *= t->ne[i] > 0 ? t->ne[i] : 1) > FUZZ_MAX_BYTES)
            return;
    if (f->n_pool < FUZZ_MAX_POOL) f->pool[f->n_pool++] = id;
}

/* A leaf may be wider than its tensor needs: rows with gaps, or axes in another order in memory. */
static void loosen(fuzz_bytes *b, pyg_tensor *t) {
    if (!fuzz_one_in(b, 4) || t->ndim < 1) return;
    const pyg_dtype_info *row = pyg_dtype_row(t->dtype);
    const bool turned = row->block == 1 && t->ndim > 1 && fuzz_one_in(b, 3);
    size_t step = (size_t)row->bytes * (row->block == 1 ? 1 + fuzz_pick(b, 2) : 1);
    for (int i = 0; i < t->ndim; i++) {
        const int a = turned ? t->ndim - 1 - i : i;
        const int64_t units = a == 0 ? t->ne[0] / row->block : t->ne[a];
        t->nb[a] = step;
        step = step * (size_t)(units > 0 ? units : 1) + (size_t)row->bytes * fuzz_pick(b, 2);
    }
}

/* A constant inside the memory of an earlier one, which restores it and compares it. */
static bool add_alias(fuzz_graph *f, const pyg_tensor *spec, int32_t *id) {
    fuzz_bytes *b = f->bytes;
    if (f->n_leaves == 0 || !fuzz_one_in(b, 6)) return false;
    fuzz_leaf *owner = &f->leaves[fuzz_pick(b, (uint32_t)f->n_leaves)];
    pyg_tensor t = *spec;
    loosen(b, &t);
    const size_t bytes = pyg_extent_bytes(&t);
    if (owner->is_input || bytes == 0 || bytes > owner->bytes) return false;
    const size_t step =
        pyg_dtype_row(t.dtype)->block == 1 ? (size_t)pyg_dtype_row(t.dtype)->bytes : 1;
    t.data = owner->data + fuzz_pick(b, (uint32_t)((owner->bytes - bytes) / step + 1)) * step;
    const bool writable = fuzz_pick(b, 3) > 0;
    const pyg_status status = pyg_graph_const(f->g, &t, "alias", writable, id);
    if (status == PYG_STATUS_no_memory) f->failed = true;
    if (status != PYG_OK) return false;
    if (writable) owner->writable = true;
    fuzz_aliases++;
    if (fuzz_verbose) printf("%3d lies in the memory of constant %d\n", *id, owner->id);
    to_pool(f, *id);
    return true;
}

static void tell_leaf(const pyg_node *node, int32_t id) {
    char text[160];
    pyg_tensor_describe(&node->t, text, sizeof text);
    printf("%3d %s %s\n", id, node->op == PYG_NODE_INPUT ? "input" : "const", text);
}

static bool add_leaf(fuzz_graph *f, const pyg_tensor *spec, int32_t *id) {
    if (f->n_leaves == FUZZ_MAX_LEAVES) return false;
    if (add_alias(f, spec, id)) return true;
    fuzz_bytes *b = f->bytes;
    fuzz_leaf *leaf = &f->leaves[f->n_leaves];
    pyg_tensor t = *spec;
    leaf->is_input = fuzz_pick(b, 2) == 0;
    leaf->writable = !leaf->is_input && fuzz_pick(b, 2) == 0;
    if (!leaf->is_input) loosen(b, &t);
    leaf->bytes = pyg_extent_bytes(&t);
    leaf->data = malloc(leaf->bytes);
    leaf->saved = malloc(leaf->bytes);
    f->n_leaves++;
    if (leaf->bytes > 0) {
        /* whole blocks of at least the extent, cut to it */
        const pyg_dtype_info *row = pyg_dtype_row(t.dtype);
        const size_t blocks = (leaf->bytes + (size_t)row->bytes - 1) / (size_t)row->bytes;
        char *filled = malloc(blocks * (size_t)row->bytes);
        fuzz_fill(b, t.dtype, filled, (int64_t)blocks * row->block);
        memcpy(leaf->saved, filled, leaf->bytes);
        memcpy(leaf->data, filled, leaf->bytes);
        free(filled);
    }
    t.data = leaf->data;
    char name[16];
    snprintf(name, sizeof name, "x%d", f->n_leaves);
    const pyg_status status = leaf->is_input
                                  ? pyg_graph_input(f->g, name, t.dtype, t.ndim, t.ne, id)
                                  : pyg_graph_const(f->g, &t, name, leaf->writable, id);
    leaf->id = status == PYG_OK ? *id : -1;
    if (status == PYG_STATUS_no_memory) f->failed = true;
    if (status != PYG_OK) return false;
    if (fuzz_verbose) tell_leaf(fuzz_node(f, *id), *id);
    to_pool(f, *id);
    return true;
}

static bool refused(const pyg_op_row *row) {
    if (fuzz_verbose) printf("    %s is refused: %s\n", row->name, pyg_last_message());
    return false;
}

/* Does infer take it? Only then are the missing leaves made. */
static bool accepted(const pyg_op_row *row, const candidate *c, int n_src, const char *params) {
    pyg_infer in = {.op = row, .params = params, .view_of = -1};
    for (int i = 0; i < n_src; i++) in.src[i] = &c[i].o;
    return (pyg_params_check(row, params) == PYG_OK && row->infer(&in) == PYG_OK) || refused(row);
}

static bool build_op(fuzz_graph *f, int op, const candidate *c, int n_src, const char *params) {
    int32_t ids[PYG_MAX_SRC], id;
    for (int i = 0; i < n_src; i++) {
        ids[i] = c[i].id;
        if (ids[i] < 0 && !add_leaf(f, &c[i].o.t, &ids[i])) return false;
    }
    const pyg_status status = pyg_graph_op(f->g, op, ids, n_src, params, &id);
    if (status == PYG_STATUS_no_memory) f->failed = true;
    if (status == PYG_STATUS_internal) fuzz_fail("internal: %s", pyg_last_message());
    if (status != PYG_OK) return refused(pyg_op_get(op)); /* a leaf read-only, or strided */
    fuzz_op_built[op]++;
    f->n_ops++;
    to_pool(f, id);
    if (fuzz_verbose) {
        char text[160];
        printf("%3d %s", id, pyg_op_get(op)->name);
        for (int i = 0; i < n_src; i++) {
            pyg_tensor_describe(&fuzz_node(f, ids[i])->t, text, sizeof text);
            printf(" %d:%s", ids[i], text);
        }
        pyg_tensor_describe(&fuzz_node(f, id)->t, text, sizeof text);
        printf(" -> %s\n", text);
    }
    return true;
}

static void grow(fuzz_graph *f) {
    fuzz_bytes *b = f->bytes;
    const int op = (int)fuzz_pick(b, PYG_N_OPS);
    const pyg_op_row *row = pyg_op_get(op);
    _Alignas(8) char params[PYG_MAX_PARAM_BYTES];
    for (int attempt = 0; attempt < TRIES && !f->failed; attempt++) {
        candidate c[PYG_MAX_SRC];
        int n_src = row->n_required;
        while (n_src < row->n_src && fuzz_pick(b, 3) == 0) n_src++;
        bool fine = true;
        for (int k = 0; k < n_src && fine; k++) fine = propose(f, row, k, c, &c[k]);
        if (!fine) continue;
        pick_params(b, row, &c[0].o.t, params);
        fuzz_op_tried[op]++;
        if (accepted(row, c, n_src, params) && build_op(f, op, c, n_src, params)) return;
    }
}

/* Straight to the public function: any op number, any ids, any count. */
static void grow_wild(fuzz_graph *f) {
    fuzz_bytes *b = f->bytes;
    int32_t ids[8], id;
    _Alignas(8) char params[PYG_MAX_PARAM_BYTES];
    const int op = (int)fuzz_pick(b, PYG_N_OPS + 2) - 1;
    const pyg_op_row *row = pyg_op_get(op);
    const pyg_tensor none = {.dtype = PYG_DTYPE_f32, .ne = {1, 1, 1, 1}};
    const int n = (int)fuzz_pick(b, 9) - 1;
    for (int i = 0; i < 8; i++) ids[i] = (int32_t)fuzz_pick(b, (uint32_t)f->g->n_nodes + 3) - 2;
    memset(params, 0, sizeof params);
    if (row != NULL)
        pick_params(b, row, f->n_pool > 0 ? &fuzz_node(f, f->pool[0])->t : &none, params);
    const pyg_status status = pyg_graph_op(f->g, op, ids, n, params, &id);
    if (status == PYG_STATUS_no_memory) f->failed = true;
    if (status == PYG_STATUS_internal) fuzz_fail("internal: %s", pyg_last_message());
    if (status != PYG_OK) return;
    fuzz_op_built[op]++;
    f->n_ops++;
    to_pool(f, id);
}

void fuzz_build(fuzz_graph *f, fuzz_bytes *b) {
    *f = (fuzz_graph){.bytes = b};
    if (pyg_graph_new(&f->g) != PYG_OK) {
        f->failed = true;
        return;
    }
    const int wanted = 1 + (int)fuzz_pick(b, 12);
    for (int i = 0; i < 3 * wanted && f->n_ops < wanted && !f->failed; i++) {
        if (fuzz_one_in(b, 24))
            grow_wild(f);
        else
            grow(f);
        if (b->at == b->end) break;
    }
}

void fuzz_free(fuzz_graph *f) {
    for (int i = 0; i < f->n_leaves; i++) {
        free(f->leaves[i].data);
        free(f->leaves[i].saved);
    }
    pyg_graph_free(f->g);
}
