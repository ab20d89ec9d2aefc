/* csrc/core/room.c on made-up /sys and /proc trees, and on the real one. */
#define _GNU_SOURCE
#include "core/room.h"

#include <stdint.h>

#include "check.h"
#include "tree.h"

#define MEMINFO "MemTotal:  9999999 kB\nMemFree:  10 kB\nMemAvailable:    8000 kB\n"
#define AVAILABLE ((size_t)8000 * 1024)

static void test_machine(void) {
    new_root();
    CHECK(pyg_memory_room_under(root) == SIZE_MAX); /* nothing to read */
    put("/proc/meminfo", MEMINFO);
    CHECK(pyg_memory_room_under(root) == AVAILABLE);
    put("/proc/self/cgroup", "0::/pod/box\n"); /* groups without files */
    CHECK(pyg_memory_room_under(root) == AVAILABLE);
    put("/proc/meminfo", "MemAvailable:  99999999999999999999 kB\n");
    CHECK(pyg_memory_room_under(root) == SIZE_MAX);
    drop_root();
}

static void test_v2(void) {
    new_root();
    put("/proc/meminfo", MEMINFO);
    put("/proc/self/cgroup", "0::/pod/box\n");
    put("/sys/fs/cgroup/pod/box/memory.max", "max\n");
    put("/sys/fs/cgroup/pod/box/memory.current", "3000\n");
    CHECK(pyg_memory_room_under(root) == AVAILABLE);
    put("/sys/fs/cgroup/pod/box/memory.max", "5000\n");
    CHECK(pyg_memory_room_under(root) == 2000);
    /* a group above may leave less */
    put("/sys/fs/cgroup/pod/memory.max", "9000\n");
    put("/sys/fs/cgroup/pod/memory.current", "8500\n");
    CHECK(pyg_memory_room_under(root) == 500);
    put("/sys/fs/cgroup/pod/memory.current", "9001\n");
    CHECK(pyg_memory_room_under(root) == 0);
    /* a container's own group is the mount */
    put("/proc/self/cgroup", "0::/docker/1234\n");
    put("/sys/fs/cgroup/memory.max", "700\n");
    put("/sys/fs/cgroup/memory.current", "100\n");
    CHECK(pyg_memory_room_under(root) == 600);
    drop_root();
}

/* What a mapped model leaves in the page cache is given up before anything is refused. */
static void test_page_cache(void) {
    new_root();
    put("/proc/meminfo", MEMINFO);
    put("/proc/self/cgroup", "0::/\n");
    put("/sys/fs/cgroup/memory.max", "5000\n");
    put("/sys/fs/cgroup/memory.current", "4990\n");
    put("/sys/fs/cgroup/memory.stat",
        "anon 1000\nfile 3900\ninactive_anon 1000\nactive_anon 0\ninactive_file 3000\n"
        "active_file 900\n");
    CHECK(pyg_memory_room_under(root) == 3910);
    put("/sys/fs/cgroup/memory.stat", "inactive_file 90000\n"); /* read later than the usage */
    CHECK(pyg_memory_room_under(root) == 5000);
    drop_root();
}

static void test_v1(void) {
    new_root();
    put("/proc/meminfo", MEMINFO);
    put("/proc/self/cgroup", "5:cpuset:/slim\n4:memory:/a/b\n0::/\n");
    put("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/a/b/memory.usage_in_bytes", "4000\n");
    CHECK(pyg_memory_room_under(root) == AVAILABLE);
    put("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "6000\n");
    put("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "4000\n");
    CHECK(pyg_memory_room_under(root) == 2000);
    put("/sys/fs/cgroup/memory/a/memory.stat",
        "inactive_file 1\nactive_file 2\ntotal_inactive_file 300\ntotal_active_file 500\n");
    CHECK(pyg_memory_room_under(root) == 2800);
    drop_root();
}

static void test_what_is_left_to_others(void) {
    const size_t mib = (size_t)1 << 20;
    CHECK(pyg_room_to_use(0) == 0);
    CHECK(pyg_room_to_use(1600 * mib) == 1500 * mib);
    CHECK(pyg_room_to_use(4096 * mib) == 3840 * mib);
    CHECK(pyg_room_to_use(65536 * mib) == 65280 * mib);
    CHECK(pyg_room_to_use(SIZE_MAX) == SIZE_MAX - 256 * mib);
}

int main(void) {
    test_machine();
    test_v2();
    test_page_cache();
    test_v1();
    test_what_is_left_to_others();
    CHECK(pyg_memory_room_under("") > 1 << 20);
    return report();
}
