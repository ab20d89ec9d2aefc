/* Sleeping on a 32-bit word, for pool.c alone: the Linux futex, or one mutex and condition
 * elsewhere.
 *
 * pyg_futex_wait returns when woken, when *word is not `expected`, or for no reason: callers look
 * again. A waker changes the word first. pyg_futex_after_fork makes the child's state fresh. */
#ifndef PYG_THREAD_FUTEX_H
#define PYG_THREAD_FUTEX_H

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#if defined(__linux__)

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

static inline void pyg_futex_wait(_Atomic uint32_t *word, uint32_t expected) {
    syscall(SYS_futex, (void *)word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

static inline void pyg_futex_wake_all(_Atomic uint32_t *word) {
    syscall(SYS_futex, (void *)word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static inline void pyg_futex_after_fork(void) {}

#else

/* One condition for all words: a wake disturbs every sleeper, which is rare and only costs time. */
static pthread_mutex_t futex_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t futex_cond = PTHREAD_COND_INITIALIZER;

static inline void pyg_futex_wait(_Atomic uint32_t *word, uint32_t expected) {
    pthread_mutex_lock(&futex_mutex);
    if (atomic_load(word) == expected) pthread_cond_wait(&futex_cond, &futex_mutex);
    pthread_mutex_unlock(&futex_mutex);
}

static inline void pyg_futex_wake_all(_Atomic uint32_t *word) {
    (void)word;
    pthread_mutex_lock(&futex_mutex);
    pthread_cond_broadcast(&futex_cond);
    pthread_mutex_unlock(&futex_mutex);
}

static inline void pyg_futex_after_fork(void) {
    /* Another thread of the parent may have held the mutex or slept on the condition: start anew.
     */
    pthread_mutex_init(&futex_mutex, NULL);
    pthread_cond_init(&futex_cond, NULL);
}

#endif

#endif
