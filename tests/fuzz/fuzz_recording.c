/* A recording from bytes: the text up to the first NUL byte is recording.json, the rest is the
 * content of every other file: shard.safetensors, model.safetensors, and the sums of domains a and
 * b. What opens is read to the end and measured; nothing may crash, leak or hang. Files are made in
 * a directory in memory. Seeds: tools/make_recording_corpus.py. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "recording/head.h"
#include "recording/schema.h"
#include "ssmscope/metrics.h"
#include "ssmscope/select.h"

/* Every rule with a mask and a curve. */
static void select_everything(ssm_recording *recording, const char *scope)
{
    for (const char *const *rule = ssm_select_rules(); *rule != NULL; rule++) {
        const ssm_select_options options = {.rule = *rule, .budget = 1, .scope = scope};
        ssm_mask mask;
        ssm_error_curve curve;
        if (ssm_select(recording, &options, &mask, NULL) == SSM_STATUS_OK) {
            ssm_mask_free(&mask);
        }
        if (ssm_select_curve(recording, &options, SSM_ROLE_EVALUATION, &curve, NULL) ==
            SSM_STATUS_OK) {
            ssm_error_curve_free(&curve);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char root[256];

static void remove_root(void)
{
    char path[512];
    static const char *const files[] = {"recording.json", "shard.safetensors", "model.safetensors",
                                        "calibration.a.safetensors", "calibration.b.safetensors"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", root, files[i]);
        unlink(path);
    }
    rmdir(root);
}

static void make_root(void)
{
    if (root[0] != '\0') {
        return;
    }
    const char *memory = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(root, sizeof root, "%s/ssmscope-fuzz-XXXXXX", memory);
    if (mkdtemp(root) == NULL) {
        abort();
    }
    atexit(remove_root);
}

/* Not the library's writer: that would sync. */
static void write_plain(const char *name, const uint8_t *data, size_t size)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *file = fopen(path, "wb");
    if (file == NULL || (size > 0 && fwrite(data, 1, size, file) != size)) {
        abort();
    }
    fclose(file);
}

/* Reads every tensor that the recording says it has. */
static void read_everything(ssm_recording *recording)
{
    const ssm_recording_info *info = ssm_recording_get_info(recording);
    const ssm_tensor *tensor;
    int64_t windows = ssm_recording_window_count(recording);
    int64_t layers = info->n_recorded < 8 ? info->n_recorded : 8;
    for (int64_t l = 0; l < layers; l++) {
        ssm_recording_A(recording, info->layers[l], &tensor, NULL);
        for (int64_t w = 0; w < windows && w < 8; w++) {
            ssm_recording_calibration_gram(recording,
                                           ssm_recording_get_window(recording, w)->domain,
                                           info->layers[l], &tensor, NULL);
            for (const ssm__field *field = ssm__schema_fields(); field->name != NULL; field++) {
                ssm_recording_tensor(recording, w, field->of_layer ? info->layers[l] : -1,
                                     field->name, &tensor, NULL);
            }
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = size == 0 ? NULL : memchr(data, '\0', size);
    size_t head = end == NULL ? size : (size_t)(end - data);
    size_t rest = end == NULL ? 0 : size - head - 1;
    static const char *const shards[] = {"shard.safetensors", "model.safetensors",
                                         "calibration.a.safetensors", "calibration.b.safetensors"};
    ssm_recording *recording = NULL;
    make_root();
    write_plain("recording.json", data, head);
    for (size_t i = 0; i < sizeof shards / sizeof shards[0]; i++) {
        write_plain(shards[i], end == NULL ? data : end + 1, rest);
    }
    if (ssm_recording_open(root, &recording, NULL) == SSM_STATUS_OK) {
        read_everything(recording);
        const int64_t budget = 1;
        for (int scope = SSM_SCOPE_CHANNEL; scope <= SSM_SCOPE_HEAD; scope++) {
            ssm_metrics metrics;
            if (ssm_metrics_compute(recording, (ssm_scope)scope, &budget, 1, NULL, &metrics,
                                    NULL) == SSM_STATUS_OK) {
                ssm_metrics_free(&metrics);
            }
            select_everything(recording, ssm_scope_name((ssm_scope)scope));
        }
        ssm_recording_close(recording);
    }
    return 0;
}
