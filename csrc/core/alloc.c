#include "core/alloc.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/room.h"
#include "core/status.h"

/* Below this a request is not worth reading /proc for. */
#define CHECK_ROOM_FROM ((size_t)64 << 20)

static _Atomic uint64_t n_allocs;
static _Atomic uint64_t n_live;
static _Atomic int64_t fail_in; /* > 0: requests left until the one that fails */

uint64_t pyg_alloc_count(void) { return atomic_load(&n_allocs); }

uint64_t pyg_alloc_live(void) { return atomic_load(&n_live); }

void pyg_alloc_fail_in(int64_t n) { atomic_store(&fail_in, n); }

size_t pyg_align_up(size_t bytes) {
    return bytes > SIZE_MAX - (PYG_ALIGN - 1) ? SIZE_MAX
                                              : (bytes + PYG_ALIGN - 1) & ~(size_t)(PYG_ALIGN - 1);
}

size_t pyg_memory_room(void) { return pyg_room_to_use(pyg_memory_room_under("")); }

pyg_status pyg_alloc(void **out, size_t bytes, const char *what) {
    *out = NULL;
    if (bytes == 0) return PYG_OK;
    atomic_fetch_add(&n_allocs, 1);
    if (atomic_load(&fail_in) > 0 && atomic_fetch_sub(&fail_in, 1) == 1)
        return pyg_fail(PYG_STATUS_no_memory, "%s: %zu bytes refused by the test hook", what,
                        bytes);
    if (bytes >= CHECK_ROOM_FROM) {
        const size_t room = pyg_memory_room();
        if (bytes > room)
            return pyg_fail(PYG_STATUS_no_memory, "%s: %zu bytes asked for, %zu bytes available",
                            what, bytes, room);
    }
    const size_t size = pyg_align_up(bytes);
    void *p = size == SIZE_MAX ? NULL : aligned_alloc(PYG_ALIGN, size);
    if (p == NULL)
        return pyg_fail(PYG_STATUS_no_memory, "%s: the system refused %zu bytes", what, bytes);
    memset(p, 0, size);
    atomic_fetch_add(&n_live, 1);
    *out = p;
    return PYG_OK;
}

void pyg_free(void *p) {
    if (p == NULL) return;
    atomic_fetch_sub(&n_live, 1);
    free(p);
}
