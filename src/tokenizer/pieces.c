/* tokenizer/pieces.c: the five behaviours of a delimiter. */
#include "tokenizer/pieces.h"

#include <stdlib.h>

#include "base/error.h"
#include "tokenizer/growable.h"

ssm_status ssm__pieces_add(ssm__pieces *pieces, size_t start, size_t end, ssm_error *err)
{
    if (start == end) {
        return SSM_STATUS_OK;
    }
    void *data = pieces->data;
    SSM__TRY(ssm__grow(&data, &pieces->capacity, pieces->count + 1, sizeof *pieces->data,
                       "the pieces of a text", err));
    pieces->data = data;
    pieces->data[pieces->count++] = (ssm__piece){start, end};
    return SSM_STATUS_OK;
}

void ssm__pieces_free(ssm__pieces *pieces)
{
    free(pieces->data);
    *pieces = (ssm__pieces){0};
}

/* Does stretch i continue the piece that ends before it? */
static bool joins_previous(const ssm__stretch *stretches, size_t i, ssm__split_behavior behavior)
{
    bool before = stretches[i - 1].delimiter;
    bool here = stretches[i].delimiter;
    switch (behavior) {
    case SSM__SPLIT_CONTIGUOUS:
        return here == before;
    case SSM__SPLIT_MERGED_PREVIOUS:
        return here && !before;
    default:
        return false;
    }
}

/* From the end: a delimiter joins the piece behind it, unless that is a delimiter too. */
static bool joins_next(const ssm__stretch *stretches, size_t i, size_t count,
                       ssm__split_behavior behavior)
{
    return behavior == SSM__SPLIT_MERGED_NEXT && i + 1 < count && stretches[i].delimiter &&
           !stretches[i + 1].delimiter;
}

ssm_status ssm__pieces_split(ssm__pieces *pieces, const ssm__stretch *stretches, size_t count,
                             ssm__split_behavior behavior, ssm_error *err)
{
    for (size_t i = 0; i < count;) {
        size_t start = stretches[i].start;
        size_t last = i;
        while (last + 1 < count && (joins_previous(stretches, last + 1, behavior) ||
                                    joins_next(stretches, last, count, behavior))) {
            last++;
        }
        if (!(behavior == SSM__SPLIT_REMOVED && stretches[i].delimiter)) {
            SSM__TRY(ssm__pieces_add(pieces, start, stretches[last].end, err));
        }
        i = last + 1;
    }
    return SSM_STATUS_OK;
}
