/* cluster.c - see store_contract.h. */
#include "store_contract.h"

#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <fcntl.h>
#include <unistd.h>

const char *actor_program;

extern char **environ;

/* ---- Actors ---- */

static pid_t spawn(char *const *words, int in, int out) {
    posix_spawn_file_actions_t actions;
    pid_t pid;

    assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
    posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    assert_int_equal(posix_spawn(&pid, words[0], &actions, NULL, words, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    return pid;
}

static const char *hear(struct actor *actor, char *text, int size) {
    assert_non_null(fgets(text, size, actor->out));
    text[strcspn(text, "\n")] = '\0';
    return text;
}

struct actor *actor_start(const char *master, uint64_t segment_size, const char *name) {
    struct actor *actor = calloc(1, sizeof(*actor));
    char program[4096], path[16], address[ADDRESS_TEXT], size[32], named[MC_SEGMENT_NAME_MAX];
    char *words[] = {program, path, address, size, named, NULL};
    int to[2], from[2];

    assert_non_null(actor);
    snprintf(program, sizeof(program), "%s", actor_program);
    snprintf(path, sizeof(path), "%s", contract_path);
    snprintf(address, sizeof(address), "%s", master != NULL ? master : "-");
    snprintf(size, sizeof(size), "%" PRIu64, segment_size);
    snprintf(named, sizeof(named), "%s", name != NULL ? name : "-");
    assert_int_equal(pipe2(to, O_CLOEXEC), 0);
    assert_int_equal(pipe2(from, O_CLOEXEC), 0);
    actor->pid = spawn(words, to[0], from[1]);
    close(to[0]);
    close(from[1]);
    actor->in = fdopen(to[1], "w");
    actor->out = fdopen(from[0], "r");
    hear(actor, actor->address, sizeof(actor->address));
    return actor;
}

__attribute__((format(printf, 2, 0))) static void tell(struct actor *actor, const char *format, va_list arguments) {
    vfprintf(actor->in, format, arguments);
    fputc('\n', actor->in);
    assert_int_equal(fflush(actor->in), 0);
}

void actor_tell(struct actor *actor, const char *format, ...) {
    va_list arguments;

    va_start(arguments, format);
    tell(actor, format, arguments);
    va_end(arguments);
}

long long actor_hear(struct actor *actor) {
    return strtoll(hear(actor, actor->reply, sizeof(actor->reply)), NULL, 10);
}

long long actor_ask(struct actor *actor, const char *format, ...) {
    va_list arguments;

    va_start(arguments, format);
    tell(actor, format, arguments);
    va_end(arguments);
    return actor_hear(actor);
}

static int actor_end(struct actor *actor) {
    int status;

    fclose(actor->in);
    assert_int_equal(waitpid(actor->pid, &status, 0), actor->pid);
    fclose(actor->out);
    free(actor);
    return status;
}

struct actor *actor_stop(struct actor *actor) {
    if (actor != NULL)
        assert_int_equal(actor_end(actor), 0);
    return NULL;
}

struct actor *actor_kill(struct actor *actor) {
    kill(actor->pid, SIGKILL);
    assert_int_equal(actor_end(actor), SIGKILL);
    return NULL;
}

void actor_freeze(struct actor *actor) {
    int status;

    kill(actor->pid, SIGSTOP);
    assert_int_equal(waitpid(actor->pid, &status, WUNTRACED), actor->pid);
}

void actor_thaw(struct actor *actor) {
    kill(actor->pid, SIGCONT);
}

/* ---- Clusters ---- */

static mc_store *open_store(const char *master, uint32_t flags, uint64_t size, const char *name) {
    const struct mc_engine_options engine = {.struct_size = sizeof(engine),
                                             .protocol = contract_is("tcp") ? "tcp" : NULL};
    const struct mc_store_options options = {
        .struct_size = sizeof(options),
        .flags = flags | (master == NULL ? MC_STORE_EMBEDDED : 0),
        .master = master,
        .name = name,
        .segment_size = size,
        .engine_options = &engine,
    };
    mc_store *store;

    OK(mc_store_open(&options, &store, contract_error()));
    return store;
}

static struct cluster *open_cluster(uint64_t pool, bool apart) {
    struct cluster *cluster = calloc(1, sizeof(*cluster));

    assert_non_null(cluster);
    if (contract_is("embedded")) {
        cluster->store = open_store(NULL, 0, pool, "pool");
        assert_true(mc_store_address(cluster->store, cluster->address, ADDRESS_TEXT) > 0);
        return cluster;
    }
    cluster->master = actor_start(NULL, apart ? 64 * KIB : pool, apart ? "master" : "pool");
    snprintf(cluster->address, ADDRESS_TEXT, "%s", cluster->master->address);
    if (apart)
        cluster->owner = actor_start(cluster->address, pool, "pool");
    cluster->store = open_store(cluster->address, 0, 0, NULL);
    return cluster;
}

struct cluster *cluster_open(uint64_t pool) {
    return open_cluster(pool, false);
}

struct cluster *cluster_open_apart(uint64_t pool) {
    return open_cluster(pool, true);
}

void cluster_close(struct cluster *cluster) {
    if (cluster->store != NULL)
        OK(mc_store_close(cluster->store));
    actor_stop(cluster->owner);
    actor_stop(cluster->master);
    free(cluster);
}

mc_store *cluster_join(const struct cluster *cluster, uint32_t flags, uint64_t size, const char *name) {
    return open_store(cluster->address, flags, size, name);
}

static uint64_t number_in(const char *text, const char *name) {
    char word[64];
    const char *at;

    snprintf(word, sizeof(word), "\"%s\":", name);
    at = strstr(text, word);
    assert_non_null(at);
    return strtoull(at + strlen(word), NULL, 10);
}

uint64_t store_number(mc_store *store, const char *name) {
    char text[4096];
    int64_t length = mc_store_stats(store, text, sizeof(text));

    assert_true(length > 0 && (size_t)length < sizeof(text));
    return number_in(text, name);
}

static uint64_t actor_number(struct actor *actor, const char *name) {
    if (actor == NULL)
        return 0;
    actor_ask(actor, "stats");
    return number_in(actor->reply, name);
}

uint64_t cluster_number(const struct cluster *cluster, const char *name) {
    if (cluster->master == NULL)
        return store_number(cluster->store, name);
    return actor_number(cluster->master, name) + actor_number(cluster->owner, name);
}

void cluster_await_live(const struct cluster *cluster, uint64_t count) {
    uint64_t deadline = now_ns() + PROMPT;

    while ((cluster_number(cluster, "live") != count || cluster_number(cluster, "dead") != 0) && now_ns() < deadline)
        usleep(1000);
    assert_int_equal(cluster_number(cluster, "live"), count);
    assert_int_equal(cluster_number(cluster, "dead"), 0);
}

int store_open_shared(void **state) {
    *state = cluster_open_apart(POOL);
    return 0;
}

int store_close_shared(void **state) {
    cluster_close(*state);
    return 0;
}

int store_clean(void **state) {
    const struct cluster *cluster = *state;

    assert_true(mc_store_remove_all(cluster->store, 0, contract_error()) >= 0);
    return 0;
}

/* ---- Keys ---- */

struct mc_keys keys_make(const char *name, size_t count) {
    size_t room = (strlen(name) + 24) * count, used = 0;
    char *bytes = malloc(room);
    uint32_t *lengths = calloc(count, sizeof(*lengths));

    assert_true(bytes != NULL && lengths != NULL);
    for (size_t i = 0; i < count; i++) {
        lengths[i] = (uint32_t)snprintf(bytes + used, room - used, "%s-%zu", name, i);
        used += lengths[i];
    }
    return (struct mc_keys){.bytes = bytes, .lengths = lengths, .count = count};
}

void keys_free(struct mc_keys *keys) {
    free((void *)(uintptr_t)keys->bytes);
    free((void *)(uintptr_t)keys->lengths);
}
