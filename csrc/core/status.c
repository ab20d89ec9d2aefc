#include "core/status.h"

#include <stdarg.h>
#include <stdio.h>

#define MESSAGE_BYTES 1024

static _Thread_local char last_message[MESSAGE_BYTES];

pyg_status pyg_fail(pyg_status code, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(last_message, sizeof last_message, fmt, args);
    va_end(args);
    return code;
}

const char *pyg_last_message(void) { return last_message; }

const char *pyg_status_name(pyg_status status) {
    static const char *const names[] = {
#define PYG_STATUS(name, meaning) #name,
#include "core/status_table.inc"
#undef PYG_STATUS
    };
    const int n = (int)(sizeof names / sizeof names[0]);
    return (int)status >= 0 && (int)status < n ? names[status] : "internal";
}
