/* store_actor.c - a process with a store, which does one command a line from its stdin and answers each with a line:
 * "ok WORDS" or "error STATUS WORDS". It ends with its stdin. "-" is no text. Values are those of value.h.
 *
 *     place TABLE NUMBER                       where calls from now on are accounted for (load.h)
 *     open MASTER SEGMENT NAME PATIENCE_MS     -> ns that it took, address
 *     close
 *     put|upsert KEY VERSION LENGTH [PATIENCE_MS]
 *     get KEY                                  -> version, length
 *     getbatch PREFIX COUNT                    of PREFIX0 …  -> version or status of each
 *     view KEY                                 -> view, version, length
 *     look KEY VIEW                            -> version, again
 *     release VIEW
 *     exists|size|remove KEY
 *     all                                      reads every key that is listed -> listed, read, gone
 *     removeall
 *     stats                                    -> JSON
 *     load write|read|fresh SEED SUBJECTS PART PARTS LONGEST PATIENCE_MS
 *     rest                                     ends the load
 */
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "load.h"
#include "value.h"

#define WORD 320
#define LARGEST (96u << 20)
#define MILLISECOND 1000000u

static mc_store *store;
static struct table *table;
static struct place nowhere, *place = &nowhere;
static uint8_t *buffer; /* LARGEST bytes */
static struct mc_error error = MC_ERROR_INIT;

static struct {
    struct load load;
    pthread_t thread;
    void (*run)(struct load *);
    bool running;
} work;

static struct {
    uint64_t id;
    const void *data;
    uint64_t length;
} views[64];

static void fail(int64_t status) {
    printf("error %" PRId64 " %s\n", status, error.code == status ? error.message : mc_status_name((int32_t)status));
}

static void answer(int64_t status) {
    if (status < 0)
        fail(status);
    else
        printf("ok %" PRId64 "\n", status);
}

static const char *text_or_null(const char *word) {
    return strcmp(word, "-") == 0 ? NULL : word;
}

/* ---- Commands ---- */

static void do_place(const char *path, unsigned number) {
    int file = open(path, O_RDWR | O_CLOEXEC);

    table = mmap(NULL, sizeof(*table), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file < 0 || table == MAP_FAILED || number >= PLACES)
        abort();
    place = &table->places[number];
    puts("ok");
}

static void do_open(const char *master, uint64_t segment, const char *name, uint64_t patience) {
    const struct mc_store_options options = {
        .struct_size = sizeof(options),
        .master = text_or_null(master),
        .segment_size = segment,
        .name = text_or_null(name),
        .timeout_ns = patience * MILLISECOND,
    };
    uint64_t began = load_now(), took;
    char address[MC_ADDRESS_MAX];
    int32_t status = mc_store_open(&options, &store, &error);

    took = load_now() - began;
    if (status != MC_OK) {
        fail(status);
        return;
    }
    mc_store_address(store, address, sizeof(address));
    printf("ok %" PRIu64 " %s\n", took, address);
}

static void do_put(const char *key, uint64_t version, uint64_t length, uint64_t patience, bool upsert) {
    const struct mc_put_options options = {.struct_size = sizeof(options), .timeout_ns = patience * MILLISECOND};
    int32_t status;

    value_make(buffer, length, key, version);
    load_begin(place);
    status = upsert ? mc_store_upsert(store, key, strlen(key), buffer, length, &options, &error)
                    : mc_store_put(store, key, strlen(key), buffer, length, &options, &error);
    load_end(place);
    answer(status);
}

static void say_value(const void *bytes, int64_t found, const char *key) {
    if (found < 0)
        fail(found);
    else
        printf("ok %" PRId64 " %" PRId64 "\n", value_version(bytes, (uint64_t)found, key), found);
}

static void do_get(const char *key) {
    int64_t found;

    load_begin(place);
    found = mc_store_get(store, key, strlen(key), buffer, LARGEST, 0, &error);
    load_end(place);
    say_value(buffer, found, key);
}

static void do_getbatch(const char *prefix, unsigned count) {
    char names[16][WORD + 16], keys[16 * (WORD + 16)];
    uint32_t lengths[16];
    uint64_t capacities[16];
    void *buffers[16];
    int64_t found[16];
    struct mc_keys blob = {.bytes = keys, .lengths = lengths, .count = count};
    size_t used = 0;

    for (unsigned i = 0; i < count && i < 16; i++) {
        lengths[i] = (uint32_t)snprintf(names[i], sizeof(names[i]), "%s%u", prefix, i);
        memcpy(keys + used, names[i], lengths[i]);
        used += lengths[i];
        capacities[i] = LARGEST / count;
        buffers[i] = buffer + LARGEST / count * i;
        found[i] = MC_ERR_PENDING;
    }
    load_begin(place);
    (void)mc_store_get_batch(store, &blob, buffers, capacities, 0, found, &error);
    load_end(place);
    printf("ok");
    for (unsigned i = 0; i < count && i < 16; i++)
        printf(" %" PRId64, found[i] < 0 ? found[i] : value_version(buffers[i], (uint64_t)found[i], names[i]));
    putchar('\n');
}

static void do_view(const char *key) {
    const void *data = NULL;
    uint64_t view = 0;
    int64_t found;

    load_begin(place);
    found = mc_store_view(store, key, strlen(key), 0, &view, &data, &error);
    load_end(place);
    if (found < 0) {
        fail(found);
        return;
    }
    for (unsigned i = 0; i < sizeof(views) / sizeof(views[0]); i++)
        if (views[i].id == 0) {
            views[i].id = view;
            views[i].data = data;
            views[i].length = (uint64_t)found;
            break;
        }
    printf("ok %" PRIu64 " %" PRId64 " %" PRId64 "\n", view, value_version(data, (uint64_t)found, key), found);
}

static void do_look(const char *key, uint64_t view) {
    for (unsigned i = 0; i < sizeof(views) / sizeof(views[0]); i++)
        if (views[i].id == view) {
            printf("ok %" PRId64 "\n", value_version(views[i].data, views[i].length, key));
            return;
        }
    fail(MC_ERR_INVALID_HANDLE);
}

static void do_release(uint64_t view) {
    for (unsigned i = 0; i < sizeof(views) / sizeof(views[0]); i++)
        if (views[i].id == view)
            views[i].id = 0;
    answer(mc_view_release(view));
}

/* Reads every listed key. */
static void do_all(void) {
    unsigned listed = 0, got = 0, gone = 0;
    struct mc_page *page;
    uint64_t cursor = 0;

    do {
        size_t used = 0;
        int32_t status = mc_store_list(store, &cursor, 100, 0, &page, &error);

        if (status != MC_OK) {
            fail(status);
            return;
        }
        for (size_t i = 0; i < page->count; used += page->lengths[i++]) {
            char key[MC_KEY_MAX + 1] = {0};
            int64_t found;

            memcpy(key, page->bytes + used, page->lengths[i]);
            found = mc_store_get(store, key, page->lengths[i], buffer, LARGEST, 0, &error);
            listed++;
            if (found == MC_ERR_NOT_FOUND) {
                gone++;
            } else if (found < 0 || value_version(buffer, (uint64_t)found, key) < 0) {
                printf("error %" PRId64 " under the listed key %s\n", found < 0 ? found : -1, key);
                mc_page_free(page);
                return;
            } else {
                got++;
            }
        }
        mc_page_free(page);
    } while (cursor != 0);
    printf("ok %u %u %u\n", listed, got, gone);
}

static void do_stats(void) {
    char text[4096];

    if (mc_store_stats(store, text, sizeof(text)) < 0)
        fail(MC_ERR_INTERNAL);
    else
        printf("ok %s\n", text);
}

static void *labour(void *unused) {
    (void)unused;
    work.run(&work.load);
    return NULL;
}

static void do_load(const char *kind, const uint64_t *numbers) {
    work.run = strcmp(kind, "write") == 0 ? load_write : strcmp(kind, "read") == 0 ? load_read : load_fresh;
    work.load = (struct load){
        .store = store,
        .table = table,
        .place = place,
        .seed = numbers[0],
        .subjects = (uint32_t)numbers[1],
        .part = (uint32_t)numbers[2],
        .parts = (uint32_t)numbers[3],
        .longest = numbers[4],
        .patience = numbers[5] * MILLISECOND,
    };
    work.running = pthread_create(&work.thread, NULL, labour, NULL) == 0;
    puts(work.running ? "ok" : "error -1 no thread");
}

static void do_rest(void) {
    atomic_store(&work.load.stop, true);
    if (work.running)
        pthread_join(work.thread, NULL);
    work.running = false;
    puts("ok");
}

/* ---- Lines ---- */

/* The commands without a key. */
static bool obey_plain(const char *line, const char *verb) {
    char word[WORD], name[WORD];
    uint64_t numbers[6];
    unsigned number;

    if (sscanf(line, "place %319s %u", word, &number) == 2)
        do_place(word, number);
    else if (sscanf(line, "open %319s %" SCNu64 " %319s %" SCNu64, word, &numbers[0], name, &numbers[1]) == 4)
        do_open(word, numbers[0], name, numbers[1]);
    else if (strcmp(verb, "close") == 0)
        answer(mc_store_close(store));
    else if (strcmp(verb, "all") == 0)
        do_all();
    else if (strcmp(verb, "removeall") == 0)
        answer(mc_store_remove_all(store, 0, &error));
    else if (strcmp(verb, "stats") == 0)
        do_stats();
    else if (sscanf(line, "load %319s %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, word,
                    &numbers[0], &numbers[1], &numbers[2], &numbers[3], &numbers[4], &numbers[5]) == 7)
        do_load(word, numbers);
    else if (strcmp(verb, "rest") == 0)
        do_rest();
    else if (sscanf(line, "release %" SCNu64, &numbers[0]) == 1)
        do_release(numbers[0]);
    else
        return false;
    return true;
}

static void obey(const char *line) {
    char verb[WORD] = "", key[WORD] = "";
    uint64_t one = 0, two = 0, three = 0;
    int words = sscanf(line, "%319s %319s %" SCNu64 " %" SCNu64 " %" SCNu64, verb, key, &one, &two, &three);

    if (obey_plain(line, verb))
        return;
    if (words >= 4 && (strcmp(verb, "put") == 0 || strcmp(verb, "upsert") == 0) && two >= VALUE_MIN && two <= LARGEST)
        do_put(key, one, two, three, verb[0] == 'u');
    else if (words == 2 && strcmp(verb, "get") == 0)
        do_get(key);
    else if (words == 3 && strcmp(verb, "getbatch") == 0 && one > 0 && one <= 16)
        do_getbatch(key, (unsigned)one);
    else if (words == 2 && strcmp(verb, "view") == 0)
        do_view(key);
    else if (words == 3 && strcmp(verb, "look") == 0)
        do_look(key, one);
    else if (words == 2 && strcmp(verb, "exists") == 0)
        answer(mc_store_exists(store, key, strlen(key), 0, &error));
    else if (words == 2 && strcmp(verb, "size") == 0)
        answer(mc_store_size(store, key, strlen(key), 0, &error));
    else if (words == 2 && strcmp(verb, "remove") == 0)
        answer(mc_store_remove(store, key, strlen(key), 0, &error));
    else
        printf("error -600 no such command: %s", line);
}

int main(void) {
    char line[2048];

    buffer = malloc(LARGEST);
    if (buffer == NULL)
        return 1;
    while (fgets(line, sizeof(line), stdin) != NULL) {
        obey(line);
        fflush(stdout);
    }
    _exit(0);
}
