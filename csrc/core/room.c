#include "core/room.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "core/cgroup.h"

/* The number that follows `key` at the start of a line of root/folder/file; SIZE_MAX when there is
 * none ("max"). */
static size_t read_number(const char *root, const char *folder, const char *file, const char *key) {
    char path[PYG_PATH_BYTES], line[PYG_LINE_BYTES];
    const int length = snprintf(path, sizeof path, "%s%s/%s", root, folder, file);
    if (length < 0 || length >= (int)sizeof path) return SIZE_MAX;
    FILE *f = fopen(path, "re");
    if (f == NULL) return SIZE_MAX;
    size_t value = SIZE_MAX;
    const size_t n = strlen(key);
    while (fgets(line, sizeof line, f) != NULL) {
        unsigned long long v;
        if (strncmp(line, key, n) != 0) continue;
        if (sscanf(line + n, "%llu", &v) == 1) value = v > SIZE_MAX ? SIZE_MAX : (size_t)v;
        break;
    }
    fclose(f);
    return value;
}

typedef struct layout {
    const char *limit, *usage, *active, *inactive;
} layout;

static const layout layouts[] = {
    {"memory.max", "memory.current", "active_file ", "inactive_file "},
    {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_active_file ",
     "total_inactive_file "},
};

static size_t less(size_t a, size_t b) { return a > b ? a - b : 0; }

static void look_at_group(void *ctx, const char *root, const char *folder) {
    size_t *room = ctx;
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        const layout *l = &layouts[i];
        const size_t limit = read_number(root, folder, l->limit, "");
        size_t used = read_number(root, folder, l->usage, "");
        if (limit == SIZE_MAX || used == SIZE_MAX) continue;
        const size_t active = read_number(root, folder, "memory.stat", l->active);
        const size_t inactive = read_number(root, folder, "memory.stat", l->inactive);
        if (active != SIZE_MAX) used = less(used, active);
        if (inactive != SIZE_MAX) used = less(used, inactive);
        const size_t left = less(limit, used);
        if (left < *room) *room = left;
    }
}

size_t pyg_memory_room_under(const char *root) {
    static const char *const mounts[] = {"/sys/fs/cgroup/memory", NULL};
    static const pyg_controller memory = {"memory", mounts};
    const size_t kb = read_number(root, "/proc", "meminfo", "MemAvailable:");
    size_t room = kb > SIZE_MAX / 1024 ? SIZE_MAX : kb * 1024;
    pyg_cgroup_walk(root, &memory, look_at_group, &room);
    return room;
}

size_t pyg_room_to_use(size_t all) {
    const size_t most = (size_t)256 << 20, part = all / 16;
    return all - (part < most ? part : most);
}
