#include "compare_output.h"

#include <math.h>
#include <string.h>

#include "messages.h"

enum { ROWS_SHOWN = 20, PLACE_MAX = 32 };

/* ---- verdicts -------------------------------------------------------------------------------- */

static bool weight_diverges(const cli_comparison *c, const ssm_weight_comparison *w)
{
    switch (w->relation) {
    case SSM_WEIGHT_SAME:
    case SSM_WEIGHT_CONVERTED:
        return false;
    case SSM_WEIGHT_DIFFERENT:
        return w->deviation.relative > c->tolerance;
    default:
        return true;
    }
}

static int64_t weights_of(const cli_comparison *c, ssm_weight_relation relation)
{
    int64_t count = 0;
    for (int64_t i = 0; i < c->n_weights; i++) {
        count += c->weights[i].relation == relation;
    }
    return count;
}

static int64_t weights_diverging(const cli_comparison *c)
{
    int64_t count = 0;
    for (int64_t i = 0; i < c->n_weights; i++) {
        count += weight_diverges(c, &c->weights[i]);
    }
    return count;
}

/* The first tap beyond the tolerance; NULL: none, or not looked at. */
static const ssm_tap_comparison *first_tap(const cli_comparison *c)
{
    for (int64_t i = 0; i < c->n_taps; i++) {
        if (c->taps[i].width_a != c->taps[i].width_b ||
            c->taps[i].deviation.relative > c->tolerance) {
            return &c->taps[i];
        }
    }
    return NULL;
}

/* "embedding", "layer 3", "logits" of hidden.k. */
static const char *place_of(const cli_comparison *c, int64_t k, char out[PLACE_MAX])
{
    if (k == c->traces.n_hidden) {
        return "logits";
    }
    if (k == 0) {
        return "embedding";
    }
    snprintf(out, PLACE_MAX, "layer %lld", (long long)k - 1);
    return out;
}

static const ssm_deviation *deviation_of(const cli_comparison *c, int64_t k)
{
    return k == c->traces.n_hidden ? &c->traces.logits : &c->traces.hidden[k];
}

/* "blocks.3.mixer.hook_u" */
static void tap_name(const cli_comparison *c, ssm_tap_point point, char *out, size_t size)
{
    const char *text = ssm_tap_name(point);
    const char *mark = strstr(text, "{i}");
    if (mark == NULL) {
        snprintf(out, size, "%s", text);
    } else {
        snprintf(out, size, "%.*s%lld%s", (int)(mark - text), text, (long long)c->traces.first - 1,
                 mark + 3);
    }
}

/* Where the two first part. */
static ssm_status diverging(const cli_comparison *c, ssm_error *err)
{
    char place[PLACE_MAX];
    char tap[160] = "";
    const ssm_tap_comparison *inside = first_tap(c);
    const ssm_deviation *d = deviation_of(c, c->traces.first);
    if (inside != NULL) {
        memcpy(tap, ", tap ", sizeof ", tap ");
        tap_name(c, inside->point, tap + strlen(tap), sizeof tap - strlen(tap));
    }
    if (inside != NULL && inside->width_a != inside->width_b) {
        return cli_fail(err, SSM_STATUS_CHECK, NULL,
                        "the two diverge, first at %s%s, which is %lld wide in A and %lld in B; "
                        "behind the layer they are apart by %.3g of the largest number, more than "
                        "the tolerance %.3g",
                        place_of(c, c->traces.first, place), tap, (long long)inside->width_a,
                        (long long)inside->width_b, d->relative, c->tolerance);
    }
    d = inside != NULL ? &inside->deviation : d;
    const int64_t width = d->count / c->ids.count;
    return cli_fail(err, SSM_STATUS_CHECK, NULL,
                    "the two diverge, first at %s%s (token %lld, number %lld: %.7g and %.7g): %.3g "
                    "of the largest number, more than the tolerance %.3g",
                    place_of(c, c->traces.first, place), tap, (long long)(d->at / width),
                    (long long)(d->at % width), d->a, d->b, d->relative, c->tolerance);
}

/* Returns CHECK when the two sides diverge. */
static ssm_status verdict(const cli_comparison *c, ssm_error *err)
{
    if (c->ran && c->traces.first >= 0) {
        return diverging(c, err);
    }
    const int64_t weights = weights_diverging(c);
    if (weights > 0) {
        return cli_fail(err, SSM_STATUS_CHECK, NULL, "%lld of %lld weights differ%s",
                        (long long)weights, (long long)c->n_weights,
                        c->ran ? "; on this text hidden states and logits agree"
                               : ", and the models cannot be run side by side");
    }
    return SSM_STATUS_OK;
}

/* ---- for people ------------------------------------------------------------------------------ */

static void print_config_differences(const ssm_config *a, const ssm_config *b)
{
    const struct {
        const char *name;
        double a, b;
    } fields[] = {
        {"family", (double)a->family, (double)b->family},
        {"vocab_size", (double)a->vocab_size, (double)b->vocab_size},
        {"d_model", (double)a->d_model, (double)b->d_model},
        {"n_layers", (double)a->n_layers, (double)b->n_layers},
        {"d_inner", (double)a->d_inner, (double)b->d_inner},
        {"d_state", (double)a->d_state, (double)b->d_state},
        {"d_conv", (double)a->d_conv, (double)b->d_conv},
        {"dt_rank", (double)a->dt_rank, (double)b->dt_rank},
        {"n_heads", (double)a->n_heads, (double)b->n_heads},
        {"n_groups", (double)a->n_groups, (double)b->n_groups},
        {"norm_groups", (double)a->norm_groups, (double)b->norm_groups},
        {"d_mlp", (double)a->d_mlp, (double)b->d_mlp},
        {"tied head", a->tied, b->tied},
        {"layer norm", a->layer_norm, b->layer_norm},
        {"norm before gate", a->norm_before_gate, b->norm_before_gate},
        {"norm_eps", a->norm_eps, b->norm_eps},
        {"mixer_norm_eps", a->mixer_norm_eps, b->mixer_norm_eps},
        {"dt lower limit", a->dt_limit_low, b->dt_limit_low},
        {"dt upper limit", a->dt_limit_high, b->dt_limit_high},
        {"rotary base", a->rotary_base, b->rotary_base},
        {"softmax scale", a->softmax_scale, b->softmax_scale},
        {"eos id", (double)a->eos_id, (double)b->eos_id},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (fields[i].a != fields[i].b && i == 0) {
            printf("family: %s in A, %s in B\n", ssm_family_name(a->family),
                   ssm_family_name(b->family));
        } else if (fields[i].a != fields[i].b) {
            printf("%s: %g in A, %g in B\n", fields[i].name, fields[i].a, fields[i].b);
        }
    }
}

static void shape_text(const ssm_tensor *tensor, char *out, size_t size)
{
    size_t used = (size_t)snprintf(out, size, "%s [", ssm_dtype_name(tensor->dtype));
    for (int d = 0; d < tensor->n_dims && used < size; d++) {
        used += (size_t)snprintf(out + used, size - used, "%s%lld", d == 0 ? "" : ",",
                                 (long long)tensor->dims[d]);
    }
    if (used < size) {
        snprintf(out + used, size - used, "]");
    }
}

static void weight_cells(cli_table *table, const ssm_weight_comparison *w)
{
    static const char prefix[] = "backbone.";
    const bool same_start = strncmp(w->name, prefix, sizeof prefix - 1) == 0;
    char a[80];
    char b[80];
    cli_table_cell(table, "%s", w->name + (same_start ? sizeof prefix - 1 : 0));
    switch (w->relation) {
    case SSM_WEIGHT_DIFFERENT:
        cli_table_cell(table, "%lld of %lld differ, most [%lld]: %.6g, %.6g; %.2g of largest",
                       (long long)w->deviation.differing, (long long)w->deviation.count,
                       (long long)w->deviation.at, w->deviation.a, w->deviation.b,
                       w->deviation.relative);
        break;
    case SSM_WEIGHT_CONVERTED:
        cli_table_cell(table, "%s and %s: the same but for rounding, %.2g of largest",
                       ssm_dtype_name(w->a->dtype), ssm_dtype_name(w->b->dtype),
                       w->deviation.relative);
        break;
    case SSM_WEIGHT_RESHAPED:
        shape_text(w->a, a, sizeof a);
        shape_text(w->b, b, sizeof b);
        cli_table_cell(table, "%s in A, %s in B", a, b);
        break;
    default:
        cli_table_cell(table, "only in %s", w->relation == SSM_WEIGHT_ONLY_A ? "A" : "B");
        break;
    }
}

static ssm_status print_weights(const cli_comparison *c, ssm_error *err)
{
    int64_t shown = 0;
    const int64_t rest = c->n_weights - weights_of(c, SSM_WEIGHT_SAME);
    printf("weights: %lld, of which %lld have the same bits", (long long)c->n_weights,
           (long long)(c->n_weights - rest));
    static const struct {
        ssm_weight_relation relation;
        const char *words;
    } kinds[] = {{SSM_WEIGHT_CONVERTED, "the same but for their dtype"},
                 {SSM_WEIGHT_DIFFERENT, "differ"},
                 {SSM_WEIGHT_RESHAPED, "other shapes"},
                 {SSM_WEIGHT_ONLY_A, "only in A"},
                 {SSM_WEIGHT_ONLY_B, "only in B"}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (weights_of(c, kinds[i].relation) > 0) {
            printf(", %lld %s", (long long)weights_of(c, kinds[i].relation), kinds[i].words);
        }
    }
    putchar('\n');
    cli_table table = cli_table_create(NULL, "ll");
    for (int64_t i = 0; i < c->n_weights && shown < ROWS_SHOWN; i++) {
        if (c->weights[i].relation != SSM_WEIGHT_SAME) {
            weight_cells(&table, &c->weights[i]);
            shown++;
        }
    }
    ssm_status status = cli_table_print(&table, stdout, err);
    if (rest > shown) {
        printf("and %lld more; --json lists them all\n", (long long)(rest - shown));
    }
    return status;
}

static void deviation_cells(cli_table *table, const ssm_deviation *d)
{
    cli_table_cell(table, "%.3g", d->max_abs);
    cli_table_cell(table, "%.2e", d->relative);
    cli_table_cell(table, "%.2e", d->relative_l2);
    cli_table_cell(table, "%.9f", d->cosine);
}

static ssm_status print_states(const cli_comparison *c, ssm_error *err)
{
    static const char *const headings[] = {"after",       "largest |a-b|", "of largest",
                                           "relative L2", "cosine",        ""};
    const ssm_trace_comparison *t = &c->traces;
    printf("\n%lld tokens, tolerance %.3g of the largest number\n", (long long)c->ids.count,
           c->tolerance);
    cli_table table = cli_table_create(headings, "lrrrrl");
    for (int64_t k = 0; k < t->n_hidden + (t->has_logits ? 1 : 0); k++) {
        char place[PLACE_MAX];
        cli_table_cell(&table, "%s", place_of(c, k, place));
        deviation_cells(&table, deviation_of(c, k));
        cli_table_cell(&table, "%s", deviation_of(c, k)->relative > c->tolerance ? "apart" : "ok");
    }
    ssm_status status = cli_table_print(&table, stdout, err);
    if (t->last_is_normed) {
        printf(
            "The last state of one side is the output of the final norm, and was compared so.\n");
    }
    if (t->has_logits) {
        printf("The most probable token is the same at %lld of %lld positions.\n",
               (long long)t->same_argmax, (long long)c->ids.count);
    }
    return status;
}

static ssm_status print_taps(const cli_comparison *c, ssm_error *err)
{
    static const char *const headings[] = {"tap",         "largest |a-b|", "of largest",
                                           "relative L2", "cosine",        ""};
    printf("\ninside layer %lld\n", (long long)c->traces.first - 1);
    cli_table table = cli_table_create(headings, "lrrrrl");
    for (int64_t i = 0; i < c->n_taps; i++) {
        const ssm_tap_comparison *tap = &c->taps[i];
        char name[128];
        tap_name(c, tap->point, name, sizeof name);
        const char *dot = strchr(name, '.'); /* behind "blocks.": the layer is in the title */
        dot = dot == NULL ? NULL : strchr(dot + 1, '.');
        cli_table_cell(&table, "%s", dot == NULL ? name : dot + 1);
        if (tap->width_a == tap->width_b) {
            deviation_cells(&table, &tap->deviation);
            cli_table_cell(&table, "%s", tap->deviation.relative > c->tolerance ? "apart" : "ok");
        } else {
            for (int column = 0; column < 4; column++) {
                cli_table_cell(&table, "-");
            }
            cli_table_cell(&table, "%lld or %lld wide", (long long)tap->width_a,
                           (long long)tap->width_b);
        }
    }
    return cli_table_print(&table, stdout, err);
}

static ssm_status print_for_people(const cli_comparison *c, ssm_error *err)
{
    ssm_status status = SSM_STATUS_OK;
    if (c->b.checkpoint != NULL) {
        print_config_differences(c->a.config, c->b.config);
        status = print_weights(c, err);
    }
    if (!c->ran) {
        printf("\nNot run: the models have other numbers of layers or widths.\n");
        return status;
    }
    status = status == SSM_STATUS_OK ? print_states(c, err) : status;
    return status == SSM_STATUS_OK && c->n_taps > 0 ? print_taps(c, err) : status;
}

/* ---- for programs ---------------------------------------------------------------------------- */

static void json_deviation(cli_json *json, json_t *object, const ssm_deviation *d)
{
    cli_json_integer(json, object, "differing", d->differing);
    cli_json_integer(json, object, "count", d->count);
    cli_json_real(json, object, "max_abs", d->max_abs);
    cli_json_real(json, object, "relative", d->relative);
    cli_json_real(json, object, "relative_l2", d->relative_l2);
    cli_json_real(json, object, "cosine", d->cosine);
    cli_json_integer(json, object, "at", d->at);
}

static void json_weights(cli_json *json, const cli_comparison *c)
{
    json_t *weights = cli_json_object(json, json->root, "weights");
    cli_json_integer(json, weights, "count", c->n_weights);
    for (int r = 0; r < SSM_WEIGHT_RELATIONS; r++) {
        cli_json_integer(json, weights, ssm_weight_relation_name((ssm_weight_relation)r),
                         weights_of(c, (ssm_weight_relation)r));
    }
    json_t *list = cli_json_array(json, weights, "differences");
    for (int64_t i = 0; i < c->n_weights; i++) {
        const ssm_weight_comparison *w = &c->weights[i];
        if (w->relation == SSM_WEIGHT_SAME) {
            continue;
        }
        json_t *one = json_object();
        cli_json_text(json, one, "name", w->name);
        cli_json_text(json, one, "relation", ssm_weight_relation_name(w->relation));
        cli_json_text(json, one, "dtype_a", w->a == NULL ? NULL : ssm_dtype_name(w->a->dtype));
        cli_json_text(json, one, "dtype_b", w->b == NULL ? NULL : ssm_dtype_name(w->b->dtype));
        json_deviation(json, one, &w->deviation);
        cli_json_push(json, list, one);
    }
}

static void json_states(cli_json *json, const cli_comparison *c)
{
    const ssm_trace_comparison *t = &c->traces;
    cli_json_integer(json, json->root, "tokens", c->ids.count);
    json_t *hidden = cli_json_array(json, json->root, "hidden");
    for (int64_t k = 0; k < t->n_hidden; k++) {
        char place[PLACE_MAX];
        json_t *one = json_object();
        cli_json_text(json, one, "after", place_of(c, k, place));
        json_deviation(json, one, &t->hidden[k]);
        cli_json_push(json, hidden, one);
    }
    cli_json_bool(json, json->root, "last_is_normed", t->last_is_normed);
    if (t->has_logits) {
        json_t *logits = cli_json_object(json, json->root, "logits");
        json_deviation(json, logits, &t->logits);
        cli_json_integer(json, logits, "same_argmax", t->same_argmax);
    } else {
        cli_json_put(json, json->root, "logits", json_null());
    }
}

static void json_first(cli_json *json, const cli_comparison *c)
{
    if (!c->ran || c->traces.first < 0) {
        cli_json_put(json, json->root, "first_divergent", json_null());
        return;
    }
    char text[128];
    char place[PLACE_MAX];
    json_t *first = cli_json_object(json, json->root, "first_divergent");
    const int64_t k = c->traces.first;
    const bool is_layer = k > 0 && k < c->traces.n_hidden;
    cli_json_text(json, first, "after", place_of(c, k, place));
    cli_json_put(json, first, "layer", is_layer ? json_integer(k - 1) : json_null());
    const ssm_tap_comparison *inside = first_tap(c);
    if (inside != NULL) {
        tap_name(c, inside->point, text, sizeof text);
    }
    cli_json_text(json, first, "tap", inside == NULL ? NULL : text);
    json_t *taps = cli_json_array(json, json->root, "taps");
    for (int64_t i = 0; i < c->n_taps; i++) {
        json_t *one = json_object();
        tap_name(c, c->taps[i].point, text, sizeof text);
        cli_json_text(json, one, "tap", text);
        cli_json_integer(json, one, "width_a", c->taps[i].width_a);
        cli_json_integer(json, one, "width_b", c->taps[i].width_b);
        json_deviation(json, one, &c->taps[i].deviation);
        cli_json_push(json, taps, one);
    }
}

static ssm_status print_json(const cli_comparison *c, bool diverged, ssm_error *err)
{
    cli_json json = cli_json_create(c->context, "compare");
    cli_json_source(&json, &c->a);
    if (c->b.checkpoint != NULL) {
        json_t *other = cli_json_object(&json, json.root, "other");
        cli_json_text(&json, other, "path", c->b.where.path);
        cli_json_text(&json, other, "digest", c->b.digest);
        json_weights(&json, c);
    }
    cli_json_text(&json, json.root, "hidden_path", c->hidden_path);
    cli_json_bool(&json, json.root, "reference", c->reference);
    cli_json_real(&json, json.root, "tolerance", c->tolerance);
    cli_json_bool(&json, json.root, "ran", c->ran);
    if (c->ran) {
        json_states(&json, c);
    }
    json_first(&json, c);
    cli_json_bool(&json, json.root, "diverged", diverged);
    return cli_json_print(&json, err);
}

ssm_status cli_compare_print(const cli_comparison *comparison, ssm_error *err)
{
    ssm_error found;
    ssm_error_clear(&found);
    const ssm_status judged = verdict(comparison, &found);
    ssm_status status = comparison->context->globals.json
                            ? print_json(comparison, judged != SSM_STATUS_OK, err)
                            : print_for_people(comparison, err);
    if (status == SSM_STATUS_OK && judged != SSM_STATUS_OK) {
        status = judged;
        *err = found;
    }
    return status;
}
