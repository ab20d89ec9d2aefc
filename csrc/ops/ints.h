/* Integer arithmetic that plans share. Lengths are >= 0, divisors > 0. */
#ifndef PYG_OPS_INTS_H
#define PYG_OPS_INTS_H

#include <stdint.h>

static inline int64_t pyg_min64(int64_t a, int64_t b) { return a < b ? a : b; }

static inline int64_t pyg_max64(int64_t a, int64_t b) { return a > b ? a : b; }

static inline int64_t pyg_ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

static inline int64_t pyg_round_up(int64_t a, int64_t to) { return pyg_ceil_div(a, to) * to; }

/* INT64_MAX on overflow. */
static inline int64_t pyg_saturating_mul(int64_t a, int64_t b) {
    int64_t n;
    return __builtin_mul_overflow(a, b, &n) ? INT64_MAX : n;
}

#endif
