/* What a program is made of, where its memory lies, what its nodes cost. */
#include <string.h>

#include "core/alloc.h"
#include "core/tensor.h"
#include "graph/program.h"

int pyg_program_n_inputs(const pyg_program *p) { return p->n_inputs; }

int32_t pyg_program_input(const pyg_program *p, int i) {
    return i >= 0 && i < p->n_inputs ? p->input_ids[i] : -1;
}

int pyg_program_n_threads(const pyg_program *p) { return p->n_threads; }

int32_t pyg_program_n_nodes(const pyg_program *p) { return p->n_slots; }

size_t pyg_program_arena_bytes(const pyg_program *p) { return p->arena_bytes; }

void pyg_program_memory_of(const pyg_program *p, pyg_program_memory *out) {
    out->results = p->shared_off;
    out->shared = p->scratch_off - p->shared_off;
    out->scratch = p->scratch_stride;
    out->arena = p->arena_bytes;
    out->constants = p->const_bytes;
}

pyg_status pyg_program_node(const pyg_program *p, int32_t i, pyg_kept_node *out) {
    if (i < 0 || i >= p->n_slots)
        return pyg_fail(PYG_STATUS_param, "the program has no node %d", i);
    const pyg_slot *slot = &p->slots[i];
    *out = (pyg_kept_node){.id = slot->node,
                           .op = slot->op,
                           .name = slot->name,
                           .tensor = &slot->t,
                           .block = slot->life,
                           .bytes = pyg_extent_bytes(&slot->t)};
    if (slot->life >= 0) {
        const pyg_lifetime *life = &p->lives[slot->life];
        out->block_offset = life->offset;
        out->block_bytes = life->bytes;
        out->first = life->first;
        out->last = life->last;
        out->offset = slot->offset;
    }
    if (slot->step >= 0) {
        out->moved_bytes = p->steps[slot->step].plan.bytes;
        out->flops = p->steps[slot->step].plan.flops;
        if (p->step_ns != NULL) {
            out->runs = p->runs_timed;
            out->ns = p->step_ns[slot->step];
        }
    }
    return PYG_OK;
}

static pyg_status start_profile(pyg_program *p) {
    const size_t bytes = (size_t)p->n_steps * sizeof(int64_t);
    if (p->step_ns == NULL) {
        void *m;
        PYG_TRY(pyg_alloc(&m, bytes, "profile"));
        p->step_ns = m;
    } else {
        memset(p->step_ns, 0, bytes);
    }
    p->runs_timed = 0;
    p->profiling = true;
    return PYG_OK;
}

pyg_status pyg_program_profile(pyg_program *p, int on) {
    if (atomic_exchange(&p->running, 1))
        return pyg_fail(PYG_STATUS_graph, "profile: the program is running");
    pyg_status status = PYG_OK;
    if (on)
        status = start_profile(p);
    else
        p->profiling = false;
    atomic_store(&p->running, 0);
    return status;
}
