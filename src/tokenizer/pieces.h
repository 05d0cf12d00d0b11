/* tokenizer/pieces.h: a text cut into pieces, and the ways a delimiter can be treated. */
#ifndef SSM_TOKENIZER_PIECES_H
#define SSM_TOKENIZER_PIECES_H

#include <ssmscope/tokenizer.h>

typedef struct ssm__piece {
    size_t start;
    size_t end;
} ssm__piece;

/* Start from {0}. */
typedef struct ssm__pieces {
    ssm__piece *data;
    size_t count;
    size_t capacity;
} ssm__pieces;

ssm_status ssm__pieces_add(ssm__pieces *pieces, size_t start, size_t end, ssm_error *err);
void ssm__pieces_free(ssm__pieces *pieces);

/* For "the-final--countdown" cut at "-". Empty pieces are never kept. */
typedef enum ssm__split_behavior {
    SSM__SPLIT_ISOLATED,        /* the - final - - countdown */
    SSM__SPLIT_REMOVED,         /* the final countdown */
    SSM__SPLIT_CONTIGUOUS,      /* the - final -- countdown */
    SSM__SPLIT_MERGED_PREVIOUS, /* the- final- - countdown */
    SSM__SPLIT_MERGED_NEXT      /* the -final - -countdown */
} ssm__split_behavior;

/* A stretch of text that is or is not a delimiter; stretches cover the text in order. */
typedef struct ssm__stretch {
    size_t start;
    size_t end;
    bool delimiter;
} ssm__stretch;

/* Appends the pieces of the stretches. Errors: MEMORY. */
ssm_status ssm__pieces_split(ssm__pieces *pieces, const ssm__stretch *stretches, size_t count,
                             ssm__split_behavior behavior, ssm_error *err);

#endif
