/* recording.json → ssm__head. Every field that is read is checked here, once. */
#include "recording/head.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "base/error.h"
#include "base/json.h"
#include "recording/schema.h"

/* Where a parse stands: what every check needs to say what is wrong. */
typedef struct parse {
    const char *path;
    ssm_status status;
    ssm_error *err;
} parse;

/* Bounds far above any model; they keep every product of dimensions inside int64. */
enum { MAX_LAYERS = 1 << 16, MAX_STATE = 1 << 12, MAX_WIDTH = 1 << 24, MAX_TOKENS = 1 << 24 };

static ssm_status refuse(const parse *at, const char *field, const char *message)
{
    return ssm__fail(at->err, at->status, SSM__TENSOR(at->path, field), "%s", message);
}

static ssm_status get_integer(const parse *at, const json_t *object, const char *prefix,
                              const char *key, int64_t low, int64_t high, int64_t *out)
{
    char field[128];
    snprintf(field, sizeof field, "%s%s", prefix, key);
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value)) {
        return refuse(at, field, value == NULL ? "the field is missing" : "expected an integer");
    }
    int64_t number = (int64_t)json_integer_value(value);
    if (number < low || number > high) {
        return ssm__fail(at->err, at->status, SSM__TENSOR(at->path, field),
                         "expected %lld … %lld, found %lld", (long long)low, (long long)high,
                         (long long)number);
    }
    *out = number;
    return SSM_STATUS_OK;
}

static ssm_status get_string(const parse *at, const json_t *object, const char *prefix,
                             const char *key, const char **out)
{
    char field[128];
    snprintf(field, sizeof field, "%s%s", prefix, key);
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value)) {
        return refuse(at, field, value == NULL ? "the field is missing" : "expected a string");
    }
    if (strlen(json_string_value(value)) != json_string_length(value)) {
        return refuse(at, field, "the string has a NUL character");
    }
    *out = json_string_value(value);
    return SSM_STATUS_OK;
}

static ssm_status get_digest(const parse *at, const json_t *object, const char *prefix,
                             char out[64])
{
    const char *text = NULL;
    SSM__TRY(get_string(at, object, prefix, "digest", &text));
    if (strlen(text) > 63) {
        return ssm__fail(at->err, at->status, SSM__TENSOR(at->path, prefix),
                         "a digest has at most 63 characters, found %zu", strlen(text));
    }
    memcpy(out, text, strlen(text) + 1);
    return SSM_STATUS_OK;
}

/* A flag of ours that other writers of the schema may leave out. */
static ssm_status get_flag(const parse *at, const json_t *object, const char *key, bool absent,
                           bool *out)
{
    const json_t *value = json_object_get(object, key);
    if (value != NULL && !json_is_boolean(value)) {
        return refuse(at, key, "expected true or false");
    }
    *out = value == NULL ? absent : json_is_true(value);
    return SSM_STATUS_OK;
}

static ssm_status parse_family(const parse *at, const json_t *model, ssm_family *out)
{
    const char *name = NULL;
    SSM__TRY(get_string(at, model, "model.", "family", &name));
    static const ssm_family families[] = {SSM_FAMILY_MAMBA, SSM_FAMILY_FALCON_MAMBA,
                                          SSM_FAMILY_MAMBA2};
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        if (strcmp(ssm_family_name(families[i]), name) == 0) {
            *out = families[i];
            return SSM_STATUS_OK;
        }
    }
    return ssm__fail(at->err, at->status, SSM__TENSOR(at->path, "model.family"),
                     "expected mamba, falcon_mamba or mamba2, found '%.64s'", name);
}

static ssm_status parse_model(const parse *at, const json_t *root, ssm_recording_info *info)
{
    const json_t *model = json_object_get(root, "model");
    if (!json_is_object(model)) {
        return refuse(at, "model", "expected an object");
    }
    SSM__TRY(get_digest(at, model, "model.", info->model_digest));
    SSM__TRY(parse_family(at, model, &info->family));
    int64_t heads_low = info->family == SSM_FAMILY_MAMBA2 ? 1 : 0;
    const struct {
        const char *key;
        int64_t low, high;
        int64_t *out;
    } numbers[] = {
        {"n_layers", 1, MAX_LAYERS, &info->n_layers},
        {"d_model", 1, MAX_WIDTH, &info->d_model},
        {"d_inner", 1, MAX_WIDTH, &info->d_inner},
        {"d_state", 1, MAX_STATE, &info->d_state},
        {"n_heads", heads_low, MAX_WIDTH, &info->n_heads},
        {"head_dim", heads_low, MAX_WIDTH, &info->head_dim},
        {"n_groups", heads_low, MAX_WIDTH, &info->n_groups},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        SSM__TRY(get_integer(at, model, "model.", numbers[i].key, numbers[i].low, numbers[i].high,
                             numbers[i].out));
    }
    if (json_object_get(model, "n_attention") != NULL) { /* only where there are some */
        SSM__TRY(get_integer(at, model, "model.", "n_attention", 1, info->n_layers - 1,
                             &info->n_attention));
    }
    if (info->family == SSM_FAMILY_MAMBA2 && info->n_heads * info->head_dim > info->d_inner) {
        return ssm__fail(at->err, at->status, SSM__TENSOR(at->path, "model.d_inner"),
                         "n_heads %lld × head_dim %lld is more than d_inner %lld",
                         (long long)info->n_heads, (long long)info->head_dim,
                         (long long)info->d_inner);
    }
    return SSM_STATUS_OK;
}

static ssm_status parse_layers(const parse *at, ssm__head *head)
{
    const json_t *list = json_object_get(head->root, "layers");
    if (list != NULL && !json_is_array(list)) {
        return refuse(at, "layers", "expected a list of layer numbers");
    }
    size_t count = list == NULL ? (size_t)head->info.n_layers : json_array_size(list);
    if (count == 0 || count > (size_t)head->info.n_layers) {
        return ssm__fail(at->err, at->status, SSM__TENSOR(at->path, "layers"),
                         "expected 1 … %lld layers, found %zu", (long long)head->info.n_layers,
                         count);
    }
    head->layers = malloc(count * sizeof *head->layers);
    if (head->layers == NULL) {
        return ssm__fail_memory(at->err, "the list of layers", count * sizeof *head->layers);
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_array_get(list, i);
        int64_t layer = list == NULL ? (int64_t)i : (int64_t)json_integer_value(value);
        int64_t previous = i == 0 ? -1 : head->layers[i - 1];
        if ((list != NULL && !json_is_integer(value)) || layer <= previous ||
            layer >= head->info.n_layers) {
            return ssm__fail(at->err, at->status, SSM__TENSOR(at->path, "layers"),
                             "entry %zu: expected rising layer numbers below %lld", i,
                             (long long)head->info.n_layers);
        }
        head->layers[i] = layer;
    }
    head->info.layers = head->layers;
    head->info.n_recorded = (int64_t)count;
    return SSM_STATUS_OK;
}

/* The budgets that the tensors of channels are for; another family's are not looked at. */
static ssm_status parse_budgets(const parse *at, ssm__head *head)
{
    const json_t *list = json_object_get(head->root, "budgets");
    if (head->info.family != SSM_FAMILY_MAMBA2) {
        return SSM_STATUS_OK;
    }
    if (!json_is_array(list) || json_array_size(list) > (size_t)head->info.d_state) {
        return refuse(at, "budgets", "expected a list of at most d_state numbers of kept modes");
    }
    const size_t count = json_array_size(list);
    head->budgets = calloc(count + 1, sizeof *head->budgets);
    if (head->budgets == NULL) {
        return ssm__fail_memory(at->err, "the budgets", (count + 1) * sizeof *head->budgets);
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_array_get(list, i);
        const json_int_t budget = json_integer_value(value);
        bool good = json_is_integer(value) && budget >= 1 && budget < head->info.d_state;
        for (size_t k = 0; k < i; k++) {
            good = good && head->budgets[k] != (int64_t)budget;
        }
        if (!good) {
            return ssm__fail(at->err, at->status, SSM__TENSOR(at->path, "budgets"),
                             "entry %zu: expected 1 … %lld, each once", i,
                             (long long)head->info.d_state - 1);
        }
        head->budgets[i] = (int64_t)budget;
    }
    head->info.budgets = head->budgets;
    head->info.n_budgets = (int64_t)count;
    return SSM_STATUS_OK;
}

/* A path that stays inside the recording. */
static bool is_inside(const char *file)
{
    if (file[0] == '\0' || file[0] == '/') {
        return false;
    }
    for (const char *part = file; part != NULL; part = strchr(part, '/')) {
        part += part[0] == '/';
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0')) {
            return false;
        }
    }
    return true;
}

static ssm_status parse_window(const parse *at, const ssm__head *head, int64_t i,
                               ssm_recording_window *out)
{
    const json_t *window = json_array_get(json_object_get(head->root, "windows"), (size_t)i);
    char prefix[64];
    char field[96];
    snprintf(prefix, sizeof prefix, "windows[%lld].", (long long)i);
    if (!json_is_object(window)) {
        return refuse(at, prefix, "expected an object");
    }
    const char *role = NULL;
    SSM__TRY(get_string(at, window, prefix, "file", &out->file));
    SSM__TRY(get_string(at, window, prefix, "domain", &out->domain));
    SSM__TRY(get_string(at, window, prefix, "role", &role));
    SSM__TRY(get_integer(at, window, prefix, "token_offset", 0, INT64_MAX, &out->token_offset));
    SSM__TRY(get_integer(at, window, prefix, "tokens", 2, head->info.window, &out->tokens));
    if (!is_inside(out->file)) {
        snprintf(field, sizeof field, "%sfile", prefix);
        return refuse(at, field, "expected a path inside the recording, without '..'");
    }
    if (strcmp(role, "calibration") != 0 && strcmp(role, "evaluation") != 0) {
        snprintf(field, sizeof field, "%srole", prefix);
        return refuse(at, field, "expected 'calibration' or 'evaluation'");
    }
    out->role = role[0] == 'c' ? SSM_ROLE_CALIBRATION : SSM_ROLE_EVALUATION;
    return SSM_STATUS_OK;
}

/* File names of a domain's sum: bytes other than letters, digits, '.', '_' and '-' become '_'. */
static ssm_status name_calibration(const parse *at, const char *domain, ssm__calibration *out)
{
    char safe[SSM__DOMAIN_FILE_MAX + 1];
    size_t length = strlen(domain);
    if (length == 0 || length > SSM__DOMAIN_FILE_MAX) {
        return ssm__fail(at->err, at->status, SSM__TENSOR(at->path, "windows"),
                         "a domain's name has 1 … %d bytes, found %zu; rename it with domain=path",
                         SSM__DOMAIN_FILE_MAX, length);
    }
    for (size_t i = 0; i <= length; i++) {
        char c = domain[i];
        bool keep = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    c == '.' || c == '_' || c == '-' || c == '\0';
        safe[i] = (char)(keep ? c : '_');
    }
    out->domain = domain;
    snprintf(out->file, sizeof out->file, "calibration.%s.safetensors", safe);
    snprintf(out->partial, sizeof out->partial, "partial.%s.safetensors", safe);
    return SSM_STATUS_OK;
}

/* Finds or adds the domain of calibration window i. */
static ssm_status add_calibration(const parse *at, ssm__head *head, int64_t i)
{
    const char *domain = head->windows[i].domain;
    int64_t k = 0;
    while (k < head->n_calibrations && strcmp(head->calibrations[k].domain, domain) != 0) {
        k++;
    }
    if (k == head->n_calibrations) {
        SSM__TRY(name_calibration(at, domain, &head->calibrations[k]));
        for (int64_t other = 0; other < k; other++) {
            if (strcmp(head->calibrations[other].file, head->calibrations[k].file) == 0) {
                return ssm__fail(at->err, at->status, SSM__TENSOR(at->path, "windows"),
                                 "domains '%s' and '%s' would share the file %s; rename one",
                                 head->calibrations[other].domain, domain,
                                 head->calibrations[k].file);
            }
        }
        head->n_calibrations++;
    }
    head->calibrations[k].windows++;
    head->calibration_of[i] = k;
    return SSM_STATUS_OK;
}

static int compare_files(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static ssm_status check_files_differ(const parse *at, const ssm__head *head)
{
    size_t count = (size_t)head->n_windows;
    const char **files = malloc((count + 1) * sizeof *files);
    if (files == NULL) {
        return ssm__fail_memory(at->err, "window names", (count + 1) * sizeof *files);
    }
    for (size_t i = 0; i < count; i++) {
        files[i] = head->windows[i].file;
    }
    qsort(files, count, sizeof *files, compare_files);
    ssm_status status = SSM_STATUS_OK;
    for (size_t i = 1; i < count && status == SSM_STATUS_OK; i++) {
        if (strcmp(files[i - 1], files[i]) == 0) {
            status = ssm__fail(at->err, at->status, SSM__TENSOR(at->path, "windows"),
                               "two windows name the file '%.200s'", files[i]);
        }
    }
    free(files);
    return status;
}

static ssm_status parse_windows(const parse *at, ssm__head *head)
{
    const json_t *list = json_object_get(head->root, "windows");
    if (!json_is_array(list)) {
        return refuse(at, "windows", "expected a list");
    }
    size_t count = json_array_size(list);
    head->windows = calloc(count + 1, sizeof *head->windows);
    head->calibration_of = calloc(count + 1, sizeof *head->calibration_of);
    head->calibrations = calloc(count + 1, sizeof *head->calibrations);
    if (head->windows == NULL || head->calibration_of == NULL || head->calibrations == NULL) {
        return ssm__fail_memory(at->err, "the list of windows", count * sizeof *head->calibrations);
    }
    head->n_windows = (int64_t)count;
    for (int64_t i = 0; i < head->n_windows; i++) {
        SSM__TRY(parse_window(at, head, i, &head->windows[i]));
        head->calibration_of[i] = -1;
        if (head->windows[i].role == SSM_ROLE_CALIBRATION) {
            head->info.has_calibration = true;
            SSM__TRY(add_calibration(at, head, i));
        }
    }
    return check_files_differ(at, head);
}

static ssm_status parse_root(const parse *at, ssm__head *head)
{
    if (!json_is_object(head->root)) {
        return refuse(at, "", "expected a JSON object");
    }
    const char *schema = NULL;
    SSM__TRY(get_string(at, head->root, "", "schema", &schema));
    if (strcmp(schema, SSM__RECORDING_SCHEMA) != 0) {
        return ssm__fail(at->err, at->status, SSM__TENSOR(at->path, "schema"),
                         "expected '%s', found '%.64s': not a recording of this version",
                         SSM__RECORDING_SCHEMA, schema);
    }
    SSM__TRY(parse_model(at, head->root, &head->info));
    const json_t *tokenizer = json_object_get(head->root, "tokenizer");
    if (!json_is_object(tokenizer)) {
        return refuse(at, "tokenizer", "expected an object");
    }
    SSM__TRY(get_digest(at, tokenizer, "tokenizer.", head->info.tokenizer_digest));
    SSM__TRY(get_integer(at, head->root, "", "window", 2, MAX_TOKENS, &head->info.window));
    SSM__TRY(get_flag(at, head->root, "gram", true, &head->info.has_gram));
    SSM__TRY(get_flag(at, head->root, "window_gram", false, &head->info.has_window_gram));
    SSM__TRY(parse_layers(at, head));
    SSM__TRY(parse_budgets(at, head));
    return parse_windows(at, head);
}

ssm_status ssm__head_parse(const char *path, ssm_status status, const char *text, size_t bytes,
                           ssm__head *out, ssm_error *err)
{
    *out = (ssm__head){0};
    SSM__TRY(ssm__json_parse(path, 0, text, bytes, SSM__JSON_STRICT, &out->root, err));
    const parse at = {path, status, err};
    ssm_status result = parse_root(&at, out);
    if (result != SSM_STATUS_OK) {
        ssm__head_free(out);
        return result;
    }
    ssm__digest_bytes(text, bytes, out->info.digest);
    return SSM_STATUS_OK;
}

void ssm__head_free(ssm__head *head)
{
    free(head->layers);
    free(head->budgets);
    free(head->windows);
    free(head->calibration_of);
    free(head->calibrations);
    json_decref(head->root);
    *head = (ssm__head){0};
}
