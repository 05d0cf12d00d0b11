#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "context.h"
#include "output.h"

/* Set by the signal handler, which may do nothing else. */
static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    (void)number;
    interrupted = 1;
}

bool cli_interrupted(void)
{
    return interrupted != 0;
}

static double seconds_between(const struct timespec *from, const struct timespec *to)
{
    return (double)(to->tv_sec - from->tv_sec) + 1e-9 * (double)(to->tv_nsec - from->tv_nsec);
}

static void draw(cli_progress *p, int64_t done, int64_t total, const char *unit, double elapsed)
{
    char left[48] = "";
    if (done > 0 && total > done && elapsed > 1.0) {
        char time[32];
        cli_format_seconds(elapsed * (double)(total - done) / (double)done, time);
        snprintf(left, sizeof left, ", about %s left", time);
    }
    if (total > 0) {
        fprintf(stderr, "\r\033[K%s: %lld of %lld %s (%.0f %%)%s", p->what, (long long)done,
                (long long)total, unit, 100.0 * (double)done / (double)total, left);
    } else {
        fprintf(stderr, "\r\033[K%s: %lld %s", p->what, (long long)done, unit);
    }
    fflush(stderr);
    p->drawn = true;
}

/* At most ten lines a second; the last one of a piece of work always. */
static bool report(void *context, const char *what, int64_t done, int64_t total, const char *unit)
{
    cli_progress *p = context;
    if (interrupted) {
        return false;
    }
    if (!p->live) {
        return true;
    }
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (strncmp(p->what, what, sizeof p->what - 1) != 0) {
        snprintf(p->what, sizeof p->what, "%s", what);
        p->started = now;
        p->last = (struct timespec){0};
    }
    if (done >= total || seconds_between(&p->last, &now) > 0.1) {
        draw(p, done, total, unit, seconds_between(&p->started, &now));
        p->last = now;
    }
    return true;
}

const ssm_progress *cli_progress_start(cli_context *context)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    action.sa_flags = (int)SA_RESETHAND;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    struct sigaction before;
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN) { /* nohup */
        sigaction(SIGHUP, &action, NULL);
    }
    cli_progress *p = &context->progress;
    *p = (cli_progress){.live = !context->globals.quiet && isatty(STDERR_FILENO) == 1};
    p->progress = (ssm_progress){.context = p, .report = report};
    return &p->progress;
}

static bool report_signals(void *context, const char *what, int64_t done, int64_t total,
                           const char *unit)
{
    (void)context;
    (void)what;
    (void)done;
    (void)total;
    (void)unit;
    return !interrupted;
}

ssm_progress cli_progress_signals(void)
{
    return (ssm_progress){.report = report_signals};
}

void cli_progress_line(cli_context *context, const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "\r\033[K");
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fflush(stderr);
    context->progress.drawn = true;
}

void cli_progress_clear(cli_context *context)
{
    if (context->progress.drawn) {
        fprintf(stderr, "\r\033[K");
        context->progress.drawn = false;
    }
}

void cli_note(cli_context *context, const char *format, ...)
{
    if (context->globals.quiet) {
        return;
    }
    cli_progress_clear(context);
    fflush(stdout); /* on a terminal both come out in the order they were made */
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}

ssm_status cli_pool(cli_context *context, ssm_pool **out, ssm_error *err)
{
    ssm_status status = SSM_STATUS_OK;
    if (context->pool == NULL) {
        status = ssm_pool_create((int)context->globals.threads, &context->pool, err);
    }
    *out = context->pool;
    return status;
}
