/* soak.c - threads that transfer, cancel and give up at random, while their own memory and their peer come and go.
 *
 *     soak SECONDS SEED PROTOCOL|- alloc|map      soak target SEED PROTOCOL|- alloc|map
 *
 * Memory is mc_memory_alloc's, which a process of the same host may map, or the process's own, which it may not.
 * The second form is the peer: a process that offers one part of memory to each thread, takes parts away and gives them
 * back at random, and is killed and started anew by the first. Every request must reach one terminal state and keep it;
 * a batch's completion must come once; a buffer must be quiet afterwards; what was written and read back must be equal.
 * Prints what it did, and ends with 0; at the first thing that is wrong it says what, and aborts.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <mooncake/mooncake.h>

#define THREADS 16
#define PART ((uint64_t)16 << 20)
#define LENGTH_MAX ((uint64_t)8 << 20)
#define BATCH_MAX 8
#define SECOND 1000000000ull

#define MUST(condition)                                                                     \
    do {                                                                                    \
        if (!(condition)) {                                                                 \
            fprintf(stderr, "soak: %s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                                        \
        }                                                                                   \
    } while (0)

static uint64_t now(void) {
    struct timespec time;

    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * SECOND + (uint64_t)time.tv_nsec;
}

static void pause_for(uint64_t nanoseconds) {
    struct timespec time = {(time_t)(nanoseconds / SECOND), (long)(nanoseconds % SECOND)};

    nanosleep(&time, NULL);
}

static uint64_t draw(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Small ones as often as large ones, and the borders of pages and slices among them. */
static uint64_t draw_length(uint64_t *state) {
    uint64_t length = ((uint64_t)1 << draw(state) % 24) + draw(state) % 3 - 1;

    if (draw(state) % 4 == 0)
        length += draw(state) % (length + 1);
    return length < 1 ? 1 : length > LENGTH_MAX ? LENGTH_MAX : length;
}

static mc_engine *open_engine(const char *protocol) {
    struct mc_error error = MC_ERROR_INIT;
    struct mc_engine_options options = {
        .struct_size = sizeof(options),
        .protocol = strcmp(protocol, "-") == 0 ? NULL : protocol,
        .connect_timeout_ns = SECOND,
    };
    mc_engine *engine;

    if (mc_engine_open(&options, &engine, &error) != MC_OK) {
        fprintf(stderr, "soak: %s\n", error.message);
        abort();
    }
    return engine;
}

static uint8_t *allocate(uint64_t size, const char *kind) {
    uint64_t memory;
    void *address;

    if (strcmp(kind, "map") == 0) {
        address = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        MUST(address != MAP_FAILED);
    } else {
        MUST(mc_memory_alloc(size, NULL, &memory, &address, NULL) == MC_OK);
    }
    return address;
}

/* Takes a part away from whoever uses it, and gives it back. */
static void toggle(mc_engine *engine, uint8_t *part, uint64_t nanoseconds) {
    int32_t status = mc_engine_unregister(engine, part, NULL);

    MUST(status == MC_OK || status == MC_ERR_BUSY);
    pause_for(nanoseconds);
    if (status == MC_OK)
        MUST(mc_engine_register(engine, part, PART, NULL, 3, NULL) == MC_OK);
}

/* ---- The peer ---- */

static int run_target(uint64_t seed, const char *protocol, const char *kind) {
    mc_engine *engine = open_engine(protocol);
    uint8_t *memory = allocate(THREADS * PART, kind);
    struct pollfd end = {.fd = 0, .events = POLLIN};
    char address[MC_ADDRESS_MAX];

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int i = 0; i < THREADS; i++)
        MUST(mc_engine_register(engine, memory + (uint64_t)i * PART, PART, NULL, 3, NULL) == MC_OK);
    mc_engine_address(engine, address, sizeof(address));
    printf("%s %" PRIu64 "\n", address, (uint64_t)(uintptr_t)memory);
    fflush(stdout);
    while (poll(&end, 1, (int)(draw(&seed) % 30)) == 0)
        toggle(engine, memory + draw(&seed) % THREADS * PART, draw(&seed) % 2000000);
    return 0;
}

/* ---- This side: the peer of the moment ---- */

static struct {
    pthread_rwlock_t lock; /* read-held while the id is used, so that it isn't closed under a call */
    uint64_t id;
    uint64_t base;
    pid_t process;
    int stop_fd;
} peer = {.lock = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP};

static mc_engine *own;
static uint8_t *local; /* THREADS parts */
static atomic_bool stop;
static _Atomic uint64_t requests, completed, failed, cancelled, timed_out, compared, kills;

static void start_peer(const char *program, uint64_t seed, const char *protocol, const char *kind) {
    struct mc_error error = MC_ERROR_INIT;
    int in[2], out[2];
    char number[32], line[400], address[MC_ADDRESS_MAX];
    ssize_t got;

    snprintf(number, sizeof(number), "%" PRIu64, seed);
    MUST(pipe(in) == 0 && pipe(out) == 0);
    peer.process = fork();
    MUST(peer.process >= 0);
    if (peer.process == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        close(in[1]);
        close(out[0]);
        execl(program, program, "target", number, protocol, kind, (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    got = read(out[0], line, sizeof(line) - 1);
    MUST(got > 0);
    close(out[0]);
    line[got] = '\0';
    MUST(sscanf(line, "%287s %" SCNu64, address, &peer.base) == 2);
    peer.stop_fd = in[1];
    if (mc_peer_open(own, address, &peer.id, &error) != MC_OK) {
        fprintf(stderr, "soak: %s\n", error.message);
        abort();
    }
}

static void end_peer(int signal) {
    MUST(kill(peer.process, signal) == 0);
    close(peer.stop_fd);
    MUST(waitpid(peer.process, NULL, 0) == peer.process);
}

/* ---- The threads ---- */

struct thread {
    pthread_t id;
    int number;
    uint64_t state;     /* of the random numbers */
    uint64_t unsure_of; /* the peer in which a failed write may still arrive */
};

/* What a request may end with here. */
static bool is_expected(int32_t status) {
    switch (status) {
    case MC_OK:
    case MC_ERR_CANCELLED:
    case MC_ERR_TIMEOUT:
    case MC_ERR_NOT_REGISTERED:
    case MC_ERR_CONNECTION_LOST:
    case MC_ERR_UNREACHABLE:
    case MC_ERR_STALE_PEER:
    case MC_ERR_NOT_SUPPORTED: /* no path is left, where TCP is forbidden */
        return true;
    default:
        fprintf(stderr, "soak: unexpected status %d\n", status);
        return false;
    }
}

static void count_state(const struct mc_request_status *request, uint64_t length) {
    MUST(is_expected(request->status));
    MUST(request->bytes <= length);
    switch (request->state) {
    case MC_STATE_COMPLETED:
        MUST(request->status == MC_OK && request->bytes == length && request->flags == 0);
        completed++;
        break;
    case MC_STATE_CANCELLED:
        MUST(request->status == MC_ERR_CANCELLED);
        cancelled++;
        break;
    case MC_STATE_TIMEOUT:
        MUST(request->status == MC_ERR_TIMEOUT);
        timed_out++;
        break;
    default:
        MUST(request->state == MC_STATE_FAILED && request->status != MC_OK);
        failed++;
    }
}

/* Writes a pattern and reads it back into another place. Batches use the other half of the remote part, for what they
 * cancel may still arrive there; so may a write of this function that failed, hence no more is compared with that peer. */
static void write_and_compare(struct thread *thread) {
    uint8_t *part = local + (uint64_t)thread->number * PART;
    uint64_t length = draw_length(&thread->state) / 2 + 1;
    uint64_t room = PART / 2, at, remote;
    int32_t status;

    if (length > room)
        length = room;
    at = draw(&thread->state) % (room - length + 1);
    remote = peer.base + (uint64_t)thread->number * PART + at;
    for (uint64_t i = 0; i < length; i += 64)
        part[i] = (uint8_t)draw(&thread->state);
    part[length - 1] = (uint8_t)draw(&thread->state);
    status = mc_peer_write(peer.id, part, remote, length, SECOND, NULL);
    MUST(is_expected(status));
    if (status == MC_ERR_TIMEOUT || status == MC_ERR_CONNECTION_LOST)
        thread->unsure_of = peer.id;
    if (status != MC_OK || thread->unsure_of == peer.id)
        return;
    memset(part + room, 0x5a, length);
    status = mc_peer_read(peer.id, part + room, remote, length, SECOND, NULL);
    MUST(is_expected(status));
    if (status != MC_OK)
        return;
    MUST(memcmp(part, part + room, length) == 0);
    compared++;
}

/* The buffers of a batch that is terminal belong to the caller: nobody else writes there. */
static void check_quiet(uint8_t *part, uint64_t *state) {
    uint64_t at = draw(state) % (PART - 4096);

    memset(part + at, 0xa5, 4096);
    pause_for(draw(state) % 200000);
    for (uint64_t i = 0; i < 4096; i++)
        MUST(part[at + i] == 0xa5);
}

static void run_batch(int thread, uint64_t *state, mc_queue *queue) {
    uint8_t *part = local + (uint64_t)thread * PART;
    struct mc_request wanted[BATCH_MAX];
    struct mc_request_status first[BATCH_MAX], again[BATCH_MAX];
    size_t count = draw(state) % BATCH_MAX + 1;
    struct mc_batch_options options = {
        .struct_size = sizeof(options),
        .timeout_ns = draw(state) % 4 == 0 ? draw(state) % 3000000 + 1 : SECOND,
        .user_data = draw(state),
        .queue = queue,
    };
    struct mc_completion completion;
    uint64_t batch, room = PART / 2 / count;
    int32_t status;

    memset(wanted, 0, sizeof(wanted));
    for (size_t i = 0; i < count; i++) {
        uint64_t length = draw_length(state);

        wanted[i].peer = peer.id;
        wanted[i].opcode = draw(state) % 2 == 0 ? MC_READ : MC_WRITE;
        wanted[i].length = length < room ? length : room;
        wanted[i].local = part + 2 * i * room;
        wanted[i].remote = peer.base + (uint64_t)thread * PART + PART / 2 + i * room;
    }
    status = mc_batch_submit(own, wanted, count, sizeof(wanted[0]), &options, &batch, NULL);
    MUST(is_expected(status));
    if (status != MC_OK) {
        pause_for(100000);
        return;
    }
    requests += count;
    switch (draw(state) % 4) {
    case 0:
        MUST(mc_batch_cancel(batch) == MC_OK);
        break;
    case 1:
        pause_for(draw(state) % 500000);
        MUST(mc_batch_cancel(batch) == MC_OK);
        break;
    case 2:
        if (queue != NULL)
            break;
        /* fall through */
    default:
        status = mc_batch_wait(batch, 10 * SECOND);
        MUST(is_expected(status));
    }
    if (queue != NULL) {
        MUST(mc_queue_reap(queue, &completion, 1, sizeof(completion), 10 * SECOND) == 1);
        MUST(completion.batch == batch && completion.user_data == options.user_data);
        MUST(mc_queue_reap(queue, &completion, 1, sizeof(completion), 0) == MC_ERR_PENDING);
    }
    MUST(mc_batch_status(batch, 0, first, count, sizeof(first[0])) == MC_OK);
    for (size_t i = 0; i < count; i++)
        count_state(&first[i], wanted[i].length);
    check_quiet(part, state);
    MUST(mc_batch_status(batch, 0, again, count, sizeof(again[0])) == MC_OK);
    MUST(memcmp(first, again, count * sizeof(first[0])) == 0);
    MUST(mc_batch_free(batch) == MC_OK);
    MUST(mc_batch_free(batch) == MC_ERR_INVALID_HANDLE);
}

static void *run_thread(void *context) {
    struct thread *thread = context;
    mc_queue *queue;

    MUST(mc_queue_open(&queue, NULL) == MC_OK);
    while (!atomic_load(&stop)) {
        pthread_rwlock_rdlock(&peer.lock);
        if (draw(&thread->state) % 3 == 0)
            write_and_compare(thread);
        else
            run_batch(thread->number, &thread->state, draw(&thread->state) % 2 == 0 ? queue : NULL);
        pthread_rwlock_unlock(&peer.lock);
    }
    MUST(mc_queue_close(queue) == MC_OK);
    return NULL;
}

/* Takes this side's own parts away and gives them back. */
static void *run_toggler(void *context) {
    uint64_t *state = context;

    while (!atomic_load(&stop)) {
        pause_for(draw(state) % (SECOND / 10));
        toggle(own, local + draw(state) % THREADS * PART, draw(state) % 2000000);
    }
    return NULL;
}

/* The time is over, and on a slow machine something of everything has happened, or it has been ten times as long. */
static bool enough(uint64_t passed, uint64_t wanted) {
    return passed >= 10 * wanted || (passed >= wanted && completed > 0 && compared > 0 && kills > 2);
}

int main(int argc, char **argv) {
    struct thread threads[THREADS];
    uint64_t state, toggling, begun = now();
    pthread_t toggler;

    if (argc == 5 && strcmp(argv[1], "target") == 0)
        return run_target(strtoull(argv[2], NULL, 0) * 2 + 1, argv[3], argv[4]);
    MUST(argc == 5);
    state = strtoull(argv[2], NULL, 0) * 0x9e3779b97f4a7c15u + 1;
    own = open_engine(argv[3]);
    local = allocate(THREADS * PART, argv[4]);
    for (int i = 0; i < THREADS; i++)
        MUST(mc_engine_register(own, local + (uint64_t)i * PART, PART, NULL, 3, NULL) == MC_OK);
    start_peer(argv[0], draw(&state), argv[3], argv[4]);
    for (int i = 0; i < THREADS; i++) {
        threads[i] = (struct thread){.number = i, .state = draw(&state) | 1};
        MUST(pthread_create(&threads[i].id, NULL, run_thread, &threads[i]) == 0);
    }
    toggling = draw(&state) | 1;
    MUST(pthread_create(&toggler, NULL, run_toggler, &toggling) == 0);
    while (!enough(now() - begun, strtoull(argv[1], NULL, 0) * SECOND)) {
        pause_for(draw(&state) % (SECOND / 2));
        kills++;
        end_peer(SIGKILL);
        pause_for(draw(&state) % (SECOND / 50));
        pthread_rwlock_wrlock(&peer.lock);
        MUST(mc_peer_close(peer.id) == MC_OK);
        start_peer(argv[0], draw(&state), argv[3], argv[4]);
        pthread_rwlock_unlock(&peer.lock);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i].id, NULL);
    pthread_join(toggler, NULL);
    MUST(mc_peer_close(peer.id) == MC_OK);
    MUST(mc_engine_close(own) == MC_OK);
    end_peer(SIGTERM);
    MUST(requests == completed + failed + cancelled + timed_out);
    printf("%" PRIu64 " requests: %" PRIu64 " completed, %" PRIu64 " failed, %" PRIu64 " cancelled, %" PRIu64
           " timed out; %" PRIu64 " compared, %" PRIu64 " kills\n",
           requests, completed, failed, cancelled, timed_out, compared, kills);
    MUST(completed > 0 && compared > 0 && kills > 0);
    return 0;
}
