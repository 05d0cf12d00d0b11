/* tokenizer/pretokenizer_load.c: the "pre_tokenizer" of tokenizer.json. */
#include <string.h>

#include "base/error.h"
#include "tokenizer/fields.h"
#include "tokenizer/metaspace.h"
#include "tokenizer/pretokenizer.h"

static const char WHERE[] = "pre_tokenizer";

static ssm_status new_stage(const char *path, ssm__pretokenizer *out, ssm__pretokenizer_kind kind,
                            ssm__pretokenizer_stage **stage, ssm_error *err)
{
    if (out->count == SSM__PRETOKENIZER_STAGES) {
        return ssm__fail_field(path, WHERE, err, "has more than %d stages",
                               SSM__PRETOKENIZER_STAGES);
    }
    *stage = &out->stages[out->count++];
    (*stage)->kind = kind;
    return SSM_STATUS_OK;
}

/* A stage that cuts at characters of a class, or at one character. */
static ssm_status add_characters(const char *path, ssm__pretokenizer *out, uint8_t class_bits,
                                 uint32_t character, ssm__split_behavior behavior, ssm_error *err)
{
    ssm__pretokenizer_stage *stage = NULL;
    SSM__TRY(new_stage(path, out, SSM__PRETOKENIZER_CHARACTERS, &stage, err));
    stage->class_bits = class_bits;
    stage->character = character;
    stage->behavior = behavior;
    return SSM_STATUS_OK;
}

static ssm_status parse_byte_level(const char *path, const json_t *spec, ssm__pretokenizer *out,
                                   ssm_error *err)
{
    static const char *const known[] = {"type", "add_prefix_space", "trim_offsets", "use_regex",
                                        NULL};
    ssm__pretokenizer_stage *stage = NULL;
    SSM__TRY(ssm__fields_known(path, WHERE, spec, known, err));
    SSM__TRY(new_stage(path, out, SSM__PRETOKENIZER_BYTE_LEVEL, &stage, err));
    out->maps_bytes = true;
    bool trim_offsets; /* about offsets, which are not kept */
    SSM__TRY(ssm__field_bool_or(path, WHERE, spec, "trim_offsets", true, &trim_offsets, err));
    SSM__TRY(ssm__field_bool(path, WHERE, spec, "add_prefix_space", &stage->add_prefix_space, err));
    return ssm__field_bool_or(path, WHERE, spec, "use_regex", true, &stage->use_regex, err);
}

static ssm_status parse_behavior(const char *path, const json_t *spec, const char *type,
                                 ssm__split_behavior *out, ssm_error *err)
{
    static const char *const names[] = {"Isolated", "Removed", "Contiguous", "MergedWithPrevious",
                                        "MergedWithNext"};
    const json_t *name;
    SSM__TRY(ssm__field_string(path, WHERE, spec, "behavior", &name, err));
    for (int i = 0; i < 5; i++) {
        if (strcmp(json_string_value(name), names[i]) == 0) {
            *out = (ssm__split_behavior)i;
            return SSM_STATUS_OK;
        }
    }
    return ssm__fail_field(path, WHERE, err, "%s: behavior \"%.100s\" is not known", type,
                           json_string_value(name));
}

static ssm_status parse_split(const char *path, const json_t *spec, ssm__pretokenizer *out,
                              ssm_error *err)
{
    static const char *const known[] = {"type", "pattern", "behavior", "invert", NULL};
    ssm__pretokenizer_stage *stage = NULL;
    SSM__TRY(ssm__fields_known(path, WHERE, spec, known, err));
    SSM__TRY(new_stage(path, out, SSM__PRETOKENIZER_SPLIT, &stage, err));
    SSM__TRY(parse_behavior(path, spec, "Split", &stage->behavior, err));
    SSM__TRY(ssm__field_bool(path, WHERE, spec, "invert", &stage->invert, err));
    return ssm__pattern_parse(path, WHERE, "Split", spec, &stage->pattern, err);
}

static ssm_status parse_punctuation(const char *path, const json_t *spec, ssm__pretokenizer *out,
                                    ssm_error *err)
{
    static const char *const known[] = {"type", "behavior", NULL};
    SSM__TRY(ssm__fields_known(path, WHERE, spec, known, err));
    ssm__split_behavior behavior = SSM__SPLIT_ISOLATED;
    if (json_object_get(spec, "behavior") != NULL) {
        SSM__TRY(parse_behavior(path, spec, "Punctuation", &behavior, err));
    }
    return add_characters(path, out, SSM__CHAR_PUNCTUATION, 0, behavior, err);
}

static ssm_status parse_digits(const char *path, const json_t *spec, ssm__pretokenizer *out,
                               ssm_error *err)
{
    static const char *const known[] = {"type", "individual_digits", NULL};
    SSM__TRY(ssm__fields_known(path, WHERE, spec, known, err));
    bool individual;
    SSM__TRY(ssm__field_bool(path, WHERE, spec, "individual_digits", &individual, err));
    return add_characters(path, out, SSM__CHAR_NUMBER, 0,
                          individual ? SSM__SPLIT_ISOLATED : SSM__SPLIT_CONTIGUOUS, err);
}

static ssm_status parse_delimiter(const char *path, const json_t *spec, ssm__pretokenizer *out,
                                  ssm_error *err)
{
    static const char *const known[] = {"type", "delimiter", NULL};
    SSM__TRY(ssm__fields_known(path, WHERE, spec, known, err));
    uint32_t delimiter;
    SSM__TRY(ssm__field_character(path, WHERE, spec, "delimiter", &delimiter, err));
    return add_characters(path, out, 0, delimiter, SSM__SPLIT_REMOVED, err);
}

static ssm_status parse_metaspace(const char *path, const json_t *spec, ssm__pretokenizer *out,
                                  ssm_error *err)
{
    ssm__metaspace metaspace;
    SSM__TRY(ssm__metaspace_parse(path, WHERE, spec, &metaspace, err));
    if (out->maps_bytes && metaspace.prepend == SSM__PREPEND_FIRST) {
        /* Several pieces can then begin where the text begins: the bytes of its first character. */
        return ssm__fail_field(path, WHERE, err,
                               "Metaspace with prepend_scheme \"first\" behind ByteLevel is not "
                               "supported");
    }
    ssm__pretokenizer_stage *stage = NULL;
    SSM__TRY(new_stage(path, out, SSM__PRETOKENIZER_METASPACE, &stage, err));
    stage->character = metaspace.replacement;
    stage->prepend = metaspace.prepend;
    return metaspace.split
               ? add_characters(path, out, 0, metaspace.replacement, SSM__SPLIT_MERGED_NEXT, err)
               : SSM_STATUS_OK;
}

/* White space is removed and each punctuation character stands alone. */
static ssm_status parse_bert(const char *path, const json_t *spec, ssm__pretokenizer *out,
                             ssm_error *err)
{
    SSM__TRY(ssm__fields_none(path, WHERE, spec, err));
    SSM__TRY(add_characters(path, out, SSM__CHAR_SPACE, 0, SSM__SPLIT_REMOVED, err));
    return add_characters(path, out, SSM__CHAR_PUNCTUATION, 0, SSM__SPLIT_ISOLATED, err);
}

static ssm_status parse_whitespace_split(const char *path, const json_t *spec,
                                         ssm__pretokenizer *out, ssm_error *err)
{
    SSM__TRY(ssm__fields_none(path, WHERE, spec, err));
    return add_characters(path, out, SSM__CHAR_SPACE, 0, SSM__SPLIT_REMOVED, err);
}

static ssm_status parse_whitespace(const char *path, const json_t *spec, ssm__pretokenizer *out,
                                   ssm_error *err)
{
    ssm__pretokenizer_stage *stage = NULL;
    SSM__TRY(ssm__fields_none(path, WHERE, spec, err));
    return new_stage(path, out, SSM__PRETOKENIZER_WORDS, &stage, err);
}

typedef ssm_status parse_fn(const char *path, const json_t *spec, ssm__pretokenizer *out,
                            ssm_error *err);

static const struct {
    const char *type;
    parse_fn *parse;
} kinds[] = {
    {"ByteLevel", parse_byte_level},
    {"Split", parse_split},
    {"Punctuation", parse_punctuation},
    {"Digits", parse_digits},
    {"Metaspace", parse_metaspace},
    {"Whitespace", parse_whitespace},
    {"WhitespaceSplit", parse_whitespace_split},
    {"CharDelimiterSplit", parse_delimiter},
    {"BertPreTokenizer", parse_bert},
};

static ssm_status parse_at(const char *path, const json_t *spec, int depth, ssm__pretokenizer *out,
                           ssm_error *err)
{
    const char *type;
    SSM__TRY(ssm__field_type(path, WHERE, spec, &type, err));
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(type, kinds[i].type) == 0) {
            return kinds[i].parse(path, spec, out, err);
        }
    }
    if (strcmp(type, "Sequence") != 0) {
        return ssm__fail_unsupported(path, WHERE, type, err);
    }
    const json_t *stages;
    SSM__TRY(ssm__field_stages(path, WHERE, spec, "pretokenizers", depth, &stages, err));
    for (size_t i = 0; i < json_array_size(stages); i++) {
        SSM__TRY(parse_at(path, json_array_get(stages, i), depth + 1, out, err));
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__pretokenizer_parse(const char *path, const json_t *spec, ssm__pretokenizer *out,
                                   ssm_error *err)
{
    return spec == NULL || json_is_null(spec) ? SSM_STATUS_OK : parse_at(path, spec, 0, out, err);
}

void ssm__pretokenizer_free(ssm__pretokenizer *pretokenizer)
{
    for (int i = 0; i < pretokenizer->count; i++) {
        ssm__pattern_free(pretokenizer->stages[i].pattern);
    }
    pretokenizer->count = 0;
}
