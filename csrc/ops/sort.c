/* argsort and top_k of the last axis.
 *
 * A value and its index become one 64-bit item: in the upper half the float's bits turned so that
 * they count up in the order wanted, in the lower half the index. Items are all different, and
 * sorting them is stable by construction. Both zeros count as equal; NaN comes last
 * in both orders. */
#include <string.h>

#include "kernels/kernels.h"
#include "ops/ops.h"
#include "ops/rules.h"
#include "ops/spans.h"

enum { PYG_ORDER_ASC, PYG_ORDER_DESC }; /* order of the `order` choices */

/* Below this a radix sort's counters cost more than insertion does. */
#define SHORT_ROW 32
/* top_k keeps a heap when that many times k still fit in the row, and sorts the row otherwise. */
#define HEAP_SHARE 8

/* ---- items ---- */

static uint64_t make_item(float value, int64_t index, uint32_t flip) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (value != value)
        bits = UINT32_MAX;
    else if (value == 0.0f)
        bits = UINT32_C(0x80000000) ^ flip;
    else
        bits ^= (bits >> 31 ? UINT32_MAX : UINT32_C(0x80000000)) ^ flip;
    return (uint64_t)bits << 32 | (uint64_t)index;
}

static void sort_short(uint64_t *items, int64_t n) {
    for (int64_t i = 1; i < n; i++) {
        const uint64_t item = items[i];
        int64_t j = i;
        for (; j > 0 && items[j - 1] > item; j--) items[j] = items[j - 1];
        items[j] = item;
    }
}

/* Radix sort by the four bytes of the value, lowest first; the indices are in order already.
 * Returns where the sorted items are: one of the two arrays. */
static uint64_t *sort_items(uint64_t *items, uint64_t *other, int64_t n) {
    if (n <= SHORT_ROW) {
        sort_short(items, n);
        return items;
    }
    uint32_t count[4][256] = {{0}};
    for (int64_t i = 0; i < n; i++)
        for (int b = 0; b < 4; b++) count[b][items[i] >> (32 + 8 * b) & 255]++;
    for (int b = 0; b < 4; b++) {
        const int shift = 32 + 8 * b;
        if (count[b][items[0] >> shift & 255] == (uint32_t)n) continue; /* all alike */
        uint32_t at = 0;
        for (int v = 0; v < 256; v++) {
            const uint32_t here = count[b][v];
            count[b][v] = at;
            at += here;
        }
        for (int64_t i = 0; i < n; i++) other[count[b][items[i] >> shift & 255]++] = items[i];
        uint64_t *swap = items;
        items = other;
        other = swap;
    }
    return items;
}

/* ---- the k smallest ---- */

/* heap[at] moves down until no child is larger. */
static void sift_down(uint64_t *heap, int64_t k, int64_t at) {
    const uint64_t item = heap[at];
    for (int64_t child; (child = 2 * at + 1) < k; at = child) {
        if (child + 1 < k && heap[child + 1] > heap[child]) child++;
        if (heap[child] <= item) break;
        heap[at] = heap[child];
    }
    heap[at] = item;
}

/* A heap to rising order: its largest item goes to the end, again and again. */
static void sort_heap(uint64_t *heap, int64_t k) {
    while (k > 1) {
        const uint64_t largest = heap[0];
        heap[0] = heap[--k];
        heap[k] = largest;
        sift_down(heap, k, 0);
    }
}

/* ---- rows ---- */

/* All items of a row. */
static void read_row(const pyg_tensor *x, const int64_t i[3], uint32_t flip, float *buf,
                     uint64_t *items) {
    for (int64_t j = 0; j < x->ne[0]; j += PYG_SPAN) {
        const int64_t n = x->ne[0] - j < PYG_SPAN ? x->ne[0] - j : PYG_SPAN;
        const float *from = pyg_span_in(x, i, j, n, buf);
        for (int64_t m = 0; m < n; m++) items[j + m] = make_item(from[m], j + m, flip);
    }
}

/* The k smallest items of a row, in no order: a heap whose root is the largest of them. */
static void select_row(const pyg_tensor *x, const int64_t i[3], int64_t k, uint32_t flip,
                       float *buf, uint64_t *heap) {
    int64_t held = 0;
    for (int64_t j = 0; j < x->ne[0]; j += PYG_SPAN) {
        const int64_t n = x->ne[0] - j < PYG_SPAN ? x->ne[0] - j : PYG_SPAN;
        const float *from = pyg_span_in(x, i, j, n, buf);
        for (int64_t m = 0; m < n; m++) {
            const uint64_t item = make_item(from[m], j + m, flip);
            if (held < k) {
                heap[held++] = item;
                if (held == k)
                    for (int64_t at = k / 2; at-- > 0;) sift_down(heap, k, at);
            } else if (item < heap[0]) {
                heap[0] = item;
                sift_down(heap, k, 0);
            }
        }
    }
}

/* Tasks are rows. */
static pyg_status plan_rows(const pyg_tensor *x, int64_t items, pyg_plan *plan) {
    plan->n_tasks[0] = pyg_split(pyg_n_rows(x), 16 * x->ne[0]);
    /* at most 2^32 items, which infer saw to */
    plan->scratch_bytes = PYG_SPAN * sizeof(float) + (size_t)items * sizeof(uint64_t);
    return PYG_OK;
}

static pyg_status check_rows(pyg_infer *in) {
    const pyg_tensor *x = &in->src[0]->t;
    PYG_TRY(pyg_need_float(in, 0));
    if (x->ndim < 1) return pyg_op_fail(in, PYG_STATUS_shape, "x needs an axis");
    if (x->ne[0] > INT32_MAX)
        return pyg_op_fail(in, PYG_STATUS_shape, "the last axis passes 2^31 - 1 elements");
    return PYG_OK;
}

/* The first k items of each row, in order. */
static void run_order(const pyg_task *task, int64_t k, uint32_t flip, bool use_heap) {
    const pyg_tensor *x = task->io.src[0];
    float *buf = (float *)(void *)task->scratch;
    uint64_t *items = (uint64_t *)(void *)(task->scratch + PYG_SPAN * sizeof(float));
    int32_t *out = (int32_t *)(void *)task->io.dst->data;
    int64_t r, last;
    pyg_task_range(task, k > 0 ? pyg_n_rows(x) : 0, &r, &last);
    for (; r < last; r++) {
        int64_t i[3];
        const uint64_t *sorted = items;
        pyg_row_index(x->ne, r, i);
        if (use_heap) {
            select_row(x, i, k, flip, buf, items);
            sort_heap(items, k);
        } else {
            read_row(x, i, flip, buf, items);
            sorted = sort_items(items, items + x->ne[0], x->ne[0]);
        }
        for (int64_t m = 0; m < k; m++) out[r * k + m] = (int32_t)(uint32_t)sorted[m];
    }
}

/* ---- argsort ---- */

pyg_status pyg_infer_argsort(pyg_infer *in) {
    const pyg_tensor *x = &in->src[0]->t;
    PYG_TRY(check_rows(in));
    return pyg_infer_result(in, PYG_DTYPE_i32, x->ndim, x->ne);
}

pyg_status pyg_plan_argsort(const pyg_node_io *io, pyg_plan *plan) {
    return plan_rows(io->src[0], 2 * io->src[0]->ne[0], plan);
}

void pyg_run_argsort(const pyg_task *task) {
    const pyg_argsort_params *p = task->io.params;
    run_order(task, task->io.dst->ne[0], p->order == PYG_ORDER_DESC ? UINT32_MAX : 0, false);
}

/* ---- top_k ---- */

static bool top_k_heap(const pyg_tensor *x, int64_t k) { return k <= x->ne[0] / HEAP_SHARE; }

pyg_status pyg_infer_top_k(pyg_infer *in) {
    const pyg_top_k_params *p = in->params;
    const pyg_tensor *x = &in->src[0]->t;
    PYG_TRY(check_rows(in));
    if (p->k > x->ne[0])
        return pyg_op_fail(in, PYG_STATUS_param, "k = %lld passes the last axis", (long long)p->k);
    const int64_t ne[PYG_MAX_DIMS] = {p->k, x->ne[1], x->ne[2], x->ne[3]};
    return pyg_infer_result(in, PYG_DTYPE_i32, x->ndim, ne);
}

pyg_status pyg_plan_top_k(const pyg_node_io *io, pyg_plan *plan) {
    const pyg_top_k_params *p = io->params;
    const pyg_tensor *x = io->src[0];
    return plan_rows(x, top_k_heap(x, p->k) ? p->k : 2 * x->ne[0], plan);
}

void pyg_run_top_k(const pyg_task *task) {
    const pyg_top_k_params *p = task->io.params;
    run_order(task, p->k, UINT32_MAX, top_k_heap(task->io.src[0], p->k));
}
