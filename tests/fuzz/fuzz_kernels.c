/* Conversions and dots of every dtype on random bytes, in every instruction set.
 *
 * What must hold: decoding and encoding give the bits of the generic set; dots stay within the
 * bound of kernels/kernels.h, or are not finite where the exact sum may not be; n = 0 gives 0; mv
 * gives the bits of dot; nothing is read or written outside the operands. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "kernels/kernels.h"

enum { MAX_ISAS = 8, MAX_UNITS = 96 };

typedef struct kernels {
    pyg_to_f32_fn to_f32;
    pyg_from_f32_fn from_f32;
    pyg_dot_fn dot;
    pyg_mv_fn mv;
} kernels;

static kernels table[MAX_ISAS][PYG_N_DTYPES];
static const char *isa_names[MAX_ISAS];
static int n_isas;
static uint64_t n_decoded[PYG_N_DTYPES], n_encoded[PYG_N_DTYPES], n_dots[PYG_N_DTYPES];

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    for (; n_isas < MAX_ISAS && pyg_isa_at(n_isas) != NULL; n_isas++) {
        isa_names[n_isas] = pyg_isa_at(n_isas);
        if (pyg_isa_init(isa_names[n_isas]) != PYG_OK) fuzz_fail("%s", pyg_last_message());
        for (int d = 0; d < PYG_N_DTYPES; d++) {
            if (!(pyg_dtype_row((pyg_dtype)d)->flags & PYG_DT_FLOAT)) continue;
            table[n_isas][d] = (kernels){pyg_to_f32((pyg_dtype)d), pyg_from_f32((pyg_dtype)d),
                                         pyg_dot((pyg_dtype)d), pyg_mv((pyg_dtype)d)};
        }
    }
    if (n_isas == 0 || strcmp(isa_names[0], "generic") != 0) fuzz_fail("no generic set");
    return 0;
}

/* Memory that ends where the bytes end, `shift` bytes from an aligned address. */
static char *exact(size_t bytes, size_t shift, char **base) {
    *base = malloc(bytes + shift + 1);
    return *base + shift;
}

/* The bits, but for NaN out of a block: of scale x code + minimum with two NaN, C lets the compiler
 * choose whose payload remains. */
static bool same_values(int d, const float *a, const float *b, int64_t n) {
    const bool any_nan = pyg_dtype_row((pyg_dtype)d)->block > 1;
    for (int64_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof a[i]) != 0 && !(any_nan && isnan(a[i]) && isnan(b[i])))
            return false;
    return true;
}

static void decode(int d, const void *w, int64_t n, float *out) {
    const size_t bytes = (size_t)n * sizeof(float);
    table[0][d].to_f32(w, out, n);
    for (int k = 1; k < n_isas; k++) {
        float *other = malloc(bytes + 1);
        table[k][d].to_f32(w, other, n);
        if (!same_values(d, out, other, n))
            fuzz_fail("to_f32 of %s, n = %lld: %s differs", pyg_dtype_row((pyg_dtype)d)->name,
                      (long long)n, isa_names[k]);
        free(other);
    }
    n_decoded[d]++;
}

static void encode(int d, const float *x, int64_t n) {
    if (table[0][d].from_f32 == NULL) return;
    const size_t bytes = pyg_row_bytes((pyg_dtype)d, n);
    char *first = malloc(bytes + 1), *other = malloc(bytes + 1);
    table[0][d].from_f32(x, first, n);
    for (int k = 1; k < n_isas; k++) {
        table[k][d].from_f32(x, other, n);
        if (memcmp(first, other, bytes) != 0)
            fuzz_fail("from_f32 to %s, n = %lld: %s differs", pyg_dtype_row((pyg_dtype)d)->name,
                      (long long)n, isa_names[k]);
    }
    free(first);
    free(other);
    n_encoded[d]++;
}

/* `values` is w decoded. */
static void dot(int d, const void *w, const float *values, const float *x, int64_t n) {
    double sum = 0, size = 0, largest = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += (double)values[i] * (double)x[i];
        size += fabs((double)values[i] * (double)x[i]);
        if (fabs((double)x[i]) > largest) largest = fabs((double)x[i]);
    }
    /* scaled products may be denormal before their sum is scaled back: hence 2^-136 */
    const double bound = ((double)n + 8) * (0x1p-24 * size + 0x1p-136);
    const size_t w_bytes = pyg_row_bytes((pyg_dtype)d, n);
    for (int k = 0; k < n_isas; k++) {
        if (table[k][d].dot == NULL) continue;
        const float got = table[k][d].dot(n, w, x);
        const char *name = pyg_dtype_row((pyg_dtype)d)->name;
        if (n == 0 && got != 0) fuzz_fail("dot of %s, n = 0: %g", name, (double)got);
        if (isnan(size) && !isnan(got) && !isinf(got))
            fuzz_fail("dot of %s, %s, n = %lld: a NaN is lost", name, isa_names[k], (long long)n);
        /* a block's codes may be summed before its scale is applied: no bound near overflow */
        if (size < 1e37 && largest < 1e30 && !(fabs((double)got - sum) <= bound))
            fuzz_fail("dot of %s, %s, n = %lld: %g, exactly %g, bound %g", name, isa_names[k],
                      (long long)n, (double)got, sum, bound);
        float rows[3] = {1, 1, 1};
        if (table[k][d].mv != NULL) {
            table[k][d].mv(n, 3, w, 0, x, rows);
            const bool same = memcmp(&rows[0], &got, 4) == 0 && memcmp(&rows[2], &got, 4) == 0;
            if (!same && !(isnan(got) && isnan(rows[0]) && isnan(rows[2])))
                fuzz_fail("mv of %s, %s, n = %lld differs from dot", name, isa_names[k],
                          (long long)n);
        }
    }
    n_dots[d] += w_bytes > 0;
}

static void tell(const pyg_dtype_info *row, const char *w, int64_t units) {
    printf("%s, blocks of %d bytes:", row->name, row->bytes);
    for (int64_t i = 0; i < units * row->bytes; i++)
        printf("%s%02x", i % row->bytes ? "" : " ", (unsigned char)w[i]);
    printf("\n");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_bytes b;
    fuzz_start(&b, data, size);
    const int d = (int)fuzz_pick(&b, PYG_N_DTYPES);
    if (table[0][d].to_f32 == NULL) return 0;
    const pyg_dtype_info *row = pyg_dtype_row((pyg_dtype)d);
    int64_t units = fuzz_pick(&b, row->block > 1 ? 9 : MAX_UNITS);
    if (row->block > 64) units %= 4;
    const int64_t n = units * row->block;
    const size_t align = row->block > 1 ? 1 : (size_t)row->bytes;
    char *w_base, *x_base;
    char *w = exact(pyg_row_bytes((pyg_dtype)d, n), align * fuzz_pick(&b, 5), &w_base);
    float *x = (float *)(void *)exact((size_t)n * 4, 4 * fuzz_pick(&b, 5), &x_base);
    float *values = malloc((size_t)n * 4 + 1);
    fuzz_fill(&b, (pyg_dtype)d, w, n);
    if (fuzz_verbose) tell(row, w, units);
    fuzz_fill(&b, PYG_DTYPE_f32, x, n);
    decode(d, w, n, values);
    encode(d, x, n);
    encode(d, values, n);
    dot(d, w, values, x, n);
    free(values);
    free(w_base);
    free(x_base);
    return 0;
}

int fuzz_report(uint64_t inputs) {
    int missing = 0;
    (void)inputs;
    printf("instruction sets:");
    for (int i = 0; i < n_isas; i++) printf(" %s", isa_names[i]);
    printf("\n");
    for (int d = 0; d < PYG_N_DTYPES; d++) {
        if (table[0][d].to_f32 == NULL) continue;
        missing += n_decoded[d] == 0 || (table[0][d].dot != NULL && n_dots[d] == 0);
        printf("dtype %-10s decoded %9llu encoded %9llu dots %9llu\n",
               pyg_dtype_row((pyg_dtype)d)->name, (unsigned long long)n_decoded[d],
               (unsigned long long)n_encoded[d], (unsigned long long)n_dots[d]);
    }
    return missing > 0;
}
