/* WinoGrande (Sakaguchi et al., 2020), scored in part (Trinh & Le, 2018): the sentence up to the
 * blank with each option put in is the context, what follows the blank the continuation. */
#include "evaluate/task.h"

#include <string.h>

#include "evaluate/python_text.h"

/* Context i = before + option; every continuation is a blank and `after`. */
static ssm_status fill_choice(const ssm__doc *doc, ssm_task_item *item, int64_t i,
                              const char *before, size_t bytes, const char *option,
                              const char *after, ssm_error *err)
{
    ssm_text text = {0};
    ssm_text head = {0};
    ssm_status status = ssm__text_join(&head, err, before, NULL);
    if (status == SSM_STATUS_OK) {
        head.data[bytes] = '\0';
        status = ssm__text_join(&text, err, head.data, option, NULL);
    }
    if (status == SSM_STATUS_OK && text.bytes == 0) {
        status = ssm__doc_fail(doc, err, "option%lld is empty and nothing stands before the blank",
                               (long long)i + 1);
    }
    if (status == SSM_STATUS_OK) {
        status = ssm__item_set(&item->contexts[i], text.data, text.bytes, err);
    }
    if (status == SSM_STATUS_OK) {
        status = ssm__item_choice(doc, item, i, after, err);
    }
    ssm_text_free(&head);
    ssm_text_free(&text);
    return status;
}

ssm_status ssm__read_winogrande(const ssm__doc *doc, ssm_task_item *item, ssm_error *err)
{
    const char *sentence = NULL;
    const char *options[2] = {NULL, NULL};
    ssm_status status = ssm__doc_text(doc, "sentence", &sentence, err);
    status = status == SSM_STATUS_OK ? ssm__doc_text(doc, "option1", &options[0], err) : status;
    status = status == SSM_STATUS_OK ? ssm__doc_text(doc, "option2", &options[1], err) : status;
    const char *blank = status == SSM_STATUS_OK ? strchr(sentence, '_') : NULL;
    if (status == SSM_STATUS_OK && !blank) {
        status = ssm__doc_fail(doc, err, "sentence has no '_' for the options to stand in");
    }
    status = status == SSM_STATUS_OK ? ssm__item_start(item, 2, true, err) : status;
    if (status != SSM_STATUS_OK) {
        return status;
    }
    const char *after = blank + 1;
    after += ssm__space_before(after, strlen(after));
    char *stripped = NULL;
    status = ssm__item_set(&stripped, after, strlen(after) - ssm__space_after(after, strlen(after)),
                           err);
    for (int64_t i = 0; i < 2 && status == SSM_STATUS_OK; i++) {
        status = fill_choice(doc, item, i, sentence, (size_t)(blank - sentence), options[i],
                             stripped, err);
    }
    ssm__item_set(&stripped, NULL, 0, NULL);
    return status == SSM_STATUS_OK ? ssm__doc_gold(doc, "answer", 1, 2, &item->gold, err) : status;
}
