#include "core/alloc.h"
#include "graph/program.h"

pyg_status pyg_arena_new(pyg_arena **out) {
    void *p;
    PYG_TRY(pyg_alloc(&p, sizeof(pyg_arena), "arena"));
    pyg_arena *arena = p;
    atomic_init(&arena->refs, 1);
    atomic_init(&arena->busy, 0);
    *out = arena;
    return PYG_OK;
}

void pyg_arena_free(pyg_arena *arena) {
    if (arena == NULL || atomic_fetch_sub(&arena->refs, 1) != 1) return;
    pyg_free(arena->base);
    pyg_free(arena);
}

size_t pyg_arena_bytes(const pyg_arena *arena) { return arena->bytes; }

pyg_status pyg_arena_reserve(pyg_arena *arena, size_t bytes) {
    if (atomic_exchange(&arena->busy, 1))
        return pyg_fail(PYG_STATUS_graph, "compile: a program is running in the arena");
    pyg_status status = PYG_OK;
    if (bytes > arena->bytes) {
        void *p;
        status = pyg_alloc(&p, bytes, "arena");
        if (status == PYG_OK) {
            pyg_free(arena->base);
            arena->base = p;
            arena->bytes = bytes;
        }
    }
    atomic_store(&arena->busy, 0);
    return status;
}

void pyg_program_bind(pyg_program *program) {
    if (program->bound == program->arena->base) return;
    program->bound = program->arena->base;
    for (int32_t i = 0; i < program->n_slots; i++) {
        pyg_slot *slot = &program->slots[i];
        if (slot->offset != PYG_NOT_IN_ARENA) slot->t.data = program->bound + slot->offset;
    }
}
