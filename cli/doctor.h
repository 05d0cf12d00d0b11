/* cli/doctor.h: the parts of `doctor`. Each appends what it found. */
#ifndef SSM_CLI_DOCTOR_H
#define SSM_CLI_DOCTOR_H

#include <ssmscope/examine.h>

#include "load.h"

/* Processor, memory, built-in model, cache. Errors: MEMORY. */
ssm_status cli_doctor_machine(ssm_findings *findings, ssm_error *err);
/* What lies in the directory of a checkpoint that could not be opened. Errors: MEMORY. */
ssm_status cli_doctor_directory(const char *path, ssm_findings *findings, ssm_error *err);
/* Family and sizes. Errors: MEMORY. */
ssm_status cli_doctor_identity(const cli_source *source, ssm_findings *findings, ssm_error *err);
/* The tokenizer beside the model, or which is wanted, and the special ids; *out: NULL where there
 * is none. Errors: MEMORY. */
ssm_status cli_doctor_tokenizer(const cli_source *source, ssm_tokenizer **out,
                                ssm_findings *findings, ssm_error *err);
/* Bytes that running takes. Errors: MEMORY. */
ssm_status cli_doctor_plan(const ssm_model *model, ssm_findings *findings, ssm_error *err);
/* Runs ids: is everything finite, how well are they predicted, how much probability goes to rows of
 * padding (from n_valid on). Errors: USAGE (an id outside the vocabulary), MEMORY. */
ssm_status cli_doctor_run(cli_context *context, const ssm_model *model, const ssm_ids *ids,
                          int64_t n_valid, ssm_findings *findings, ssm_error *err);

#endif
