/* toy_recording.h: small recordings made in code from random mode outputs, through the writer. */
#ifndef TOY_RECORDING_H
#define TOY_RECORDING_H

#include <stdint.h>

#include <ssmscope/recording.h>

#include "recording/writer.h"
#include "test_paths.h"

enum { TOY_DOMAINS_MAX = 4 };

typedef struct toy_recording {
    int64_t n_layers, channels, d_state, window;
    int64_t n_domains, calibration, evaluation; /* windows of each domain */
    const char *domains[TOY_DOMAINS_MAX];
    bool no_gram, window_gram;
    const int64_t *layers; /* NULL: all */
    int64_t n_recorded;
    /* Other values for a tensor of a layer ("A", "gram", "energy_blocks" …); may be NULL. */
    void (*edit)(int64_t window, int64_t layer, const char *field, double *values, int64_t count);
} toy_recording;

/* 3 layers, 5 channels, N = 6, windows of 150 tokens (2 blocks and a rest), domains prose and code,
 * 2 calibration and 3 evaluation windows of each. */
toy_recording toy_recording_shape(void);
int64_t toy_recording_windows(const toy_recording *toy);
ssm_role toy_recording_role(const toy_recording *toy, int64_t window);
int64_t toy_recording_domain(const toy_recording *toy, int64_t window);
/* The mode outputs (m_0 … m_{N−1}, f) of one window and layer, [T][H][N+1]. Their scale depends on
 * channel, mode and domain, so that sets move with the domain. */
void toy_modes(const toy_recording *toy, int64_t window, int64_t layer, double *modes);
/* A[H][N] of a layer, and Δ mean [H] of a window and layer. */
void toy_A(const toy_recording *toy, int64_t layer, float *out);
void toy_delta(const toy_recording *toy, int64_t window, int64_t layer, float *out);

/* Writes (or resumes) the whole recording. */
ssm_status toy_recording_write(const toy_recording *toy, const char *directory, bool resume,
                               ssm_error *err);
/* Writes it into a fresh directory, root, and opens it; fails the test on any error. */
ssm_recording *toy_recording_open(const toy_recording *toy, char root[TEST_PATH_MAX]);
/* Closes it and removes the directory. */
void toy_recording_close(ssm_recording *recording, const char *root);
/* The same plan with other `extra` fields; the writer is given back after create. Owner: caller. */
ssm_status toy_recording_create(const toy_recording *toy, const char *directory, bool resume,
                                const char *command, ssm__recording_writer **out, ssm_error *err);
ssm_status toy_recording_put(const toy_recording *toy, ssm__recording_writer *writer,
                             int64_t window, ssm_error *err);

#endif
