/* PIQA (Bisk et al., 2020): which of two solutions reaches a goal. */
#include "evaluate/task.h"

#include "evaluate/python_text.h"

static ssm_status fill(const ssm__doc *doc, ssm_task_item *item, const char *goal,
                       const char *const *solutions, ssm_error *err)
{
    ssm_text context = {0};
    ssm_status status = ssm__text_join(&context, err, "Question: ", goal, "\nAnswer:", NULL);
    if (status == SSM_STATUS_OK) {
        status = ssm__item_set(item->contexts, context.data, context.bytes, err);
    }
    ssm_text_free(&context);
    for (int64_t i = 0; i < 2 && status == SSM_STATUS_OK; i++) {
        status = ssm__item_choice(doc, item, i, solutions[i], err);
    }
    return status == SSM_STATUS_OK ? ssm__doc_gold(doc, "label", 0, 2, &item->gold, err) : status;
}

ssm_status ssm__read_piqa(const ssm__doc *doc, ssm_task_item *item, ssm_error *err)
{
    if (ssm__doc_is_general(doc)) {
        return ssm__item_general(doc, item, "\nAnswer:", err);
    }
    const char *goal = NULL;
    const char *solutions[2] = {NULL, NULL};
    ssm_status status = ssm__doc_text(doc, "goal", &goal, err);
    status = status == SSM_STATUS_OK ? ssm__doc_text(doc, "sol1", &solutions[0], err) : status;
    status = status == SSM_STATUS_OK ? ssm__doc_text(doc, "sol2", &solutions[1], err) : status;
    status = status == SSM_STATUS_OK ? ssm__item_start(item, 2, false, err) : status;
    return status == SSM_STATUS_OK ? fill(doc, item, goal, solutions, err) : status;
}
