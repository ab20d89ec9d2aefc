#include "graph/plan.h"

#include "core/alloc.h"
#include "core/status.h"

static int overlap_in_time(const pyg_lifetime *a, const pyg_lifetime *b) {
    return a->first <= b->last && b->first <= a->last;
}

/* Insertion by size, biggest first; equal sizes keep their order, so plans are reproducible. */
static void sort_by_size(const pyg_lifetime *items, int32_t n, int32_t *order) {
    for (int32_t i = 0; i < n; i++) {
        int32_t j = i;
        for (; j > 0 && items[order[j - 1]].bytes < items[i].bytes; j--) order[j] = order[j - 1];
        order[j] = i;
    }
}

/* Keeps order[0..placed] sorted by offset: the item at `placed` moves down to its place. */
static void sort_in(const pyg_lifetime *items, int32_t *order, int32_t placed) {
    const int32_t item = order[placed];
    int32_t j = placed;
    for (; j > 0 && items[order[j - 1]].offset > items[item].offset; j--) order[j] = order[j - 1];
    order[j] = item;
}

pyg_status pyg_plan_offsets(pyg_lifetime *items, int32_t n, int32_t *order, size_t *total) {
    *total = 0;
    sort_by_size(items, n, order);
    for (int32_t k = 0; k < n; k++) {
        pyg_lifetime *item = &items[order[k]];
        size_t at = 0;
        const size_t need = pyg_align_up(item->bytes);
        for (int32_t p = 0; p < k; p++) { /* placed ones, by rising offset */
            const pyg_lifetime *other = &items[order[p]];
            if (!overlap_in_time(item, other)) continue;
            const size_t end = other->offset + pyg_align_up(other->bytes);
            if (other->offset >= at && other->offset - at >= need) break;
            if (end > at) at = end;
        }
        size_t end;
        if (need == SIZE_MAX || __builtin_add_overflow(at, need, &end))
            return pyg_fail(PYG_STATUS_no_memory, "the plan passes the address space");
        item->offset = at;
        if (end > *total) *total = end;
        sort_in(items, order, k);
    }
    return PYG_OK;
}
