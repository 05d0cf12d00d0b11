/* tokenizer/pretokenizer_load.c: the "pre_tokenizer" of tokenizer.json. */
#include <string.h>

#include "base/error.h"
#include "tokenizer/fields.h"
#include "tokenizer/pretokenizer.h"

static const char WHERE[] = "pre_tokenizer";

static ssm_status parse_byte_level(const char *path, const json_t *spec,
                                   ssm__pretokenizer_stage *stage, ssm_error *err)
{
    static const char *const known[] = {"type", "add_prefix_space", "trim_offsets", "use_regex",
                                        NULL};
    SSM__TRY(ssm__fields_known(path, WHERE, spec, known, err));
    stage->kind = SSM__PRETOKENIZER_BYTE_LEVEL;
    bool trim_offsets; /* about offsets, which are not kept */
    SSM__TRY(ssm__field_bool_or(path, WHERE, spec, "trim_offsets", true, &trim_offsets, err));
    SSM__TRY(ssm__field_bool(path, WHERE, spec, "add_prefix_space", &stage->add_prefix_space, err));
    return ssm__field_bool_or(path, WHERE, spec, "use_regex", true, &stage->use_regex, err);
}

static ssm_status parse_behavior(const char *path, const json_t *spec,
                                 ssm__pretokenizer_stage *stage, ssm_error *err)
{
    static const char *const names[] = {"Isolated", "Removed", "Contiguous", "MergedWithPrevious",
                                        "MergedWithNext"};
    const json_t *name;
    SSM__TRY(ssm__field_string(path, WHERE, spec, "behavior", &name, err));
    for (int i = 0; i < 5; i++) {
        if (strcmp(json_string_value(name), names[i]) == 0) {
            stage->behavior = (ssm__split_behavior)i;
            return SSM_STATUS_OK;
        }
    }
    return ssm__fail_field(path, WHERE, err, "Split: behavior \"%.100s\" is not known",
                           json_string_value(name));
}

static ssm_status parse_split(const char *path, const json_t *spec, ssm__pretokenizer_stage *stage,
                              ssm_error *err)
{
    static const char *const known[] = {"type", "pattern", "behavior", "invert", NULL};
    SSM__TRY(ssm__fields_known(path, WHERE, spec, known, err));
    stage->kind = SSM__PRETOKENIZER_SPLIT;
    SSM__TRY(parse_behavior(path, spec, stage, err));
    SSM__TRY(ssm__field_bool(path, WHERE, spec, "invert", &stage->invert, err));
    const json_t *pattern = json_object_get(spec, "pattern");
    const json_t *literal = json_object_get(pattern, "String");
    const json_t *regex = json_object_get(pattern, "Regex");
    const json_t *text = literal != NULL ? literal : regex;
    if (json_object_size(pattern) != 1 || !json_is_string(text)) {
        return ssm__fail_field(path, WHERE, err,
                               "Split needs \"pattern\": {\"Regex\": …} or {\"String\": …}");
    }
    return ssm__pattern_compile(path, json_string_value(text), json_string_length(text),
                                literal != NULL, &stage->pattern, err);
}

static ssm_status parse_at(const char *path, const json_t *spec, int depth, ssm__pretokenizer *out,
                           ssm_error *err)
{
    const char *type;
    SSM__TRY(ssm__field_type(path, WHERE, spec, &type, err));
    if (strcmp(type, "Sequence") == 0) {
        static const char *const known[] = {"type", "pretokenizers", NULL};
        SSM__TRY(ssm__fields_known(path, WHERE, spec, known, err));
        const json_t *stages;
        SSM__TRY(ssm__field_stages(path, WHERE, spec, "pretokenizers", depth, &stages, err));
        for (size_t i = 0; i < json_array_size(stages); i++) {
            SSM__TRY(parse_at(path, json_array_get(stages, i), depth + 1, out, err));
        }
        return SSM_STATUS_OK;
    }
    if (out->count == SSM__PRETOKENIZER_STAGES) {
        return ssm__fail_field(path, WHERE, err, "has more than %d stages",
                               SSM__PRETOKENIZER_STAGES);
    }
    ssm__pretokenizer_stage *stage = &out->stages[out->count++];
    if (strcmp(type, "ByteLevel") == 0) {
        return parse_byte_level(path, spec, stage, err);
    }
    if (strcmp(type, "Split") == 0) {
        return parse_split(path, spec, stage, err);
    }
    return ssm__fail_unsupported(path, WHERE, type, err);
}

ssm_status ssm__pretokenizer_parse(const char *path, const json_t *spec, ssm__pretokenizer *out,
                                   ssm_error *err)
{
    if (spec == NULL || json_is_null(spec)) {
        return SSM_STATUS_OK;
    }
    SSM__TRY(parse_at(path, spec, 0, out, err));
    out->bytes = out->count > 0 && out->stages[out->count - 1].kind == SSM__PRETOKENIZER_BYTE_LEVEL;
    return SSM_STATUS_OK;
}

void ssm__pretokenizer_free(ssm__pretokenizer *pretokenizer)
{
    for (int i = 0; i < pretokenizer->count; i++) {
        ssm__pattern_free(pretokenizer->stages[i].pattern);
    }
    pretokenizer->count = 0;
}
