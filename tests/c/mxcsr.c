/* FTZ and DAZ of the calling thread, for tests of code that must not depend on them. */
#if defined(__SSE__)
#include <xmmintrin.h>

enum { FTZ_AND_DAZ = 0x8040 };

int flush_denormals(int on);

/* Switches both bits; returns 1 when they were on before. */
int flush_denormals(int on) {
    const unsigned before = _mm_getcsr();
    _mm_setcsr(on ? before | FTZ_AND_DAZ : before & ~(unsigned)FTZ_AND_DAZ);
    return (before & FTZ_AND_DAZ) == FTZ_AND_DAZ;
}
#else
int flush_denormals(int on);

int flush_denormals(int on) { return on < 0; }
#endif
