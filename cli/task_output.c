#include "task_output.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "messages.h"
#include "output.h"

/* ---- for people ------------------------------------------------------------------------------ */

enum { TOKEN_MAX = 32, HEAD = 7 }; /* width of "ids    " */

/* Columns of a text in a terminal, near enough: characters, not bytes. */
static int columns(const char *text)
{
    int count = 0;
    for (; *text != '\0'; text++) {
        count += ((unsigned char)*text & 0xC0) != 0x80;
    }
    return count;
}

static void label_text(const ssm_train_task *task, int32_t label, char out[TOKEN_MAX])
{
    if (label < 0) {
        snprintf(out, TOKEN_MAX, "-");
    } else {
        ssm_train_task_label(task, label, out, TOKEN_MAX);
    }
}

/* Flushed right, so that no line ends in spaces. */
static void put_cell(const char *text, int width)
{
    printf("%*s%s", width - columns(text) + 1, "", text);
}

/* Positions first … that fit into a line; prints both rows and returns the next position. */
static int64_t show_piece(const ssm_train_task *task, const int32_t *ids, const int32_t *labels,
                          int64_t first, int64_t count)
{
    char text[TOKEN_MAX];
    int widths[CLI_LINE_WIDTH];
    int64_t end = first;
    int used = HEAD;
    for (; end < count && end - first < CLI_LINE_WIDTH; end++) {
        ssm_train_task_token(task, ids[end], text, sizeof text);
        int width = columns(text);
        label_text(task, labels == NULL ? -1 : labels[end], text);
        width = width > columns(text) ? width : columns(text);
        if (used + width > CLI_LINE_WIDTH && end > first) {
            break;
        }
        widths[end - first] = width;
        used += width + 1;
    }
    printf("%-*s", HEAD, "ids");
    for (int64_t t = first; t < end; t++) {
        ssm_train_task_token(task, ids[t], text, sizeof text);
        put_cell(text, widths[t - first]);
    }
    if (labels != NULL) {
        printf("\n%-*s", HEAD, "labels");
        for (int64_t t = first; t < end; t++) {
            label_text(task, labels[t], text);
            put_cell(text, widths[t - first]);
        }
    }
    printf("\n");
    return end;
}

static void show_vectors(const ssm_train_info *info, const ssm_train_batch *batch, int64_t b)
{
    const int64_t used = batch->used[b];
    for (int64_t t = 0; t < used; t++) {
        const float *input = batch->inputs + (b * batch->length + t) * info->input_width;
        printf("%6" PRId64 "  %" PRId32 " ", t, batch->regimes[b * batch->length + t]);
        for (int64_t i = 0; i < info->input_width && i < 8; i++) {
            printf(" %8.4f", (double)input[i]);
        }
        printf("%s\n", info->input_width > 8 ? " …" : "");
    }
}

void cli_task_show(const ssm_train_task *task, const ssm_train_batch *batch, int64_t b)
{
    const ssm_train_info *info = ssm_train_task_info(task);
    if (info->loss == SSM_TRAIN_VECTORS) {
        printf("  step  regime, input; the target is the next input\n");
        show_vectors(info, batch, b);
        return;
    }
    const bool classes = info->loss == SSM_TRAIN_CLASSES;
    const int32_t *ids = batch->ids + b * batch->length;
    const int32_t *labels = classes ? NULL : batch->labels + b * batch->length;
    if (classes) {
        char text[TOKEN_MAX];
        label_text(task, batch->labels[b], text);
        printf("%-*s%s\n", HEAD, "label", text);
    }
    for (int64_t t = 0; t < batch->used[b];) {
        t = show_piece(task, ids, labels, t, batch->used[b]);
    }
}

/* ---- JSON lines ------------------------------------------------------------------------------ */

static void put_integers(const char *name, const int32_t *values, int64_t count)
{
    printf("\"%s\": [", name);
    for (int64_t i = 0; i < count; i++) {
        printf("%s%" PRId32, i == 0 ? "" : ", ", values[i]);
    }
    printf("]");
}

static void put_vectors(const char *name, const float *values, int64_t count, int64_t width)
{
    printf("\"%s\": [", name);
    for (int64_t t = 0; t < count; t++) {
        printf("%s[", t == 0 ? "" : ", ");
        for (int64_t i = 0; i < width; i++) {
            printf("%s%.9g", i == 0 ? "" : ", ", (double)values[t * width + i]);
        }
        printf("]");
    }
    printf("]");
}

ssm_status cli_task_line(const ssm_train_task *task, const ssm_train_batch *batch, int64_t b,
                         ssm_error *err)
{
    const ssm_train_info *info = ssm_train_task_info(task);
    const int64_t used = batch->used[b];
    const int64_t at = b * batch->length;
    printf("{");
    if (info->loss == SSM_TRAIN_VECTORS) {
        put_vectors("inputs", batch->inputs + at * info->input_width, used, info->input_width);
        printf(", ");
        put_vectors("targets", batch->targets + at * info->output_width, used, info->output_width);
    } else {
        const bool classes = info->loss == SSM_TRAIN_CLASSES;
        put_integers("ids", batch->ids + at, used);
        printf(", ");
        put_integers("labels", batch->labels + (classes ? b : at), classes ? 1 : used);
    }
    if (info->regimes) {
        printf(", ");
        put_integers("regimes", batch->regimes + at, used);
    }
    printf("}\n");
    return ferror(stdout) != 0 ? cli_fail(err, SSM_STATUS_FAILED, NULL, "cannot write the rows")
                               : SSM_STATUS_OK;
}
