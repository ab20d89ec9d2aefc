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

#include "core/cgroup.h"

#if defined(__APPLE__)
#include <sys/sysctl.h>
#endif

#define MASK_WORDS 256 /* 16384 CPUs */

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
    char path[128], line[PYG_LINE_BYTES];
    int cores = 0;
    for (long cpu = 0; cpu < (long)n_words * 64; cpu++) {
        if (!is_allowed(mask, n_words, cpu)) continue;
        int found = 0;
        for (int i = 0; i < 2 && !found; i++) {
            snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%ld/topology/%s", cpu,
                     names[i]);
            found = pyg_read_line(root, path, line);
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
    char path[PYG_PATH_BYTES], line[PYG_LINE_BYTES];
    long long quota = -1, period = -1;
    const int room = PYG_PATH_BYTES - 32;

    snprintf(path, sizeof path, "%.*s/cpu.max", room, folder);
    if (pyg_read_line(root, path, line)) /* "max 100000" leaves both alone */
        return sscanf(line, "%lld %lld", &quota, &period) == 2 ? whole_cpus(quota, period) : 0;

    snprintf(path, sizeof path, "%.*s/cpu.cfs_quota_us", room, folder);
    if (!pyg_read_line(root, path, line) || sscanf(line, "%lld", &quota) != 1) return 0;
    snprintf(path, sizeof path, "%.*s/cpu.cfs_period_us", room, folder);
    if (!pyg_read_line(root, path, line) || sscanf(line, "%lld", &period) != 1) return 0;
    return whole_cpus(quota, period);
}

static void look_at_group(void *ctx, const char *root, const char *folder) {
    int *quota = ctx;
    *quota = tighter(*quota, folder_quota(root, folder));
}

int pyg_cpus_quota(const char *root) {
    static const char *const mounts[] = {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct",
                                         "/sys/fs/cgroup/cpuacct,cpu", NULL};
    static const pyg_controller cpu = {"cpu", mounts};
    int quota = 0;
    pyg_cgroup_walk(root, &cpu, look_at_group, &quota);
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
