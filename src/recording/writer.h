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
/* Once, before the first window: layers.N.A float32 [E][N]. */
ssm_status ssm__recording_put_model(ssm__recording_writer *writer, const ssm_tensor *tensors,
                                    int64_t count, ssm_error *err);
/* All tensors of window i but the Grams, in file order (nothing more, nothing less than the schema
 * names); grams: one view of float64 [H][(N+1)(N+2)/2] per recorded layer, rising, in `gram_row`
 * order, dense, named layers.N.gram, or NULL without Gram. Evaluation windows store them as
 * float32; calibration windows add them to the domain's float64 sum on disk (and store them too
 * with has_window_gram). Windows are put in rising order. */
ssm_status ssm__recording_put_window(ssm__recording_writer *writer, int64_t window,
                                     const ssm_tensor *tensors, int64_t count,
                                     const ssm_tensor *grams, int64_t n_grams, ssm_error *err);
/* Turns the float64 sums into calibration.DOMAIN.safetensors (float32) and removes them. Errors:
 * USAGE (a window is missing), FILE (a damaged sum), FAILED. */
ssm_status ssm__recording_finish(ssm__recording_writer *writer, ssm_error *err);

#endif
