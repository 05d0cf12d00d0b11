/* checkpoint/notes.h: plain sentences about a load, in the order in which they arose. */
#ifndef SSM_CHECKPOINT_NOTES_H
#define SSM_CHECKPOINT_NOTES_H

#include <ssmscope/base.h>

/* Start from {0}; ssm__notes_free releases it. */
typedef struct ssm__notes {
    char **items;
    int64_t count;
    int64_t capacity;
} ssm__notes;

/* Errors: MEMORY. */
ssm_status ssm__note(ssm__notes *notes, ssm_error *err, const char *format, ...) SSM_PRINTF(3, 4);
void ssm__notes_free(ssm__notes *notes);

/* A growing piece of text with a fixed end, for lists in messages. Start from {0}. */
typedef struct ssm__list_text {
    char text[640];
    size_t used;
    int64_t shown;
    int64_t total;
} ssm__list_text;
/* Appends an item after a comma while there is room; items that no longer fit are counted. */
void ssm__list_add(ssm__list_text *list, const char *format, ...) SSM_PRINTF(2, 3);
/* The text, with " and K more" where items did not fit. */
const char *ssm__list_end(ssm__list_text *list);

#endif
