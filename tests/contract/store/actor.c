/* actor.c - a store in a process of its own, for tests to talk to, stop and kill: actor PATH MASTER SIZE NAME, where "-"
 * means none. One command a line on stdin, one line back each; a number below 0 is a status. At the end of stdin the
 * store is closed.
 *
 *   put KEY VERSION LENGTH     upsert KEY VERSION LENGTH     the value that follows from these (values.c)
 *   get KEY NUMBER             the version of what is there, if it is a whole value of key NUMBER; else -1
 *   remove KEY
 *   race KEY THREADS BASE      puts by so many threads at once, of versions from BASE on: the winner's, or 0
 *   hold KEY                   views it, and never lets go
 *   stats                      mc_store_stats
 */
#include "store_contract.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

static mc_store *store;

static void say(long long number) {
    printf("%lld\n", number);
    fflush(stdout);
}

static int64_t put(const char *key, unsigned long version, unsigned long long length, bool upsert) {
    uint8_t *bytes = malloc(length + 1);
    int32_t status;

    value_make(bytes, length, (uint32_t)strlen(key), (uint32_t)version);
    status = upsert ? mc_store_upsert(store, key, strlen(key), bytes, length, NULL, NULL)
                    : mc_store_put(store, key, strlen(key), bytes, length, NULL, NULL);
    free(bytes);
    return status;
}

static int64_t get(const char *key, unsigned long number) {
    static uint8_t bytes[1 << 20];
    int64_t length = mc_store_get(store, key, strlen(key), bytes, sizeof(bytes), 0, NULL);

    if (length < 0)
        return length;
    return value_is_of(bytes, (uint64_t)length, (uint32_t)number) ? (int64_t)value_version(bytes) : -1;
}

struct racer {
    pthread_t thread;
    const char *key;
    unsigned long version;
    int64_t status;
};

static void *run(void *context) {
    struct racer *racer = context;

    racer->status = put(racer->key, racer->version, 100 + racer->version, false);
    return NULL;
}

static int64_t race(const char *key, unsigned long count, unsigned long base) {
    struct racer racers[32];
    int64_t winner = 0;

    for (unsigned long i = 0; i < count; i++) {
        racers[i] = (struct racer){.key = key, .version = base + i};
        if (pthread_create(&racers[i].thread, NULL, run, &racers[i]) != 0)
            return -1;
    }
    for (unsigned long i = 0; i < count; i++)
        pthread_join(racers[i].thread, NULL);
    for (unsigned long i = 0; i < count; i++) {
        if (racers[i].status == MC_OK && winner == 0)
            winner = (int64_t)racers[i].version;
        else if (racers[i].status != MC_ERR_ALREADY_EXISTS)
            return racers[i].status == MC_OK ? -1 : racers[i].status;
    }
    return winner;
}

static int64_t hold(const char *key) {
    const void *data;
    uint64_t view;

    return mc_store_view(store, key, strlen(key), 0, &view, &data, NULL);
}

static void obey(const char *line) {
    char key[256], text[4096];
    unsigned long number, base;
    unsigned long long length;

    if (sscanf(line, "put %255s %lu %llu", key, &number, &length) == 3)
        say(put(key, number, length, false));
    else if (sscanf(line, "upsert %255s %lu %llu", key, &number, &length) == 3)
        say(put(key, number, length, true));
    else if (sscanf(line, "get %255s %lu", key, &number) == 2)
        say(get(key, number));
    else if (sscanf(line, "remove %255s", key) == 1)
        say(mc_store_remove(store, key, strlen(key), 0, NULL));
    else if (sscanf(line, "race %255s %lu %lu", key, &number, &base) == 3 && number <= 32)
        say(race(key, number, base));
    else if (sscanf(line, "hold %255s", key) == 1)
        say(hold(key));
    else if (strcmp(line, "stats\n") == 0 && mc_store_stats(store, text, sizeof(text)) > 0)
        printf("%s\n", text);
    else
        say(-1);
    fflush(stdout);
}

static const char *given(const char *word) {
    return strcmp(word, "-") == 0 ? NULL : word;
}

int main(int argc, char **argv) {
    struct mc_engine_options engine = {.struct_size = sizeof(engine)};
    struct mc_store_options options = {.struct_size = sizeof(options), .engine_options = &engine};
    struct mc_error error = MC_ERROR_INIT;
    char address[ADDRESS_TEXT], line[1024];

    if (argc != 5)
        return 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails may leave it stopped */
    engine.protocol = strcmp(argv[1], "tcp") == 0 ? "tcp" : NULL;
    options.master = given(argv[2]);
    options.flags = options.master == NULL ? MC_STORE_EMBEDDED : 0;
    options.segment_size = strtoull(argv[3], NULL, 10);
    options.name = given(argv[4]);
    if (mc_store_open(&options, &store, &error) != MC_OK) {
        fprintf(stderr, "actor: %s\n", error.message);
        return 1;
    }
    mc_store_address(store, address, sizeof(address));
    printf("%s\n", address);
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin) != NULL)
        obey(line);
    return mc_store_close(store) == MC_OK ? 0 : 1;
}
