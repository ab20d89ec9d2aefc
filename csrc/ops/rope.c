/* rope: rotates pairs of each head by an angle that grows with the token's position
 * (Su et al. 2021, RoFormer; `neox` pairs the halves, Black et al. 2022).
 *
 * theta_i = pos * freq_scale * freq_base^(-2i/n_dims) / freq_factors[i], in double: at position
 * 100000 an F32 angle is off by 0.004. Cosines and sines are made once a token for all heads.
 *
 * With ext_factor the frequencies follow YaRN (Peng et al. 2023, 3.2 to 3.4): pairs that turn often
 * within the original context keep their frequency, those that turn less than beta_slow times are
 * scaled, and those between are mixed. */
#include <math.h>
#include <string.h>

#include "kernels/kernels.h"
#include "ops/ops.h"
#include "ops/rules.h"
#include "ops/spans.h"

pyg_status pyg_infer_rope(pyg_infer *in) {
    const pyg_rope_params *p = in->params;
    const pyg_tensor *x = &in->src[0]->t, *pos = &in->src[1]->t;
    PYG_TRY(pyg_need_float(in, 0));
    PYG_TRY(pyg_need_index(in, 1));
    if (x->ndim < 3) return pyg_op_fail(in, PYG_STATUS_shape, "x must be (..., T, H, D)");
    if (pos->ndim != 1 || pos->ne[0] != x->ne[2])
        return pyg_op_fail(in, PYG_STATUS_shape, "pos must be (%lld,), a position for each token",
                           (long long)x->ne[2]);
    if (p->n_dims % 2 != 0 || p->n_dims > x->ne[0])
        return pyg_op_fail(in, PYG_STATUS_param, "n_dims = %lld must be even and at most %lld",
                           (long long)p->n_dims, (long long)x->ne[0]);
    if (in->src[2] != NULL) {
        const pyg_tensor *f = &in->src[2]->t;
        if (f->dtype != PYG_DTYPE_f32)
            return pyg_op_fail(in, PYG_STATUS_dtype, "freq_factors must be f32");
        if (f->ndim != 1 || f->ne[0] != p->n_dims / 2)
            return pyg_op_fail(in, PYG_STATUS_shape, "freq_factors must be (%lld,)",
                               (long long)(p->n_dims / 2));
    }
    if (p->ext_factor > 0.0f && (p->n_ctx_orig < 1 || !(p->freq_base > 1.0f) ||
                                 !(p->beta_fast > 0.0f) || !(p->beta_slow > 0.0f)))
        return pyg_op_fail(in, PYG_STATUS_param,
                           "ext_factor needs n_ctx_orig, a freq_base above 1, betas above 0");
    pyg_dtype dtype;
    PYG_TRY(pyg_result_dtype(in, p->dtype, 0, 0, &dtype));
    return pyg_infer_result(in, dtype, x->ndim, x->ne);
}

/* Scratch: cosines, sines, then one head. */
pyg_status pyg_plan_rope(const pyg_node_io *io, pyg_plan *plan) {
    const pyg_rope_params *p = io->params;
    const pyg_tensor *x = io->src[0];
    int64_t work = INT64_MAX, floats;
    if (__builtin_mul_overflow(x->ne[0], x->ne[1], &work) ||
        __builtin_add_overflow(work, 16 * p->n_dims, &work))
        work = INT64_MAX;
    plan->n_tasks[0] = pyg_split(x->ne[2] * x->ne[3], work);
    if (__builtin_add_overflow(x->ne[0], p->n_dims, &floats) ||
        __builtin_mul_overflow((size_t)floats, sizeof(float), &plan->scratch_bytes))
        return pyg_fail(PYG_STATUS_shape, "a head of %lld elements is too long",
                        (long long)x->ne[0]);
    plan->const_bytes = (size_t)(p->n_dims / 2 + 1) * sizeof(double);
    return PYG_OK;
}

/* The pair (a fraction of one) that turns `turns` times in the original context: from
 * n_ctx_orig * freq_base^(-2i/n_dims) = 2 pi turns. */
static double pair_of_turns(const pyg_rope_params *p, double turns) {
    const double two_pi = 6.283185307179586;
    return (double)p->n_dims * log((double)p->n_ctx_orig / (turns * two_pi)) /
           (2.0 * log((double)p->freq_base));
}

static double clamp(double v, double low, double high) {
    return v < low ? low : v > high ? high : v;
}

/* What YaRN makes of the factor freq_scale for each pair. The ramp runs over whole pairs, and over
 * a thousandth of one at least. */
static void yarn_scales(const pyg_rope_params *p, double *scale) {
    const double last = (double)(p->n_dims - 1), s = (double)p->freq_scale;
    const double low = clamp(floor(pair_of_turns(p, (double)p->beta_fast)), 0.0, last);
    const double high = clamp(ceil(pair_of_turns(p, (double)p->beta_slow)), 0.0, last);
    const double width = high - low > 0.001 ? high - low : 0.001;
    for (int64_t i = 0; i < p->n_dims / 2; i++) {
        const double ramp = clamp(((double)i - low) / width, 0.0, 1.0);
        const double keep = (1.0 - ramp) * (double)p->ext_factor;
        scale[i] = s * (1.0 - keep) + keep;
    }
}

/* Radians a position for each pair, then the factor of cosines and sines, by which YaRN makes up
 * for attention that spreads over more tokens. */
void pyg_init_rope(const pyg_node_io *io, void *constants) {
    const pyg_rope_params *p = io->params;
    const int64_t pairs = p->n_dims / 2;
    double *freq = constants, factor = (double)p->attn_factor;
    for (int64_t i = 0; i < pairs; i++) freq[i] = (double)p->freq_scale;
    if (p->ext_factor > 0.0f) {
        yarn_scales(p, freq);
        factor *= 1.0 + 0.1 * log(1.0 / (double)p->freq_scale);
    }
    for (int64_t i = 0; i < pairs; i++)
        freq[i] *= pow((double)p->freq_base, -2.0 * (double)i / (double)p->n_dims);
    freq[pairs] = factor;
}

/* Cosine and sine of theta, to F32 accuracy and without branches on the quadrant: a third of libm's
 * time. theta = n pi/2 + r with |r| <= pi/4; HI has 33 bits, so that n * HI is exact; the Taylor
 * series end below 1e-11. */
static void cos_sin(double theta, float *cosine, float *sine) {
    static const double HI = 0x1.921fb544p+0, LO = 0x1.0b4611a626331p-34,
                        INV = 0x1.45f306dc9c883p-1;
    if (!(fabs(theta) < 500000.0)) { /* n would pass 20 bits */
        *cosine = (float)cos(theta);
        *sine = (float)sin(theta);
        return;
    }
    const int32_t n = (int32_t)(theta * INV + copysign(0.5, theta));
    const double r = theta - (double)n * HI - (double)n * LO, z = r * r;
    const float c =
        (float)(1 + z * (-1 / 2.0 +
                         z * (1 / 24.0 +
                              z * (-1 / 720.0 + z * (1 / 40320.0 + z * (-1 / 3628800.0 +
                                                                        z * (1 / 479001600.0)))))));
    const float s =
        (float)(r + r * z *
                        (-1 / 6.0 +
                         z * (1 / 120.0 +
                              z * (-1 / 5040.0 + z * (1 / 362880.0 + z * (-1 / 39916800.0))))));
    /* odd n: sine and cosine change places; then the signs of the quadrant */
    uint32_t cb, sb;
    memcpy(&cb, &c, sizeof cb);
    memcpy(&sb, &s, sizeof sb);
    const uint32_t q = (uint32_t)n, swap = (cb ^ sb) & (0 - (q & 1));
    cb = (cb ^ swap) ^ (((q + 1) & 2) << 30);
    sb = (sb ^ swap) ^ ((q & 2) << 30);
    memcpy(cosine, &cb, sizeof cb);
    memcpy(sine, &sb, sizeof sb);
}

static void make_angles(const pyg_task *task, int64_t token, float *cosines, float *sines) {
    const pyg_rope_params *p = task->io.params;
    const double *freq = task->constants;
    const pyg_tensor *factors = task->io.src[2];
    const double pos = (double)pyg_index_at(task->io.src[1], token);
    for (int64_t i = 0; i < p->n_dims / 2; i++) {
        double theta = pos * freq[i];
        if (factors != NULL) {
            float f;
            memcpy(&f, factors->data + (size_t)i * factors->nb[0], sizeof f);
            theta /= (double)f;
        }
        cos_sin(theta, &cosines[i], &sines[i]);
    }
    const float factor = (float)freq[p->n_dims / 2];
    if (factor == 1.0f) return;
    pyg_k->scale(p->n_dims, cosines, factor, 0.0f, cosines); /* the sines follow them */
}

void pyg_run_rope(const pyg_task *task) {
    const pyg_rope_params *p = task->io.params;
    const pyg_tensor *dst = task->io.dst, *x = task->io.src[0];
    const int64_t pairs = p->n_dims / 2, n = x->ne[0];
    float *cosines = (float *)(void *)task->scratch, *sines = cosines + pairs;
    float *buf = sines + pairs;
    void (*rotate)(int64_t, const float *, const float *, const float *, float *) =
        p->mode == PYG_ROPE_NEOX ? pyg_k->rope_neox : pyg_k->rope_norm;
    int64_t t, last;
    pyg_task_range(task, x->ne[1] > 0 ? x->ne[2] * x->ne[3] : 0, &t, &last);
    for (; t < last; t++) {
        int64_t i[3] = {0, t % x->ne[2], t / x->ne[2]};
        make_angles(task, i[1], cosines, sines);
        for (i[0] = 0; i[0] < x->ne[1]; i[0]++) {
            const float *from = pyg_span_in(x, i, 0, n, buf);
            float *y = pyg_span_out(dst, i, 0, buf);
            rotate(pairs, from, cosines, sines, y);
            if (y != from)
                memcpy(y + p->n_dims, from + p->n_dims, (size_t)(n - p->n_dims) * sizeof(float));
            pyg_span_out_end(dst, i, 0, n, y);
        }
    }
}
