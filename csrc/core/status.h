/* Status codes and the thread's last message.
 *
 * Every function that can fail returns a pyg_status and, when it is not PYG_OK, has left one
 * sentence for the caller in a buffer of the calling thread. Worker threads never fail, so one
 * buffer is enough. */
#ifndef PYG_CORE_STATUS_H
#define PYG_CORE_STATUS_H

#include "pyggml.h"

#if defined(__GNUC__)
#define PYG_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define PYG_PRINTF(fmt, args)
#endif

/* Stores the message (cut at 1023 bytes) and returns `code`. */
pyg_status pyg_fail(pyg_status code, const char *fmt, ...) PYG_PRINTF(2, 3);

/* Passes an error of `call` up to the caller. */
#define PYG_TRY(call)                                                                              \
    do {                                                                                           \
        pyg_status pyg_try_status = (call);                                                        \
        if (pyg_try_status != PYG_OK) return pyg_try_status;                                       \
    } while (0)

#ifdef PYG_DEBUG
/* A broken promise between two parts of the runtime; prints nothing and traps, debug builds only.
 */
#define PYG_DCHECK(cond)                                                                           \
    do {                                                                                           \
        if (!(cond)) __builtin_trap();                                                             \
    } while (0)
#else
#define PYG_DCHECK(cond) ((void)0)
#endif

#endif
