/* What the C fuzz targets share: numbers out of the input's bytes, filled memory, reports.
 *
 * A target is a function of bytes, as libFuzzer wants it. The bytes choose structure; contents of
 * tensors come from a generator that the bytes seed, so that short inputs suffice. */
#ifndef PYG_TESTS_FUZZ_H
#define PYG_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/tensor.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* Called once before the first input; reads PYGGML_ISA. */
int LLVMFuzzerInitialize(int *argc, char ***argv);
/* Printed by fuzz_main.c at its end: what was reached. Returns 1 when a row of a table was not. */
int fuzz_report(uint64_t inputs);

typedef struct fuzz_bytes {
    const uint8_t *at, *end;
    uint64_t state; /* of the generator */
} fuzz_bytes;

void fuzz_start(fuzz_bytes *b, const uint8_t *data, size_t size);
/* The next bytes as a number in [0, n); 0 when there are none left. */
uint32_t fuzz_pick(fuzz_bytes *b, uint32_t n);
/* True in 1 of n cases. */
bool fuzz_one_in(fuzz_bytes *b, uint32_t n);
/* A wild integer: edges of the types, small ones among them. */
int64_t fuzz_edge(fuzz_bytes *b);
float fuzz_float(fuzz_bytes *b);
/* The generator's next number; takes no bytes. */
uint64_t fuzz_random(uint64_t *state);

/* Fills n elements of a dtype: usual values, raw bytes, or values with NaN, infinities and
 * denormals among them; mostly small numbers for integers. Whole blocks. */
void fuzz_fill(fuzz_bytes *b, pyg_dtype dtype, void *dst, int64_t n);

/* Says what is wrong and ends the process; fuzz_main.c adds which input it was. */
void fuzz_fail(const char *what, ...);
extern int fuzz_verbose; /* tell what is built and refused */

#endif
