/* tokenizer/decoder_load.c: the "decoder" of tokenizer.json. */
#include <string.h>

#include "base/error.h"
#include "tokenizer/decoder.h"
#include "tokenizer/fields.h"
#include "tokenizer/growable.h"
#include "tokenizer/metaspace.h"

static const char WHERE[] = "decoder";

static ssm_status parse_text(const char *path, const json_t *spec, const char *name, ssm_text *out,
                             ssm_error *err)
{
    const json_t *text;
    SSM__TRY(ssm__field_string(path, WHERE, spec, name, &text, err));
    return ssm__text_append(out, json_string_value(text), json_string_length(text), err);
}

static ssm_status parse_byte_level(const char *path, const json_t *spec, ssm__decoder_stage *stage,
                                   ssm_error *err)
{
    static const char *const known[] = {"type", "add_prefix_space", "trim_offsets", "use_regex",
                                        NULL};
    stage->kind = SSM__DECODER_BYTE_LEVEL;
    return ssm__fields_known(path, WHERE, spec, known, err);
}

static ssm_status parse_metaspace(const char *path, const json_t *spec, ssm__decoder_stage *stage,
                                  ssm_error *err)
{
    ssm__metaspace metaspace;
    SSM__TRY(ssm__metaspace_parse(path, WHERE, spec, &metaspace, err));
    stage->kind = SSM__DECODER_METASPACE;
    stage->character = metaspace.replacement;
    stage->drop_first = metaspace.prepend != SSM__PREPEND_NEVER;
    return SSM_STATUS_OK;
}

static ssm_status parse_byte_fallback(const char *path, const json_t *spec,
                                      ssm__decoder_stage *stage, ssm_error *err)
{
    stage->kind = SSM__DECODER_BYTE_FALLBACK;
    return ssm__fields_none(path, WHERE, spec, err);
}

static ssm_status parse_fuse(const char *path, const json_t *spec, ssm__decoder_stage *stage,
                             ssm_error *err)
{
    stage->kind = SSM__DECODER_FUSE;
    return ssm__fields_none(path, WHERE, spec, err);
}

static ssm_status parse_count(const char *path, const json_t *spec, const char *name, int64_t *out,
                              ssm_error *err)
{
    const json_t *value = json_object_get(spec, name);
    if (!json_is_integer(value) || json_integer_value(value) < 0) {
        return ssm__fail_field(path, WHERE, err, "Strip needs \"%s\": a count from 0 on", name);
    }
    *out = (int64_t)json_integer_value(value);
    return SSM_STATUS_OK;
}

static ssm_status parse_strip(const char *path, const json_t *spec, ssm__decoder_stage *stage,
                              ssm_error *err)
{
    static const char *const known[] = {"type", "content", "start", "stop", NULL};
    stage->kind = SSM__DECODER_STRIP;
    SSM__TRY(ssm__fields_known(path, WHERE, spec, known, err));
    SSM__TRY(ssm__field_character(path, WHERE, spec, "content", &stage->character, err));
    SSM__TRY(parse_count(path, spec, "start", &stage->start, err));
    return parse_count(path, spec, "stop", &stage->stop, err);
}

static ssm_status parse_replace(const char *path, const json_t *spec, ssm__decoder_stage *stage,
                                ssm_error *err)
{
    static const char *const known[] = {"type", "pattern", "content", NULL};
    stage->kind = SSM__DECODER_REPLACE;
    SSM__TRY(ssm__fields_known(path, WHERE, spec, known, err));
    SSM__TRY(parse_text(path, spec, "content", &stage->text, err));
    return ssm__pattern_parse(path, WHERE, "Replace", spec, &stage->pattern, err);
}

static ssm_status parse_word_piece(const char *path, const json_t *spec, ssm__decoder_stage *stage,
                                   ssm_error *err)
{
    static const char *const known[] = {"type", "prefix", "cleanup", NULL};
    stage->kind = SSM__DECODER_WORD_PIECE;
    SSM__TRY(ssm__fields_known(path, WHERE, spec, known, err));
    SSM__TRY(parse_text(path, spec, "prefix", &stage->text, err));
    return ssm__field_bool(path, WHERE, spec, "cleanup", &stage->cleanup, err);
}

static ssm_status parse_bpe(const char *path, const json_t *spec, ssm__decoder_stage *stage,
                            ssm_error *err)
{
    static const char *const known[] = {"type", "suffix", NULL};
    stage->kind = SSM__DECODER_BPE;
    SSM__TRY(ssm__fields_known(path, WHERE, spec, known, err));
    SSM__TRY(parse_text(path, spec, "suffix", &stage->text, err));
    return stage->text.bytes > 0
               ? SSM_STATUS_OK
               : ssm__fail_field(path, WHERE, err,
                                 "BPEDecoder needs a \"suffix\" that is not empty");
}

typedef ssm_status parse_fn(const char *path, const json_t *spec, ssm__decoder_stage *stage,
                            ssm_error *err);

static const struct {
    const char *type;
    parse_fn *parse;
} kinds[] = {
    {"ByteLevel", parse_byte_level},
    {"Metaspace", parse_metaspace},
    {"ByteFallback", parse_byte_fallback},
    {"Fuse", parse_fuse},
    {"Strip", parse_strip},
    {"Replace", parse_replace},
    {"WordPiece", parse_word_piece},
    {"BPEDecoder", parse_bpe},
};

static ssm_status parse_at(const char *path, const json_t *spec, int depth, ssm__decoder_chain *out,
                           ssm_error *err)
{
    const char *type;
    SSM__TRY(ssm__field_type(path, WHERE, spec, &type, err));
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(type, kinds[i].type) != 0) {
            continue;
        }
        if (out->count == SSM__DECODER_STAGES) {
            return ssm__fail_field(path, WHERE, err, "has more than %d stages",
                                   SSM__DECODER_STAGES);
        }
        return kinds[i].parse(path, spec, &out->stages[out->count++], err);
    }
    if (strcmp(type, "Sequence") != 0) {
        return ssm__fail_unsupported(path, WHERE, type, err);
    }
    const json_t *stages;
    SSM__TRY(ssm__field_stages(path, WHERE, spec, "decoders", depth, &stages, err));
    for (size_t i = 0; i < json_array_size(stages); i++) {
        SSM__TRY(parse_at(path, json_array_get(stages, i), depth + 1, out, err));
    }
    return SSM_STATUS_OK;
}

/* Which stages see parts of a token, and which of those must wait for all of it. */
static void mark_fused(ssm__decoder_chain *chain)
{
    bool fused = false;
    for (int i = 0; i < chain->count; i++) {
        ssm__decoder_stage *stage = &chain->stages[i];
        stage->fused = fused;
        switch (stage->kind) {
        case SSM__DECODER_METASPACE:
        case SSM__DECODER_FUSE:
            break;
        case SSM__DECODER_STRIP:
            stage->hold = fused && stage->stop > 0;
            break;
        case SSM__DECODER_WORD_PIECE:
            stage->hold = fused && stage->cleanup;
            break;
        case SSM__DECODER_REPLACE:
            stage->hold = fused && !ssm__pattern_is_character(stage->pattern);
            break;
        default:
            stage->hold = fused;
            break;
        }
        fused = fused || stage->kind == SSM__DECODER_FUSE || stage->kind == SSM__DECODER_BYTE_LEVEL;
    }
}

ssm_status ssm__decoder_parse(const char *path, const json_t *spec, ssm__decoder_chain *out,
                              ssm_error *err)
{
    out->separated = spec == NULL || json_is_null(spec);
    if (out->separated) {
        return SSM_STATUS_OK;
    }
    SSM__TRY(parse_at(path, spec, 0, out, err));
    mark_fused(out);
    return SSM_STATUS_OK;
}

void ssm__decoder_chain_free(ssm__decoder_chain *chain)
{
    for (int i = 0; i < chain->count; i++) {
        ssm__pattern_free(chain->stages[i].pattern);
        ssm_text_free(&chain->stages[i].text);
    }
    chain->count = 0;
}
