/* ssmscope/mimetic.h: mimetic initialisation (arXiv 2410.11135): layers of a selective state-space
 * model that start close to linear attention, so that they learn to copy and recall.
 * docs/initialisation.md keeps apart what was read and what is ours. */
#ifndef SSMSCOPE_MIMETIC_H
#define SSMSCOPE_MIMETIC_H

#include <ssmscope/checkpoint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How W_C is made to go with W_B (rows of the projections that give C and B). */
typedef enum ssm_mimetic_mode {
    SSM_MIMETIC_HALF,      /* W_C ← (W_C + W_B)/2 */
    SSM_MIMETIC_EQUAL,     /* W_C ← W_B */
    SSM_MIMETIC_ORTHOGONAL /* W_B, W_C ← one matrix with orthogonal rows, each plus its own noise */
} ssm_mimetic_mode;

/* The four switches and where they act. Start from ssm_mimetic_default(). */
typedef struct ssm_mimetic {
    bool A;           /* no decay: A_log = −c, A = −exp(−c) */
    bool delta;       /* Δ = 1 for every token: bias ln(e − 1), token-dependent weight 0 */
    bool correlation; /* of B and C, by mode */
    bool conv;        /* identity: last tap 1, others 0, bias 0 */
    ssm_mimetic_mode mode;
    double c;              /* > 0; the paper's 2, 4, 8 */
    double noise;          /* ORTHOGONAL: of the matrix's own size, ≥ 0 */
    const int64_t *layers; /* [n_layers] rising; NULL: all that have a state */
    int64_t n_layers;
    /* Mamba-2: [n_heads] rising; NULL: all. A, Δ and the convolution of x are a head's own; B, C
     * and their convolution belong to a group and change where any of its heads is named. */
    const int64_t *heads;
    int64_t n_heads;
} ssm_mimetic;

/* All four switches, HALF, c 8, noise 0.1, all layers and heads. */
SSM_API ssm_mimetic ssm_mimetic_default(void);
/* "all", or switches separated by commas: A, delta, BC, conv. Only those four fields change.
 * Errors: USAGE (another word, with the nearest). */
SSM_API ssm_status ssm_mimetic_parse_switches(const char *text, ssm_mimetic *out, ssm_error *err);
/* "half", "equal", "orthogonal"; USAGE for another. */
SSM_API ssm_status ssm_mimetic_parse_mode(const char *text, ssm_mimetic_mode *out, ssm_error *err);
SSM_API const char *ssm_mimetic_mode_name(ssm_mimetic_mode mode);

/* ssm_init_write_layers with mimetic initialisation on top of the default one, which all other
 * tensors, and all other layers, have to the bit. The metadata of the file say what was done.
 * mimetic NULL: none; kinds NULL: all of the family's. Errors: USAGE (a layer or head that the
 * model does not have or that has no state, no switch on), and as ssm_init_write. */
SSM_API ssm_status ssm_init_write_mimetic(const ssm_config *config, const ssm_layer_kind *kinds,
                                          const ssm_mimetic *mimetic, ssm_dtype dtype,
                                          uint64_t seed, const char *directory,
                                          const ssm_progress *progress, ssm_error *err);

/* What is said of the origin in the metadata and in mimetic.json; each may be NULL. */
typedef struct ssm_mimetic_origin {
    const char *model_digest, *command;
} ssm_mimetic_origin;

/* Writes an open checkpoint with mimetic initialisation of some layers; what is not named keeps its
 * bits and its types. The layout is the checkpoint's. directory as in ssm_convert: it must not
 * exist, or be empty, and appears whole or not at all. seed is used by ORTHOGONAL only. Errors: as
 * above and as ssm_convert. */
SSM_API ssm_status ssm_mimetic_rewrite(const ssm_checkpoint *checkpoint, const ssm_mimetic *mimetic,
                                       uint64_t seed, const ssm_mimetic_origin *origin,
                                       const char *directory, const ssm_progress *progress,
                                       ssm_error *err);

#ifdef __cplusplus
}
#endif
#endif
