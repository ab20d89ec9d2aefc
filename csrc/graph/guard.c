/* Guarded programs: new memory holds NaN, and a step that writes into the guard bytes around any
 * memory of the arena is named. For tests of ops; see PYG_PROGRAM_GUARDED. */
#include <string.h>

#include "graph/program.h"

/* NaN in every float dtype that has one, and -1 in the integers. */
#define POISON 0xFF

static void fill(char *at, size_t bytes) {
    if (bytes > 0) memset(at, POISON, bytes);
}

/* Index of the first byte that is not POISON; `bytes` when there is none. */
static size_t first_changed(const char *at, size_t bytes) {
    size_t i = 0;
    while (i < bytes && (unsigned char)at[i] == POISON) i++;
    return i;
}

/* One past the last byte that is not POISON; 0 when there is none. */
static size_t end_of_changed(const char *at, size_t bytes) {
    while (bytes > 0 && (unsigned char)at[bytes - 1] == POISON) bytes--;
    return bytes;
}

static bool alive(const pyg_lifetime *life, int32_t slot) {
    return life->first <= slot && slot <= life->last;
}

/* The name of the kept node whose memory it is. */
static const char *owner(const pyg_program *p, int32_t life) {
    for (int32_t i = 0; i < p->n_slots; i++)
        if (p->slots[i].life == life && p->slots[i].op >= 0)
            return pyg_op_get(p->slots[i].op)->name;
    return "an input";
}

static pyg_status check_life(const pyg_program *p, const pyg_op_row *op, int32_t i) {
    const pyg_lifetime *life = &p->lives[i];
    const char *base = p->bound + life->offset;
    const size_t before = first_changed(base, PYG_GUARD);
    if (before < PYG_GUARD)
        return pyg_fail(PYG_STATUS_internal, "%s wrote %zu bytes before the memory of %s", op->name,
                        PYG_GUARD - before, owner(p, i));
    const size_t after = end_of_changed(base + life->bytes - PYG_GUARD, PYG_GUARD);
    if (after > 0)
        return pyg_fail(PYG_STATUS_internal, "%s wrote %zu bytes past the memory of %s", op->name,
                        after, owner(p, i));
    return PYG_OK;
}

/* What lies behind the part of the scratch memory that the step asked for. */
static pyg_status check_scratch(const pyg_program *p, const pyg_step *step) {
    const size_t shared = p->scratch_off - p->shared_off, used = step->plan.shared_bytes;
    if (end_of_changed(p->bound + p->shared_off + used, shared - used) > 0)
        return pyg_fail(PYG_STATUS_internal, "%s wrote past its shared memory of %zu bytes",
                        step->op->name, used);
    const size_t mine = step->plan.scratch_bytes, rest = p->scratch_stride - mine;
    for (int w = 0; w < p->n_threads; w++) {
        const char *end = p->bound + p->scratch_off + (size_t)w * p->scratch_stride + mine;
        if (end_of_changed(end, rest) > 0)
            return pyg_fail(PYG_STATUS_internal, "%s wrote past its scratch memory of %zu bytes",
                            step->op->name, mine);
    }
    return PYG_OK;
}

void pyg_guard_start(const pyg_program *p) { fill(p->bound, p->arena_bytes); }

void pyg_guard_before(const pyg_program *p, const pyg_step *step) {
    for (int32_t i = 0; i < p->n_lives; i++)
        if (p->lives[i].first == step->slot) fill(p->bound + p->lives[i].offset, p->lives[i].bytes);
    fill(p->bound + p->shared_off, p->arena_bytes - p->shared_off);
}

pyg_status pyg_guard_after(const pyg_program *p, const pyg_step *step) {
    for (int32_t i = 0; i < p->n_lives; i++)
        if (alive(&p->lives[i], step->slot)) PYG_TRY(check_life(p, step->op, i));
    return check_scratch(p, step);
}
