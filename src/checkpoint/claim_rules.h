/* checkpoint/claim_rules.h: which configurations are refused before any tensor is looked at. */
#ifndef SSM_CHECKPOINT_CLAIM_RULES_H
#define SSM_CHECKPOINT_CLAIM_RULES_H

#include <jansson.h>

#include "checkpoint/notes.h"

/* A value as compact JSON, cut to size. */
void ssm__claim_text(const json_t *value, char *out, size_t size);
/* FILE unless model_type is "mamba"; names what the file is instead. */
ssm_status ssm__claims_check_family(const char *path, const json_t *root, ssm_error *err);
/* FILE for a setting that changes the numbers and is not computed here. Notes unknown keys. */
ssm_status ssm__claims_check_settings(const char *path, const json_t *root, ssm__notes *notes,
                                      ssm_error *err);

#endif
