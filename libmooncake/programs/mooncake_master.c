/* programs/mooncake_master.c - the master of a store, as a program of its own.
 *
 * Exit status: 0 after SIGTERM or SIGINT, 1 if it can't serve, 2 for wrong flags. stdout has one line, once it serves;
 * all else goes to stderr.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "os/address.h"
#include "programs/admin.h"
#include "programs/config_file.h"
#include "programs/flags.h"
#include "programs/metadata_server.h"
#include "programs/signals.h"
#include "store/master/policy.h"
#include "store/master_service.h"
#include "transfer/engine.h"

#define PROGRAM "mooncake_master"
#define TOKEN_VARIABLE "MOONCAKE_ADMIN_TOKEN"
#define DRAIN_TIME (2 * CLOCK_SECOND)
#define LOOK_AGAIN (5 * CLOCK_MILLISECOND) /* until it serves, and until it is drained */

enum {
#define FLAG(name, type, initial, works, words) MASTER_##name,
#include "programs/master_flags.def"
#undef FLAG
    MASTER_FLAGS
};

static const struct flag table[MASTER_FLAGS] = {
#define FLAG(name, type, initial, works, words) {#name, FLAG_##type, initial, FLAG_##works, words},
#include "programs/master_flags.def"
#undef FLAG
};

/* What the flags say, in the words of the parts. Texts belong to the flags. */
struct plan {
    char listen[ADDRESS_TEXT_MAX];
    char advertise[ADDRESS_TEXT_MAX];
    struct mc_engine_options engine;
    struct master_service_options service;
    struct admin_options admin; /* no host: there is none */
    bool admin_must;            /* its address was given: that it is taken is an error */
    const char *metadata_host;  /* of the directory; NULL: there is none */
    uint16_t metadata_port;
};

static uint32_t thousandths(double ratio) {
    return (uint32_t)(ratio * 1000 + 0.5);
}

/* Where to listen, and what to tell others. -1, or the exit status. */
static int plan_address(const struct flags *flags, struct plan *plan) {
    uint64_t port = flags->values[MASTER_rpc_port].number;
    const char *host = flags->values[MASTER_rpc_address].text;
    struct mc_error error = MC_ERROR_INIT;
    struct address_text parts;

    if (port == 0)
        port = flags->values[MASTER_port].number;
    if (address_parse(host, &parts, &error) != MC_OK)
        return flags_wrong(PROGRAM, "rpc_address", error.message);
    if (parts.port >= 0)
        return flags_wrong(PROGRAM, "rpc_address", "the port is that of --rpc_port");
    if (strlen(parts.host) + sizeof("[]:65535") > sizeof(plan->listen))
        return flags_wrong(PROGRAM, "rpc_address", "too long");
    address_join(parts.host, (uint16_t)port, plan->listen);
    plan->engine.listen = plan->listen;
    plan->engine.advertise = flags_text(flags, MASTER_advertise);
    /* Clients name the master themselves, so that any name of this host does. */
    if (plan->engine.advertise == NULL && address_text_is_any(parts.host)) {
        if (gethostname(plan->advertise, sizeof(plan->advertise) - 1) != 0 || plan->advertise[0] == '\0')
            return flags_wrong(PROGRAM, "advertise", "this host has no name: say under which one others find it");
        plan->engine.advertise = plan->advertise;
    }
    return -1;
}

static void plan_metadata(const struct flags *flags, struct plan *plan) {
    if (flags->values[MASTER_enable_http_metadata_server].number != 0)
        plan->metadata_host = flags->values[MASTER_http_metadata_server_host].text;
    plan->metadata_port = (uint16_t)flags->values[MASTER_http_metadata_server_port].number;
}

/* -1, or the exit status. */
static int plan_admin(const struct flags *flags, struct plan *plan) {
    struct mc_error error = MC_ERROR_INIT;

    plan->admin.host = flags_text(flags, MASTER_metrics_host);
    plan->admin.port = (uint16_t)flags->values[MASTER_metrics_port].number;
    plan->admin.key_file = plan->engine.key_file;
    plan->admin_must = flags->values[MASTER_metrics_host].given || flags->values[MASTER_metrics_port].given;
    if (token_load(flags_text(flags, MASTER_admin_token_file), TOKEN_VARIABLE, &plan->admin.token, &error) != MC_OK)
        return flags_wrong(PROGRAM, "admin_token_file", error.message);
    return -1;
}

/* How long an owner may be silent. */
static uint64_t owner_ttl(const struct flags *flags) {
    const struct flag_value *ttl = &flags->values[MASTER_client_ttl];
    const struct flag_value *other = &flags->values[MASTER_client_live_ttl_sec];

    return ttl->given || other->number == 0 ? ttl->number : other->number;
}

/* -1, or the exit status. */
static int make_plan(const struct flags *flags, struct plan *plan) {
    const struct flag_value *values = flags->values;
    struct master_options *core = &plan->service.core;
    int status;

    *plan = (struct plan){.engine.struct_size = sizeof(plan->engine)};
    if (policy_find(values[MASTER_policy].text) == NULL)
        return flags_wrong(PROGRAM, "policy", "there is no such policy");
    if (owner_ttl(flags) == 0)
        return flags_wrong(PROGRAM, "client_ttl", "must be more than 0");
    plan->engine.key_file = flags_text(flags, MASTER_key_file);
    plan->service.state_file = flags_text(flags, MASTER_state_file);
    /* Without a state file it may have had a former life: its owners get time to come back. */
    plan->service.alone = plan->service.state_file != NULL;
    core->timing = STORE_TIMING_DEFAULT;
    core->timing.owner_ttl = owner_ttl(flags);
    core->policy = values[MASTER_policy].text;
    core->high_watermark = thousandths(values[MASTER_eviction_high_watermark_ratio].real);
    core->eviction = thousandths(values[MASTER_eviction_ratio].real);
    core->keep_soft_pinned = values[MASTER_allow_evict_soft_pinned_objects].number == 0;
    core->soft_pin_ttl = values[MASTER_default_kv_soft_pin_ttl].number;
    plan_metadata(flags, plan);
    status = plan_address(flags, plan);
    return status < 0 ? plan_admin(flags, plan) : status;
}

/* Takes no new requests, and waits for the answers to those in progress. */
static void drain(struct master_service *service) {
    uint64_t deadline = clock_now() + DRAIN_TIME;
    uint64_t waiting = master_service_drain(service);

    if (waiting > 0)
        fprintf(stderr, "%s: ending; %llu requests are in progress\n", PROGRAM, (unsigned long long)waiting);
    while (waiting > 0 && clock_now() < deadline) {
        usleep(LOOK_AGAIN / 1000);
        waiting = master_service_drain(service);
    }
}

/* Until a signal; then answers what is in progress. */
static void serve(struct master_service *service, const char *address) {
    bool ended = false;

    if (!master_service_serves(service))
        fprintf(stderr, "%s: serves in 3 s at most; first, owners that knew it before may come back\n", PROGRAM);
    while (!ended && !master_service_serves(service))
        ended = signals_wait(LOOK_AGAIN);
    if (!ended) {
        printf("%s %s serves at %s\n", PROGRAM, MOONCAKE_VERSION, address);
        fflush(stdout);
        signals_wait(CLOCK_NEVER);
    }
    signals_release();
    drain(service);
}

/* Without an administration that nobody asked for the master can do. */
static int32_t open_admin(struct plan *plan, struct master_service *service, const char *address,
                          struct admin **ret_admin, struct mc_error *error) {
    int32_t status;

    if (plan->admin.host == NULL)
        return MC_OK;
    plan->admin.service = service;
    plan->admin.master = address;
    status = admin_open(&plan->admin, ret_admin, error);
    if (status == MC_OK && plan->admin.port == 0)
        fprintf(stderr, "%s: HTTP at %s\n", PROGRAM, admin_address(*ret_admin));
    if (status == MC_OK || plan->admin_must)
        return status;
    fprintf(stderr, "%s: warning: no metrics over HTTP: %s\n", PROGRAM, error->message);
    return MC_OK;
}

static int32_t open_metadata(const struct plan *plan, struct metadata_server **ret_server, struct mc_error *error) {
    int32_t status = MC_OK;

    if (plan->metadata_host != NULL)
        status = metadata_server_open(plan->metadata_host, plan->metadata_port, ret_server, error);
    if (plan->metadata_host != NULL && status == MC_OK && plan->metadata_port == 0)
        fprintf(stderr, "%s: directory at http://%s/metadata\n", PROGRAM, metadata_server_address(*ret_server));
    return status;
}

/* The exit status. */
static int run(struct plan *plan) {
    struct mc_error error = MC_ERROR_INIT;
    struct master_service *service = NULL;
    struct engine *engine = NULL;
    struct metadata_server *metadata = NULL;
    struct admin *admin = NULL;
    int status = 1;

    signals_block();
    if (engine_open(&plan->engine, &engine, &error) == MC_OK) {
        plan->service.engine = engine;
        if (master_service_open(&plan->service, &service, &error) == MC_OK &&
            open_metadata(plan, &metadata, &error) == MC_OK &&
            open_admin(plan, service, engine->address, &admin, &error) == MC_OK)
            status = 0;
    }
    if (status == 0)
        serve(service, engine->address);
    else
        fprintf(stderr, "%s: %s\n", PROGRAM, error.message);
    admin_close(admin);
    metadata_server_close(metadata);
    master_service_close(service);
    if (engine != NULL) {
        (void)engine_close(engine);
        ref_drop(&engine->object.ref);
    }
    return status;
}

/* What the file of settings says. */
static int32_t complete(struct flags *flags, struct mc_error *error) {
    const char *path = flags_text(flags, MASTER_config_path);

    return path == NULL ? MC_OK : config_file_read(path, flags, error);
}

static int begin(const struct flags *flags) {
    struct plan plan;
    int status = make_plan(flags, &plan);

    if (status < 0)
        status = run(&plan);
    explicit_bzero(&plan, sizeof(plan));
    return status;
}

int main(int argc, char **argv) {
    return flags_main(table, MASTER_FLAGS, argc, argv, PROGRAM, "the index of a pool of memory", complete, begin);
}
