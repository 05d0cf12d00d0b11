/* tokenizer/postprocessor.c: ByteLevel (offsets only), TemplateProcessing, Sequence. */
#include "tokenizer/postprocessor.h"

#include <string.h>

#include "base/error.h"
#include "tokenizer/fields.h"
#include "tokenizer/growable.h"

static const char WHERE[] = "post_processor";

/* Appends the ids that special_tokens gives to `name`. */
static ssm_status special_ids(const char *path, const json_t *spec, const char *name, ssm_ids *out,
                              ssm_error *err)
{
    const json_t *ids =
        json_object_get(json_object_get(json_object_get(spec, "special_tokens"), name), "ids");
    if (!json_is_array(ids)) {
        return ssm__fail_field(
            path, WHERE, err, "TemplateProcessing: special_tokens has no ids for \"%.100s\"", name);
    }
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *id = json_array_get(ids, i);
        json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;
        if (value < 0 || value > INT32_MAX) {
            return ssm__fail_field(path, WHERE, err,
                                   "TemplateProcessing: special_tokens \"%.100s\" has an id that "
                                   "is no number of a token",
                                   name);
        }
        SSM__TRY(ssm__ids_push(out, (int32_t)value, err));
    }
    return SSM_STATUS_OK;
}

static ssm_status fail_template(const char *path, ssm_error *err)
{
    return ssm__fail_field(path, WHERE, err,
                           "TemplateProcessing: \"single\" must be a list of SpecialToken and one "
                           "Sequence A");
}

/* Reads the template into two fresh lists. */
static ssm_status parse_single(const char *path, const json_t *spec, ssm_ids *before,
                               ssm_ids *after, ssm_error *err)
{
    const json_t *single = json_object_get(spec, "single");
    int texts = 0;
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *part = json_array_get(single, i);
        const json_t *special = json_object_get(part, "SpecialToken");
        const json_t *sequence = json_object_get(part, "Sequence");
        const char *id =
            json_string_value(json_object_get(special != NULL ? special : sequence, "id"));
        if (json_object_size(part) != 1 || id == NULL) {
            return fail_template(path, err);
        }
        if (special != NULL) {
            SSM__TRY(special_ids(path, spec, id, texts == 0 ? before : after, err));
        } else if (strcmp(id, "A") == 0) {
            texts++;
        } else {
            return fail_template(path, err);
        }
    }
    return json_is_array(single) && texts == 1 ? SSM_STATUS_OK : fail_template(path, err);
}

/* A later template stands around what earlier ones made. */
static ssm_status parse_template(const char *path, const json_t *spec, ssm__postprocessor *out,
                                 ssm_error *err)
{
    static const char *const known[] = {"type", "single", "pair", "special_tokens", NULL};
    SSM__TRY(ssm__fields_known(path, WHERE, spec, known, err));
    ssm_ids before = {0};
    ssm_status status = parse_single(path, spec, &before, &out->after, err);
    if (status == SSM_STATUS_OK && out->before.count > 0) {
        status = ssm__ids_append(&before, out->before.data, out->before.count, err);
    }
    ssm_ids old = out->before;
    out->before = before;
    ssm_ids_free(&old);
    return status;
}

static ssm_status parse_at(const char *path, const json_t *spec, int depth, ssm__postprocessor *out,
                           ssm_error *err)
{
    const char *type;
    SSM__TRY(ssm__field_type(path, WHERE, spec, &type, err));
    if (strcmp(type, "ByteLevel") == 0) {
        /* Trims offsets, adds nothing. */
        static const char *const known[] = {"type", "add_prefix_space", "trim_offsets", "use_regex",
                                            NULL};
        return ssm__fields_known(path, WHERE, spec, known, err);
    }
    if (strcmp(type, "TemplateProcessing") == 0) {
        return parse_template(path, spec, out, err);
    }
    if (strcmp(type, "Sequence") != 0) {
        return ssm__fail_unsupported(path, WHERE, type, err);
    }
    static const char *const known[] = {"type", "processors", NULL};
    SSM__TRY(ssm__fields_known(path, WHERE, spec, known, err));
    const json_t *stages;
    SSM__TRY(ssm__field_stages(path, WHERE, spec, "processors", depth, &stages, err));
    for (size_t i = 0; i < json_array_size(stages); i++) {
        SSM__TRY(parse_at(path, json_array_get(stages, i), depth + 1, out, err));
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__postprocessor_parse(const char *path, const json_t *spec, ssm__postprocessor *out,
                                    ssm_error *err)
{
    if (spec == NULL || json_is_null(spec)) {
        return SSM_STATUS_OK;
    }
    return parse_at(path, spec, 0, out, err);
}

void ssm__postprocessor_free(ssm__postprocessor *postprocessor)
{
    ssm_ids_free(&postprocessor->before);
    ssm_ids_free(&postprocessor->after);
}
