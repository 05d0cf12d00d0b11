/* ssmscope/ssmscope.h: everything.
 *
 *   ssm_checkpoint_open → ssm_model_create → ssm_session_create → ssm_session_forward
 *   ssm_tokenizer_open  → ssm_corpus_open  → ssm_record → ssm_recording_open → ssm_metrics_compute
 *                                                                            → ssm_select → mask
 *   ssm_score_windows(model, corpus, mask) → ssm_perplexity_of, ssm_difference_of, ssm_capture_of
 *   ssm_adapt_create(model, corpus, recording) → chooser: a mask for every window scored
 *   ssm_compare_weights, ssm_trace_run → ssm_compare_traces → ssm_compare_taps
 */
#ifndef SSMSCOPE_H
#define SSMSCOPE_H
#include <ssmscope/adapt.h>
#include <ssmscope/base.h>
#include <ssmscope/checkpoint.h>
#include <ssmscope/compare.h>
#include <ssmscope/convert.h>
#include <ssmscope/evaluate.h>
#include <ssmscope/examine.h>
#include <ssmscope/init.h>
#include <ssmscope/instrument.h>
#include <ssmscope/metrics.h>
#include <ssmscope/mimetic.h>
#include <ssmscope/model.h>
#include <ssmscope/prune.h>
#include <ssmscope/recording.h>
#include <ssmscope/select.h>
#include <ssmscope/tasks.h>
#include <ssmscope/tokenizer.h>
#include <ssmscope/train.h>
#include <ssmscope/train_task.h>
#endif
