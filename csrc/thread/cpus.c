/* Counting CPUs: affinity mask, SMT siblings, cgroup quotas.
 *
 * More threads than CPU time is far worse than too few (a spinning pool in a throttled container
 * stops dead), so quotas are rounded down and hyper-threads are not counted. */
#define _GNU_SOURCE
#include "thread/cpus.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__APPLE__)
#include <sys/sysctl.h>
#endif

#define PATH_BYTES 4096
#define LINE_BYTES 1024
#define MASK_WORDS 256 /* 16384 CPUs */

/* First line of root/path, without its end; 0 when it cannot be read. */
static int read_line(const char *root, const char *path, char *line) {
    char full[PATH_BYTES];
    const int n = snprintf(full, sizeof full, "%s%s", root, path);
    if (n < 0 || n >= (int)sizeof full) return 0;
    FILE *file = fopen(full, "re");
    if (file == NULL) return 0;
    const int ok = fgets(line, LINE_BYTES, file) != NULL;
    fclose(file);
    if (ok) line[strcspn(line, "\n")] = '\0';
    return ok;
}

/* ---- cores --------------------------------------------------------------------------------- */

static int is_allowed(const uint64_t *mask, size_t n_words, long cpu) {
    const size_t word = (size_t)cpu / 64;
    return word < n_words && (mask[word] >> (cpu % 64) & 1) != 0;
}

/* Whether a list such as "0-1,64" holds an allowed CPU below `cpu`. */
static int has_lower_sibling(const char *list, const uint64_t *mask, size_t n_words, long cpu) {
    while (*list >= '0' && *list <= '9') {
        char *end;
        const long first = strtol(list, &end, 10);
        long last = first;
        if (*end == '-') last = strtol(end + 1, &end, 10);
        for (long i = first; i <= last && i < cpu; i++)
            if (is_allowed(mask, n_words, i)) return 1;
        list = *end == ',' ? end + 1 : "";
    }
    return 0;
}

int pyg_cpus_cores(const char *root, const uint64_t *mask, size_t n_words) {
    /* The second file is what kernels before 5.3 have. */
    static const char *const names[] = {"core_cpus_list", "thread_siblings_list"};
    char path[128], line[LINE_BYTES];
    int cores = 0;
    for (long cpu = 0; cpu < (long)n_words * 64; cpu++) {
        if (!is_allowed(mask, n_words, cpu)) continue;
        int found = 0;
        for (int i = 0; i < 2 && !found; i++) {
            snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%ld/topology/%s", cpu,
                     names[i]);
            found = read_line(root, path, line);
        }
        if (!found || !has_lower_sibling(line, mask, n_words, cpu)) cores++;
    }
    return cores;
}

/* ---- quota --------------------------------------------------------------------------------- */

static int whole_cpus(long long quota, long long period) {
    if (quota <= 0 || period <= 0) return 0;
    const long long cpus = quota / period;
    return cpus < 1 ? 1 : cpus > INT_MAX ? INT_MAX : (int)cpus;
}

static int tighter(int a, int b) { return a == 0 || (b != 0 && b < a) ? b : a; }

/* Quota of one folder; 0 when it has none. */
static int folder_quota(const char *root, const char *folder) {
    char path[PATH_BYTES], line[LINE_BYTES];
    long long quota = -1, period = -1;
    const int room = PATH_BYTES - 32;

    snprintf(path, sizeof path, "%.*s/cpu.max", room, folder);
    if (read_line(root, path, line)) /* "max 100000" leaves both alone */
        return sscanf(line, "%lld %lld", &quota, &period) == 2 ? whole_cpus(quota, period) : 0;

    snprintf(path, sizeof path, "%.*s/cpu.cfs_quota_us", room, folder);
    if (!read_line(root, path, line) || sscanf(line, "%lld", &quota) != 1) return 0;
    snprintf(path, sizeof path, "%.*s/cpu.cfs_period_us", room, folder);
    if (!read_line(root, path, line) || sscanf(line, "%lld", &period) != 1) return 0;
    return whole_cpus(quota, period);
}

/* Tightest quota from mount/group up to the mount itself. In a container the group's path may name
 * folders that only the host sees; they are then missing here and the mount is the container's own
 * group. */
static int walk_up(const char *root, const char *mount, const char *group) {
    char folder[PATH_BYTES - 64];
    const size_t mount_length = strlen(mount);
    const int n = snprintf(folder, sizeof folder, "%s%s", mount, group);
    if (n < 0 || n >= (int)sizeof folder || strstr(group, "/..") != NULL)
        snprintf(folder, sizeof folder, "%s", mount);
    int quota = 0;
    for (;;) {
        quota = tighter(quota, folder_quota(root, folder));
        char *slash = strrchr(folder, '/');
        if (slash == NULL || (size_t)(slash - folder) < mount_length) return quota;
        *slash = '\0';
    }
}

/* Whether the comma-separated list of controllers holds "cpu". */
static int names_cpu(const char *list, size_t length) {
    for (size_t i = 0; i + 3 <= length; i++) {
        const int starts = i == 0 || list[i - 1] == ',';
        const int ends = i + 3 == length || list[i + 3] == ',';
        if (starts && ends && memcmp(list + i, "cpu", 3) == 0) return 1;
    }
    return 0;
}

int pyg_cpus_quota(const char *root) {
    static const char *const v2[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
    static const char *const v1[] = {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct",
                                     "/sys/fs/cgroup/cpuacct,cpu"};
    char line[PATH_BYTES];
    const int n = snprintf(line, sizeof line, "%s/proc/self/cgroup", root);
    FILE *file = n > 0 && n < (int)sizeof line ? fopen(line, "re") : NULL;
    if (file == NULL) return 0;
    int quota = 0;
    while (fgets(line, sizeof line, file) != NULL) { /* "id:controllers:/path" */
        line[strcspn(line, "\n")] = '\0';
        const char *controllers = strchr(line, ':');
        const char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (group == NULL) continue;
        controllers++;
        const size_t length = (size_t)(group - controllers);
        group++;
        if (length == 0)
            for (size_t i = 0; i < sizeof v2 / sizeof v2[0]; i++)
                quota = tighter(quota, walk_up(root, v2[i], group));
        else if (names_cpu(controllers, length))
            for (size_t i = 0; i < sizeof v1 / sizeof v1[0]; i++)
                quota = tighter(quota, walk_up(root, v1[i], group));
    }
    fclose(file);
    return quota;
}

/* ---- this process -------------------------------------------------------------------------- */

static int at_least_one(long n) { return n < 1 ? 1 : n > INT_MAX ? INT_MAX : (int)n; }

#if defined(__linux__)

static void read_affinity(const char *root, pyg_cpus *out) {
    uint64_t mask[MASK_WORDS] = {0};
    long logical = 0;
    if (sched_getaffinity(0, sizeof mask, (cpu_set_t *)(void *)mask) != 0) {
        out->logical = out->cores = at_least_one(sysconf(_SC_NPROCESSORS_ONLN));
        return;
    }
    for (int i = 0; i < MASK_WORDS; i++) logical += __builtin_popcountll(mask[i]);
    out->logical = at_least_one(logical);
    out->cores = at_least_one(pyg_cpus_cores(root, mask, MASK_WORDS));
}

#else

static void read_affinity(const char *root, pyg_cpus *out) {
    (void)root;
    out->logical = out->cores = at_least_one(sysconf(_SC_NPROCESSORS_ONLN));
#if defined(__APPLE__)
    /* Performance cores only: static ranges wait for the slowest. */
    int cores = 0;
    size_t size = sizeof cores;
    if (sysctlbyname("hw.perflevel0.physicalcpu", &cores, &size, NULL, 0) != 0)
        sysctlbyname("hw.physicalcpu", &cores, &size, NULL, 0);
    if (cores > 0) out->cores = cores;
#endif
}

#endif

void pyg_cpus_read(const char *root, pyg_cpus *out) {
    read_affinity(root, out);
    out->quota = pyg_cpus_quota(root);
}
