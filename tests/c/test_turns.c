/* csrc/thread/turns.c by way of the pool: order, polling while waiting, and jobs inside a poll. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "sleep.h"
#include "thread/pool.h"

static _Atomic int polls, order, refused;

typedef struct caller {
    pthread_t thread;
    pyg_poll_fn poll;
    _Atomic int begun; /* about to wait */
    pyg_status status;
    int place; /* in the order of the turns, from 1 */
} caller;

static void *take_turn(void *arg) {
    caller *me = arg;
    atomic_store(&me->begun, 1);
    me->status = pyg_pool_begin(2, me->poll, me);
    if (me->status != PYG_OK) return NULL;
    me->place = atomic_fetch_add(&order, 1) + 1;
    pyg_pool_end();
    return NULL;
}

/* Starts it and gives it time to queue up. */
static void start(caller *who) {
    CHECK(pthread_create(&who->thread, NULL, take_turn, who) == 0);
    while (!atomic_load(&who->begun)) sleep_ms(1);
    sleep_ms(20);
}

static void join(caller *who) { CHECK(pthread_join(who->thread, NULL) == 0); }

static int count_polls(void *ctx) {
    (void)ctx;
    atomic_fetch_add(&polls, 1);
    return 0;
}

static int stop(void *ctx) {
    count_polls(ctx);
    return 1;
}

static void wait_for_polls(int n) {
    while (atomic_load(&polls) < n) sleep_ms(1);
}

static void test_first_come_first_served(void) {
    caller c[4] = {{.poll = NULL}, {.poll = count_polls}, {.poll = NULL}, {.poll = count_polls}};
    atomic_store(&polls, 0);
    atomic_store(&order, 0);
    CHECK(pyg_pool_begin(1, NULL, NULL) == PYG_OK);
    for (int i = 0; i < 4; i++) start(&c[i]);
    wait_for_polls(6); /* each was out of the queue and came back to its place */
    pyg_pool_end();
    for (int i = 0; i < 4; i++) {
        join(&c[i]);
        CHECK(c[i].status == PYG_OK && c[i].place == i + 1);
    }
}

static void test_who_gives_up_is_not_waited_for(void) {
    caller quits = {.poll = stop}, stays = {.poll = NULL};
    atomic_store(&order, 0);
    CHECK(pyg_pool_begin(1, NULL, NULL) == PYG_OK);
    start(&quits);
    start(&stays);
    join(&quits); /* while the job runs */
    CHECK(quits.status == PYG_STATUS_cancelled);
    pyg_pool_end();
    join(&stays);
    CHECK(stays.status == PYG_OK && stays.place == 1);
}

/* What a signal handler of Python may do. */
static int run_a_job(void *ctx) {
    (void)ctx;
    if (pyg_pool_begin(2, NULL, NULL) == PYG_OK)
        pyg_pool_end();
    else
        atomic_fetch_add(&refused, 1);
    return 0;
}

static void test_a_job_inside_a_poll(void) {
    caller c[2] = {{.poll = run_a_job}, {.poll = run_a_job}};
    CHECK(pyg_pool_begin(1, NULL, NULL) == PYG_OK);
    for (int i = 0; i < 2; i++) start(&c[i]);
    sleep_ms(120); /* both wait inside of their polls now */
    pyg_pool_end();
    for (int i = 0; i < 2; i++) {
        join(&c[i]);
        CHECK(c[i].status == PYG_OK);
    }
    CHECK(atomic_load(&refused) == 0);
}

int main(void) {
    alarm(120);
    test_first_come_first_served();
    test_who_gives_up_is_not_waited_for();
    test_a_job_inside_a_poll();
    return report();
}
