/* csrc/thread/pool.c after fork(): with parked and spinning workers, in the middle of another
 * thread's job, with callers in the queue; and exit while workers spin. Every child runs jobs of
 * its own; a hang is ended by alarm(). */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "sleep.h"
#include "thread/pool.h"

static void add_task(void *ctx, int64_t task, int worker) {
    (void)worker;
    atomic_fetch_add((_Atomic int64_t *)ctx, task);
}

/* Two jobs with a pause for parking between them. */
static int jobs_work(int n_threads) {
    _Atomic int64_t sum = 0;
    for (int job = 0; job < 2; job++) {
        if (pyg_pool_begin(n_threads, NULL, NULL) != PYG_OK) return 0;
        for (int i = 0; i < 100; i++) pyg_pool_run(add_task, &sum, 10);
        pyg_pool_end();
        sleep_ms(3);
    }
    return atomic_load(&sum) == 45 * 200;
}

static int child_body(void) {
    if (pyg_pool_workers() != 0) return 1;
    /* New workers look at the epoch before anything runs: the parent's last step is not theirs. */
    if (pyg_pool_reserve(3) != PYG_OK) return 4;
    sleep_ms(2);
    if (!jobs_work(3)) return 2;
    if (pyg_pool_workers() != 2) return 3;
    return 0;
}

/* A child of the child. */
static int grandchild_body(void) {
    if (!jobs_work(2)) return 1;
    const pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        _exit(child_body());
    }
    int status = -1;
    return waitpid(pid, &status, 0) == pid && status == 0 && jobs_work(2) ? 0 : 5;
}

/* exit(), not _exit(): handlers run while the workers spin. */
static int exit_body(void) {
    if (!jobs_work(3)) return 1;
    exit(0);
}

static pid_t start(int (*body)(void)) {
    fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        _exit(body());
    }
    return pid;
}

static int finish(pid_t pid) {
    int status = -1;
    return waitpid(pid, &status, 0) == pid ? status : -1;
}

static void test_idle_parent(void) {
    CHECK(finish(start(child_body)) == 0); /* no pool yet */
    CHECK(pyg_pool_workers() == 0);
    CHECK(jobs_work(4));
    for (int i = 0; i < 10; i++) { /* spinning, then parked */
        CHECK(finish(start(child_body)) == 0);
        CHECK(pyg_pool_workers() == 3);
        CHECK(jobs_work(4));
        sleep_ms(i);
    }
    CHECK(finish(start(grandchild_body)) == 0);
    CHECK(finish(start(exit_body)) == 0);
}

static _Atomic int started, released;

static void held_task(void *ctx, int64_t task, int worker) {
    atomic_fetch_add(&started, 1);
    while (!atomic_load(&released)) sleep_ms(1);
    add_task(ctx, task, worker);
}

static void *held_job(void *arg) {
    if (pyg_pool_begin(3, NULL, NULL) != PYG_OK) return arg;
    pyg_pool_run(held_task, arg, 3);
    pyg_pool_end();
    return NULL;
}

static void *queued_job(void *arg) { return jobs_work(2) ? NULL : arg; }

static void test_fork_in_job(void) {
    _Atomic int64_t sum = 0;
    pthread_t holder, queued;
    void *result;
    CHECK(pthread_create(&holder, NULL, held_job, &sum) == 0);
    while (atomic_load(&started) < 3) sleep_ms(1);
    CHECK(pthread_create(&queued, NULL, queued_job, &sum) == 0);
    sleep_ms(20);
    const pid_t a = start(child_body), b = start(grandchild_body);
    CHECK(finish(a) == 0);
    CHECK(finish(b) == 0);
    atomic_store(&released, 1);
    CHECK(pthread_join(holder, &result) == 0 && result == NULL);
    CHECK(pthread_join(queued, &result) == 0 && result == NULL);
    CHECK(atomic_load(&sum) == 3);
    CHECK(jobs_work(4));
}

static _Atomic int stop;

static void *busy_jobs(void *arg) {
    while (!atomic_load(&stop))
        if (!jobs_work(1 + (int)(intptr_t)arg)) return arg;
    return NULL;
}

/* Forks at arbitrary moments of two competing callers. */
static void test_fork_storm(void) {
    pthread_t t[2];
    void *result;
    for (intptr_t i = 0; i < 2; i++)
        CHECK(pthread_create(&t[i], NULL, busy_jobs, (void *)(i + 1)) == 0);
    for (int i = 0; i < 40; i++) CHECK(finish(start(child_body)) == 0);
    atomic_store(&stop, 1);
    for (int i = 0; i < 2; i++) CHECK(pthread_join(t[i], &result) == 0 && result == NULL);
}

static int forked_in_own_job(void) {
    pyg_pool_end(); /* of a job that the child does not have */
    return child_body();
}

static void test_fork_by_caller(void) {
    CHECK(pyg_pool_begin(3, NULL, NULL) == PYG_OK);
    CHECK(finish(start(forked_in_own_job)) == 0);
    pyg_pool_end();
    CHECK(jobs_work(3));
}

int main(void) {
    alarm(300);
    test_idle_parent();
    test_fork_in_job();
    test_fork_storm();
    test_fork_by_caller();
    return report();
}
