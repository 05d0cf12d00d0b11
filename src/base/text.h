/* base/text.h: a text that grows. After a failed allocation it stays failed, which taking it
 * reports. */
#ifndef SSM_BASE_TEXT_H
#define SSM_BASE_TEXT_H

#include <ssmscope/base.h>

/* Starts as {0}. */
typedef struct ssm__text {
    char *data; /* terminated; NULL while empty */
    size_t used, size;
    bool failed;
} ssm__text;

void ssm__text_add(ssm__text *text, const char *more);
void ssm__text_format(ssm__text *text, const char *format, ...) SSM_PRINTF(2, 3);
/* *out: the text, for free(), and {0} behind. Errors: MEMORY, with nothing left to free. */
ssm_status ssm__text_take(ssm__text *text, char **out, ssm_error *err);

#endif
