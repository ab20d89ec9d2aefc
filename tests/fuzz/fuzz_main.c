/* Runs a fuzz target without libFuzzer.
 *
 *   fuzz_X [--seed S] [--count N] [--seconds T] [--at I] [--save FILE] [--tell] [--report]
 *          [FILE ...]
 *
 * Input i is bytes made from (S, i); `--at I` runs that one alone and tells what it builds, as
 * `--tell` does of all, and of files; `--save` keeps the last one begun, for the corpus. Files are
 * run before. Ends with the number of inputs, and the input that failed, if one did. */
#define _POSIX_C_SOURCE 200809L

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fuzz.h"

enum { MAX_INPUT = 1024, HANG_SECONDS = 20 };

/* From the sanitizers' runtime, when there is one. */
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static volatile uint64_t seed = 1, current;
static const char *volatile current_file;
static const char *save_path;

static void tell_input(void) {
    char line[160];
    int n = current_file != NULL
                ? snprintf(line, sizeof line, "\nfuzz: in file %.100s\n", current_file)
                : snprintf(line, sizeof line, "\nfuzz: --seed %llu --at %llu\n",
                           (unsigned long long)seed, (unsigned long long)current);
    if (n > 0 && write(2, line, (size_t)n) < 0) return;
}

static void on_signal(int number) {
    if (number == SIGALRM && write(2, "fuzz: an input hangs\n", 21) < 0) _exit(3);
    tell_input();
    signal(number, SIG_DFL);
    raise(number);
}

static size_t make_input(uint64_t number, uint8_t *out) {
    uint64_t state = (seed * 0x9E3779B97F4A7C15u) ^ (number * 0xD1B54A32D192ED03u) ^ 0xABCDEF;
    for (int i = 0; i < 3; i++) fuzz_random(&state);
    const size_t size = 8 + fuzz_random(&state) % (MAX_INPUT - 8);
    for (size_t i = 0; i < size; i += 4) { /* `out` has room for whole fours */
        const uint32_t four = (uint32_t)fuzz_random(&state);
        memcpy(out + i, &four, sizeof four);
    }
    return size;
}

static int run_file(const char *path) {
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        fprintf(stderr, "fuzz: cannot read %s\n", path);
        return 1;
    }
    uint8_t data[1 << 16];
    const size_t size = fread(data, 1, sizeof data, f);
    fclose(f);
    current_file = path;
    alarm(HANG_SECONDS);
    LLVMFuzzerTestOneInput(data, size);
    alarm(0);
    current_file = NULL;
    return 0;
}

static void save(const uint8_t *data, size_t size) {
    FILE *f = fopen(save_path, "wb");
    if (f == NULL || fwrite(data, 1, size, f) != size) fuzz_fail("cannot write %s", save_path);
    fclose(f);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint64_t run_made(uint64_t first, uint64_t count, double seconds) {
    const double start = now();
    uint64_t done = 0;
    for (; done < count; done++) {
        if ((done & 255) == 0) {
            alarm(HANG_SECONDS);
            if (now() - start > seconds) break;
        }
        uint8_t made[MAX_INPUT];
        current = first + done;
        if (fuzz_verbose) printf("at %llu\n", (unsigned long long)current);
        const size_t size = make_input(current, made);
        uint8_t *exact = malloc(size); /* ends where the input ends, for AddressSanitizer */
        if (exact == NULL) break;
        memcpy(exact, made, size);
        if (save_path != NULL) save(made, size);
        LLVMFuzzerTestOneInput(exact, size);
        free(exact);
    }
    alarm(0);
    return done;
}

typedef struct options {
    uint64_t count, first;
    double seconds;
    int report, n_files;
    char **files; /* the start of argv, overwritten */
} options;

static int bad_usage(const char *what, const char *option) {
    fprintf(stderr, "fuzz: %s %s\n", what, option);
    return 2;
}

/* One option that takes a value. */
static int set_option(options *o, const char *name, const char *value) {
    const bool at = strcmp(name, "--at") == 0;
    char *end = NULL;
    if (strcmp(name, "--save") == 0)
        save_path = value;
    else if (strcmp(name, "--seconds") == 0)
        o->seconds = strtod(value, &end);
    else if (strcmp(name, "--seed") == 0)
        seed = strtoull(value, &end, 10);
    else if (strcmp(name, "--count") == 0)
        o->count = strtoull(value, &end, 10);
    else
        o->first = strtoull(value, &end, 10);
    if (end != NULL && (end == value || *end != '\0')) return bad_usage("not a number:", value);
    if (at) {
        o->count = 1;
        fuzz_verbose = 1;
    }
    return 0;
}

static int read_options(options *o, int argc, char **argv) {
    static const char *const with_value[] = {"--seed", "--count", "--seconds", "--at", "--save"};
    const size_t n = sizeof with_value / sizeof with_value[0];
    o->files = argv;
    for (int i = 1; i < argc; i++) {
        size_t known = 0;
        while (known < n && strcmp(argv[i], with_value[known]) != 0) known++;
        if (strcmp(argv[i], "--report") == 0) {
            o->report = 1;
        } else if (strcmp(argv[i], "--tell") == 0) {
            fuzz_verbose = 1;
        } else if (argv[i][0] != '-') {
            o->files[o->n_files++] = argv[i];
        } else if (known == n) {
            return bad_usage("unknown option", argv[i]);
        } else if (i + 1 == argc) {
            return bad_usage("no value after", argv[i]);
        } else {
            if (set_option(o, argv[i], argv[i + 1])) return 2;
            i++;
        }
    }
    return 0;
}

int main(int argc, char **argv) {
    options o = {.count = 10000, .seconds = 1e9};
    const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) signal(signals[i], on_signal);
    if (__sanitizer_set_death_callback != NULL) __sanitizer_set_death_callback(tell_input);
    if (read_options(&o, argc, argv)) return 2;
    LLVMFuzzerInitialize(&argc, &argv);
    for (int i = 0; i < o.n_files; i++)
        if (run_file(o.files[i])) return 2;
    const double start = now();
    const uint64_t done = run_made(o.first, o.count, o.seconds);
    printf("inputs %llu files %d seconds %.1f\n", (unsigned long long)done, o.n_files,
           now() - start);
    return fuzz_report(done) && o.report;
}
