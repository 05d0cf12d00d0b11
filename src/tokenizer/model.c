/* tokenizer/model.c: which model the file names, and the cache before it. */
#include "tokenizer/model.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tokenizer/fields.h"
#include "tokenizer/growable.h"
#include "tokenizer/vocab.h"
#include "tokenizer/word_cache.h"

struct ssm__model_run {
    const ssm__model *model;
    ssm__word_cache cache;
    ssm__bpe_run *bpe;
    ssm__unigram_run unigram;
    ssm_text key;
};

/* ---- loading --------------------------------------------------------------------------------- */

ssm_status ssm__model_parse(const char *path, const json_t *spec, ssm__model *out, ssm_error *err)
{
    static const char where[] = "model";
    if (!json_is_object(spec)) {
        return ssm__fail_field(path, where, err, "must be an object with \"vocab\" and \"merges\"");
    }
    const char *type = "BPE";
    /* Old files have no type; merges then tell BPE from the other models. */
    if (json_object_get(spec, "type") != NULL || json_object_get(spec, "merges") == NULL) {
        SSM__TRY(ssm__field_type(path, where, spec, &type, err));
    }
    if (strcmp(type, "Unigram") == 0) {
        out->kind = SSM__MODEL_UNIGRAM;
        return ssm__unigram_parse(path, spec, &out->vocab, &out->unigram, err);
    }
    bool pieces = strcmp(type, "WordPiece") == 0;
    if (pieces || strcmp(type, "WordLevel") == 0) {
        out->kind = SSM__MODEL_WORDS;
        SSM__TRY(ssm__vocab_parse(path, spec, &out->vocab, err));
        return ssm__words_parse(path, spec, &out->vocab, pieces, &out->words, err);
    }
    if (strcmp(type, "BPE") != 0) {
        return ssm__fail_unsupported(path, where, type, err);
    }
    out->kind = SSM__MODEL_BPE;
    SSM__TRY(ssm__vocab_parse(path, spec, &out->vocab, err));
    return ssm__bpe_parse(path, spec, &out->vocab, &out->bpe, err);
}

void ssm__model_free(ssm__model *model)
{
    ssm__string_map_free(&model->vocab);
    ssm__bpe_free(&model->bpe);
    ssm__unigram_free(&model->unigram);
    ssm__words_free(&model->words);
}

bool ssm__model_takes_bytes(const ssm__model *model)
{
    return model->kind == SSM__MODEL_BPE && ssm__bpe_takes_bytes(&model->bpe);
}

/* ---- encoding -------------------------------------------------------------------------------- */

ssm_status ssm__model_run_create(const ssm__model *model, ssm__piece_form form,
                                 ssm__model_run **out, ssm_error *err)
{
    ssm__model_run *run = calloc(1, sizeof *run);
    if (run == NULL) {
        return ssm__fail_memory(err, "an encoder", sizeof *run);
    }
    run->model = model;
    *out = run;
    return model->kind == SSM__MODEL_BPE ? ssm__bpe_run_create(&model->bpe, form, &run->bpe, err)
                                         : SSM_STATUS_OK;
}

void ssm__model_run_free(ssm__model_run *run)
{
    if (run != NULL) {
        ssm__word_cache_free(&run->cache);
        ssm__bpe_run_free(run->bpe);
        ssm__unigram_run_free(&run->unigram);
        ssm_text_free(&run->key);
        free(run);
    }
}

static ssm_status encode_new(ssm__model_run *run, const unsigned char *piece, size_t bytes,
                             ssm_ids *ids, int64_t *dropped, ssm_error *err)
{
    const ssm__model *model = run->model;
    switch (model->kind) {
    case SSM__MODEL_BPE:
        return ssm__bpe_encode(run->bpe, piece, bytes, ids, dropped, err);
    case SSM__MODEL_UNIGRAM:
        return ssm__unigram_encode(&model->unigram, &run->unigram, piece, bytes, ids, err);
    case SSM__MODEL_WORDS:
        return ssm__words_encode(&model->words, piece, bytes, &run->key, ids, err);
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__model_encode(ssm__model_run *run, const unsigned char *piece, size_t bytes,
                             ssm_ids *ids, int64_t *dropped, ssm_error *err)
{
    if (bytes == 0) {
        return SSM_STATUS_OK;
    }
    if (bytes > SSM__CACHED_BYTES) {
        return encode_new(run, piece, bytes, ids, dropped, err);
    }
    uint32_t hash;
    const ssm__cached_word *word = ssm__word_cache_get(&run->cache, piece, bytes, &hash);
    if (word != NULL) {
        *dropped += word->dropped;
        return word->count == 0
                   ? SSM_STATUS_OK
                   : ssm__ids_append(ids, run->cache.ids.data + word->ids, word->count, err);
    }
    int64_t before = ids->count;
    int64_t lost = 0;
    SSM__TRY(encode_new(run, piece, bytes, ids, &lost, err));
    *dropped += lost;
    ssm__word_ids result = {ids->data + before, ids->count - before, lost};
    return ssm__word_cache_put(&run->cache, piece, bytes, hash, result, err);
}
