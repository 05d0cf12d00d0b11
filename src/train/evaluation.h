/* train/evaluation.h: what a network can do of its task. */
#ifndef SSM_TRAIN_EVALUATION_H
#define SSM_TRAIN_EVALUATION_H

#include <jansson.h>

#include "train/network.h"

/* The first `rows` examples of every size of the task (fewer where a text has fewer), `at_once` a
 * batch: {"50": {"examples", "loss", "strings", "characters"}, …}; of vectors examples and loss
 * alone. loss: mean of nats a label, or of squared errors. New reference. Errors: FAILED (among
 * others that a loss is not finite, which *not_finite says), MEMORY. */
ssm_status ssm__evaluate_task(const ssm__network *network, const ssm_train_task *task, int64_t rows,
                              int64_t at_once, json_t **out, bool *not_finite, ssm_error *err);

/* Ids in the vocabulary, labels in the head. `what` names the batch. Errors: FAILED. */
ssm_status ssm__check_batch(const ssm__network_config *config, const ssm_train_batch *batch,
                            const char *what, ssm_error *err);
/* Labels, or components of vectors, that the loss is over. */
int64_t ssm__batch_labels(const ssm__network_config *config, const ssm_train_batch *batch);

#endif
