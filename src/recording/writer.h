/* recording/writer.h: writing a recording, window by window, so that a killed run resumes to the
 * same bytes. Knows arrays and names, no model. */
#ifndef SSM_RECORDING_WRITER_H
#define SSM_RECORDING_WRITER_H

#include <jansson.h>
#include <ssmscope/recording.h>

typedef struct ssm__recording_writer ssm__recording_writer;

typedef struct ssm__recording_plan {
    ssm_recording_info info;             /* digest is filled by the writer; layers NULL: all */
    const ssm_recording_window *windows; /* file may be NULL: the writer names them */
    int64_t n_windows;
    json_t *extra; /* more fields of recording.json (text, budgets, program_version, command …) */
    bool resume;
} ssm__recording_plan;

/* Creates the directory and recording.json (or checks that the one there is the same plan, byte for
 * byte, when resuming). Errors: USAGE (exists and not resume; resume of another plan: the first
 * field that differs is named; two domains with one file name), FILE (a window that is there is
 * damaged), FAILED. */
ssm_status ssm__recording_create(const char *directory, const ssm__recording_plan *plan,
                                 ssm__recording_writer **out, ssm_error *err);
void ssm__recording_writer_free(ssm__recording_writer *writer);
/* True when window i is already whole (file and, for calibration, its share of the sum). */
bool ssm__recording_has(const ssm__recording_writer *writer, int64_t window);
/* Once, before the first window: layers.N.A float32 [E][N], Mamba-2 [n_heads]. */
ssm_status ssm__recording_put_model(ssm__recording_writer *writer, const ssm_tensor *tensors,
                                    int64_t count, ssm_error *err);
/* A window in pieces, so that one layer's numbers are in memory at a time: begin, every recorded
 * layer in rising order, end. Windows are begun in rising order. In each piece the tensors that the
 * schema names, nothing more, nothing less, found by name; `gram`: float64 [H][(N+1)(N+2)/2] dense,
 * named layers.N.gram, NULL without Gram. Evaluation windows store it as float32; calibration
 * windows add it to the domain's float64 sum on disk (and store it too with has_window_gram). Files
 * appear at the end; a failure, another begin and freeing the writer leave nothing of the window.
 * Errors: USAGE (another order, name, type or shape), FILE (a damaged sum), FAILED, MEMORY. */
ssm_status ssm__recording_begin_window(ssm__recording_writer *writer, int64_t window,
                                       ssm_error *err);
ssm_status ssm__recording_put_layer(ssm__recording_writer *writer, const ssm_tensor *tensors,
                                    int64_t count, const ssm_tensor *gram, ssm_error *err);
ssm_status ssm__recording_end_window(ssm__recording_writer *writer, const ssm_tensor *tensors,
                                     int64_t count, ssm_error *err);
/* Mean over the calibration windows, whose files must all be there, of Mamba-2's energies of the
 * channels of a layer: mean, scratch [n_heads·head_dim][N]; the same numbers as
 * ssm__calibration_energies will give. Errors: FILE (a damaged file), MEMORY. */
ssm_status ssm__recording_mean_energy(const ssm__recording_writer *writer, int64_t layer,
                                      double *mean, double *scratch, ssm_error *err);
/* The three at once: all tensors but the Grams; grams: one per recorded layer, rising, or NULL. */
ssm_status ssm__recording_put_window(ssm__recording_writer *writer, int64_t window,
                                     const ssm_tensor *tensors, int64_t count,
                                     const ssm_tensor *grams, int64_t n_grams, ssm_error *err);
/* Turns the float64 sums into calibration.DOMAIN.safetensors (float32) and removes them. Errors:
 * USAGE (a window is missing), FILE (a damaged sum), FAILED. */
ssm_status ssm__recording_finish(ssm__recording_writer *writer, ssm_error *err);

#endif
