/* LAMBADA (Paperno et al., 2016), the openai variant: the last word of a passage from the rest. The
 * last word is what stands behind the last blank. */
#include "evaluate/task.h"

#include <string.h>

ssm_status ssm__read_lambada(const ssm__doc *doc, ssm_task_item *item, ssm_error *err)
{
    const char *text = NULL;
    ssm_status status = ssm__doc_text(doc, "text", &text, err);
    if (status != SSM_STATUS_OK) {
        return status;
    }
    const char *blank = strrchr(text, ' ');
    const char *word = blank ? blank + 1 : text;
    if (*word == '\0') {
        return ssm__doc_fail(doc, err, "text ends with a blank: there is no last word to predict");
    }
    status = ssm__item_start(item, 1, false, err);
    if (status == SSM_STATUS_OK) {
        status = ssm__item_set(item->contexts, text, blank ? (size_t)(blank - text) : 0, err);
    }
    return status == SSM_STATUS_OK ? ssm__item_choice(doc, item, 0, word, err) : status;
}
