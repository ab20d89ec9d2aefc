/* The cgroups that bound this process. Used by core/room.c (memory) and thread/cpus.c (CPU time);
 * `root` is "" for the real system, a made-up tree in tests. */
#ifndef PYG_CORE_CGROUP_H
#define PYG_CORE_CGROUP_H

#include <stdbool.h>
#include <stddef.h>

#define PYG_PATH_BYTES 4096
#define PYG_LINE_BYTES 1024

/* First line of root/path, without its end; false when it cannot be read. `line` has
 * PYG_LINE_BYTES. */
bool pyg_read_line(const char *root, const char *path, char *line);

/* Where a v1 controller may be mounted, NULL at the end. */
typedef struct pyg_controller {
    const char *name;
    const char *const *mounts;
} pyg_controller;

/* Calls visit(ctx, root, folder) for the process's own group and each above it up to the mount, v2
 * and v1. A folder may lack any file. */
typedef void (*pyg_cgroup_fn)(void *ctx, const char *root, const char *folder);
void pyg_cgroup_walk(const char *root, const pyg_controller *controller, pyg_cgroup_fn visit,
                     void *ctx);

#endif
