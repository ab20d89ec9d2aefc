/* The vector layer, width 8, third part: the block formats of formats/blocks.h. */
#ifndef PYG_KERNELS_SIMD_AVX2_BLOCKS_H
#define PYG_KERNELS_SIMD_AVX2_BLOCKS_H

#include "kernels/simd/avx2_formats.h"

/* The half at p in all lanes. */
V_INLINE v_f32 v_scale(const char *p) {
    uint16_t d;
    memcpy(&d, p, sizeof d);
    return _mm256_cvtph_ps(_mm_set1_epi16((short)d));
}

/* d m d m d m d m: read as a float, the pair is repeated by the load itself. */
V_INLINE v_f32 v_two_halves(const char *block) {
    typedef float any_float __attribute__((may_alias, aligned(1)));
    const v_f32 both = _mm256_set1_ps(*(const any_float *)(const void *)block);
    return _mm256_cvtph_ps(_mm_castps_si128(_mm256_castps256_ps128(both)));
}

V_INLINE v_f32 v_block_q8_0(const char *block, v_f32 *q) {
    const char *bytes = block + offsetof(pyg_q8_0, q);
    V_UNROLL
    for (int j = 0; j < 4; j++)
        q[j] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v_load64(bytes + 8 * j)));
    return v_scale(block);
}

/* 16 bytes, each widened to 32 bits once: its low four bits are element i, the rest is element i
 * + 16. */
V_INLINE void v_nibbles(const char *bytes, __m256i *n) {
    const __m256i low = _mm256_set1_epi32(15);
    const __m256i a = _mm256_cvtepu8_epi32(v_load64(bytes));
    const __m256i b = _mm256_cvtepu8_epi32(v_load64(bytes + 8));
    n[0] = _mm256_and_si256(a, low);
    n[1] = _mm256_and_si256(b, low);
    n[2] = _mm256_srli_epi32(a, 4);
    n[3] = _mm256_srli_epi32(b, 4);
}

V_INLINE v_f32 v_block_q4_0(const char *block, v_f32 *q) {
    __m256i n[4];
    v_nibbles(block + offsetof(pyg_q4_0, q), n);
    V_UNROLL
    for (int j = 0; j < 4; j++)
        q[j] = _mm256_cvtepi32_ps(_mm256_sub_epi32(n[j], _mm256_set1_epi32(8)));
    return v_scale(block);
}

/* The values themselves: d * sum(q x) + m * sum(x) would lose what cancels between the two sums. */
V_INLINE v_f32 v_block_q4_1(const char *block, v_f32 *q) {
    const v_f32 pairs = v_two_halves(block);
    const v_f32 d = _mm256_moveldup_ps(pairs), m = _mm256_movehdup_ps(pairs);
    __m256i n[4];
    v_nibbles(block + offsetof(pyg_q4_1, q), n);
    V_UNROLL
    for (int j = 0; j < 4; j++) q[j] = v_fma(d, _mm256_cvtepi32_ps(n[j]), m);
    return v_set1(1.0f);
}

/* Quants of five bits: bit 8 j + lane of the four bytes at `high` on top of a nibble. */
V_INLINE void v_quants5(const char *bytes, const char *high, __m256i *n) {
    int32_t bits;
    memcpy(&bits, high, sizeof bits);
    const __m256i all = _mm256_set1_epi32(bits), lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    v_nibbles(bytes, n);
    V_UNROLL
    for (int j = 0; j < 4; j++) {
        const __m256i at = _mm256_add_epi32(lane, _mm256_set1_epi32(8 * j));
        const __m256i bit = _mm256_and_si256(_mm256_srlv_epi32(all, at), _mm256_set1_epi32(1));
        n[j] = _mm256_or_si256(n[j], _mm256_slli_epi32(bit, 4));
    }
}

V_INLINE v_f32 v_block_q5_0(const char *block, v_f32 *q) {
    __m256i n[4];
    v_quants5(block + offsetof(pyg_q5_0, q), block + offsetof(pyg_q5_0, high), n);
    V_UNROLL
    for (int j = 0; j < 4; j++)
        q[j] = _mm256_cvtepi32_ps(_mm256_sub_epi32(n[j], _mm256_set1_epi32(16)));
    return v_scale(block);
}

V_INLINE v_f32 v_block_q5_1(const char *block, v_f32 *q) {
    const v_f32 pairs = v_two_halves(block);
    const v_f32 d = _mm256_moveldup_ps(pairs), m = _mm256_movehdup_ps(pairs);
    __m256i n[4];
    v_quants5(block + offsetof(pyg_q5_1, q), block + offsetof(pyg_q5_1, high), n);
    V_UNROLL
    for (int j = 0; j < 4; j++) q[j] = v_fma(d, _mm256_cvtepi32_ps(n[j]), m);
    return v_set1(1.0f);
}

static inline uint16_t v_half(float x) {
    return (uint16_t)_mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT), 0);
}

static inline float v_reciprocal1(float d) { return d != 0.0f ? 1.0f / d : 0.0f; }

/* Lane i set when element i of the block equals x. */
static inline uint32_t v_where(const v_f32 *x, float value) {
    uint32_t where = 0;
    V_UNROLL
    for (int j = 0; j < 4; j++)
        where |= (uint32_t)_mm256_movemask_ps(v_eq(x[j], v_set1(value))) << (8 * j);
    return where;
}

/* Loads a block; false when an element is NaN or infinite (0 * x is not 0 then). */
V_INLINE int v_load_finite(const float *p, v_f32 *x) {
    v_f32 zero = v_set1(0.0f);
    V_UNROLL
    for (int j = 0; j < 4; j++) {
        x[j] = v_load(p + 8 * j);
        zero = v_fma(x[j], v_set1(0.0f), zero);
    }
    return _mm256_movemask_ps(_mm256_cmp_ps(zero, zero, _CMP_UNORD_Q)) == 0;
}

/* Bytes from four vectors of small integers: packs work in 128-bit halves, the permutation restores
 * order. */
static inline __m256i v_bytes32(const __m256i *n) {
    const __m256i words01 = _mm256_packs_epi32(n[0], n[1]),
                  words23 = _mm256_packs_epi32(n[2], n[3]);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(words01, words23), order);
}

static inline __m128i v_nibble_bytes(const __m256i *n) {
    const __m256i a = _mm256_or_si256(n[0], _mm256_slli_epi32(n[2], 4));
    const __m256i b = _mm256_or_si256(n[1], _mm256_slli_epi32(n[3], 4));
    const __m128i low = v_narrow16(a), high = v_narrow16(b);
    return _mm_packus_epi16(low, high);
}

/* Nearest integer, halves away from zero; NaN gives -127. The difference is exact. */
static inline __m256i v_round_half_away(v_f32 quotient) {
    const v_f32 t = v_min(v_max(quotient, v_set1(-127.0f)), v_set1(127.0f));
    const __m256i whole = _mm256_cvttps_epi32(t);
    const v_f32 rest = v_sub(t, _mm256_cvtepi32_ps(whole));
    const v_mask up = _mm256_cmp_ps(rest, v_set1(0.5f), _CMP_GE_OQ);
    const v_mask down = _mm256_cmp_ps(rest, v_set1(-0.5f), _CMP_LE_OQ);
    return _mm256_add_epi32(_mm256_sub_epi32(whole, _mm256_castps_si256(up)),
                            _mm256_castps_si256(down));
}

static inline void v_encode_q8_0(const float *p, char *block) {
    v_f32 x[4];
    if (!v_load_finite(p, x)) {
        pyg_q8_0_encode(p, block);
        return;
    }
    const v_f32 a = v_max(v_abs(x[0]), v_abs(x[1])), b = v_max(v_abs(x[2]), v_abs(x[3]));
    const float d = v_hmax(v_max(a, b)) / 127.0f;
    const v_f32 inverse = v_set1(v_reciprocal1(d));
    const uint16_t half = v_half(d);
    __m256i n[4];
    V_UNROLL
    for (int j = 0; j < 4; j++) n[j] = v_round_half_away(v_mul(x[j], inverse));
    memcpy(block, &half, sizeof half);
    _mm256_storeu_si256((__m256i *)(void *)(block + offsetof(pyg_q8_0, q)), v_bytes32(n));
}

/* Quants of four bits: x * inverse + half, cut to 0 .. 15. */
V_INLINE __m128i v_quants4(const v_f32 *x, float inverse, float half) {
    __m256i n[4];
    V_UNROLL
    for (int j = 0; j < 4; j++) {
        const v_f32 t = v_add(v_mul(x[j], v_set1(inverse)), v_set1(half));
        n[j] = _mm256_cvttps_epi32(v_min(v_max(t, v_set1(0.0f)), v_set1(15.0f)));
    }
    return v_nibble_bytes(n);
}

/* The first of largest magnitude; +0 when all are zeros, as the scalar code has it. */
V_INLINE float v_extreme(const float *p, const v_f32 *x) {
    v_f32 a[4];
    V_UNROLL
    for (int j = 0; j < 4; j++) a[j] = v_abs(x[j]);
    const float largest = v_hmax(v_max(v_max(a[0], a[1]), v_max(a[2], a[3])));
    return largest > 0.0f ? p[__builtin_ctz(v_where(a, largest))] : 0.0f;
}

/* The largest less the least. */
V_INLINE float v_range(const float *p, const v_f32 *x, float *least) {
    const v_f32 low = v_min(v_min(x[0], x[1]), v_min(x[2], x[3]));
    const v_f32 high = v_max(v_max(x[0], x[1]), v_max(x[2], x[3]));
    /* the first of the least, so that of two zeros the same one is stored as in the scalar code */
    *least = p[__builtin_ctz(v_where(x, -v_hmax(v_neg(low))))];
    /* + 0: a block of zeros may give -0 - 0 here, where the scalar code has +0 */
    return v_hmax(high) - *least + 0.0f;
}

static inline void v_encode_q4_0(const float *p, char *block) {
    v_f32 x[4];
    if (!v_load_finite(p, x)) {
        pyg_q4_0_encode(p, block);
        return;
    }
    const float d = v_extreme(p, x) / -8.0f;
    const uint16_t half = v_half(d);
    memcpy(block, &half, sizeof half);
    v_store128(block + offsetof(pyg_q4_0, q), v_quants4(x, v_reciprocal1(d), 8.5f));
}

static inline void v_encode_q4_1(const float *p, char *block) {
    v_f32 x[4];
    if (!v_load_finite(p, x)) {
        pyg_q4_1_encode(p, block);
        return;
    }
    float least;
    const float d = v_range(p, x, &least) / 15.0f;
    const uint16_t halves[2] = {v_half(d), v_half(least)};
    V_UNROLL
    for (int j = 0; j < 4; j++) x[j] = v_sub(x[j], v_set1(least));
    memcpy(block, halves, sizeof halves);
    v_store128(block + offsetof(pyg_q4_1, q), v_quants4(x, v_reciprocal1(d), 0.5f));
}

/* Quants of five bits: x * inverse + half, cut to 0 .. 31; nibbles as in v_quants4, and the fifth
 * bits, which a shift brings to where a float keeps its sign. */
V_INLINE __m128i v_pack5(const v_f32 *x, float inverse, float half, uint32_t *high) {
    __m256i n[4];
    *high = 0;
    V_UNROLL
    for (int j = 0; j < 4; j++) {
        const v_f32 t = v_add(v_mul(x[j], v_set1(inverse)), v_set1(half));
        const __m256i quant = _mm256_cvttps_epi32(v_min(v_max(t, v_set1(0.0f)), v_set1(31.0f)));
        const v_f32 sign = _mm256_castsi256_ps(_mm256_slli_epi32(quant, 27));
        *high |= (uint32_t)_mm256_movemask_ps(sign) << (8 * j);
        n[j] = _mm256_and_si256(quant, _mm256_set1_epi32(15));
    }
    return v_nibble_bytes(n);
}

static inline void v_encode_q5_0(const float *p, char *block) {
    v_f32 x[4];
    if (!v_load_finite(p, x)) {
        pyg_q5_0_encode(p, block);
        return;
    }
    const float d = v_extreme(p, x) / -16.0f;
    const uint16_t half = v_half(d);
    uint32_t high;
    const __m128i quants = v_pack5(x, v_reciprocal1(d), 16.5f, &high);
    memcpy(block, &half, sizeof half);
    memcpy(block + offsetof(pyg_q5_0, high), &high, sizeof high);
    v_store128(block + offsetof(pyg_q5_0, q), quants);
}

static inline void v_encode_q5_1(const float *p, char *block) {
    v_f32 x[4];
    if (!v_load_finite(p, x)) {
        pyg_q5_1_encode(p, block);
        return;
    }
    float least;
    const float d = v_range(p, x, &least) / 31.0f;
    const uint16_t halves[2] = {v_half(d), v_half(least)};
    uint32_t high;
    V_UNROLL
    for (int j = 0; j < 4; j++) x[j] = v_sub(x[j], v_set1(least));
    const __m128i quants = v_pack5(x, v_reciprocal1(d), 0.5f, &high);
    memcpy(block, halves, sizeof halves);
    memcpy(block + offsetof(pyg_q5_1, high), &high, sizeof high);
    v_store128(block + offsetof(pyg_q5_1, q), quants);
}

#endif
