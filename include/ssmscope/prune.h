/* ssmscope/prune.h: a smaller checkpoint from a mask that keeps the same modes everywhere. */
#ifndef SSMSCOPE_PRUNE_H
#define SSMSCOPE_PRUNE_H

#include <ssmscope/convert.h>
#include <ssmscope/model.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ssm_prune_options {
    /* Falcon-Mamba only: write it although its norms of B and C then run over fewer modes, which
     * makes it a different model from the masked one. */
    bool renormalised;
    /* What is said of the origin, in the metadata and in pruned.json; each may be NULL. A
     * model_digest that is not given is computed, which reads the model once. */
    const char *model_digest, *mask_digest, *command;
    const char *mask_path; /* for errors; may be NULL */
} ssm_prune_options;

typedef struct ssm_prune_result {
    ssm_layout layout; /* that of the source; original for what only it has words for */
    ssm_container container;
    int64_t d_state; /* of what was written */
    bool folded;     /* weights of the mask went into C's rows or into D, in float32 */
} ssm_prune_result;

/* Writes the model with d_state = r: of Mamba-1 the kept columns of A_log and the kept rows B and C
 * of x_proj; of Mamba-2 the kept rows B and C of in_proj and conv1d and of their biases. All other
 * tensors, and all types, are as they were. Logits are those of the masked run up to rounding.
 *
 * The mask must keep r modes in every layer with a state, the same ones in all channels that share
 * B and C: in Mamba-1 those of a layer, in Mamba-2 those of a group of heads. Its weights must be
 * such that a checkpoint has a place for them: the feed-through's (folded into D), and in Mamba-1 a
 * weight per mode that is the same in all channels (into C's rows). Layers of attention are not
 * looked at.
 *
 * directory as in ssm_convert: it must not exist, or be empty, and appears whole or not at all.
 * Memory holds lists of rows and one block of one tensor. progress counts bytes. result may be
 * NULL. Errors: USAGE (a mask that no checkpoint can hold: layer, channel, mode and what to do;
 * Falcon-Mamba without renormalised; the directory is in use), FILE (a mask of another model or
 * shape), FAILED, INTERRUPTED, MEMORY. */
SSM_API ssm_status ssm_prune(const ssm_checkpoint *checkpoint, const ssm_mask *mask,
                             const ssm_prune_options *options, const char *directory,
                             const ssm_progress *progress, ssm_prune_result *result,
                             ssm_error *err);

#ifdef __cplusplus
}
#endif
#endif
