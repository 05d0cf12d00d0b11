/* tokenizer/normalizer_load.c: the "normalizer" of tokenizer.json. */
#include <string.h>

#include "base/error.h"
#include "tokenizer/fields.h"
#include "tokenizer/growable.h"
#include "tokenizer/normalizer.h"

static const char WHERE[] = "normalizer";

static ssm_status new_stage(const char *path, ssm__normalizer *out, ssm__normalizer_kind kind,
                            ssm__normalizer_stage **stage, ssm_error *err)
{
    if (out->count == SSM__NORMALIZER_STAGES) {
        return ssm__fail_field(path, WHERE, err, "has more than %d stages", SSM__NORMALIZER_STAGES);
    }
    *stage = &out->stages[out->count++];
    (*stage)->kind = kind;
    return SSM_STATUS_OK;
}

static ssm_status add_form(const char *path, ssm__unicode_form form, ssm__normalizer *out,
                           ssm_error *err)
{
    ssm__normalizer_stage *stage = NULL;
    SSM__TRY(new_stage(path, out, SSM__NORMALIZER_FORM, &stage, err));
    stage->form = form;
    return SSM_STATUS_OK;
}

static ssm_status parse_text(const char *path, const json_t *spec, const char *name, ssm_text *out,
                             ssm_error *err)
{
    const json_t *text;
    SSM__TRY(ssm__field_string(path, WHERE, spec, name, &text, err));
    return ssm__text_append(out, json_string_value(text), json_string_length(text), err);
}

static ssm_status parse_replace(const char *path, const json_t *spec, ssm__normalizer *out,
                                ssm_error *err)
{
    static const char *const known[] = {"type", "pattern", "content", NULL};
    ssm__normalizer_stage *stage = NULL;
    SSM__TRY(ssm__fields_known(path, WHERE, spec, known, err));
    SSM__TRY(new_stage(path, out, SSM__NORMALIZER_REPLACE, &stage, err));
    SSM__TRY(parse_text(path, spec, "content", &stage->content, err));
    return ssm__pattern_parse(path, WHERE, "Replace", spec, &stage->pattern, err);
}

static ssm_status parse_prepend(const char *path, const json_t *spec, ssm__normalizer *out,
                                ssm_error *err)
{
    static const char *const known[] = {"type", "prepend", NULL};
    ssm__normalizer_stage *stage = NULL;
    SSM__TRY(ssm__fields_known(path, WHERE, spec, known, err));
    SSM__TRY(new_stage(path, out, SSM__NORMALIZER_PREPEND, &stage, err));
    return parse_text(path, spec, "prepend", &stage->content, err);
}

static ssm_status parse_strip(const char *path, const json_t *spec, ssm__normalizer *out,
                              ssm_error *err)
{
    static const char *const known[] = {"type", "strip_left", "strip_right", NULL};
    ssm__normalizer_stage *stage = NULL;
    SSM__TRY(ssm__fields_known(path, WHERE, spec, known, err));
    SSM__TRY(new_stage(path, out, SSM__NORMALIZER_STRIP, &stage, err));
    SSM__TRY(ssm__field_bool(path, WHERE, spec, "strip_left", &stage->strip_left, err));
    return ssm__field_bool(path, WHERE, spec, "strip_right", &stage->strip_right, err);
}

/* Clean, blanks around ideographs, without accents, lower case: in this order. */
static ssm_status parse_bert(const char *path, const json_t *spec, ssm__normalizer *out,
                             ssm_error *err)
{
    static const char *const known[] = {"type",          "clean_text", "handle_chinese_chars",
                                        "strip_accents", "lowercase",  NULL};
    bool clean;
    bool cjk;
    bool accents;
    bool lower;
    ssm__normalizer_stage *stage = NULL;
    SSM__TRY(ssm__fields_known(path, WHERE, spec, known, err));
    SSM__TRY(ssm__field_bool(path, WHERE, spec, "clean_text", &clean, err));
    SSM__TRY(ssm__field_bool(path, WHERE, spec, "handle_chinese_chars", &cjk, err));
    SSM__TRY(ssm__field_bool(path, WHERE, spec, "lowercase", &lower, err));
    SSM__TRY(ssm__field_bool_or(path, WHERE, spec, "strip_accents", lower, &accents, err));
    if (clean) {
        SSM__TRY(new_stage(path, out, SSM__NORMALIZER_CLEAN, &stage, err));
    }
    if (cjk) {
        SSM__TRY(new_stage(path, out, SSM__NORMALIZER_SPACE_CJK, &stage, err));
    }
    if (accents) {
        SSM__TRY(add_form(path, SSM__FORM_NFD, out, err));
        SSM__TRY(new_stage(path, out, SSM__NORMALIZER_STRIP_NONSPACING, &stage, err));
    }
    return lower ? new_stage(path, out, SSM__NORMALIZER_LOWERCASE, &stage, err) : SSM_STATUS_OK;
}

static ssm_status parse_byte_level(const char *path, const json_t *spec, ssm__normalizer *out,
                                   ssm_error *err)
{
    ssm__normalizer_stage *stage = NULL;
    SSM__TRY(ssm__fields_none(path, WHERE, spec, err));
    out->maps_bytes = true;
    return new_stage(path, out, SSM__NORMALIZER_BYTE_LEVEL, &stage, err);
}

typedef ssm_status parse_fn(const char *path, const json_t *spec, ssm__normalizer *out,
                            ssm_error *err);

static const struct {
    const char *type;
    parse_fn *parse;
} kinds[] = {{"Replace", parse_replace},
             {"Prepend", parse_prepend},
             {"Strip", parse_strip},
             {"BertNormalizer", parse_bert},
             {"ByteLevel", parse_byte_level}};

/* Those without fields. */
static const struct {
    const char *type;
    ssm__normalizer_kind kind;
    ssm__unicode_form form;
} plain[] = {{"NFC", SSM__NORMALIZER_FORM, SSM__FORM_NFC},
             {"NFD", SSM__NORMALIZER_FORM, SSM__FORM_NFD},
             {"NFKC", SSM__NORMALIZER_FORM, SSM__FORM_NFKC},
             {"NFKD", SSM__NORMALIZER_FORM, SSM__FORM_NFKD},
             {"Lowercase", SSM__NORMALIZER_LOWERCASE, SSM__FORM_NFC},
             {"StripAccents", SSM__NORMALIZER_STRIP_MARKS, SSM__FORM_NFC},
             {"Nmt", SSM__NORMALIZER_NMT, SSM__FORM_NFC}};

static ssm_status parse_at(const char *path, const json_t *spec, int depth, ssm__normalizer *out,
                           ssm_error *err)
{
    const char *type;
    SSM__TRY(ssm__field_type(path, WHERE, spec, &type, err));
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(type, kinds[i].type) == 0) {
            return kinds[i].parse(path, spec, out, err);
        }
    }
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        if (strcmp(type, plain[i].type) == 0) {
            ssm__normalizer_stage *stage = NULL;
            SSM__TRY(ssm__fields_none(path, WHERE, spec, err));
            SSM__TRY(new_stage(path, out, plain[i].kind, &stage, err));
            stage->form = plain[i].form;
            return SSM_STATUS_OK;
        }
    }
    if (strcmp(type, "Sequence") != 0) {
        return ssm__fail_unsupported(path, WHERE, type, err);
    }
    const json_t *stages;
    SSM__TRY(ssm__field_stages(path, WHERE, spec, "normalizers", depth, &stages, err));
    for (size_t i = 0; i < json_array_size(stages); i++) {
        SSM__TRY(parse_at(path, json_array_get(stages, i), depth + 1, out, err));
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__normalizer_parse(const char *path, const json_t *spec, ssm__normalizer *out,
                                 ssm_error *err)
{
    return spec == NULL || json_is_null(spec) ? SSM_STATUS_OK : parse_at(path, spec, 0, out, err);
}

void ssm__normalizer_free(ssm__normalizer *normalizer)
{
    for (int i = 0; i < normalizer->count; i++) {
        ssm__pattern_free(normalizer->stages[i].pattern);
        ssm_text_free(&normalizer->stages[i].content);
    }
    normalizer->count = 0;
}
