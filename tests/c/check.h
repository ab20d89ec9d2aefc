/* What the C tests share: CHECK counts and names failures, report() prints the sums and gives
 * main's result. */
#ifndef PYG_TESTS_CHECK_H
#define PYG_TESTS_CHECK_H

#include <stdio.h>

static int n_passed, n_failed;

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (cond) {                                                                                \
            n_passed++;                                                                            \
        } else {                                                                                   \
            n_failed++;                                                                            \
            printf("%s:%d: failed: %s\n", __FILE__, __LINE__, #cond);                              \
        }                                                                                          \
    } while (0)

static int report(void) {
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed != 0;
}

#endif
