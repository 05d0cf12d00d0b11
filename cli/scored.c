#include "scored.h"

#include <stdio.h>
#include <stdlib.h>

#include "messages.h"

ssm_status cli_scored_summarise(cli_scored *scored, const ssm_corpus *corpus,
                                const ssm_bootstrap_options *bootstrap, ssm_error *err)
{
    const int64_t n_domains = corpus->n_domains;
    scored->results = calloc((size_t)n_domains + 1, sizeof *scored->results);
    ssm_status status = scored->results == NULL ? cli_no_memory(err) : SSM_STATUS_OK;
    for (int64_t d = 0; status == SSM_STATUS_OK && d <= n_domains; d++) {
        status = ssm_perplexity_of(scored->scores, scored->count, n_domains,
                                   d == n_domains ? -1 : d, bootstrap, &scored->results[d], err);
    }
    return status;
}

bool cli_scored_has_blocks(const cli_scored *scored, const ssm_corpus *corpus)
{
    enum { BLOCK_WINDOWS = 4 };
    for (int64_t d = 0; d < corpus->n_domains; d++) {
        int64_t windows = 0;
        for (int64_t i = 0; i < scored->count; i++) {
            windows += scored->scores[i].domain == d;
        }
        if (windows <= BLOCK_WINDOWS) {
            return false;
        }
    }
    return true;
}

void cli_footnote_blocks(void)
{
    cli_footnote("A domain of four windows or fewer has one run only: its interval from blocks is "
                 "a point.");
}

void cli_footnote_captures(void)
{
    cli_footnote("captured: of what scheduled gains over static, the share that a rule gains; - "
                 "where scheduled gains nothing, in the text or in more than 2.5 % of the "
                 "resamples.");
}

void cli_scored_free(cli_scored *scored)
{
    ssm_scores_free(scored->scores);
    free(scored->results);
    *scored = (cli_scored){0};
}

ssm_interval cli_percent(ssm_interval interval)
{
    return (ssm_interval){100.0 * interval.lo, 100.0 * interval.hi};
}

void cli_json_interval(cli_json *json, json_t *object, const char *key, ssm_interval interval)
{
    json_t *array = cli_json_array(json, object, key);
    cli_json_push(json, array, cli_json_number(interval.lo));
    cli_json_push(json, array, cli_json_number(interval.hi));
}

static void json_perplexity(cli_json *json, json_t *object, const ssm_perplexity *result)
{
    cli_json_real(json, object, "perplexity", result->perplexity);
    cli_json_real(json, object, "nll_sum", result->nll_sum);
    cli_json_integer(json, object, "tokens", result->tokens);
    cli_json_real(json, object, "nats_per_token", result->nll_sum / (double)result->tokens);
    cli_json_interval(json, object, "interval_window", result->interval_window);
    cli_json_interval(json, object, "interval_block", result->interval_block);
}

void cli_json_scored(cli_json *json, json_t *object, const ssm_corpus *corpus,
                     const cli_scored *scored)
{
    json_perplexity(json, object, &scored->results[corpus->n_domains]);
    json_t *domains = cli_json_object(json, object, "domains");
    for (int64_t d = 0; d < corpus->n_domains; d++) {
        json_perplexity(json, cli_json_object(json, domains, corpus->domains[d].name),
                        &scored->results[d]);
    }
}

void cli_json_windows(cli_json *json, json_t *object, const ssm_corpus *corpus,
                      const cli_scored *scored)
{
    json_t *windows = cli_json_array(json, object, "windows");
    for (int64_t i = 0; i < scored->count; i++) {
        json_t *window = json_object();
        cli_json_text(json, window, "domain", corpus->domains[scored->scores[i].domain].name);
        cli_json_real(json, window, "nll", scored->scores[i].nll);
        cli_json_integer(json, window, "tokens", scored->scores[i].tokens);
        cli_json_push(json, windows, window);
    }
}

void cli_json_difference(cli_json *json, json_t *object, const ssm_difference *difference)
{
    cli_json_real(json, object, "perplexity", difference->perplexity);
    cli_json_interval(json, object, "interval_window", difference->interval_window);
    cli_json_interval(json, object, "interval_block", difference->interval_block);
}

void cli_json_divergence(cli_json *json, json_t *object, const ssm_divergence *d)
{
    cli_json_integer(json, object, "tokens", d->tokens);
    cli_json_real(json, object, "kl", d->kl);
    cli_json_interval(json, object, "kl_interval", d->kl_interval);
    json_t *quantiles = cli_json_object(json, object, "kl_quantiles");
    for (int i = 0; i < SSM_DIVERGENCE_QUANTILES; i++) {
        char level[16];
        snprintf(level, sizeof level, "%g", ssm_divergence_level(i));
        cli_json_real(json, quantiles, level, d->kl_quantiles[i]);
    }
    cli_json_real(json, object, "kl_max", d->kl_max);
    cli_json_real(json, object, "agreement", d->agreement);
    cli_json_interval(json, object, "agreement_interval", d->agreement_interval);
    cli_json_real(json, object, "probability_change", d->probability_change);
    cli_json_real(json, object, "probability_change_rms", d->probability_change_rms);
}

void cli_json_capture(cli_json *json, json_t *object, const ssm_capture *capture)
{
    cli_json_real(json, object, "fraction", capture->fraction);
    cli_json_interval(json, object, "interval_window", capture->interval_window);
    cli_json_interval(json, object, "interval_block", capture->interval_block);
}
