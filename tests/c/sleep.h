/* Waiting in tests of threads. Files that include it ask for POSIX first. */
#ifndef PYG_TESTS_C_SLEEP_H
#define PYG_TESTS_C_SLEEP_H

#include <time.h>

static inline void sleep_ms(int ms) {
    const struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&t, NULL);
}

#endif
