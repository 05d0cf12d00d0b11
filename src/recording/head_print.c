/* ssm__head → the text of recording.json, and where two such texts differ. */
#include "recording/head.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"

static json_t *model_object(const ssm_recording_info *info)
{
    json_t *model =
        json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "digest", info->model_digest,
                  "family", ssm_family_name(info->family), "n_layers", (json_int_t)info->n_layers,
                  "d_model", (json_int_t)info->d_model, "d_inner", (json_int_t)info->d_inner,
                  "d_state", (json_int_t)info->d_state, "n_heads", (json_int_t)info->n_heads,
                  "head_dim", (json_int_t)info->head_dim, "n_groups", (json_int_t)info->n_groups);
    if (info->n_attention > 0 &&
        json_object_set_new(model, "n_attention", json_integer(info->n_attention)) != 0) {
        json_decref(model);
        return NULL;
    }
    return model;
}

static json_t *layers_array(const ssm_recording_info *info)
{
    json_t *list = json_array();
    int64_t count = info->layers == NULL ? info->n_layers : info->n_recorded;
    for (int64_t i = 0; i < count; i++) {
        json_t *layer = json_integer(info->layers == NULL ? i : info->layers[i]);
        if (json_array_append_new(list, layer) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *windows_array(const ssm_recording_window *windows, int64_t count)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < count; i++) {
        char named[64];
        snprintf(named, sizeof named, "windows/%05lld.safetensors", (long long)i);
        const char *role = windows[i].role == SSM_ROLE_CALIBRATION ? "calibration" : "evaluation";
        json_t *window = json_pack(
            "{s:s, s:s, s:s, s:I, s:I}", "file", windows[i].file == NULL ? named : windows[i].file,
            "domain", windows[i].domain, "role", role, "token_offset",
            (json_int_t)windows[i].token_offset, "tokens", (json_int_t)windows[i].tokens);
        if (json_array_append_new(list, window) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static const char *const own_fields[] = {"schema", "model",       "tokenizer", "window", "layers",
                                         "gram",   "window_gram", "windows",   NULL};

static const char *shared_field(const json_t *extra)
{
    for (size_t i = 0; own_fields[i] != NULL; i++) {
        if (json_object_get(extra, own_fields[i]) != NULL) {
            return own_fields[i];
        }
    }
    return NULL;
}

ssm_status ssm__head_print(const ssm_recording_info *info, const ssm_recording_window *windows,
                           int64_t n_windows, const json_t *extra, char **text, ssm_error *err)
{
    const char *shared = extra == NULL ? NULL : shared_field(extra);
    if (shared != NULL) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__TENSOR(NULL, shared),
                         "this field of recording.json is the writer's own");
    }
    json_t *root = json_object();
    int failed = json_object_set_new(root, "schema", json_string(SSM__RECORDING_SCHEMA));
    failed |= extra == NULL ? 0 : json_object_update(root, (json_t *)(uintptr_t)extra);
    failed |= json_object_set_new(root, "model", model_object(info));
    failed |= json_object_set_new(root, "tokenizer",
                                  json_pack("{s:s}", "digest", info->tokenizer_digest));
    failed |= json_object_set_new(root, "window", json_integer(info->window));
    failed |= json_object_set_new(root, "layers", layers_array(info));
    failed |= json_object_set_new(root, "gram", json_boolean(info->has_gram));
    failed |= json_object_set_new(root, "window_gram",
                                  json_boolean(info->has_gram && info->has_window_gram));
    failed |= json_object_set_new(root, "windows", windows_array(windows, n_windows));
    *text = failed != 0 ? NULL : ssm__json_print(root, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    json_decref(root);
    if (*text == NULL) {
        return ssm__fail(
            err, SSM_STATUS_MEMORY, SSM__NOWHERE,
            "recording.json cannot be composed: out of memory, or a name is not UTF-8");
    }
    return SSM_STATUS_OK;
}

/* ---- differences ---------------------------------------------------------------------------- */

static void describe(char *out, size_t size, const char *place, const json_t *old_value,
                     const json_t *new_value)
{
    char *old_text =
        old_value == NULL
            ? NULL
            : ssm__json_print(old_value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
    char *new_text =
        new_value == NULL
            ? NULL
            : ssm__json_print(new_value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
    snprintf(out, size, "%s is %.120s there and %.120s here", place[0] == '\0' ? "the file" : place,
             old_text == NULL ? "missing" : old_text, new_text == NULL ? "missing" : new_text);
    free(old_text);
    free(new_text);
}

static bool differ(const json_t *a, const json_t *b, const char *place, char *out, size_t size);

static bool differ_in_object(const json_t *a, const json_t *b, const char *place, char *out,
                             size_t size)
{
    const char *key;
    json_t *value;
    char inner[256];
    json_object_foreach((json_t *)(uintptr_t)b, key, value)
    {
        snprintf(inner, sizeof inner, "%s%s%s", place, place[0] == '\0' ? "" : ".", key);
        if (differ(json_object_get(a, key), value, inner, out, size)) {
            return true;
        }
    }
    json_object_foreach((json_t *)(uintptr_t)a, key, value)
    {
        if (json_object_get(b, key) == NULL) {
            snprintf(inner, sizeof inner, "%s%s%s", place, place[0] == '\0' ? "" : ".", key);
            describe(out, size, inner, value, NULL);
            return true;
        }
    }
    return false;
}

static bool differ_in_array(const json_t *a, const json_t *b, const char *place, char *out,
                            size_t size)
{
    char inner[256];
    if (json_array_size(a) != json_array_size(b)) {
        snprintf(out, size, "%s has %zu entries there and %zu here", place, json_array_size(a),
                 json_array_size(b));
        return true;
    }
    for (size_t i = 0; i < json_array_size(b); i++) {
        snprintf(inner, sizeof inner, "%s[%zu]", place, i);
        if (differ(json_array_get(a, i), json_array_get(b, i), inner, out, size)) {
            return true;
        }
    }
    return false;
}

/* Depth is bounded: the parser refuses deep nesting. */
static bool differ(const json_t *a, const json_t *b, const char *place, char *out, size_t size)
{
    if (json_is_object(a) && json_is_object(b)) {
        return differ_in_object(a, b, place, out, size);
    }
    if (json_is_array(a) && json_is_array(b)) {
        return differ_in_array(a, b, place, out, size);
    }
    if (!json_equal(a, b)) {
        describe(out, size, place, a, b);
        return true;
    }
    return false;
}

void ssm__head_difference(const char *old_text, const char *new_text, char *out, size_t size)
{
    json_t *old_root = json_loads(old_text, JSON_REJECT_DUPLICATES, NULL);
    json_t *new_root = json_loads(new_text, JSON_REJECT_DUPLICATES, NULL);
    if (old_root == NULL || new_root == NULL || !differ(old_root, new_root, "", out, size)) {
        snprintf(out, size, "the recording.json there is laid out differently");
    }
    json_decref(old_root);
    json_decref(new_root);
}
