/* FTZ and DAZ of the calling thread, for tests of code that must not depend on them. */
#if defined(__SSE__)
#include <xmmintrin.h>

enum { FTZ_AND_DAZ = 0x8040 };

unsigned flush_denormals(unsigned bits);

/* Sets both as in bits (FTZ 0x8000, DAZ 0x0040); returns what they were. */
unsigned flush_denormals(unsigned bits) {
    const unsigned before = _mm_getcsr();
    _mm_setcsr((before & ~(unsigned)FTZ_AND_DAZ) | (bits & FTZ_AND_DAZ));
    return before & FTZ_AND_DAZ;
}
#else
unsigned flush_denormals(unsigned bits);

unsigned flush_denormals(unsigned bits) { return bits & 0; }
#endif
