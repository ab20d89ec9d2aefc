/* The vector layer, width 8, second part: codes of the 8 and 16-bit formats to and from F32.
 *
 * Integer steps, and float steps whose operands and results are never denormal: FTZ and DAZ do not
 * matter. */
#ifndef PYG_KERNELS_SIMD_AVX2_FORMATS_H
#define PYG_KERNELS_SIMD_AVX2_FORMATS_H

#include "kernels/simd/avx2.h"

static inline __m128i v_load128(const char *p) {
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}
static inline __m128i v_load64(const char *p) {
    return _mm_loadl_epi64((const __m128i *)(const void *)p);
}
static inline __m256i v_load256(const char *p) {
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}
static inline void v_store128(char *p, __m128i a) { _mm_storeu_si128((__m128i *)(void *)p, a); }
static inline void v_store64(char *p, __m128i a) { _mm_storel_epi64((__m128i *)(void *)p, a); }

static inline v_f32 v_load_f32(const char *p) { return _mm256_castsi256_ps(v_load256(p)); }
static inline v_f32 v_load_f16(const char *p) { return _mm256_cvtph_ps(v_load128(p)); }
static inline v_f32 v_load_bf16(const char *p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v_load128(p)), 16));
}

/* E4M3 codes in the upper bytes of 16-bit lanes, to halves of value * 2^-8:
 *
 *     lane         S EEEEMMM 00000000
 *     >> 1         S SEEEEMM M0000000      arithmetic
 *     & 0xBF80     S 0EEEEMM M0000000      a half: bias 15 where E4M3 has 7, so 2^-8 of the value,
 *                                          subnormals too; NaN codes look like 480 * 2^-8 */
static inline __m128i v_f8_halves(__m128i upper) {
    return _mm_and_si128(_mm_srai_epi16(upper, 1), _mm_set1_epi16((short)0xBF80));
}

static inline v_f32 v_load_f8_e4m3(const char *p) {
    const __m128i upper = _mm_unpacklo_epi8(_mm_setzero_si128(), v_load64(p));
    const v_f32 scaled = _mm256_cvtph_ps(v_f8_halves(upper));
    const v_mask is_nan = v_eq(v_abs(scaled), v_set1(480.0f * 0x1p-8f));
    const v_f32 sign = _mm256_and_ps(scaled, v_bits(0x80000000u));
    const v_f32 nan = _mm256_or_ps(sign, v_bits(0x7FC00000u));
    return v_select(is_nan, nan, v_mul(scaled, v_set1(0x1p8f)));
}

static inline void v_store_f16(char *p, v_f32 a) {
    v_store128(p, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

/* Eight 32-bit lanes below 2^16 to eight 16-bit ones. */
static inline __m128i v_narrow16(__m256i a) {
    return _mm_packus_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
}

/* a plus half of the bit `shift` less one plus that bit, then shifted: nearest, ties to even. */
static inline __m256i v_round_shift(__m256i a, int shift) {
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(a, shift), _mm256_set1_epi32(1));
    const __m256i below_half = _mm256_set1_epi32((1 << (shift - 1)) - 1);
    return _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(a, below_half), odd), shift);
}

static inline void v_store_bf16(char *p, v_f32 a) {
    const __m256i bits = _mm256_castps_si256(a);
    const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
    const v_mask is_nan = _mm256_cmp_ps(a, a, _CMP_UNORD_Q);
    v_store128(p, v_narrow16(_mm256_blendv_epi8(v_round_shift(bits, 16), quiet,
                                                _mm256_castps_si256(is_nan))));
}

/* The steps of formats/f8_e4m3.h; subnormals are rounded by an addition whose last place is 2^-9.
 */
static inline __m256i v_encode_f8_e4m3(v_f32 x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i sign = _mm256_and_si256(_mm256_srli_epi32(bits, 24), _mm256_set1_epi32(0x80));
    const __m256i all = _mm256_and_si256(bits, _mm256_set1_epi32(0x7FFFFFFF));
    const __m256i is_nan = _mm256_cmpgt_epi32(all, _mm256_set1_epi32(0x7F800000));
    const __m256i a = _mm256_min_epi32(all, _mm256_set1_epi32(0x43E00000));
    const __m256i normal = _mm256_sub_epi32(v_round_shift(a, 20), _mm256_set1_epi32(120 << 3));
    const v_f32 shifted = v_add(_mm256_castsi256_ps(a), v_set1(0x1p14f));
    const __m256i small =
        _mm256_sub_epi32(_mm256_castps_si256(shifted), _mm256_castps_si256(v_set1(0x1p14f)));
    const __m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x3C800000), a);
    __m256i code = _mm256_blendv_epi8(normal, small, is_small);
    code = _mm256_blendv_epi8(code, _mm256_set1_epi32(0x7F), is_nan);
    return _mm256_or_si256(code, sign);
}

static inline void v_store_f8_e4m3(char *p, v_f32 a) {
    const __m128i words = v_narrow16(v_encode_f8_e4m3(a));
    v_store64(p, _mm_packus_epi16(words, words));
}

#endif
