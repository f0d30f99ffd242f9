/* actor.c - a process with engines of its own, which does what its standard input says, one line at a time.
 *
 * Each line is a command and its words; the answer is one line, "ok …" or "error CODE WORDS". Numbers may be decimal or
 * 0x hexadecimal, bytes are hexadecimal, "-" is none. Engines and storms go by the number in which they were begun. Storms
 * are threads that repeat one transfer until they are told to stop or it fails; everything else is done by the main
 * thread. It ends with its standard input. actor.py speaks to it.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <mooncake/mooncake.h>

#define ENGINES 64
#define STORMS 64
#define WORDS 10

struct storm {
    pthread_t thread;
    uint64_t peer, local, remote, length, timeout;
    uint32_t opcode;
    atomic_bool stop;
    _Atomic uint64_t count; /* transfers that completed */
    uint64_t ended;         /* when, by the monotonic clock; from here on, read after joining */
    int32_t status;
    struct mc_error error;
};

static mc_engine *engines[ENGINES];
static unsigned engine_count;
static struct storm storms[STORMS];
static unsigned storm_count;
static struct mc_error words; /* of the last failure */

static uint64_t now(void) {
    struct timespec time;

    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static uint64_t number(const char *word) {
    return strtoull(word, NULL, 0);
}

static uint64_t milliseconds(const char *word) {
    return number(word) * 1000000u;
}

static void *pointer(const char *word) {
    return (void *)(uintptr_t)number(word);
}

static mc_engine *engine(const char *word) {
    return engines[number(word) % ENGINES];
}

static const char *text(const char *word) {
    return strcmp(word, "-") == 0 ? NULL : word;
}

static uint32_t opcode(const char *word) {
    return strcmp(word, "read") == 0 ? MC_READ : MC_WRITE;
}

static void fresh_error(struct mc_error *error) {
    memset(error, 0, sizeof(*error));
    error->struct_size = sizeof(*error);
}

static size_t from_hex(const char *word, unsigned char *bytes) {
    size_t count = 0;

    for (; word[0] != '\0' && word[1] != '\0' && word[0] != '-'; word += 2)
        sscanf(word, "%2hhx", &bytes[count++]);
    return count;
}

static void print_hex(const void *bytes, size_t length) {
    const unsigned char *at = bytes;

    if (length == 0)
        putchar('-');
    while (length-- > 0)
        printf("%02x", *at++);
}

/* ---- Commands: each prints what follows "ok", or returns a status. A line is begun by the first print. ---- */

/* open LISTEN PROTOCOL KEY_FILE CONNECT_TIMEOUT_MS FLAGS LANES [DIRECTORY NAME] -> number, address, incarnation */
static int32_t do_open(char **argument) {
    struct mc_engine_options options = {
        .struct_size = sizeof(options),
        .flags = (uint32_t)number(argument[4]),
        .listen = text(argument[0]),
        .protocol = text(argument[1]),
        .key_file = text(argument[2]),
        .connect_timeout_ns = milliseconds(argument[3]),
        .lanes = (uint32_t)number(argument[5]),
        .directory = argument[6] != NULL ? text(argument[6]) : NULL,
        .name = argument[6] != NULL ? text(argument[7]) : NULL,
    };
    uint8_t incarnation[16];
    char address[MC_ADDRESS_MAX];
    int32_t status = mc_engine_open(&options, &engines[engine_count], &words);

    if (status != MC_OK)
        return status;
    mc_engine_address(engines[engine_count], address, sizeof(address));
    mc_engine_incarnation(engines[engine_count], incarnation);
    printf("ok %u %s ", engine_count++, address);
    print_hex(incarnation, sizeof(incarnation));
    return MC_OK;
}

static int32_t do_close(char **argument) {
    return mc_engine_close(engine(argument[0]));
}

/* alloc SIZE -> id, address */
static int32_t do_alloc(char **argument) {
    uint64_t memory;
    void *address;
    int32_t status = mc_memory_alloc(number(argument[0]), NULL, &memory, &address, &words);

    if (status == MC_OK)
        printf("ok %" PRIu64 " %" PRIu64, memory, (uint64_t)(uintptr_t)address);
    return status;
}

static int32_t do_free(char **argument) {
    return mc_memory_free(number(argument[0]));
}

/* map ADDRESS SIZE -> address; private memory there, or anywhere for 0 */
static int32_t do_map(char **argument) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | (number(argument[0]) != 0 ? MAP_FIXED_NOREPLACE : 0);
    void *address = mmap(pointer(argument[0]), number(argument[1]), PROT_READ | PROT_WRITE, flags, -1, 0);

    if (address == MAP_FAILED)
        return MC_ERR_SYSTEM;
    printf("ok %" PRIu64, (uint64_t)(uintptr_t)address);
    return MC_OK;
}

static int32_t do_unmap(char **argument) {
    return munmap(pointer(argument[0]), number(argument[1])) == 0 ? MC_OK : MC_ERR_SYSTEM;
}

static int32_t do_register(char **argument) {
    return mc_engine_register(engine(argument[0]), pointer(argument[1]), number(argument[2]), NULL,
                              (uint32_t)number(argument[3]), &words);
}

static int32_t do_unregister(char **argument) {
    return mc_engine_unregister(engine(argument[0]), pointer(argument[1]), &words);
}

/* peer ENGINE ADDRESS -> id */
static int32_t do_peer(char **argument) {
    uint64_t peer;
    int32_t status = mc_peer_open(engine(argument[0]), argument[1], &peer, &words);

    if (status == MC_OK)
        printf("ok %" PRIu64, peer);
    return status;
}

static int32_t do_peer_close(char **argument) {
    return mc_peer_close(number(argument[0]));
}

static int32_t do_explain(char **argument) {
    static char json[1 << 16];
    int64_t length = mc_peer_explain(number(argument[0]), json, sizeof(json));

    if (length < 0)
        return (int32_t)length;
    printf("ok %s", json);
    return MC_OK;
}

static int32_t do_probe(char **argument) {
    return mc_peer_probe(number(argument[0]), milliseconds(argument[1]), &words);
}

static int32_t do_read(char **argument) {
    return mc_peer_read(number(argument[0]), pointer(argument[1]), number(argument[2]), number(argument[3]),
                        milliseconds(argument[4]), &words);
}

static int32_t do_write(char **argument) {
    return mc_peer_write(number(argument[0]), pointer(argument[1]), number(argument[2]), number(argument[3]),
                         milliseconds(argument[4]), &words);
}

/* guarded ENGINE read|write PEER LOCAL REMOTE LENGTH GUARD_ADDRESS GUARD_VALUE */
static int32_t do_guarded(char **argument) {
    struct mc_request request = {
        .opcode = opcode(argument[1]),
        .peer = number(argument[2]),
        .flags = MC_REQUEST_GUARD,
        .local = pointer(argument[3]),
        .remote = number(argument[4]),
        .length = number(argument[5]),
        .guard_address = number(argument[6]),
        .guard_value = number(argument[7]),
    };

    return mc_engine_transfer(engine(argument[0]), &request, 1, sizeof(request), 0, &words);
}

/* submit ENGINE read|write PEER LOCAL REMOTE LENGTH TIMEOUT_MS -> batch */
static int32_t do_submit(char **argument) {
    struct mc_request request = {
        .opcode = opcode(argument[1]),
        .peer = number(argument[2]),
        .local = pointer(argument[3]),
        .remote = number(argument[4]),
        .length = number(argument[5]),
    };
    struct mc_batch_options options = {.struct_size = sizeof(options), .timeout_ns = milliseconds(argument[6])};
    uint64_t batch;
    int32_t status = mc_batch_submit(engine(argument[0]), &request, 1, sizeof(request), &options, &batch, &words);

    if (status == MC_OK)
        printf("ok %" PRIu64, batch);
    return status;
}

static int32_t do_wait(char **argument) {
    return mc_batch_wait(number(argument[0]), milliseconds(argument[1]));
}

/* status BATCH -> state, status, bytes, flags */
static int32_t do_status(char **argument) {
    struct mc_request_status request;
    int32_t status = mc_batch_status(number(argument[0]), 0, &request, 1, sizeof(request));

    if (status == MC_OK)
        printf("ok %u %d %" PRIu64 " %u", request.state, request.status, request.bytes, request.flags);
    return status;
}

static int32_t do_cancel(char **argument) {
    return mc_batch_cancel(number(argument[0]));
}

static int32_t do_batch_free(char **argument) {
    return mc_batch_free(number(argument[0]));
}

static int32_t do_notify(char **argument) {
    unsigned char *name = malloc(strlen(argument[1]) + strlen(argument[2]) + 2), *message = name + strlen(argument[1]);
    size_t name_length = from_hex(argument[1], name), message_length = from_hex(argument[2], message);
    int32_t status = mc_peer_notify(number(argument[0]), name, name_length, message, message_length,
                                    milliseconds(argument[3]), &words);

    free(name);
    return status;
}

/* receive ENGINE TIMEOUT_MS -> sender, name, message */
static int32_t do_receive(char **argument) {
    struct mc_notification *notification;
    int32_t status = mc_engine_receive(engine(argument[0]), milliseconds(argument[1]), &notification);

    if (status != MC_OK)
        return status;
    printf("ok ");
    print_hex(notification->sender, notification->sender_length);
    putchar(' ');
    print_hex(notification->name, notification->name_length);
    putchar(' ');
    print_hex(notification->message, notification->message_length);
    mc_notification_free(notification);
    return MC_OK;
}

/* ---- Bytes ---- */

static unsigned char pattern(uint64_t seed, uint64_t index) {
    uint64_t mixed = (index / 8 + 1) * 0x9e3779b97f4a7c15u + seed * 0xc2b2ae3d27d4eb4fu;

    mixed ^= mixed >> 29;
    return (unsigned char)(mixed >> (8 * (index % 8)));
}

/* fill ADDRESS LENGTH SEED */
static int32_t do_fill(char **argument) {
    unsigned char *bytes = pointer(argument[0]);
    uint64_t length = number(argument[1]), seed = number(argument[2]);

    for (uint64_t i = 0; i < length; i++)
        bytes[i] = pattern(seed, i);
    return MC_OK;
}

/* check ADDRESS LENGTH SEED -> how many bytes differ from what fill would have written */
static int32_t do_check(char **argument) {
    const unsigned char *bytes = pointer(argument[0]);
    uint64_t length = number(argument[1]), seed = number(argument[2]), different = 0;

    for (uint64_t i = 0; i < length; i++)
        different += bytes[i] != pattern(seed, i);
    printf("ok %" PRIu64, different);
    return MC_OK;
}

static int32_t do_peek(char **argument) {
    printf("ok ");
    print_hex(pointer(argument[0]), number(argument[1]));
    return MC_OK;
}

static int32_t do_poke(char **argument) {
    from_hex(argument[1], pointer(argument[0]));
    return MC_OK;
}

/* ---- Storms ---- */

static void *run_storm(void *context) {
    struct storm *storm = context;
    void *local = (void *)(uintptr_t)storm->local;

    while (!atomic_load(&storm->stop) && storm->status == MC_OK) {
        if (storm->opcode == MC_READ)
            storm->status =
                mc_peer_read(storm->peer, local, storm->remote, storm->length, storm->timeout, &storm->error);
        else
            storm->status =
                mc_peer_write(storm->peer, local, storm->remote, storm->length, storm->timeout, &storm->error);
        if (storm->status == MC_OK)
            storm->count++;
    }
    storm->ended = now();
    return NULL;
}

/* storm read|write PEER LOCAL REMOTE LENGTH TIMEOUT_MS -> number */
static int32_t do_storm(char **argument) {
    struct storm *storm = &storms[storm_count % STORMS];

    memset(storm, 0, sizeof(*storm));
    fresh_error(&storm->error);
    storm->opcode = opcode(argument[0]);
    storm->peer = number(argument[1]);
    storm->local = number(argument[2]);
    storm->remote = number(argument[3]);
    storm->length = number(argument[4]);
    storm->timeout = milliseconds(argument[5]);
    if (pthread_create(&storm->thread, NULL, run_storm, storm) != 0)
        return MC_ERR_SYSTEM;
    printf("ok %u", storm_count++);
    return MC_OK;
}

/* count NUMBER -> transfers that have completed so far */
static int32_t do_count(char **argument) {
    printf("ok %" PRIu64, storms[number(argument[0]) % STORMS].count);
    return MC_OK;
}

/* ended NUMBER: waits until a storm has failed -> count, when in nanoseconds, status, words */
static int32_t do_ended(char **argument) {
    struct storm *storm = &storms[number(argument[0]) % STORMS];

    pthread_join(storm->thread, NULL);
    printf("ok %" PRIu64 " %" PRIu64 " %d %s", storm->count, storm->ended, storm->status, storm->error.message);
    return MC_OK;
}

/* calm NUMBER: the same, but tells it to stop first */
static int32_t do_calm(char **argument) {
    atomic_store(&storms[number(argument[0]) % STORMS].stop, true);
    return do_ended(argument);
}

/* ---- The process ---- */

/* user ID: becomes another user for ever */
static int32_t do_user(char **argument) {
    uid_t user = (uid_t)number(argument[0]);

    if (setresuid(user, user, user) != 0)
        return MC_ERR_SYSTEM;
    return prctl(PR_SET_DUMPABLE, 1) == 0 ? MC_OK : MC_ERR_SYSTEM; /* else its /proc/self is still root's */
}

static int32_t do_capabilities(char **argument) {
    char json[4096];

    (void)argument;
    mc_capabilities(json, sizeof(json));
    printf("ok %s", json);
    return MC_OK;
}

/* metrics ENGINE FORMAT -> the text, hexadecimal */
static int32_t do_metrics(char **argument) {
    uint32_t format = (uint32_t)number(argument[1]);
    int64_t length = mc_engine_metrics(engine(argument[0]), format, NULL, 0);
    size_t size = length < 0 ? 0 : (size_t)length + 65536; /* it may grow in between */
    char *text = length < 0 ? NULL : malloc(size);

    if (length < 0)
        return (int32_t)length;
    length = mc_engine_metrics(engine(argument[0]), format, text, size);
    printf("ok ");
    print_hex(text, (size_t)length < size ? (size_t)length : size - 1);
    free(text);
    return MC_OK;
}

static int32_t do_exit(char **argument) {
    exit((int)number(argument[0]));
}

static const struct command {
    const char *name;
    int words;
    int32_t (*run)(char **argument);
    int prints; /* on success, its own line */
} commands[] = {
    {"open", 6, do_open, 1},
    {"close", 1, do_close, 0},
    {"alloc", 1, do_alloc, 1},
    {"free", 1, do_free, 0},
    {"map", 2, do_map, 1},
    {"unmap", 2, do_unmap, 0},
    {"register", 4, do_register, 0},
    {"unregister", 2, do_unregister, 0},
    {"peer", 2, do_peer, 1},
    {"peer_close", 1, do_peer_close, 0},
    {"explain", 1, do_explain, 1},
    {"probe", 2, do_probe, 0},
    {"read", 5, do_read, 0},
    {"write", 5, do_write, 0},
    {"guarded", 8, do_guarded, 0},
    {"submit", 7, do_submit, 1},
    {"wait", 2, do_wait, 0},
    {"status", 1, do_status, 1},
    {"cancel", 1, do_cancel, 0},
    {"batch_free", 1, do_batch_free, 0},
    {"notify", 4, do_notify, 0},
    {"receive", 2, do_receive, 1},
    {"fill", 3, do_fill, 0},
    {"check", 3, do_check, 1},
    {"peek", 2, do_peek, 1},
    {"poke", 2, do_poke, 0},
    {"storm", 6, do_storm, 1},
    {"ended", 1, do_ended, 1},
    {"calm", 1, do_calm, 1},
    {"count", 1, do_count, 1},
    {"user", 1, do_user, 0},
    {"exit", 1, do_exit, 0},
    {"capabilities", 0, do_capabilities, 1},
    {"open", 8, do_open, 1},
    {"metrics", 2, do_metrics, 1},
};

static void obey(char *line) {
    char *argument[WORDS] = {NULL}, *rest;
    int count = 0;

    for (char *word = strtok_r(line, " \n", &rest); word != NULL && count < WORDS; word = strtok_r(NULL, " \n", &rest))
        argument[count++] = word;
    for (size_t i = 0; count > 0 && i < sizeof(commands) / sizeof(commands[0]); i++) {
        int32_t status;

        if (strcmp(commands[i].name, argument[0]) != 0 || commands[i].words != count - 1)
            continue;
        fresh_error(&words);
        status = commands[i].run(argument + 1);
        if (status != MC_OK)
            printf("error %d %s: %s", status, mc_status_name(status), words.message);
        else if (!commands[i].prints)
            printf("ok");
        printf("\n");
        return;
    }
    printf("error 0 no such command with %d words\n", count - 1);
}

int main(void) {
    struct rlimit files;
    size_t size = 0;
    char *line = NULL;

    prctl(PR_SET_PDEATHSIG, 9);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    while (getline(&line, &size, stdin) > 0) {
        obey(line);
        fflush(stdout);
    }
    _exit(0);
}
