/* What the other bodies share. A body is included by each spine after its vector header. */
#ifndef PYG_KERNELS_BODY_COMMON_H
#define PYG_KERNELS_BODY_COMMON_H

#include "kernels/simd/unroll.h"

typedef v_f32 (*v_binary_fn)(v_f32 a, v_f32 b);
typedef v_f32 (*v_load_fn)(const char *codes);
typedef void (*v_store_fn)(char *codes, v_f32 a);
typedef v_f32 (*v_block_fn)(const char *block, v_f32 *q);
typedef void (*v_super_fn)(const char *block, v_super *s);
typedef void (*v_group_fn)(const char *block, const v_super *s, int g, v_f32 *q);
typedef void (*v_encode_fn)(const float *x, char *block);

/* The last n < V_WIDTH codes, zeros after them; nothing past them is read. */
V_INLINE v_f32 load_tail(v_load_fn load, const char *codes, int n_bytes) {
    char window[V_WIDTH * 4] = {0};
    for (int i = 0; i < n_bytes; i++) window[i] = codes[i];
    return load(window);
}

/* The first n_bytes of what `store` makes of a. */
V_INLINE void store_tail(v_store_fn store, char *codes, v_f32 a, int n_bytes) {
    char window[V_WIDTH * 4];
    store(window, a);
    for (int i = 0; i < n_bytes; i++) codes[i] = window[i];
}

#endif
