#include "core/alloc.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static size_t read_number(const char *path, const char *key, size_t unit) {
    FILE *f = fopen(path, "r");
    if (f == NULL) return SIZE_MAX;
    char line[256];
    size_t value = SIZE_MAX;
    const size_t n = strlen(key);
    while (fgets(line, sizeof line, f) != NULL) {
        unsigned long long v;
        if (strncmp(line, key, n) == 0 && sscanf(line + n, "%llu", &v) == 1) {
            value = v > SIZE_MAX / unit ? SIZE_MAX : (size_t)v * unit;
            break;
        }
    }
    fclose(f);
    return value;
}

size_t pyg_memory_room(void) {
    size_t room = read_number("/proc/meminfo", "MemAvailable:", 1024);
    /* In a container the own cgroup is mounted at the root of the hierarchy: v2, then v1. */
    size_t limit = read_number("/sys/fs/cgroup/memory.max", "", 1);
    size_t used = read_number("/sys/fs/cgroup/memory.current", "", 1);
    if (limit == SIZE_MAX) {
        limit = read_number("/sys/fs/cgroup/memory/memory.limit_in_bytes", "", 1);
        used = read_number("/sys/fs/cgroup/memory/memory.usage_in_bytes", "", 1);
    }
    if (limit != SIZE_MAX && used != SIZE_MAX) {
        const size_t left = limit > used ? limit - used : 0;
        if (left < room) room = left;
    }
    return room;
}

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
