/* csrc/thread/cpus.c on made-up /sys and /proc trees, and on the real one with a narrowed affinity
 * mask. */
#define _GNU_SOURCE
#include "thread/cpus.h"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "thread/pool.h"
#include "tree.h"

static void test_quota_v2(void) {
    static const struct {
        const char *parent, *own;
        int want;
    } cases[] = {
        {"max 100000\n", "max 100000\n", 0},
        {"max 100000\n", "150000 100000\n", 1},
        {"max 100000\n", "765000 100000\n", 7},
        {"max 100000\n", "20000 100000\n", 1},
        {"200000 100000\n", "800000 100000\n", 2},
        {"800000 100000\n", "300000 100000\n", 3},
        {"50000 10000\n", "max 100000\n", 5},
        {"max\n", "max\n", 0},
        {"", "garbage\n", 0},
        {"max 100000\n", "100000 0\n", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        new_root();
        put("/proc/self/cgroup", "0::/pod/box\n");
        put("/sys/fs/cgroup/pod/cpu.max", cases[i].parent);
        put("/sys/fs/cgroup/pod/box/cpu.max", cases[i].own);
        CHECK(pyg_cpus_quota(root) == cases[i].want);
        drop_root();
    }
}

/* A container that sees its own group as the mount, under whatever name. */
static void test_quota_container(void) {
    static const char *const groups[] = {"0::/\n", "0::/docker/1234\n", "0::/../../elsewhere\n",
                                         "12:pids:/x\n0::/a/b\n"};
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        new_root();
        put("/proc/self/cgroup", groups[i]);
        put("/sys/fs/cgroup/cpu.max", "400000 100000\n");
        CHECK(pyg_cpus_quota(root) == 4);
        drop_root();
    }
    new_root();
    CHECK(pyg_cpus_quota(root) == 0); /* no /proc */
    put("/proc/self/cgroup", "nonsense\n::\n0::\n");
    CHECK(pyg_cpus_quota(root) == 0);
    drop_root();
}

static void test_quota_v1(void) {
    new_root();
    put("/proc/self/cgroup", "5:cpuset:/slim\n4:cpu,cpuacct:/a/b\n0::/\n");
    put("/sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_period_us", "100000\n");
    CHECK(pyg_cpus_quota(root) == 0);
    put("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "250000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
    CHECK(pyg_cpus_quota(root) == 2);
    /* Hybrid: v2 is mounted beside the v1 controllers. */
    put("/sys/fs/cgroup/unified/cpu.max", "100000 100000\n");
    CHECK(pyg_cpus_quota(root) == 1);
    /* "cpuset" is not "cpu". */
    put("/sys/fs/cgroup/cpu/slim/cpu.cfs_quota_us", "50000\n");
    put("/sys/fs/cgroup/cpu/slim/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/unified/cpu.max", "max 100000\n");
    CHECK(pyg_cpus_quota(root) == 2);
    drop_root();
}

static void put_siblings(int cpu, const char *name, const char *list) {
    char path[128];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, name);
    put(path, list);
}

static void test_cores(void) {
    const uint64_t all8[2] = {0xFF, 0};
    uint64_t mask[2] = {0, 0};
    new_root();
    CHECK(pyg_cpus_cores(root, all8, 2) == 8); /* no topology files */

    static const char *const far[] = {"0,4\n", "1,5\n", "2,6\n", "3,7\n"};
    for (int i = 0; i < 8; i++) put_siblings(i, "thread_siblings_list", far[i % 4]);
    CHECK(pyg_cpus_cores(root, all8, 2) == 4);
    mask[0] = 0xF0; /* only the second threads: still four cores */
    CHECK(pyg_cpus_cores(root, mask, 2) == 4);
    mask[0] = 0x31; /* 0, 4 and 5 */
    CHECK(pyg_cpus_cores(root, mask, 2) == 2);
    mask[0] = 0;
    CHECK(pyg_cpus_cores(root, mask, 2) == 0);

    /* The newer file wins; ranges; a core of four threads. */
    for (int i = 0; i < 8; i++) put_siblings(i, "core_cpus_list", i < 4 ? "0-3\n" : "4-7\n");
    CHECK(pyg_cpus_cores(root, all8, 2) == 2);

    /* CPUs of the second word, paired with ones of the first. */
    put_siblings(64, "core_cpus_list", "0-3,64\n");
    put_siblings(65, "core_cpus_list", "65,127\n");
    put_siblings(127, "core_cpus_list", "65,127\n");
    mask[0] = 0xFF;
    mask[1] = UINT64_C(0x8000000000000003);
    CHECK(pyg_cpus_cores(root, mask, 2) == 3);
    drop_root();
}

/* In a child, because the pool reads its default once. */
static void test_affinity(void) {
    cpu_set_t all, one;
    pyg_cpus cpus;
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    pyg_cpus_read("", &cpus);
    CHECK(cpus.logical == CPU_COUNT(&all));
    CHECK(cpus.cores >= 1 && cpus.cores <= cpus.logical);
    int first = 0;
    while (!CPU_ISSET(first, &all)) first++;

    const pid_t pid = fork();
    if (pid == 0) {
        CPU_ZERO(&one);
        CPU_SET(first, &one);
        if (sched_setaffinity(0, sizeof one, &one) != 0) _exit(2);
        pyg_cpus_read("", &cpus);
        _exit(cpus.logical == 1 && cpus.cores == 1 && pyg_pool_default_threads() == 1 ? 0 : 1);
    }
    int status = -1;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    const int n = pyg_pool_default_threads();
    CHECK(n >= 1 && n <= cpus.cores && (cpus.quota == 0 || n <= cpus.quota));
}

int main(void) {
    test_quota_v2();
    test_quota_container();
    test_quota_v1();
    test_cores();
    test_affinity();
    return report();
}
