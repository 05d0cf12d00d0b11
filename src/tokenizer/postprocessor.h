/* tokenizer/postprocessor.h: ids put before and behind a text when special tokens are wanted. */
#ifndef SSM_TOKENIZER_POSTPROCESSOR_H
#define SSM_TOKENIZER_POSTPROCESSOR_H

#include <jansson.h>
#include <ssmscope/tokenizer.h>

typedef struct ssm__postprocessor {
    ssm_ids before;
    ssm_ids after;
} ssm__postprocessor;

/* spec: the "post_processor" of tokenizer.json; null is allowed. Only the template of a single text
 * is used. Errors: FILE, MEMORY. out starts from {0} and is freed by ssm__postprocessor_free also
 * after a failure. */
ssm_status ssm__postprocessor_parse(const char *path, const json_t *spec, ssm__postprocessor *out,
                                    ssm_error *err);
void ssm__postprocessor_free(ssm__postprocessor *postprocessor);

#endif
