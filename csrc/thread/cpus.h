/* How many CPUs this process may use. Read by pool.c once; the functions take a root folder ("" for
 * the real system) so that tests can show them made-up /sys and /proc trees. */
#ifndef PYG_THREAD_CPUS_H
#define PYG_THREAD_CPUS_H

#include <stddef.h>
#include <stdint.h>

typedef struct pyg_cpus {
    int logical; /* CPUs in the affinity mask of the calling thread, >= 1 */
    int cores;   /* the same, hyper-threads of one core counted once, >= 1 */
    int quota;   /* floor of the tightest cgroup CPU quota, >= 1; 0 when there is none */
} pyg_cpus;

/* Never fails: what cannot be read is taken as absent. */
void pyg_cpus_read(const char *root, pyg_cpus *out);

/* Physical cores among the allowed CPUs (bit i of the mask, 64 a word). A CPU without topology
 * files is a core of its own. */
int pyg_cpus_cores(const char *root, const uint64_t *mask, size_t n_words);

/* Floor of the tightest CPU quota on the way from the process's cgroup to the root, v2 and v1; at
 * least 1, and 0 when no quota is set. */
int pyg_cpus_quota(const char *root);

#endif
