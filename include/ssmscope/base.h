/* ssmscope/base.h: status, error record, instruction sets, threads, progress, seeded numbers.
 *
 * Conventions of the whole API:
 *  - A call that can fail returns ssm_status and takes `ssm_error *err` last; err may be NULL.
 *  - Counts and dimensions are int64_t, sizes in bytes size_t.
 *  - `*_free` and `*_close` accept NULL. Strings are UTF-8, owned by the object that returned them.
 *  - Nothing here prints, exits or reads the environment.
 */
#ifndef SSMSCOPE_BASE_H
#define SSMSCOPE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define SSM_API               __attribute__((visibility("default")))
#define SSM_PRINTF(fmt, args) __attribute__((__format__(__printf__, fmt, args)))
#else
#define SSM_API
#define SSM_PRINTF(format, args)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the library, "major.minor.patch". */
SSM_API const char *ssm_version(void);

/* ---- status and error record ----------------------------------------------------------------- */

/* Name, exit code of the program, meaning. The numbers are part of the interface. */
#define SSM_STATUSES(X)                                                                            \
    X(OK, 0, "ok")                                                                                 \
    X(FAILED, 1, "failed")                                                                         \
    X(USAGE, 2, "wrong usage")                                                                     \
    X(FILE, 3, "bad file")                                                                         \
    X(MEMORY, 4, "out of memory")                                                                  \
    X(CHECK, 5, "a check did not hold")                                                            \
    X(INTERRUPTED, 130, "interrupted")

typedef enum ssm_status {
#define SSM_STATUS_ENUM(name, code, text) SSM_STATUS_##name = code,
    SSM_STATUSES(SSM_STATUS_ENUM)
#undef SSM_STATUS_ENUM
} ssm_status;

SSM_API const char *ssm_status_text(ssm_status status);

enum { SSM_ERROR_MESSAGE_MAX = 1024, SSM_ERROR_PLACE_MAX = 512 };

/* What went wrong and where. Fixed size, no ownership; the first failure wins. */
typedef struct ssm_error {
    ssm_status status;
    char message[SSM_ERROR_MESSAGE_MAX]; /* what was expected, what was found, what to do */
    char file[SSM_ERROR_PLACE_MAX];      /* path, or "" */
    char tensor[SSM_ERROR_PLACE_MAX];    /* tensor or JSON field, or "" */
    int64_t offset;                      /* byte offset in the file, or -1 */
} ssm_error;

/* Clears the record (status OK, empty strings, offset -1). */
SSM_API void ssm_error_clear(ssm_error *err);

/* The name that a mistyped `word` was probably meant to be, or NULL: the nearest of the
 * NULL-terminated `names` by edit distance (insert, delete, replace, swap) when that is at most a
 * third of the word's bytes, else the first that begins with the word (of two bytes or more). */
SSM_API const char *ssm_nearest(const char *word, const char *const *names);

/* ---- instruction sets ------------------------------------------------------------------------ */

/* Every variant computes the same bits (summation law); this choice is about speed only. */
typedef enum ssm_isa { SSM_ISA_AUTO, SSM_ISA_PORTABLE, SSM_ISA_AVX2, SSM_ISA_AVX512 } ssm_isa;

SSM_API const char *ssm_isa_name(ssm_isa isa);
/* "auto", "portable", "avx2", "avx512" -> *out; USAGE error for another name. */
SSM_API ssm_status ssm_isa_parse(const char *name, ssm_isa *out, ssm_error *err);
/* The best set of this processor; never AUTO. */
SSM_API ssm_isa ssm_isa_best(void);
/* True if this build and this processor can run `isa` (AUTO and PORTABLE always). */
SSM_API bool ssm_isa_supported(ssm_isa isa);

/* ---- threads --------------------------------------------------------------------------------- */

/* A fixed set of worker threads. One pool may serve many sessions, one at a time. */
typedef struct ssm_pool ssm_pool;

/* threads ≥ 1, counting the caller; 0 = one per processor available to this process.
 * Owner: the caller, ssm_pool_free. Errors: MEMORY, FAILED (a thread cannot be started). */
SSM_API ssm_status ssm_pool_create(int threads, ssm_pool **out, ssm_error *err);
SSM_API void ssm_pool_free(ssm_pool *pool);
SSM_API int ssm_pool_threads(const ssm_pool *pool);

/* ---- long work: progress and interruption ---------------------------------------------------- */

/* Given to every long call; may be NULL. `report` is called from the calling thread only.
 * done and total are in `unit`s ("tokens", "windows"); returning false stops the work with
 * INTERRUPTED at the next point where nothing is lost. */
typedef struct ssm_progress {
    void *context;
    bool (*report)(void *context, const char *what, int64_t done, int64_t total, const char *unit);
} ssm_progress;

/* ---- random numbers -------------------------------------------------------------------------- */

/* Philox4x32-10 (Salmon et al., SC'11), counter-based: number k of the stream (seed, name) does not
 * depend on what was drawn before. Streams are named so that a result can name its numbers. */
typedef struct ssm_rng {
    uint32_t key[2];
    uint64_t stream;  /* hash of the name */
    uint64_t counter; /* next block of four numbers */
    uint32_t buffer[4];
    int used; /* numbers of buffer already given, 4 = none left */
} ssm_rng;

SSM_API ssm_rng ssm_rng_create(uint64_t seed, const char *stream);
SSM_API uint32_t ssm_rng_u32(ssm_rng *rng);
/* Uniform in [0, 1), 53 bits. */
SSM_API double ssm_rng_uniform(ssm_rng *rng);
/* Standard normal, Box-Muller in float64. */
SSM_API double ssm_rng_normal(ssm_rng *rng);
/* Uniform in {0, …, n−1} without bias; n ≥ 1. */
SSM_API uint64_t ssm_rng_below(ssm_rng *rng, uint64_t n);

#ifdef __cplusplus
}
#endif
#endif
