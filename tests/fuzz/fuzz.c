#include "fuzz.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "kernels/kernels.h"

int fuzz_verbose;

void fuzz_start(fuzz_bytes *b, const uint8_t *data, size_t size) {
    b->at = data;
    b->end = data + size;
    b->state = 0x9E3779B97F4A7C15u ^ size;
    for (size_t i = 0; i < size && i < 16; i++) b->state = (b->state ^ data[i]) * 0x100000001B3u;
}

static uint32_t take(fuzz_bytes *b) { return b->at < b->end ? *b->at++ : 0; }

uint32_t fuzz_pick(fuzz_bytes *b, uint32_t n) {
    if (n <= 1) return 0;
    uint32_t v = take(b);
    if (n > 256) v |= take(b) << 8;
    return v % n;
}

bool fuzz_one_in(fuzz_bytes *b, uint32_t n) { return fuzz_pick(b, n) == n - 1; }

int64_t fuzz_edge(fuzz_bytes *b) {
    static const int64_t edges[] = {-1,        0,          1,         2,         31,
                                    32,        33,         255,       256,       INT32_MAX,
                                    INT32_MIN, UINT32_MAX, INT64_MAX, INT64_MIN, (int64_t)1 << 32,
                                    1 << 20,   -2,         1 << 30,   -(1 << 30)};
    const uint32_t n = sizeof edges / sizeof edges[0];
    const uint32_t i = fuzz_pick(b, n + 3);
    if (i < n) return edges[i];
    return (int64_t)(((uint64_t)1 << fuzz_pick(b, 64)) + fuzz_pick(b, 3) - 1);
}

float fuzz_float(fuzz_bytes *b) {
    static const float values[] = {0.5f,  1,     -2,     0,      -0.0f,   1e-5f, 0.125f,
                                   10000, 1e30f, -1e30f, 1e-40f, 3.4e38f, 32,    -(0.0f / 0.0f)};
    const uint32_t n = sizeof values / sizeof values[0];
    const uint32_t i = fuzz_pick(b, n + 2);
    return i < n ? values[i] : (i == n ? 1.0f : -1.0f) / 0.0f;
}

uint64_t fuzz_random(uint64_t *state) {
    uint64_t x = *state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    *state = x;
    return x * 0x2545F4914F6CDD1Du >> 8;
}

static float usual(uint64_t *state) {
    const int64_t v = (int64_t)(fuzz_random(state) % 4096) - 2048;
    return (float)v / 512.0f;
}

static float special(uint64_t *state) {
    static const float values[] = {0.0f / 0.0f, 1.0f / 0.0f, -1.0f / 0.0f, -0.0f,
                                   1e-42f,      3.4e38f,     -3.4e38f,     448.0f};
    const uint64_t r = fuzz_random(state);
    return r % 8 ? usual(state) : values[r / 8 % (sizeof values / sizeof values[0])];
}

static void fill_bytes(fuzz_bytes *b, char *dst, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 8) {
        const uint64_t v = fuzz_random(&b->state);
        memcpy(dst + i, &v, bytes - i < 8 ? bytes - i : 8);
    }
}

static void fill_small(fuzz_bytes *b, char *dst, size_t bytes, size_t width) {
    memset(dst, 0, bytes);
    for (size_t i = 0; i < bytes; i += width) dst[i] = (char)(fuzz_random(&b->state) % 4);
}

void fuzz_fill(fuzz_bytes *b, pyg_dtype dtype, void *dst, int64_t n) {
    const pyg_dtype_info *row = pyg_dtype_row(dtype);
    const size_t bytes = pyg_row_bytes(dtype, n);
    const pyg_from_f32_fn encode = row->flags & PYG_DT_FLOAT ? pyg_from_f32(dtype) : NULL;
    const uint32_t how = fuzz_pick(b, 8);
    if (!(row->flags & PYG_DT_FLOAT) && how < 7) {
        fill_small(b, dst, bytes, (size_t)row->bytes);
    } else if (encode == NULL || how == 7) {
        fill_bytes(b, dst, bytes);
    } else {
        float values[256];
        for (int64_t at = 0; at < n; at += 256) {
            const int64_t m = n - at < 256 ? n - at : 256;
            for (int64_t i = 0; i < m; i++)
                values[i] = how < 5 ? usual(&b->state) : special(&b->state);
            encode(values, (char *)dst + pyg_row_bytes(dtype, at), m);
        }
    }
}

void fuzz_fail(const char *what, ...) {
    va_list args;
    va_start(args, what);
    fflush(stdout);
    fputs("fuzz: ", stderr);
    vfprintf(stderr, what, args);
    fputc('\n', stderr);
    va_end(args);
    abort();
}
