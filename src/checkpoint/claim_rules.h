/* checkpoint/claim_rules.h: which configurations are refused before any tensor is looked at. */
#ifndef SSM_CHECKPOINT_CLAIM_RULES_H
#define SSM_CHECKPOINT_CLAIM_RULES_H

#include "checkpoint/claims.h"

/* Sets claims->schema and family from claims->root. FILE for what is another kind of model. */
ssm_status ssm__claims_family(const char *path, ssm__claims *claims, ssm_error *err);
/* FILE for a setting that changes the numbers and is not computed here. Notes unknown keys. */
ssm_status ssm__claims_check_settings(const char *path, const json_t *root, ssm__notes *notes,
                                      ssm_error *err);
/* claim_hybrids.c: FILE with the layer that is not computed, when root is the configuration of a
 * family of which Mamba layers are a part (Jamba, Bamba, Zamba2, …). */
ssm_status ssm__claims_refuse_hybrid(const char *path, const json_t *root, ssm_error *err);

#endif
