/* Which kernels this CPU runs. A new instruction set is a row in `sets` and a spine. */
#include "kernels/kernels.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "core/status.h"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

typedef struct isa_row {
    const char *name;
    bool (*is_supported)(void);
    void (*fill)(pyg_kernel_table *table);
} isa_row;

static bool always(void) { return true; }

#if defined(__x86_64__) || defined(__i386__)

/* The register state that the operating system saves, by XGETBV; only valid when CPUID says
 * OSXSAVE. */
static uint32_t saved_state(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

/* CPUID leaf 1 ecx: FMA 12, OSXSAVE 27, AVX 28, F16C 29; leaf 7 ebx: AVX2 5. XCR0: SSE 1, AVX 2. */
static bool has_avx2(void) {
    const uint32_t wanted = 1u << 12 | 1u << 27 | 1u << 28 | 1u << 29;
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & wanted) != wanted) return false;
    if ((saved_state() & 6) != 6) return false;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & 1u << 5);
}

#endif

/* Best last; each fills what it improves over those before it. */
static const isa_row sets[] = {
    {"generic", always, pyg_fill_generic},
#if defined(__x86_64__) || defined(__i386__)
    {"avx2", has_avx2, pyg_fill_avx2},
#endif
};

enum { N_SETS = sizeof sets / sizeof sets[0] };

static pyg_kernel_table chosen;
static const char *chosen_name = "generic";

const pyg_kernel_table *pyg_k = &pyg_kernels_generic;

static int find_supported(const char *name) {
    for (int i = 0; i < N_SETS; i++)
        if (strcmp(sets[i].name, name) == 0 && sets[i].is_supported()) return i;
    return -1;
}

static void fill_up_to(pyg_kernel_table *table, int last) {
    for (int i = 0; i <= last; i++)
        if (sets[i].is_supported()) sets[i].fill(table);
}

const char *pyg_isa_at(int i) {
    for (int j = 0; i >= 0 && j < N_SETS; j++)
        if (sets[j].is_supported() && i-- == 0) return sets[j].name;
    return NULL;
}

pyg_status pyg_isa_init(const char *name) {
    int found = N_SETS - 1;
    if (!name || !name[0]) {
        while (!sets[found].is_supported()) found--;
    } else {
        found = find_supported(name);
    }
    if (found < 0) {
        char choices[128] = "";
        size_t used = 0;
        for (int i = 0; pyg_isa_at(i) && used < sizeof choices; i++)
            used += (size_t)snprintf(choices + used, sizeof choices - used, "%s%s", i ? ", " : "",
                                     pyg_isa_at(i));
        return pyg_fail(
            PYG_STATUS_param,
            "isa: '%.40s' is not an instruction set this machine supports; choose from %s", name,
            choices);
    }
    fill_up_to(&chosen, found);
    chosen_name = sets[found].name;
    pyg_k = &chosen;
    return PYG_OK;
}

const char *pyg_isa(void) { return chosen_name; }

/* ---- slots by name and by dtype ------------------------------------------------------------- */

typedef struct slot_row {
    const char *name;
    size_t offset;
} slot_row;

static const slot_row slots[] = {
#define PYG_KERNEL(slot, ret, args) {#slot, offsetof(pyg_kernel_table, slot)},
#include "kernels/kernel_table.inc"
#undef PYG_KERNEL
};

enum { N_SLOTS = sizeof slots / sizeof slots[0] };

const char *pyg_kernel_slot_at(int i) { return i >= 0 && i < N_SLOTS ? slots[i].name : NULL; }

/* memcpy, because C has no conversion between pointers to functions and to objects. */
static void read_slot(const pyg_kernel_table *table, size_t offset, void *pointer) {
    memcpy(pointer, (const char *)table + offset, sizeof(void (*)(void)));
}

void *pyg_kernel_address(const char *isa, const char *slot) {
    const int found = isa && slot ? find_supported(isa) : -1;
    if (found < 0) return NULL;
    for (int i = 0; i < N_SLOTS; i++) {
        if (strcmp(slots[i].name, slot) != 0) continue;
        pyg_kernel_table table;
        void *address;
        fill_up_to(&table, found);
        read_slot(&table, slots[i].offset, &address);
        return address;
    }
    return NULL;
}

/* A dtype without a kernel says `none`, the slot at offset 0, which is never filled. */
typedef struct dtype_slots {
    size_t to_f32, from_f32, dot, mv;
} dtype_slots;

static const dtype_slots dtypes[PYG_N_DTYPES] = {
#define PYG_DTYPE(name, gguf, elems, bytes, flags, to, from, dot_slot, mv_slot, numpy)             \
    {offsetof(pyg_kernel_table, to), offsetof(pyg_kernel_table, from),                             \
     offsetof(pyg_kernel_table, dot_slot), offsetof(pyg_kernel_table, mv_slot)},
#include "core/dtype_table.inc"
#undef PYG_DTYPE
};

pyg_to_f32_fn pyg_to_f32(pyg_dtype dtype) {
    pyg_to_f32_fn fn;
    read_slot(pyg_k, dtypes[dtype].to_f32, &fn);
    return fn;
}

pyg_from_f32_fn pyg_from_f32(pyg_dtype dtype) {
    pyg_from_f32_fn fn;
    read_slot(pyg_k, dtypes[dtype].from_f32, &fn);
    return fn;
}

pyg_dot_fn pyg_dot(pyg_dtype dtype) {
    pyg_dot_fn fn;
    read_slot(pyg_k, dtypes[dtype].dot, &fn);
    return fn;
}

pyg_mv_fn pyg_mv(pyg_dtype dtype) {
    pyg_mv_fn fn;
    read_slot(pyg_k, dtypes[dtype].mv, &fn);
    return fn;
}

typedef struct direct_row {
    size_t slot;
    pyg_dtype dtype;
    size_t direct;
} direct_row;

static const direct_row directs[] = {
#define PYG_DIRECT(slot, dtype, direct) {PYG_SLOT(slot), PYG_DTYPE_##dtype, PYG_SLOT(direct)},
#include "kernels/direct_table.inc"
#undef PYG_DIRECT
};

pyg_any_fn pyg_direct(size_t slot, pyg_dtype dtype) {
    pyg_any_fn fn = NULL;
    for (size_t i = 0; i < sizeof directs / sizeof directs[0]; i++)
        if (directs[i].slot == slot && directs[i].dtype == dtype)
            read_slot(pyg_k, directs[i].direct, &fn);
    return fn;
}
