#include "core/cgroup.h"

#include <stdio.h>
#include <string.h>

bool pyg_read_line(const char *root, const char *path, char *line) {
    char full[PYG_PATH_BYTES];
    const int n = snprintf(full, sizeof full, "%s%s", root, path);
    if (n < 0 || n >= (int)sizeof full) return false;
    FILE *file = fopen(full, "re");
    if (file == NULL) return false;
    const bool ok = fgets(line, PYG_LINE_BYTES, file) != NULL;
    fclose(file);
    if (ok) line[strcspn(line, "\n")] = '\0';
    return ok;
}

/* From mount/group up to the mount itself. In a container the group's path may name folders that
 * only the host sees; they are then missing here and the mount is the container's own group. */
static void walk_up(const char *root, const char *mount, const char *group, pyg_cgroup_fn visit,
                    void *ctx) {
    char folder[PYG_PATH_BYTES - 64];
    const size_t mount_length = strlen(mount);
    const int n = snprintf(folder, sizeof folder, "%s%s", mount, group);
    if (n < 0 || n >= (int)sizeof folder || strstr(group, "/..") != NULL)
        snprintf(folder, sizeof folder, "%s", mount);
    for (;;) {
        visit(ctx, root, folder);
        char *slash = strrchr(folder, '/');
        if (slash == NULL || (size_t)(slash - folder) < mount_length) return;
        *slash = '\0';
    }
}

/* Whether the comma-separated list of controllers holds `name`. */
static bool holds(const char *list, size_t length, const char *name) {
    const size_t n = strlen(name);
    for (size_t i = 0; i + n <= length; i++) {
        const bool starts = i == 0 || list[i - 1] == ',';
        const bool ends = i + n == length || list[i + n] == ',';
        if (starts && ends && memcmp(list + i, name, n) == 0) return true;
    }
    return false;
}

void pyg_cgroup_walk(const char *root, const pyg_controller *controller, pyg_cgroup_fn visit,
                     void *ctx) {
    static const char *const v2[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified", NULL};
    char line[PYG_PATH_BYTES];
    const int n = snprintf(line, sizeof line, "%s/proc/self/cgroup", root);
    FILE *file = n > 0 && n < (int)sizeof line ? fopen(line, "re") : NULL;
    if (file == NULL) return;
    while (fgets(line, sizeof line, file) != NULL) { /* "id:controllers:/path" */
        line[strcspn(line, "\n")] = '\0';
        const char *controllers = strchr(line, ':');
        const char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (group == NULL) continue;
        controllers++;
        const size_t length = (size_t)(group - controllers);
        group++;
        const char *const *mounts = NULL;
        if (length == 0)
            mounts = v2;
        else if (holds(controllers, length, controller->name))
            mounts = controller->mounts;
        for (; mounts != NULL && *mounts != NULL; mounts++)
            walk_up(root, *mounts, group, visit, ctx);
    }
    fclose(file);
}
