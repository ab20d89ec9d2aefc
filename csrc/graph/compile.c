/* Graph to program: which nodes are needed, where each result lives, what each step needs. */
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "graph/program.h"
#include "thread/pool.h"

static _Atomic uint64_t n_programs;

uint64_t pyg_program_count(void) { return atomic_load(&n_programs); }

/* Work arrays of one compilation, indexed by slot unless said otherwise. */
typedef struct builder {
    const pyg_graph *graph;
    pyg_program *prog;
    int32_t n_kept;
    int32_t *slot_of; /* by graph node: its slot, -1 when not kept */
    int32_t *node_of; /* graph node */
    int32_t *root;    /* slot of the root */
    int32_t *last;    /* of roots: last slot that touches the memory */
    int32_t *life;    /* of roots in the arena: index into the program's lives */
    int32_t *order;   /* scratch of the planner */
    int flags;
} builder;

static const pyg_node *node_at(const builder *b, int32_t slot) {
    return &b->graph->nodes[b->node_of[slot]];
}

static uint32_t op_flags(const pyg_node *node) {
    return node->op < 0 ? 0 : pyg_op_get(node->op)->flags;
}

/* ---- reach ---- */

static bool is_persistent_write(const pyg_graph *g, const pyg_node *node) {
    return (op_flags(node) & PYG_OP_WRITE) && g->nodes[node->root].op == PYG_NODE_CONST;
}

static pyg_status mark_reached(builder *b, const int32_t *outputs, int n_outputs) {
    const pyg_graph *g = b->graph;
    for (int i = 0; i < n_outputs; i++) {
        if (outputs[i] < 0 || outputs[i] >= g->n_nodes)
            return pyg_fail(PYG_STATUS_graph, "compile: output %d is not a node of this graph", i);
        b->slot_of[outputs[i]] = 0;
    }
    for (int32_t i = g->n_nodes - 1; i >= 0; i--) {
        const pyg_node *node = &g->nodes[i];
        if (b->slot_of[i] < 0 && is_persistent_write(g, node)) b->slot_of[i] = 0;
        if (b->slot_of[i] < 0) continue;
        for (int k = 0; k < PYG_MAX_SRC; k++)
            if (node->src[k] >= 0) b->slot_of[node->src[k]] = 0;
    }
    for (int32_t i = 0; i < g->n_nodes; i++)
        if (b->slot_of[i] == 0) {
            b->node_of[b->n_kept] = i;
            b->slot_of[i] = b->n_kept++;
        }
    return PYG_OK;
}

/* ---- lifetimes ---- */

static void find_last_uses(builder *b, const int32_t *outputs, int n_outputs) {
    for (int32_t s = 0; s < b->n_kept; s++) {
        const pyg_node *node = node_at(b, s);
        b->root[s] = b->slot_of[node->root];
        b->last[s] = s;
        b->last[b->root[s]] = s;
        for (int k = 0; k < PYG_MAX_SRC; k++)
            if (node->src[k] >= 0) b->last[b->root[b->slot_of[node->src[k]]]] = s;
    }
    for (int i = 0; i < n_outputs; i++) b->last[b->root[b->slot_of[outputs[i]]]] = b->n_kept;
    if (b->flags & PYG_PROGRAM_UNPLANNED)
        for (int32_t s = 0; s < b->n_kept; s++) b->last[s] = b->n_kept;
}

static size_t guard_bytes(const builder *b) { return b->prog->guarded ? PYG_GUARD : 0; }

/* The result of slot s may take the memory of its operand k: the operand is a whole dense arena
 * tensor of the same shape and dtype, dies here, and no other operand looks at the same memory from
 * another angle. */
static bool can_take_over(const builder *b, int32_t s, int k) {
    const pyg_node *node = node_at(b, s);
    if (!(op_flags(node) & PYG_OP_IN_PLACE(k)) || node->src[k] < 0) return false;
    const int32_t from = b->slot_of[node->src[k]], root = b->root[from];
    const pyg_node *base = node_at(b, from);
    if (b->life[root] < 0 || b->prog->lives[b->life[root]].last != s) return false;
    if (!pyg_contiguous(&base->t) || base->root_off != 0 || base->t.dtype != node->t.dtype ||
        !pyg_same_shape(&base->t, &node->t) || node_at(b, root)->bytes != node->bytes)
        return false;
    for (int j = 0; j < PYG_MAX_SRC; j++) {
        if (j == k || node->src[j] < 0) continue;
        /* the same value twice: fine when the op may write over either, position by position */
        if (node->src[j] == node->src[k] && (op_flags(node) & PYG_OP_IN_PLACE(j))) continue;
        const int32_t other = b->root[b->slot_of[node->src[j]]];
        if (b->life[other] == b->life[root]) return false;
    }
    return true;
}

static void make_lifetimes(builder *b) {
    for (int32_t s = 0; s < b->n_kept; s++) {
        const pyg_node *node = node_at(b, s);
        b->life[s] = -1;
        if (b->root[s] != s || node->op == PYG_NODE_CONST) continue;
        int taken = -1;
        if (!(b->flags & PYG_PROGRAM_UNPLANNED))
            for (int k = 0; k < PYG_MAX_SRC && taken < 0; k++)
                if (can_take_over(b, s, k)) taken = k;
        if (taken >= 0) {
            b->life[s] = b->life[b->root[b->slot_of[node->src[taken]]]];
            b->prog->lives[b->life[s]].last = b->last[s];
            continue;
        }
        b->life[s] = b->prog->n_lives;
        /* Inputs are filled before the first step. */
        const int32_t first = node->op == PYG_NODE_INPUT ? -1 : s;
        size_t bytes;
        if (__builtin_add_overflow(node->bytes, 2 * guard_bytes(b), &bytes)) bytes = SIZE_MAX;
        b->prog->lives[b->prog->n_lives++] = (pyg_lifetime){bytes, first, b->last[s], 0};
    }
}

static void place_slots(builder *b) {
    for (int32_t s = 0; s < b->n_kept; s++) {
        pyg_slot *slot = &b->prog->slots[s];
        const pyg_node *node = node_at(b, s);
        const int32_t life = b->life[b->root[s]];
        slot->t = node->t;
        slot->life = life;
        slot->node = b->node_of[s];
        slot->step = -1;
        slot->op = node->op;
        memcpy(slot->name, node->name, sizeof slot->name);
        slot->offset = life < 0 ? PYG_NOT_IN_ARENA
                                : b->prog->lives[life].offset + guard_bytes(b) + node->root_off;
    }
}

/* ---- steps ---- */

/* Puts the op's name in front of what its plan says. */
static pyg_status fail_plan(pyg_status status, const pyg_op_row *op) {
    char why[256];
    snprintf(why, sizeof why, "%s", pyg_last_message());
    return pyg_fail(status, "%s: %s", op->name, why);
}

static pyg_status make_step(builder *b, int32_t s, pyg_step *step, size_t *const_bytes) {
    const pyg_node *node = node_at(b, s);
    step->op = pyg_op_get(node->op);
    step->slot = s;
    memcpy(step->params, node->params, sizeof step->params);
    step->io.params = step->params;
    step->io.dst = &b->prog->slots[s].t;
    for (int k = 0; k < PYG_MAX_SRC; k++)
        if (node->src[k] >= 0) step->io.src[k] = &b->prog->slots[b->slot_of[node->src[k]]].t;
    step->plan = pyg_plan_preset(&step->io);
    const pyg_status status = step->op->plan(&step->io, &step->plan);
    if (status != PYG_OK) return fail_plan(status, step->op);
    step->const_off = *const_bytes;
    if (__builtin_add_overflow(*const_bytes, pyg_align_up(step->plan.const_bytes), const_bytes))
        return pyg_fail(PYG_STATUS_no_memory, "%s: constants overflow", step->op->name);
    return PYG_OK;
}

/* A size that has no room for its guard is refused with the arena that it would need. */
static size_t padded(const builder *b, size_t bytes) {
    const size_t up = pyg_align_up(bytes);
    return up > SIZE_MAX - guard_bytes(b) ? up : up + guard_bytes(b);
}

static pyg_status make_steps(builder *b) {
    pyg_program *p = b->prog;
    size_t const_bytes = 0, scratch = 0, shared = 0;
    for (int32_t s = 0; s < b->n_kept; s++) {
        const pyg_node *node = node_at(b, s);
        if (node->op < 0 || (op_flags(node) & PYG_OP_VIEW)) continue;
        pyg_step *step = &p->steps[p->n_steps];
        PYG_TRY(make_step(b, s, step, &const_bytes));
        p->slots[s].step = p->n_steps++;
        const size_t scratch_bytes = padded(b, step->plan.scratch_bytes);
        const size_t shared_bytes = padded(b, step->plan.shared_bytes);
        if (scratch_bytes > scratch) scratch = scratch_bytes;
        if (shared_bytes > shared) shared = shared_bytes;
    }
    void *constants;
    PYG_TRY(pyg_alloc(&constants, const_bytes, "program constants"));
    p->constants = constants;
    p->const_bytes = const_bytes;
    for (int32_t i = 0; i < p->n_steps; i++) {
        pyg_step *step = &p->steps[i];
        if (step->op->init != NULL && step->plan.const_bytes > 0)
            step->op->init(&step->io, p->constants + step->const_off);
    }
    p->scratch_stride = scratch;
    p->shared_off = p->arena_bytes;
    size_t all;
    if (__builtin_add_overflow(p->shared_off, shared, &p->scratch_off) ||
        __builtin_mul_overflow(scratch, (size_t)p->n_threads, &all) ||
        __builtin_add_overflow(p->scratch_off, all, &p->arena_bytes))
        return pyg_fail(PYG_STATUS_no_memory, "compile: scratch memory overflows");
    return PYG_OK;
}

static void list_ends(builder *b, const int32_t *outputs, int n_outputs) {
    pyg_program *p = b->prog;
    for (int32_t s = 0; s < b->n_kept; s++)
        if (node_at(b, s)->op == PYG_NODE_INPUT) {
            p->input_slots[p->n_inputs] = s;
            p->input_ids[p->n_inputs++] = b->node_of[s];
        }
    for (int i = 0; i < n_outputs; i++) p->output_slots[p->n_outputs++] = b->slot_of[outputs[i]];
}

/* ---- memory of the compilation ---- */

static pyg_status alloc_ids(int32_t **out, int64_t n) {
    void *p;
    PYG_TRY(pyg_alloc(&p, (size_t)n * sizeof(int32_t), "compile"));
    *out = p;
    return PYG_OK;
}

static pyg_status builder_alloc(builder *b, int32_t n) {
    int32_t **arrays[] = {&b->slot_of, &b->node_of, &b->root, &b->last, &b->life, &b->order};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        PYG_TRY(alloc_ids(arrays[i], n > 0 ? n : 1));
    for (int32_t i = 0; i < n; i++) b->slot_of[i] = -1;
    return PYG_OK;
}

static void builder_free(builder *b) {
    int32_t *arrays[] = {b->slot_of, b->node_of, b->root, b->last, b->life, b->order};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) pyg_free(arrays[i]);
}

static pyg_status program_alloc(pyg_program *p, int32_t n_kept, int n_outputs) {
    void *m;
    PYG_TRY(pyg_alloc(&m, (size_t)n_kept * sizeof(pyg_slot), "program"));
    p->slots = m;
    p->n_slots = n_kept;
    PYG_TRY(pyg_alloc(&m, (size_t)n_kept * sizeof(pyg_lifetime), "program"));
    p->lives = m;
    PYG_TRY(pyg_alloc(&m, (size_t)n_kept * sizeof(pyg_step), "program"));
    p->steps = m;
    PYG_TRY(alloc_ids(&p->input_slots, n_kept));
    PYG_TRY(alloc_ids(&p->input_ids, n_kept));
    return alloc_ids(&p->output_slots, n_outputs);
}

static pyg_status build(builder *b, const int32_t *outputs, int n_outputs) {
    pyg_program *p = b->prog;
    PYG_TRY(builder_alloc(b, b->graph->n_nodes));
    PYG_TRY(mark_reached(b, outputs, n_outputs));
    PYG_TRY(program_alloc(p, b->n_kept, n_outputs));
    find_last_uses(b, outputs, n_outputs);
    make_lifetimes(b);
    PYG_TRY(pyg_plan_offsets(p->lives, p->n_lives, b->order, &p->arena_bytes));
    place_slots(b);
    PYG_TRY(make_steps(b));
    list_ends(b, outputs, n_outputs);
    PYG_TRY(pyg_arena_reserve(p->arena, p->arena_bytes));
    return pyg_pool_reserve(p->n_threads);
}

pyg_status pyg_program_new(const pyg_graph *graph, const int32_t *outputs, int n_outputs,
                           int n_threads, pyg_arena *arena, int flags, pyg_program **out) {
    if (n_threads < 0 || n_threads > PYG_MAX_THREADS)
        return pyg_fail(PYG_STATUS_param, "compile: threads must be in [0, %d], got %d",
                        PYG_MAX_THREADS, n_threads);
    if (n_outputs < 1) return pyg_fail(PYG_STATUS_param, "compile: no outputs given");
    void *m;
    PYG_TRY(pyg_alloc(&m, sizeof(pyg_program), "program"));
    pyg_program *p = m;
    p->guarded = (flags & PYG_PROGRAM_GUARDED) != 0;
    p->n_threads = n_threads > 0 ? n_threads : pyg_pool_default_threads();
    atomic_init(&p->running, 0);
    pyg_status status = PYG_OK;
    if (arena != NULL) {
        atomic_fetch_add(&arena->refs, 1);
        p->arena = arena;
    } else {
        status = pyg_arena_new(&p->arena);
    }
    builder b = {.graph = graph, .prog = p, .flags = flags};
    if (status == PYG_OK) status = build(&b, outputs, n_outputs);
    builder_free(&b);
    if (status != PYG_OK) {
        pyg_program_free(p);
        return status;
    }
    atomic_fetch_add(&n_programs, 1);
    *out = p;
    return PYG_OK;
}

void pyg_program_free(pyg_program *p) {
    if (p == NULL) return;
    pyg_free(p->slots);
    pyg_free(p->lives);
    pyg_free(p->step_ns);
    pyg_free(p->steps);
    pyg_free(p->input_slots);
    pyg_free(p->input_ids);
    pyg_free(p->output_slots);
    pyg_free(p->constants);
    pyg_arena_free(p->arena);
    pyg_free(p);
}
