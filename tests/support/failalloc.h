/* failalloc.h: running a call again and again while its 1st, 2nd, 3rd … allocation fails.
 *
 * This header *defines* malloc and its kin, for the program and all its shared libraries. So one
 * source of an executable includes it, and no library does. Unarmed, the functions only count what
 * is alive. Under AddressSanitizer they forward to its allocator, otherwise to that of glibc. Under
 * ThreadSanitizer nothing is replaced, because its runtime allocates before it can be called, and
 * each case simply runs once. */
#ifndef FAILALLOC_H
#define FAILALLOC_H

#include <dirent.h>
#include <errno.h>
#include <execinfo.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ssmscope/base.h>

/* ---- the state ------------------------------------------------------------------------------- */

typedef enum failalloc_mode {
    FAILALLOC_ONCE, /* only the n-th allocation fails: what follows must not rely on it */
    FAILALLOC_FROM  /* the n-th and all later ones fail: cleaning up must not need memory */
} failalloc_mode;

enum { FAILALLOC_FRAMES = 16 };

/* Only allocations of the thread that arms fail: our other threads make none, and a sanitizer that
 * starts a thread cannot do without. */
static _Thread_local struct {
    bool armed;
    failalloc_mode mode;
    int64_t wanted;                /* n */
    int64_t seen;                  /* allocations since arming */
    int64_t failed;                /* of them, made to fail */
    void *where[FAILALLOC_FRAMES]; /* call stack of the first that failed */
    int frames;
} failalloc;

/* Blocks handed out and not freed since the program began, by any thread. */
static _Atomic int64_t failalloc_alive;

static void failalloc_arm(int64_t n, failalloc_mode mode)
{
    failalloc.mode = mode;
    failalloc.wanted = n;
    failalloc.seen = 0;
    failalloc.failed = 0;
    failalloc.armed = true;
}

/* For the parts of a case that look at results; gives what failalloc_restore takes. */
static bool failalloc_disarm(void)
{
    bool armed = failalloc.armed;
    failalloc.armed = false;
    return armed;
}

__attribute__((unused)) static void failalloc_restore(bool armed)
{
    failalloc.armed = armed;
}

#if defined(__SANITIZE_THREAD__)
#define FAILALLOC_OFF 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FAILALLOC_OFF 1
#endif
#endif
#ifndef FAILALLOC_OFF
#define FAILALLOC_OFF 0
#endif

#if !FAILALLOC_OFF

/* ---- malloc and its kin ---------------------------------------------------------------------- */

/* True when this allocation must fail. */
static bool failalloc_hit(void)
{
    if (!failalloc.armed) {
        return false;
    }
    failalloc.seen++;
    if (failalloc.mode == FAILALLOC_FROM ? failalloc.seen < failalloc.wanted
                                         : failalloc.seen != failalloc.wanted) {
        return false;
    }
    if (failalloc.failed++ == 0) {
        failalloc.armed = false; /* the unwinder may allocate */
        failalloc.frames = backtrace(failalloc.where, FAILALLOC_FRAMES);
        failalloc.armed = true;
    }
    errno = ENOMEM;
    return true;
}

static void *failalloc_count(void *block)
{
    if (block != NULL) {
        atomic_fetch_add(&failalloc_alive, 1);
    }
    return block;
}

/* The allocator of glibc under its second names, and of a sanitizer where there is one. */
#define FAILALLOC_REAL(type, name, parameters)                                                     \
    extern type __libc_##name parameters;                                                          \
    extern type __interceptor_##name parameters __attribute__((weak));
FAILALLOC_REAL(void *, malloc, (size_t))
FAILALLOC_REAL(void *, calloc, (size_t, size_t))
FAILALLOC_REAL(void *, realloc, (void *, size_t))
FAILALLOC_REAL(void *, memalign, (size_t, size_t))
FAILALLOC_REAL(void, free, (void *))
extern void *__interceptor_mmap(void *, size_t, int, int, int, off_t) __attribute__((weak));
#define FAILALLOC_CALL(name, ...)                                                                  \
    (__interceptor_##name != NULL ? __interceptor_##name(__VA_ARGS__) : __libc_##name(__VA_ARGS__))

/* Visible, so that the shared libraries use them too. */
#pragma GCC visibility push(default)

extern void *memalign(size_t alignment, size_t bytes);

void *malloc(size_t bytes)
{
    return failalloc_hit() ? NULL : failalloc_count(FAILALLOC_CALL(malloc, bytes));
}

void *calloc(size_t count, size_t bytes)
{
    return failalloc_hit() ? NULL : failalloc_count(FAILALLOC_CALL(calloc, count, bytes));
}

void *realloc(void *block, size_t bytes)
{
    if (failalloc_hit()) {
        return NULL;
    }
    void *moved = FAILALLOC_CALL(realloc, block, bytes);
    if (block == NULL) {
        failalloc_count(moved);
    } else if (bytes == 0 && moved == NULL) {
        atomic_fetch_sub(&failalloc_alive, 1);
    }
    return moved;
}

void *reallocarray(void *block, size_t count, size_t bytes)
{
    size_t whole;
    if (__builtin_mul_overflow(count, bytes, &whole)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(block, whole);
}

void *memalign(size_t alignment, size_t bytes)
{
    return failalloc_hit() ? NULL : failalloc_count(FAILALLOC_CALL(memalign, alignment, bytes));
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return memalign(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    void *block = memalign(alignment, bytes);
    if (block == NULL) {
        return ENOMEM;
    }
    *out = block;
    return 0;
}

void free(void *block)
{
    if (block != NULL) {
        atomic_fetch_sub(&failalloc_alive, 1);
        FAILALLOC_CALL(free, block);
    }
}

/* Mapping a file needs memory of the kernel. */
void *mmap(void *address, size_t bytes, int protection, int flags, int descriptor, off_t offset)
{
    if (failalloc_hit()) {
        return MAP_FAILED;
    }
    if (__interceptor_mmap != NULL) {
        return __interceptor_mmap(address, bytes, protection, flags, descriptor, offset);
    }
    return (void *)syscall(SYS_mmap, address, bytes, protection, flags, descriptor, offset);
}

#pragma GCC visibility pop
#endif

/* ---- the check ------------------------------------------------------------------------------- */

/* One call with everything that it needs: makes it, looks at its result, frees it. Gives its
 * status; a wrong result is CHECK. It must be repeatable, and leave nothing allocated. */
typedef ssm_status failalloc_run(void *context, ssm_error *err);

typedef struct failalloc_case {
    const char *name;
    failalloc_run *run;
    void *context;
    bool may_fail; /* FAILED is accepted beside MEMORY: the reason is hidden by a library */
    bool
        may_succeed; /* what could not be allocated is a mere aid, the result is right without it */
    int64_t may_leak; /* blocks that a library loses when its allocation fails; 0 is the rule */
    int64_t dense;    /* every n up to this, then growing steps of n / dense; 0: every n */
} failalloc_case;

static int failalloc_descriptors(void)
{
    DIR *listing = opendir("/proc/self/fd");
    int count = 0;
    while (listing != NULL && readdir(listing) != NULL) {
        count++;
    }
    if (listing != NULL) {
        closedir(listing);
    }
    return count;
}

/* False: a sanitizer allocates for strdup without asking us. */
static bool failalloc_counts_all(void)
{
#if FAILALLOC_OFF
    return false;
#else
    return __interceptor_malloc == NULL;
#endif
}

static bool failalloc_complain(const failalloc_case *this, int64_t n, failalloc_mode mode,
                               const char *what, const ssm_error *err)
{
    fprintf(stderr, "%s, allocation %lld%s failing: %s (status %d, \"%s\")\n", this->name,
            (long long)n, mode == FAILALLOC_FROM ? " and all later ones" : "", what,
            (int)err->status, err->message);
    if (n > 0) { /* addr2line -e PROGRAM gives the lines */
        backtrace_symbols_fd(failalloc.where, failalloc.frames, STDERR_FILENO);
    }
    return false;
}

extern void __lsan_disable(void) __attribute__((weak));
extern void __lsan_enable(void) __attribute__((weak));

/* LeakSanitizer would report at the end of the program what a library may lose. */
static void failalloc_watch_leaks(const failalloc_case *this, bool on)
{
    void (*change)(void) = on ? __lsan_enable : __lsan_disable;
    if (this->may_leak > 0 && change != NULL) {
        change();
    }
}

/* One run. *more: an allocation was made to fail. False: something is wrong. */
static bool failalloc_try(const failalloc_case *this, int64_t n, failalloc_mode mode, bool *more)
{
    ssm_error err;
    ssm_error_clear(&err);
    int descriptors = failalloc_descriptors();
    int64_t alive = atomic_load(&failalloc_alive);
    failalloc_watch_leaks(this, false);
    failalloc_arm(n, mode);
    ssm_status status = this->run(this->context, &err);
    failalloc_disarm();
    failalloc_watch_leaks(this, true);
    *more = failalloc.failed > 0;
    int64_t left = atomic_load(&failalloc_alive) - alive;
    if (failalloc_counts_all() && (left < 0 || left > (*more ? this->may_leak : 0))) {
        return failalloc_complain(this, n, mode, "memory leaked", &err);
    }
    if (failalloc_descriptors() != descriptors) {
        return failalloc_complain(this, n, mode, "a descriptor leaked", &err);
    }
    if (!*more || (status == SSM_STATUS_OK && this->may_succeed)) {
        return status == SSM_STATUS_OK ||
               failalloc_complain(this, n, mode, "failed with all its memory", &err);
    }
    if (status != SSM_STATUS_MEMORY && !(status == SSM_STATUS_FAILED && this->may_fail)) {
        return failalloc_complain(this, n, mode, "did not end with MEMORY", &err);
    }
    if (err.status != status || err.message[0] == '\0') {
        return failalloc_complain(this, n, mode, "left no fitting error record", &err);
    }
    return true;
}

/* The first backtrace loads a library, and the loader keeps some memory in a way that LeakSanitizer
 * does not see through when the loader's malloc is ours. */
static void failalloc_load_unwinder(void)
{
    if (__lsan_disable != NULL && __lsan_enable != NULL) {
        __lsan_disable();
    }
    failalloc.frames = backtrace(failalloc.where, FAILALLOC_FRAMES);
    if (__lsan_disable != NULL && __lsan_enable != NULL) {
        __lsan_enable();
    }
}

/* Runs the case with nothing failing, then with each n in both modes, then with nothing failing. */
static bool failalloc_check(const failalloc_case *this)
{
    bool more = false;
    ssm_error err;
    ssm_error_clear(&err);
    /* The first run makes what libraries allocate once and keep. */
    if (this->run(this->context, &err) != SSM_STATUS_OK) {
        return failalloc_complain(this, 0, FAILALLOC_ONCE, "does not run at all", &err);
    }
    failalloc_load_unwinder();
    if (FAILALLOC_OFF) {
        printf("%s: runs; nothing fails under this sanitizer\n", this->name);
        return true;
    }
    int64_t dense = getenv("FAILALLOC_ALL") != NULL ? 0 : this->dense;
    int64_t tried = 0;
    int64_t last = 0;
    for (int mode = FAILALLOC_ONCE; mode <= FAILALLOC_FROM; mode++) {
        int64_t n = 1;
        do {
            if (!failalloc_try(this, n, (failalloc_mode)mode, &more)) {
                return false;
            }
            tried += more;
            last = n;
            n += 1 + (dense > 0 ? n / dense : 0);
        } while (more);
    }
    printf("%s: %s %lld allocations, %lld failing runs\n", this->name,
           dense > 0 && last > dense ? "about" : "exactly", (long long)last - 1, (long long)tried);
    return failalloc_try(this, INT64_MAX, FAILALLOC_ONCE, &more);
}

#endif
