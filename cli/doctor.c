#include "doctor.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "messages.h"

/* Appends a finding; forwards its failure. */
#define FIND(kind, topic, ...)                                                                     \
    do {                                                                                           \
        ssm_status found_ =                                                                        \
            ssm_findings_add(findings, SSM_FINDING_##kind, topic, NULL, err, __VA_ARGS__);         \
        if (found_ != SSM_STATUS_OK) {                                                             \
            return found_;                                                                         \
        }                                                                                          \
    } while (0)

/* ---- the machine ----------------------------------------------------------------------------- */

static double memory_bytes(void)
{
    return (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
}

ssm_status cli_doctor_machine(ssm_findings *findings, ssm_error *err)
{
    char isas[64] = "portable";
    size_t used = strlen(isas);
    static const ssm_isa more[] = {SSM_ISA_AVX2, SSM_ISA_AVX512};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        if (ssm_isa_supported(more[i])) {
            used +=
                (size_t)snprintf(isas + used, sizeof isas - used, ", %s", ssm_isa_name(more[i]));
        }
    }
    FIND(OK, "machine", "ssmscope %s; kernels for %s; used: %s", ssm_version(), isas,
         ssm_isa_name(ssm_isa_best()));
    if (ssm_isa_best() == SSM_ISA_PORTABLE) {
        FIND(NOTE, "machine",
             "without AVX2 and FMA the results are the same, but many times slower");
    }
    char memory[32];
    cli_format_bytes(memory_bytes(), memory);
    FIND(OK, "machine", "%ld processors, %s of memory", sysconf(_SC_NPROCESSORS_ONLN), memory);
    char path[PATH_MAX];
    if (cli_data_directory(path)) {
        FIND(OK, "machine", "built-in models: tiny and tiny2 in %s/models", path);
    } else {
        FIND(PROBLEM, "machine", "the built-in model tiny is not found");
    }
    struct stat info;
    if (!cli_cache_directory(path)) {
        FIND(NOTE, "machine", "no home directory, so no Hugging Face cache");
    } else if (stat(path, &info) != 0) {
        FIND(NOTE, "machine", "no Hugging Face cache at %s; models are then given by path", path);
    } else {
        FIND(OK, "machine", "Hugging Face cache: %s", path);
    }
    return SSM_STATUS_OK;
}

/* ---- a directory that does not load ---------------------------------------------------------- */

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* "config.json (1.2 kB), …" of at most so many files. */
static void list_files(const char *path, struct dirent **entries, int count, char *out, size_t size)
{
    enum { SHOWN = 12 };
    size_t used = 0;
    for (int i = 0; i < count && i < SHOWN && used < size; i++) {
        char full[PATH_MAX];
        char bytes[32] = "?";
        struct stat info;
        snprintf(full, sizeof full, "%.*s/%s", PATH_MAX - 300, path, entries[i]->d_name);
        if (stat(full, &info) == 0) {
            cli_format_bytes((double)info.st_size, bytes);
        }
        used += (size_t)snprintf(out + used, size - used, "%s%s (%s)", i == 0 ? "" : ", ",
                                 entries[i]->d_name, S_ISDIR(info.st_mode) ? "a directory" : bytes);
    }
    if (count > SHOWN && used < size) {
        snprintf(out + used, size - used, " and %d more", count - SHOWN);
    }
}

ssm_status cli_doctor_directory(const char *path, ssm_findings *findings, ssm_error *err)
{
    struct dirent **entries = NULL;
    char text[2048] = "";
    int count = scandir(path, &entries, is_visible, alphasort);
    if (count < 0) {
        return errno == ENOMEM ? cli_no_memory(err) : SSM_STATUS_OK; /* a file, or not there */
    }
    list_files(path, entries, count, text, sizeof text);
    for (int i = 0; i < count; i++) {
        free(entries[i]);
    }
    free(entries);
    FIND(OK, "load", "the directory holds %s", count == 0 ? "nothing" : text);
    return SSM_STATUS_OK;
}

/* ---- the model ------------------------------------------------------------------------------- */

ssm_status cli_doctor_identity(const cli_source *source, ssm_findings *findings, ssm_error *err)
{
    const ssm_config *config = source->config;
    int64_t kinds[SSM_LAYER_KINDS] = {0};
    char layers[96] = "";
    size_t used = 0;
    for (int64_t i = 0; i < config->n_layers; i++) {
        kinds[ssm_checkpoint_layer_kind(source->checkpoint, i)]++;
    }
    for (int k = 0; k < SSM_LAYER_KINDS; k++) {
        if (kinds[k] > 0 && used < sizeof layers) {
            used += (size_t)snprintf(layers + used, sizeof layers - used, "%s%lld of %s",
                                     used == 0 ? "" : ", ", (long long)kinds[k],
                                     ssm_layer_kind_name((ssm_layer_kind)k));
        }
    }
    FIND(OK, "model", "%s: %s, %lld layers (%s), d_model %lld, d_inner %lld, d_state %lld",
         source->where.path, ssm_family_name(config->family), (long long)config->n_layers, layers,
         (long long)config->d_model, (long long)config->d_inner, (long long)config->d_state);
    return SSM_STATUS_OK;
}

ssm_status cli_doctor_plan(const ssm_model *model, ssm_findings *findings, ssm_error *err)
{
    const ssm_checkpoint *checkpoint = ssm_model_checkpoint(model);
    double weights = 0;
    for (int64_t i = 0; i < ssm_checkpoint_count(checkpoint); i++) {
        weights += ssm_checkpoint_used(checkpoint, i)
                       ? (double)ssm_checkpoint_at(checkpoint, i)->bytes
                       : 0;
    }
    const ssm_session_options small = {.max_chunk = 64};
    ssm_session *session = NULL;
    ssm_status status = ssm_session_create(model, &small, &session, err);
    if (status != SSM_STATUS_OK) {
        return status;
    }
    char of_weights[32];
    char of_state[32];
    char of_session[32];
    char of_token[32];
    char growth[96] = ", whatever its length";
    if (ssm_session_token_size(model) > 0) {
        cli_format_bytes((double)ssm_session_token_size(model), of_token);
        snprintf(growth, sizeof growth, " and %s more with every token (keys and values)",
                 of_token);
    }
    cli_format_bytes(weights, of_weights);
    cli_format_bytes((double)ssm_session_state_size(session), of_state);
    cli_format_bytes((double)ssm_session_size(model, NULL), of_session);
    ssm_session_free(session);
    FIND(
        OK, "memory",
        "%s of weights, mapped from the files; %s of state for a stream of text%s; %s in all for a "
        "session with its scratch",
        of_weights, of_state, growth, of_session);
    if (weights > memory_bytes()) {
        FIND(NOTE, "memory", "the weights are larger than the memory: it will run at disk speed");
    }
    return SSM_STATUS_OK;
}

/* ---- a run ----------------------------------------------------------------------------------- */

typedef struct run_sums {
    const ssm_ids *ids;
    int64_t width, n_valid, offset;
    double nll, padding, largest_padding;
    int64_t scored, padding_first; /* positions whose most probable row is padding */
} run_sums;

static void add_row(run_sums *sums, int64_t position, const float *row)
{
    double top = (double)row[0];
    int64_t best = 0;
    for (int64_t i = 1; i < sums->width; i++) {
        if ((double)row[i] > top) {
            top = (double)row[i];
            best = i;
        }
    }
    double total = 0;
    double padding = 0;
    for (int64_t i = 0; i < sums->width; i++) {
        const double share = exp((double)row[i] - top);
        total += share;
        padding += i >= sums->n_valid ? share : 0;
    }
    padding /= total;
    sums->padding += padding;
    sums->largest_padding = padding > sums->largest_padding ? padding : sums->largest_padding;
    sums->padding_first += best >= sums->n_valid;
    if (position + 1 < sums->ids->count) {
        sums->nll += top + log(total) - (double)row[sums->ids->data[position + 1]];
        sums->scored++;
    }
}

static void add_rows(void *context, int64_t first, int64_t tokens, const float *logits)
{
    run_sums *sums = context;
    for (int64_t t = 0; t < tokens; t++) {
        add_row(sums, sums->offset + first + t, logits + t * sums->width);
    }
}

static ssm_status report_run(const run_sums *sums, ssm_findings *findings, ssm_error *err)
{
    if (sums->scored > 0) {
        const double mean = sums->nll / (double)sums->scored;
        const double chance = log((double)sums->width);
        if (mean > chance) {
            FIND(NOTE, "run",
                 "%.3f nats a token on this text, worse than guessing evenly (%.3f): wrong "
                 "weights, wrong tokenizer, or no text",
                 mean, chance);
        } else {
            FIND(OK, "run", "%.3f nats a token on this text (guessing evenly: %.3f)", mean, chance);
        }
    }
    const int64_t rows = sums->width - sums->n_valid;
    if (rows > 0 && (sums->padding_first > 0 || sums->largest_padding > 0.01)) {
        FIND(NOTE, "run",
             "the %lld rows of padding get %.2g of the probability (at most %.2g), and are the "
             "most probable at %lld positions; they are never sampled",
             (long long)rows, sums->padding / (double)sums->ids->count, sums->largest_padding,
             (long long)sums->padding_first);
    } else if (rows > 0) {
        FIND(OK, "run", "the %lld rows of padding get %.2g of the probability, at most %.2g",
             (long long)rows, sums->padding / (double)sums->ids->count, sums->largest_padding);
    }
    return SSM_STATUS_OK;
}

ssm_status cli_doctor_run(cli_context *context, const ssm_model *model, const ssm_ids *ids,
                          int64_t n_valid, ssm_findings *findings, ssm_error *err)
{
    run_sums sums = {.ids = ids, .width = ssm_model_config(model)->vocab_size, .n_valid = n_valid};
    ssm_pool *pool = NULL;
    ssm_session *session = NULL;
    ssm_error found;
    ssm_error_clear(&found);
    ssm_status status = cli_pool(context, &pool, err);
    const ssm_session_options options = {.pool = pool};
    status = status == SSM_STATUS_OK ? ssm_session_create(model, &options, &session, err) : status;
    if (status == SSM_STATUS_OK) {
        status = ssm_session_forward(session, ids->data, ids->count, SSM_LOGITS_ALL, add_rows,
                                     &sums, &found);
        if (status ==
            SSM_STATUS_FAILED) { /* a number that is not finite, with layer and position */
            status = ssm_findings_add(findings, SSM_FINDING_PROBLEM, "run", NULL, err, "%s",
                                      found.message);
        } else if (status != SSM_STATUS_OK) {
            *err = found;
        } else if (ids->count > 0) {
            status = report_run(&sums, findings, err);
        }
    }
    ssm_session_free(session);
    return status;
}
