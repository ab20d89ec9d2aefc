/* The vector layer, width 8, fourth part: the formats of formats/fp4.h and formats/k_quants.h.
 *
 * v_super_X turns the scales of a block into floats; v_group_X takes 32 codes apart, widens them
 * and scales. Codes are shifted in 16-bit lanes: the mask removes what the neighbour brought. */
#ifndef PYG_KERNELS_SIMD_AVX2_SUPERBLOCKS_H
#define PYG_KERNELS_SIMD_AVX2_SUPERBLOCKS_H

#include "kernels/simd/avx2_blocks.h"

typedef struct v_super {
    float scale[16], min[16]; /* of 16 elements each; of 32 in q4_k, q5_k, iq4_xs */
} v_super;

/* 32 signed bytes to four vectors. */
V_INLINE void v_spread(__m256i bytes, v_f32 *q) {
    const __m128i low = _mm256_castsi256_si128(bytes), high = _mm256_extracti128_si256(bytes, 1);
    q[0] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(low));
    q[1] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(low, 8)));
    q[2] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(high));
    q[3] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(high, 8)));
}

/* The bits at `shift` of every byte, `mask` wide. */
V_INLINE __m256i v_field(__m256i bytes, int shift, int mask) {
    return _mm256_and_si256(_mm256_srli_epi16(bytes, shift), _mm256_set1_epi8((char)mask));
}

V_INLINE uint32_t v_u32(const char *p) {
    uint32_t bits;
    memcpy(&bits, p, sizeof bits);
    return bits;
}

/* Eight bytes, the first in the lowest, times d. */
V_INLINE void v_scales8(uint64_t bytes, v_f32 d, float *scale) {
    const __m256i wide = _mm256_cvtepi8_epi32(_mm_set_epi64x(0, (long long)bytes));
    v_store(scale, v_mul(d, _mm256_cvtepi32_ps(wide)));
}

V_INLINE uint64_t v_pair(uint32_t low, uint32_t high) { return low | (uint64_t)high << 32; }

/* Values of a group whose halves of 16 have scales of their own. */
V_INLINE void v_times(const float *scale, v_f32 *q) {
    V_UNROLL
    for (int j = 0; j < 4; j++) q[j] = v_mul(v_set1(scale[j / 2]), q[j]);
}

/* The product is exact, so that the fused step rounds as the scalar code does. */
V_INLINE void v_times_less(v_f32 scale, v_f32 min, v_f32 *q) {
    *q = _mm256_fmsub_ps(scale, *q, min);
}

/* ---- tables of 16 codes ---- */

static const int8_t v_curve[16] = {PYG_IQ4_CURVE};
static const int8_t v_twice[16] = {PYG_E2M1_TWICE};

/* The low nibbles of 16 bytes in the lower half, the high ones in the upper, looked up. */
V_INLINE __m256i v_look_up(const int8_t *table, const char *p) {
    const __m128i bytes = v_load128(p), t = v_load128((const char *)table);
    const __m256i both =
        _mm256_inserti128_si256(_mm256_castsi128_si256(bytes), _mm_srli_epi16(bytes, 4), 1);
    const __m256i codes = _mm256_and_si256(both, _mm256_set1_epi8(15));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(t), codes);
}

V_INLINE v_f32 v_block_iq4_nl(const char *block, v_f32 *q) {
    v_spread(v_look_up(v_curve, block + offsetof(pyg_iq4_nl, q)), q);
    return v_scale(block);
}

/* Values and no scale: 12 * 2^127 is infinity in every sum. */
V_INLINE v_f32 v_block_mxfp4(const char *block, v_f32 *q) {
    const uint32_t e = (uint8_t)block[0];
    if (e < 2) { /* the unit would be denormal */
        float y[32];
        pyg_mxfp4_decode(block, y);
        V_UNROLL
        for (int j = 0; j < 4; j++) q[j] = v_load(y + 8 * j);
    } else {
        v_spread(v_look_up(v_twice, block + offsetof(pyg_mxfp4, q)), q);
        V_UNROLL
        for (int j = 0; j < 4; j++) q[j] = v_mul(v_bits((e - 1) << 23), q[j]);
    }
    return v_set1(1.0f);
}

V_INLINE void v_super_iq4_xs(const char *block, v_super *s) {
    const v_f32 d = v_scale(block);
    const uint32_t low = v_u32(block + offsetof(pyg_iq4_xs, low));
    uint16_t high;
    memcpy(&high, block + offsetof(pyg_iq4_xs, high), sizeof high);
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i nibbles =
        _mm256_srlv_epi32(_mm256_set1_epi32((int32_t)low), _mm256_slli_epi32(lane, 2));
    const __m256i pairs = _mm256_srlv_epi32(_mm256_set1_epi32(high), _mm256_slli_epi32(lane, 1));
    const __m256i upper = _mm256_and_si256(pairs, _mm256_set1_epi32(3));
    const __m256i six = _mm256_or_si256(_mm256_and_si256(nibbles, _mm256_set1_epi32(15)),
                                        _mm256_slli_epi32(upper, 4));
    const __m256i scale = _mm256_sub_epi32(six, _mm256_set1_epi32(32));
    v_store(s->scale, v_mul(d, _mm256_cvtepi32_ps(scale)));
}

V_INLINE void v_group_iq4_xs(const char *block, const v_super *s, int g, v_f32 *q) {
    v_spread(v_look_up(v_curve, block + offsetof(pyg_iq4_xs, q) + 16 * g), q);
    V_UNROLL
    for (int j = 0; j < 4; j++) q[j] = v_mul(v_set1(s->scale[g]), q[j]);
}

V_INLINE void v_super_nvfp4(const char *block, v_super *s) {
    V_UNROLL
    for (int a = 0; a < 4; a++) {
        const uint32_t code = (uint8_t)block[a], magnitude = code & 0x7F;
        const float small = (float)(int32_t)magnitude * 0x1p-10f;
        const float normal = v_first(v_bits((magnitude << 20) + (119u << 23)));
        s->scale[a] = code == 0x7F ? 0.0f : magnitude < 8 ? small : normal;
    }
}

/* 16 bytes are two groups of 16: a quarter of the shuffled halves each. */
V_INLINE void v_group_nvfp4(const char *block, const v_super *s, int g, v_f32 *q) {
    const __m256i codes = v_look_up(v_twice, block + offsetof(pyg_nvfp4, q) + 16 * g);
    v_spread(_mm256_permute4x64_epi64(codes, 0xD8), q);
    v_times(s->scale + 2 * g, q);
}

/* ---- K formats ---- */

V_INLINE void v_super_q2_k(const char *block, v_super *s) {
    const v_f32 d = v_scale(block + offsetof(pyg_q2_k, d));
    const v_f32 dmin = v_scale(block + offsetof(pyg_q2_k, dmin));
    V_UNROLL
    for (int half = 0; half < 16; half += 8) {
        uint64_t bytes;
        memcpy(&bytes, block + offsetof(pyg_q2_k, scales) + half, sizeof bytes);
        v_scales8(bytes & 0x0F0F0F0F0F0F0F0Fu, d, s->scale + half);
        v_scales8(bytes >> 4 & 0x0F0F0F0F0F0F0F0Fu, dmin, s->min + half);
    }
}

V_INLINE void v_group_q2_k(const char *block, const v_super *s, int g, v_f32 *q) {
    const __m256i bytes = v_load256(block + offsetof(pyg_q2_k, q) + 32 * (g / 4));
    v_spread(v_field(bytes, 2 * (g % 4), 3), q);
    V_UNROLL
    for (int j = 0; j < 4; j++)
        v_times_less(v_set1(s->scale[2 * g + j / 2]), v_set1(s->min[2 * g + j / 2]), &q[j]);
}

V_INLINE void v_super_q3_k(const char *block, v_super *s) {
    const v_f32 d = v_scale(block + offsetof(pyg_q3_k, d));
    const char *p = block + offsetof(pyg_q3_k, scales);
    const uint64_t low = v_pair(v_u32(p), v_u32(p + 4)), nibbles = 0x0F0F0F0F0F0F0F0Fu;
    const uint32_t high = v_u32(p + 8), pairs = 0x03030303u;
    /* six bits less 32: the top bit turned over and carried up */
    const uint64_t a = (low & nibbles) | v_pair(high & pairs, high >> 2 & pairs) << 4;
    const uint64_t b = (low >> 4 & nibbles) | v_pair(high >> 4 & pairs, high >> 6 & pairs) << 4;
    const __m128i six = _mm_set_epi64x((long long)b, (long long)a);
    const __m128i scale = _mm_sub_epi8(six, _mm_set1_epi8(32));
    v_store(s->scale, v_mul(d, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(scale))));
    const __m256i upper = _mm256_cvtepi8_epi32(_mm_srli_si128(scale, 8));
    v_store(s->scale + 8, v_mul(d, _mm256_cvtepi32_ps(upper)));
}

V_INLINE void v_group_q3_k(const char *block, const v_super *s, int g, v_f32 *q) {
    const __m256i low = v_load256(block + offsetof(pyg_q3_k, q) + 32 * (g / 4));
    const __m256i high = v_load256(block + offsetof(pyg_q3_k, high));
    const __m256i bit = _mm256_slli_epi16(v_field(high, g, 1), 2);
    const __m256i quant = _mm256_or_si256(v_field(low, 2 * (g % 4), 3), bit);
    v_spread(_mm256_sub_epi8(quant, _mm256_set1_epi8(4)), q);
    v_times(s->scale + 2 * g, q);
}

/* The scales of q4_k and q5_k, the same at the same place: four bytes hold one kind of bits. */
V_INLINE void v_super_q4_k(const char *block, v_super *s) {
    const v_f32 pairs = v_two_halves(block);
    const v_f32 d = _mm256_moveldup_ps(pairs), dmin = _mm256_movehdup_ps(pairs);
    const char *p = block + offsetof(pyg_q4_k, scales);
    const uint32_t a = v_u32(p), b = v_u32(p + 4), c = v_u32(p + 8);
    const uint32_t six = 0x3F3F3F3Fu, nibbles = 0x0F0F0F0Fu, two = 0x30303030u;
    v_scales8(v_pair(a & six, (c & nibbles) | (a >> 2 & two)), d, s->scale);
    v_scales8(v_pair(b & six, (c >> 4 & nibbles) | (b >> 2 & two)), dmin, s->min);
}

V_INLINE void v_group_q4_k(const char *block, const v_super *s, int g, v_f32 *q) {
    const __m256i bytes = v_load256(block + offsetof(pyg_q4_k, q) + 32 * (g / 2));
    v_spread(v_field(bytes, 4 * (g % 2), 15), q);
    V_UNROLL
    for (int j = 0; j < 4; j++) v_times_less(v_set1(s->scale[g]), v_set1(s->min[g]), &q[j]);
}

V_INLINE void v_super_q5_k(const char *block, v_super *s) { v_super_q4_k(block, s); }

V_INLINE void v_group_q5_k(const char *block, const v_super *s, int g, v_f32 *q) {
    const __m256i bytes = v_load256(block + offsetof(pyg_q5_k, q) + 32 * (g / 2));
    const __m256i high = v_load256(block + offsetof(pyg_q5_k, high));
    const __m256i bit = _mm256_slli_epi16(v_field(high, g, 1), 4);
    v_spread(_mm256_or_si256(v_field(bytes, 4 * (g % 2), 15), bit), q);
    V_UNROLL
    for (int j = 0; j < 4; j++) v_times_less(v_set1(s->scale[g]), v_set1(s->min[g]), &q[j]);
}

V_INLINE void v_super_q6_k(const char *block, v_super *s) {
    const v_f32 d = v_scale(block + offsetof(pyg_q6_k, d));
    V_UNROLL
    for (int half = 0; half < 16; half += 8) {
        uint64_t bytes;
        memcpy(&bytes, block + offsetof(pyg_q6_k, scales) + half, sizeof bytes);
        v_scales8(bytes, d, s->scale + half);
    }
}

V_INLINE void v_group_q6_k(const char *block, const v_super *s, int g, v_f32 *q) {
    const int h = g / 4, k = g % 4;
    const __m256i low = v_load256(block + offsetof(pyg_q6_k, low) + 64 * h + 32 * (k % 2));
    const __m256i high = v_load256(block + offsetof(pyg_q6_k, high) + 32 * h);
    const __m256i top = _mm256_slli_epi16(v_field(high, 2 * k, 3), 4);
    const __m256i quant = _mm256_or_si256(v_field(low, 4 * (k / 2), 15), top);
    v_spread(_mm256_sub_epi8(quant, _mm256_set1_epi8(32)), q);
    v_times(s->scale + 2 * g, q);
}

#endif
