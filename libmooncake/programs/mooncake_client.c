/* programs/mooncake_client.c - gives memory of this host to a pool, and does nothing else.
 *
 * Exit status: 0 after SIGTERM or SIGINT, 1 if the memory can't join, 2 for wrong flags. stdout has one line, once the
 * memory is part of the pool; all else goes to stderr.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <mooncake/store.h>

#include "base/clock.h"
#include "os/address.h"
#include "programs/client_http.h"
#include "programs/flags.h"
#include "programs/signals.h"

#define PROGRAM "mooncake_client"
#define SMALLEST_SEGMENT 65536u
#define TRY_AGAIN (200 * CLOCK_MILLISECOND)

enum {
#define FLAG(name, type, initial, works, words) CLIENT_##name,
#include "programs/client_flags.def"
#undef FLAG
    CLIENT_FLAGS
};

static const struct flag table[CLIENT_FLAGS] = {
#define FLAG(name, type, initial, works, words) {#name, FLAG_##type, initial, FLAG_##works, words},
#include "programs/client_flags.def"
#undef FLAG
};

/* What the flags say, in the words of the store. Texts belong to the flags. */
struct plan {
    char listen[ADDRESS_TEXT_MAX];
    struct mc_engine_options engine;
    struct mc_store_options store;
    uint64_t wait;
    const char *http_host; /* NULL: there is no HTTP */
    uint16_t http_port;
};

/* As users of the engine from Python have it: "tcp" and "shm" restrict the paths, other names take the best. */
static const char *protocol_of(const struct flags *flags) {
    const char *name = flags->values[CLIENT_protocol].text;

    if (strcmp(name, "tcp") == 0 || strcmp(name, "shm") == 0)
        return name;
    if (name[0] != '\0')
        fprintf(stderr, "%s: warning: --protocol: \"%.40s\": the best path to each peer is taken\n", PROGRAM, name);
    return NULL;
}

/* -1, or the exit status. */
static int make_plan(const struct flags *flags, struct plan *plan) {
    const struct flag_value *values = flags->values;
    struct mc_error error = MC_ERROR_INIT;
    struct address_text host, master;

    if (address_parse(values[CLIENT_host].text, &host, &error) != MC_OK)
        return flags_wrong(PROGRAM, "host", error.message);
    if (host.port >= 0)
        return flags_wrong(PROGRAM, "host", "the port is that of --port");
    if (strlen(host.host) + sizeof("[]:65535") > sizeof(plan->listen))
        return flags_wrong(PROGRAM, "host", "too long");
    if (address_parse(values[CLIENT_master_server_address].text, &master, &error) != MC_OK)
        return flags_wrong(PROGRAM, "master_server_address", error.message);
    if (master.port <= 0)
        return flags_wrong(PROGRAM, "master_server_address", "it takes host:port");
    if (values[CLIENT_global_segment_size].number < SMALLEST_SEGMENT)
        return flags_wrong(PROGRAM, "global_segment_size", "at least 64 KB");
    *plan = (struct plan){
        .engine = {.struct_size = sizeof(plan->engine),
                   .listen = plan->listen,
                   .advertise = flags_text(flags, CLIENT_advertise),
                   .protocol = protocol_of(flags),
                   .key_file = flags_text(flags, CLIENT_key_file)},
        .store = {.struct_size = sizeof(plan->store),
                  .master = values[CLIENT_master_server_address].text,
                  .name = flags_text(flags, CLIENT_name),
                  .segment_size = values[CLIENT_global_segment_size].number},
        .wait = values[CLIENT_max_wait_time].number,
        .http_host = values[CLIENT_enable_http_server].number != 0 ? values[CLIENT_http_host].text : NULL,
        .http_port = (uint16_t)values[CLIENT_http_port].number,
    };
    address_join(host.host, (uint16_t)values[CLIENT_port].number, plan->listen);
    return -1;
}

/* Is it worth waiting? The master may not be there yet, nor its name. */
static bool may_come(int32_t status) {
    return status == MC_ERR_UNREACHABLE || status == MC_ERR_UNAVAILABLE || status == MC_ERR_NAME_NOT_FOUND ||
           status == MC_ERR_TIMEOUT || status == MC_ERR_CONNECTION_LOST;
}

/* Opens the store, and waits for its master as long as the plan says. *ret_ended: a signal came first. */
static int32_t open_store(const struct plan *plan, mc_store **ret_store, bool *ret_ended, struct mc_error *error) {
    uint64_t deadline = clock_after(clock_now(), plan->wait);
    bool told = false;
    int32_t status;

    *ret_ended = false;
    for (;;) {
        status = mc_store_open(&plan->store, ret_store, error);
        if (status == MC_OK || !may_come(status) || clock_now() >= deadline)
            return status;
        if (!told)
            fprintf(stderr, "%s: warning: no master at %s yet, waiting for it %llu s: %s\n", PROGRAM,
                    plan->store.master, (unsigned long long)(plan->wait / CLOCK_SECOND), error->message);
        told = true;
        *ret_ended = signals_wait(TRY_AGAIN);
        if (*ret_ended)
            return status;
    }
}

static void say(const struct plan *plan, mc_store *store) {
    static const char *const units[] = {"bytes", "KB", "MB", "GB", "TB"};
    uint64_t size = plan->store.segment_size;
    char address[ADDRESS_TEXT_MAX] = "";
    size_t unit = 0;

    for (; unit + 1 < sizeof(units) / sizeof(units[0]) && size % 1024 == 0; unit++)
        size /= 1024;
    (void)mc_store_address(store, address, sizeof(address));
    printf("%s %s owns %" PRIu64 " %s at %s\n", PROGRAM, MOONCAKE_VERSION, size, units[unit], address);
    fflush(stdout);
}

static int32_t open_http(const struct plan *plan, struct client_http **ret_http, struct mc_error *error) {
    int32_t status = MC_OK;

    if (plan->http_host == NULL)
        return MC_OK;
    status = client_http_open(plan->http_host, plan->http_port, ret_http, error);
    if (status == MC_OK && plan->http_port == 0)
        fprintf(stderr, "%s: HTTP at %s\n", PROGRAM, client_http_address(*ret_http));
    return status;
}

/* Joins the pool, and stays until a signal comes. */
static int32_t serve(struct plan *plan, struct client_http *http, struct mc_error *error) {
    mc_store *store = NULL;
    bool ended;
    int32_t status = open_store(plan, &store, &ended, error);

    if (status == MC_OK) {
        if (http != NULL)
            client_http_set(http, plan->store.engine, store);
        say(plan, store);
        signals_wait(CLOCK_NEVER);
        signals_release();
        client_http_close(http);
        (void)mc_store_close(store);
    } else {
        client_http_close(http);
    }
    return ended ? MC_OK : status;
}

/* The exit status. */
static int run(struct plan *plan) {
    struct mc_error error = MC_ERROR_INIT;
    struct client_http *http = NULL;
    int32_t status;

    signals_block();
    status = mc_engine_open(&plan->engine, &plan->store.engine, &error);
    if (status == MC_OK)
        status = open_http(plan, &http, &error);
    if (status == MC_OK)
        status = serve(plan, http, &error);
    if (plan->store.engine != NULL)
        (void)mc_engine_close(plan->store.engine);
    if (status != MC_OK)
        fprintf(stderr, "%s: %s\n", PROGRAM, error.message);
    return status == MC_OK ? 0 : 1;
}

static int begin(const struct flags *flags) {
    struct plan plan;
    int status = make_plan(flags, &plan);

    return status < 0 ? run(&plan) : status;
}

int main(int argc, char **argv) {
    return flags_main(table, CLIENT_FLAGS, argc, argv, PROGRAM, "gives memory of this host to a pool", NULL, begin);
}
