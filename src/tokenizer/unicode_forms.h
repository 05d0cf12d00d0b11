/* tokenizer/unicode_forms.h: the four normalisation forms (Unicode Standard Annex 15). */
#ifndef SSM_TOKENIZER_UNICODE_FORMS_H
#define SSM_TOKENIZER_UNICODE_FORMS_H

#include <ssmscope/tokenizer.h>

#include "tokenizer/unicode.h"

typedef struct ssm__code_points {
    int32_t *data;
    size_t count;
    size_t capacity;
    int32_t *merge; /* scratch of the ordering */
    size_t merge_capacity;
} ssm__code_points;
void ssm__code_points_free(ssm__code_points *points);

typedef enum ssm__unicode_form {
    SSM__FORM_NFC,
    SSM__FORM_NFD,
    SSM__FORM_NFKC,
    SSM__FORM_NFKD
} ssm__unicode_form;

/* Writes the form of text into *out (its old content is lost), or sets *same where nothing changes.
 * text is valid UTF-8, bytes ≥ 1; points is scratch. Errors: MEMORY. */
ssm_status ssm__unicode_form_write(ssm__unicode_form form, const ssm__unicode *unicode,
                                   const unsigned char *text, size_t bytes,
                                   ssm__code_points *points, ssm_text *out, bool *same,
                                   ssm_error *err);

#endif
