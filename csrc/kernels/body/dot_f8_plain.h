/* dot_f8_e4m3 and mv_f8_e4m3 over v_load_f8_e4m3, for vector layers without a faster way. */
#ifndef PYG_KERNELS_BODY_DOT_F8_PLAIN_H
#define PYG_KERNELS_BODY_DOT_F8_PLAIN_H

#include "kernels/body/dot.h"

static float K(dot_f8_e4m3)(int64_t n, const void *w, const float *x) {
    float y;
    dot_rows(1, v_load_f8_e4m3, 1, n, w, 0, x, &y);
    return y;
}
static void K(mv_f8_e4m3)(int64_t n, int64_t rows, const void *w, size_t w_stride, const float *x,
                          float *y) {
    mv_rows(v_load_f8_e4m3, 1, n, rows, w, w_stride, x, y);
}

#endif
