/* csrc/thread/pool.c: which task runs where, parking, two callers, signals, floating-point mode,
 * refused threads. Forks are in test_pool_fork.c. */
#define _GNU_SOURCE
#include "thread/pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "sleep.h"
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

#define MAX_TASKS 1000

/* ---- ranges -------------------------------------------------------------------------------- */

typedef struct tally {
    int runs[MAX_TASKS];   /* by task; plain, so that TSan sees two threads in one task */
    int worker[MAX_TASKS]; /* who ran it */
} tally;

static void count_task(void *ctx, int64_t task, int worker) {
    tally *t = ctx;
    t->runs[task]++;
    t->worker[task] = worker;
}

static int ranges_are_right(const tally *t, int n_tasks, int n_threads) {
    const int workers = n_tasks < n_threads ? n_tasks : n_threads;
    for (int w = 0; w < workers; w++)
        for (int i = w * n_tasks / workers; i < (w + 1) * n_tasks / workers; i++)
            if (t->runs[i] != 1 || t->worker[i] != w) return 0;
    for (int i = n_tasks; i < MAX_TASKS; i++)
        if (t->runs[i] != 0) return 0;
    return 1;
}

static void test_ranges(void) {
    static const int tasks[] = {0, 1, 2, 3, 7, 64, 1000}, threads[] = {1, 2, 3, 5, 8, 2, 1};
    static tally t;
    for (size_t i = 0; i < sizeof threads / sizeof threads[0]; i++) {
        CHECK(pyg_pool_begin(threads[i], NULL, NULL) == PYG_OK);
        for (size_t k = 0; k < sizeof tasks / sizeof tasks[0]; k++) {
            memset(&t, 0, sizeof t);
            pyg_pool_run(count_task, &t, tasks[k]);
            CHECK(ranges_are_right(&t, tasks[k], threads[i]));
        }
        pyg_pool_end();
    }
    CHECK(pyg_pool_workers() == 7);
}

typedef struct padded {
    _Alignas(64) int64_t sum;
} padded;

static void add_task(void *ctx, int64_t task, int worker) { ((padded *)ctx)[worker].sum += task; }

/* Sum over the workers after `runs` runs of n tasks. */
static int64_t run_sums(int n_threads, int64_t n_tasks, int runs) {
    padded sums[PYG_MAX_THREADS];
    memset(sums, 0, sizeof sums);
    if (pyg_pool_begin(n_threads, NULL, NULL) != PYG_OK) return -1;
    for (int i = 0; i < runs; i++) pyg_pool_run(add_task, sums, n_tasks);
    pyg_pool_end();
    int64_t total = 0;
    for (int w = 0; w < PYG_MAX_THREADS; w++) total += sums[w].sum;
    return total;
}

static void test_many_runs(void) {
    CHECK(run_sums(2, 5, 100000) == INT64_C(10) * 100000);
    CHECK(run_sums(4, 9, 3000) == INT64_C(36) * 3000);
    for (int i = 0; i < 20000; i++)
        if (run_sums(1 + i % 3, 3, 1) != 3) CHECK(!"short jobs");
    CHECK(run_sums(2, 2, 1) == 1);
}

/* ---- waiting ------------------------------------------------------------------------------- */

static void slow_worker(void *ctx, int64_t task, int worker) {
    (void)task;
    if (worker != 0) sleep_ms(*(const int *)ctx);
}

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void test_parking(void) {
    for (int i = 0; i < 20; i++) { /* around and past the spin window, between jobs */
        CHECK(run_sums(3, 7, 2) == 42);
        sleep_ms(i % 5);
    }
    padded sums[3];
    memset(sums, 0, sizeof sums);
    CHECK(pyg_pool_begin(3, NULL, NULL) == PYG_OK); /* inside a job */
    for (int i = 0; i < 10; i++) {
        pyg_pool_run(add_task, sums, 3);
        sleep_ms(i % 4);
    }
    pyg_pool_end();
    CHECK(sums[0].sum == 0 && sums[1].sum == 10 && sums[2].sum == 20);

    sleep_ms(30);
    const double before = cpu_seconds();
    sleep_ms(200);
    CHECK(cpu_seconds() - before < 0.1);

    int ms = 40; /* the caller parks */
    CHECK(pyg_pool_begin(3, NULL, NULL) == PYG_OK);
    for (int i = 0; i < 3; i++) pyg_pool_run(slow_worker, &ms, 3);
    pyg_pool_end();
}

static long ids[4];

static void note_id(void *ctx, int64_t task, int worker) {
    (void)ctx;
    (void)task;
    ids[worker] = syscall(SYS_gettid);
}

static long sleeps_of(long id) {
    char path[64], line[256];
    long n = -1;
    snprintf(path, sizeof path, "/proc/self/task/%ld/status", id);
    FILE *file = fopen(path, "r");
    if (file == NULL) return -1;
    while (fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "voluntary_ctxt_switches: %ld", &n) == 1) break;
    fclose(file);
    return n;
}

/* A parked worker that a job does not use is not woken. */
static void test_unused_workers(void) {
    CHECK(pyg_pool_begin(4, NULL, NULL) == PYG_OK);
    pyg_pool_run(note_id, NULL, 4);
    pyg_pool_end();
    sleep_ms(50);
    const long before = sleeps_of(ids[3]);
    CHECK(run_sums(2, 64, 2000) == INT64_C(2016) * 2000);
    sleep_ms(10);
    CHECK(before > 0 && sleeps_of(ids[3]) == before);
    CHECK(run_sums(4, 4, 1) == 6);
}

/* ---- callers ------------------------------------------------------------------------------- */

static int in_job; /* plain: TSan and the test see it if two jobs overlap */

static void *compete(void *arg) {
    const int n_threads = (int)(intptr_t)arg;
    intptr_t wrong = 0;
    for (int i = 0; i < 300; i++) {
        padded sums[4];
        memset(sums, 0, sizeof sums);
        if (pyg_pool_begin(n_threads, NULL, NULL) != PYG_OK) return (void *)1;
        wrong += in_job++;
        pyg_pool_run(add_task, sums, 4);
        pyg_pool_run(add_task, sums, 4);
        in_job--;
        pyg_pool_end();
        wrong += sums[0].sum + sums[1].sum + sums[2].sum + sums[3].sum != 12;
    }
    return (void *)wrong;
}

static void *reserve_thread(void *arg) {
    return (void *)(intptr_t)pyg_pool_reserve((int)(intptr_t)arg);
}

static void test_callers(void) {
    pthread_t t[4];
    void *result;
    for (intptr_t i = 0; i < 4; i++)
        CHECK(pthread_create(&t[i], NULL, compete, (void *)(i + 1)) == 0);
    for (int i = 0; i < 4; i++) CHECK(pthread_join(t[i], &result) == 0 && result == NULL);
    CHECK(run_sums(3, 3, 10) == 30); /* a new caller, the old ones gone */

    for (intptr_t i = 0; i < 4; i++)
        CHECK(pthread_create(&t[i], NULL, reserve_thread, (void *)(9 + i)) == 0);
    for (int i = 0; i < 4; i++) CHECK(pthread_join(t[i], &result) == 0 && result == NULL);
    CHECK(pyg_pool_workers() == 11);
    CHECK(run_sums(12, 12, 50) == 66 * 50);
}

static void test_bad_counts(void) {
    CHECK(pyg_pool_reserve(0) == PYG_STATUS_param);
    CHECK(pyg_pool_begin(-1, NULL, NULL) == PYG_STATUS_param);
    CHECK(pyg_pool_begin(PYG_MAX_THREADS + 1, NULL, NULL) == PYG_STATUS_param);
    CHECK(strstr(pyg_last_message(), "257") != NULL);
    CHECK(run_sums(2, 2, 1) == 1); /* the failed begins hold nothing */
}

/* ---- thread state -------------------------------------------------------------------------- */

static void check_signals(void *ctx, int64_t task, int worker) {
    sigset_t set;
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    ((int *)ctx)[task] = sigismember(&set, SIGINT) == (worker != 0) && !sigismember(&set, SIGSEGV);
}

static void test_signals(void) {
    int right[3] = {0, 0, 0};
    CHECK(pyg_pool_begin(3, NULL, NULL) == PYG_OK);
    pyg_pool_run(check_signals, right, 3);
    pyg_pool_end();
    CHECK(right[0] && right[1] && right[2]);
}

#if defined(__SSE__)

static void get_mode(void *ctx, int64_t task, int worker) {
    (void)worker;
    volatile float tiny = 1e-40f;
    ((unsigned *)ctx)[task] = tiny * 0.5f > 0.0f ? _mm_getcsr() & 0xFFC0u : ~0u;
}

/* Called first: the workers are started by a thread that has denormals off and inherit that. */
static void test_float_mode(void) {
    const unsigned clean = _mm_getcsr(), odd = (clean | 0x8040u | 0x4000u) & ~0x0200u;
    unsigned seen[4] = {0, 0, 0, 0};
    _mm_setcsr(odd);
    CHECK(pyg_pool_begin(4, NULL, NULL) == PYG_OK);
    pyg_pool_run(get_mode, seen, 4);
    const int inline_run = 1;
    unsigned alone = 0;
    pyg_pool_run(get_mode, &alone, inline_run);
    pyg_pool_end();
    CHECK(_mm_getcsr() == odd);
    _mm_setcsr(clean);
    for (int i = 0; i < 4; i++) CHECK(seen[i] == 0x1F80u);
    CHECK(alone == 0x1F80u);
}

#else

static void test_float_mode(void) {}

#endif

/* ---- refusals, in a child ------------------------------------------------------------------ */

static int refused_thread(void) {
    /* Room for a few stacks of 8 MiB, not for 199. */
    char line[128] = "";
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fgets(line, sizeof line, file) == NULL) return 1;
    fclose(file);
    const rlim_t now = (rlim_t)atol(line) * (rlim_t)sysconf(_SC_PAGESIZE);
    const struct rlimit limit = {now + (100 << 20), now + (100 << 20)};
    if (setrlimit(RLIMIT_AS, &limit) != 0) return 2;
    if (pyg_pool_begin(200, NULL, NULL) != PYG_STATUS_no_memory) return 3;
    if (strstr(pyg_last_message(), "of 200") == NULL) return 4;
    const int n = pyg_pool_workers() + 1; /* what could be started is usable */
    return n > 1 && n < 200 && run_sums(n, n, 3) == 3 * n * (n - 1) / 2 ? 0 : 5;
}

#ifdef PYG_DEBUG
static void begin_task(void *ctx, int64_t task, int worker) {
    (void)ctx;
    (void)task;
    (void)worker;
    pyg_pool_begin(1, NULL, NULL);
}
#endif

static int nested_begin(void) {
#ifdef PYG_DEBUG
    const struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    signal(SIGILL, _exit); /* the trap, as the exit code of the child */
    signal(SIGTRAP, _exit);
    pyg_pool_begin(1, NULL, NULL);
    pyg_pool_run(begin_task, NULL, 1);
    return 1;
#else
    return 0;
#endif
}

static int status_of(int (*body)(void)) {
    fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        _exit(body());
    }
    int status = -1;
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_refusals(void) {
    if (!SANITIZED) CHECK(status_of(refused_thread) == 0); /* sanitizers reserve address space */
    const int status = status_of(nested_begin);
    CHECK(status == 0 || status == SIGILL || status == SIGTRAP);
}

int main(void) {
    alarm(300);
    test_float_mode();
    test_signals();
    CHECK(pyg_pool_workers() == 3);
    test_ranges();
    test_many_runs();
    test_parking();
    test_unused_workers();
    test_callers();
    test_bad_counts();
    test_refusals();
    return report();
}
