/* tokenizer/postprocessor.c: ByteLevel (offsets only), TemplateProcessing, BertProcessing,
 * RobertaProcessing, Sequence. */
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

static ssm_status fail_template(const char *path, const char *name, ssm_error *err)
{
    return ssm__fail_field(path, WHERE, err,
                           "TemplateProcessing: \"%s\" must be a list of SpecialToken and one "
                           "Sequence %s",
                           name, strcmp(name, "single") == 0 ? "A" : "A and one B");
}

/* What a template holds, as far as one text goes. */
typedef struct template_parts {
    ssm_ids before;
    ssm_ids after;
    int a;
    int b;
} template_parts;

/* Reads the template `name` ("single", "pair") into fresh lists. */
static ssm_status read_template(const char *path, const json_t *spec, const char *name,
                                template_parts *out, ssm_error *err)
{
    const json_t *parts = json_object_get(spec, name);
    if (!json_is_array(parts)) {
        return fail_template(path, name, err);
    }
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i);
        const json_t *special = json_object_get(part, "SpecialToken");
        const json_t *sequence = json_object_get(part, "Sequence");
        const char *id =
            json_string_value(json_object_get(special != NULL ? special : sequence, "id"));
        if (json_object_size(part) != 1 || id == NULL) {
            return fail_template(path, name, err);
        }
        if (special != NULL) {
            SSM__TRY(special_ids(path, spec, id, out->a == 0 ? &out->before : &out->after, err));
            continue;
        }
        out->a += strcmp(id, "A") == 0;
        out->b += strcmp(id, "B") == 0;
        if (strcmp(id, "A") != 0 && strcmp(id, "B") != 0) {
            return fail_template(path, name, err);
        }
    }
    return SSM_STATUS_OK;
}

/* The template of two texts is checked and not used: a text here is one. */
static ssm_status check_pair(const char *path, const json_t *spec, ssm_error *err)
{
    template_parts parts = {0};
    ssm_status status = SSM_STATUS_OK;
    if (json_array_size(json_object_get(spec, "pair")) > 0) {
        status = read_template(path, spec, "pair", &parts, err);
        if (status == SSM_STATUS_OK && (parts.a != 1 || parts.b != 1)) {
            status = fail_template(path, "pair", err);
        }
    }
    ssm_ids_free(&parts.before);
    ssm_ids_free(&parts.after);
    return status;
}

/* A later template stands around what earlier ones made. */
static ssm_status enclose(ssm__postprocessor *out, ssm_ids *before, const ssm_ids *after,
                          ssm_error *err)
{
    SSM__TRY(ssm__ids_append(&out->after, after->data, after->count, err));
    SSM__TRY(ssm__ids_append(before, out->before.data, out->before.count, err));
    ssm_ids old = out->before;
    out->before = *before;
    *before = old;
    return SSM_STATUS_OK;
}

static ssm_status parse_template(const char *path, const json_t *spec, ssm__postprocessor *out,
                                 ssm_error *err)
{
    static const char *const known[] = {"type", "single", "pair", "special_tokens", NULL};
    SSM__TRY(ssm__fields_known(path, WHERE, spec, known, err));
    SSM__TRY(check_pair(path, spec, err));
    template_parts parts = {0};
    ssm_status status = read_template(path, spec, "single", &parts, err);
    if (status == SSM_STATUS_OK && (parts.a != 1 || parts.b != 0)) {
        status = fail_template(path, "single", err);
    }
    if (status == SSM_STATUS_OK) {
        status = enclose(out, &parts.before, &parts.after, err);
    }
    ssm_ids_free(&parts.before);
    ssm_ids_free(&parts.after);
    return status;
}

/* The id of a pair ["[SEP]", 102]. */
static ssm_status parse_special_pair(const char *path, const json_t *spec, const char *name,
                                     ssm_ids *out, ssm_error *err)
{
    const json_t *pair = json_object_get(spec, name);
    const json_t *id = json_array_get(pair, 1);
    json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;
    if (json_array_size(pair) != 2 || !json_is_string(json_array_get(pair, 0)) || value < 0 ||
        value > INT32_MAX) {
        return ssm__fail_field(path, WHERE, err, "needs \"%s\": [\"token\", id]", name);
    }
    return ssm__ids_push(out, (int32_t)value, err);
}

/* BertProcessing and RobertaProcessing: cls, the text, sep. The rest of Roberta is about offsets.
 */
static ssm_status parse_bert(const char *path, const json_t *spec, bool roberta,
                             ssm__postprocessor *out, ssm_error *err)
{
    static const char *const bert_known[] = {"type", "sep", "cls", NULL};
    static const char *const roberta_known[] = {
        "type", "sep", "cls", "trim_offsets", "add_prefix_space", NULL};
    SSM__TRY(ssm__fields_known(path, WHERE, spec, roberta ? roberta_known : bert_known, err));
    template_parts parts = {0};
    ssm_status status = parse_special_pair(path, spec, "cls", &parts.before, err);
    if (status == SSM_STATUS_OK) {
        status = parse_special_pair(path, spec, "sep", &parts.after, err);
    }
    if (status == SSM_STATUS_OK) {
        status = enclose(out, &parts.before, &parts.after, err);
    }
    ssm_ids_free(&parts.before);
    ssm_ids_free(&parts.after);
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
    bool roberta = strcmp(type, "RobertaProcessing") == 0;
    if (roberta || strcmp(type, "BertProcessing") == 0) {
        return parse_bert(path, spec, roberta, out, err);
    }
    if (strcmp(type, "Sequence") != 0) {
        return ssm__fail_unsupported(path, WHERE, type, err);
    }
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
