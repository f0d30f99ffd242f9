/* fuzz_ring.c - the memory of a ring whose other side may write anything, as this side sends and receives.
 *
 * The input is a list of steps of 9 bytes each: what, and a number. Nothing outside the memory and the buffers is
 * touched (the address sanitizer looks), no call moves more than was asked for, and the bytes that come are those that
 * lie in the ring.
 */
#include "fuzz.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/ring.h"
#include "os/socket.h"
#include "wire/endian.h"

#define STEP_SIZE 9u
#define STEPS_MAX 2048u

/* Where the other side's words lie, by what ring.c says of its memory; a wrong guess costs the fuzzer time only. */
static void write_word(uint8_t *memory, uint64_t at, uint64_t value) {
    memcpy(memory + at % (4096 - 8), &value, sizeof(value));
}

static size_t cut(uint64_t value) {
    return (size_t)(value % (2 * RING_BYTES));
}

static void move(struct ring *ring, int sending, uint64_t value) {
    size_t first = cut(value), second = cut(value >> 32);
    uint8_t *bytes[2] = {malloc(first + 1), malloc(second + 1)};
    struct iovec parts[2] = {{.iov_base = bytes[0], .iov_len = first}, {.iov_base = bytes[1], .iov_len = second}};
    int64_t moved;

    REQUIRE(bytes[0] != NULL && bytes[1] != NULL);
    memset(bytes[0], 0xa5, first + 1);
    memset(bytes[1], 0xa5, second + 1);
    moved = sending ? ring_send(ring, parts, 2) : ring_receive(ring, parts, 2);
    REQUIRE(moved >= 0 || errno == EAGAIN || errno == EPROTO || errno == ECONNRESET);
    REQUIRE(moved <= (int64_t)(first + second) && moved <= (int64_t)RING_BYTES);
    REQUIRE(bytes[0][first] == 0xa5 && bytes[1][second] == 0xa5);
    free(bytes[0]);
    free(bytes[1]);
}

static void step(struct ring *ring, uint8_t *memory, int bell, const uint8_t *data) {
    uint64_t value = endian_get64(data + 1);

    switch (data[0] % 8) {
    case 0:
    case 1:
        move(ring, data[0] % 8, value);
        break;
    case 2: /* a word; by lines, since the words begin there */
        write_word(memory, (uint64_t)(data[0] >> 3) * 64, value);
        break;
    case 3:
        write_word(memory, value >> 48, value & 0xffffffffffffu);
        break;
    case 4:
        (void)ring_peek(ring, value & 1, value & 2);
        break;
    case 5:
        (void)ring_sleep(ring, value & 1, value & 2);
        break;
    case 6:
        (void)send(bell, "bells", (size_t)(value % 6), MSG_DONTWAIT | MSG_NOSIGNAL);
        break;
    default:
        if (value % 16 == 0)
            (void)shutdown(bell, SHUT_RDWR);
        ring_heed(ring);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t length = ring_memory_size();
    uint8_t *memory = aligned_alloc(4096, length);
    struct ring *ring;
    int bells[2];

    if (size == 0) {
        free(memory);
        return 0;
    }
    REQUIRE(memory != NULL && socket_unix_pair(bells) == 0);
    memset(memory, 0, length);
    ring = ring_on(memory, data[0] % 2 == 0 ? RING_HOST : RING_GUEST, bells[0]);
    REQUIRE(ring != NULL);
    data++;
    size--;
    for (size_t i = 0; i < STEPS_MAX && size >= STEP_SIZE; i++, data += STEP_SIZE, size -= STEP_SIZE)
        step(ring, memory, bells[1], data);
    ring_close(ring);
    socket_close(bells[1]);
    free(memory);
    return 0;
}
