/* recording/head.h: recording.json, read and written. */
#ifndef SSM_RECORDING_HEAD_H
#define SSM_RECORDING_HEAD_H

#include <jansson.h>
#include <ssmscope/recording.h>

#define SSM__RECORDING_SCHEMA "ssmscope.recording/1"
#define SSM__WINDOW_SCHEMA    "ssmscope.recording.window/1"
#define SSM__SUM_SCHEMA       "ssmscope.recording.calibration/1"
#define SSM__MODEL_SCHEMA     "ssmscope.recording.model/1"

enum { SSM__DOMAIN_FILE_MAX = 180 };

/* A domain that has calibration windows, and where the sum of their Grams is kept. */
typedef struct ssm__calibration {
    const char *domain;
    char file[SSM__DOMAIN_FILE_MAX + 32];    /* calibration.DOMAIN.safetensors */
    char partial[SSM__DOMAIN_FILE_MAX + 32]; /* partial.DOMAIN.safetensors, while recording */
    int64_t windows;
} ssm__calibration;

/* recording.json in memory. Strings belong to `root`. */
typedef struct ssm__head {
    ssm_recording_info info;
    int64_t *layers;  /* info.layers */
    int64_t *budgets; /* info.budgets */
    ssm_recording_window *windows;
    int64_t n_windows;
    ssm__calibration *calibrations; /* in order of first appearance */
    int64_t n_calibrations;
    int64_t *calibration_of; /* per window: index into calibrations, −1 for evaluation */
    json_t *root;
} ssm__head;

/* Checks every field that this program reads. path: for errors. status: of a field that does not
 * hold (FILE when a file is read, USAGE when a plan is checked). */
ssm_status ssm__head_parse(const char *path, ssm_status status, const char *text, size_t bytes,
                           ssm__head *out, ssm_error *err);
void ssm__head_free(ssm__head *head);

/* The text of recording.json: schema, then the fields of `extra`, then info and windows. The same
 * input gives the same bytes. A window without file is given windows/NNNNN.safetensors.
 * Owner of *text: the caller, free(). Errors: USAGE (a field of extra that is ours), MEMORY. */
ssm_status ssm__head_print(const ssm_recording_info *info, const ssm_recording_window *windows,
                           int64_t n_windows, const json_t *extra, char **text, ssm_error *err);
/* The place ("windows[3].domain") and values of the first difference between two recording.json
 * texts, for the message that refuses a resume. Texts that are no JSON differ as a whole. */
void ssm__head_difference(const char *old_text, const char *new_text, char *out, size_t size);

#endif
