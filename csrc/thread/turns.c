/* A queue of waiters in the order of their numbers, each on the stack of the thread that waits. */
#define _GNU_SOURCE
#include "thread/turns.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <time.h>

#include "core/status.h"

/* The clock of timed waits: one that nobody sets, where conditions can have it. */
#ifdef __linux__
#define WAIT_CLOCK CLOCK_MONOTONIC
#else
#define WAIT_CLOCK CLOCK_REALTIME
#endif

typedef struct waiter {
    uint64_t number;
    struct waiter *next;
} waiter;

static struct {
    pthread_mutex_t mutex; /* of all that follows */
    pthread_cond_t changed;
    uint64_t numbers; /* given out */
    waiter *first;
    bool taken;
} turns = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static pthread_once_t ready = PTHREAD_ONCE_INIT;

static void make_condition(void) {
    pthread_condattr_t how;
    pthread_condattr_init(&how);
#ifdef __linux__
    pthread_condattr_setclock(&how, WAIT_CLOCK);
#endif
    pthread_cond_init(&turns.changed, &how);
    pthread_condattr_destroy(&how);
}

static void queue_up(waiter *me) {
    waiter **at = &turns.first;
    while (*at != NULL && (*at)->number < me->number) at = &(*at)->next;
    me->next = *at;
    *at = me;
}

static void leave(const waiter *me) {
    waiter **at = &turns.first;
    while (*at != me) at = &(*at)->next;
    *at = me->next;
}

/* True when something may have changed, false when it is time to poll. */
static bool wait_for_change(bool polls) {
    if (!polls) return pthread_cond_wait(&turns.changed, &turns.mutex) == 0;
    struct timespec until;
    clock_gettime(WAIT_CLOCK, &until);
    until.tv_nsec += PYG_POLL_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    return pthread_cond_timedwait(&turns.changed, &turns.mutex, &until) != ETIMEDOUT;
}

pyg_status pyg_turn_begin(pyg_poll_fn poll, void *poll_ctx) {
    pthread_once(&ready, make_condition);
    pthread_mutex_lock(&turns.mutex);
    waiter me = {.number = turns.numbers++};
    queue_up(&me);
    bool changed = true;
    while (turns.taken || turns.first != &me) {
        if (changed) {
            changed = wait_for_change(poll != NULL);
            continue;
        }
        leave(&me);
        pthread_mutex_unlock(&turns.mutex);
        if (poll(poll_ctx)) return pyg_fail(PYG_STATUS_cancelled, "the run was stopped");
        pthread_mutex_lock(&turns.mutex);
        queue_up(&me);
        changed = true;
    }
    leave(&me);
    turns.taken = true;
    pthread_mutex_unlock(&turns.mutex);
    return PYG_OK;
}

void pyg_turn_end(void) {
    pthread_mutex_lock(&turns.mutex);
    turns.taken = false;
    pthread_cond_broadcast(&turns.changed);
    pthread_mutex_unlock(&turns.mutex);
}

void pyg_turns_after_fork(void) {
    pthread_mutex_init(&turns.mutex, NULL);
    make_condition();
    turns.first = NULL;
    turns.taken = false;
}
