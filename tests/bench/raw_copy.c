/* tests/bench/raw_copy.c - bare copies. Items begin and end at multiples of 64 bytes. */
#include "raw_copy.h"

#include <string.h>
#include <sys/uio.h>

#define VECTOR_MAX 1024

static void copy_items(const struct subject *subject, const struct work *work, uint64_t index,
                       void (*copy)(unsigned char *to, const unsigned char *from, size_t size)) {
    const struct copier *copier = subject->context;
    uint64_t offset = work_offset(work, index);

    for (uint32_t i = 0; i < work->items; i++, offset += work->size)
        if (work->opcode == MC_READ)
            copy(copier->local + offset, copier->remote + offset, work->size);
        else
            copy(copier->remote + offset, copier->local + offset, work->size);
}

static void plain(unsigned char *to, const unsigned char *from, size_t size) {
    memcpy(to, from, size);
}

void raw_memcpy_call(const struct subject *subject, const struct work *work, uint64_t index) {
    copy_items(subject, work, index, plain);
}

/* ---- Streaming stores ---- */

#ifdef __x86_64__
#include <immintrin.h>

__attribute__((target("avx512f"))) static void stream_512(unsigned char *to, const unsigned char *from, size_t size) {
    for (size_t i = 0; i < size; i += 64)
        _mm512_stream_si512((void *)(to + i), _mm512_loadu_si512((const void *)(from + i)));
    _mm_sfence();
}

__attribute__((target("avx2"))) static void stream_256(unsigned char *to, const unsigned char *from, size_t size) {
    for (size_t i = 0; i < size; i += 64) {
        __m256i a = _mm256_loadu_si256((const void *)(from + i));
        __m256i b = _mm256_loadu_si256((const void *)(from + i + 32));

        _mm256_stream_si256((void *)(to + i), a);
        _mm256_stream_si256((void *)(to + i + 32), b);
    }
    _mm_sfence();
}

static void stream_128(unsigned char *to, const unsigned char *from, size_t size) {
    for (size_t i = 0; i < size; i += 16)
        _mm_stream_si128((void *)(to + i), _mm_loadu_si128((const void *)(from + i)));
    _mm_sfence();
}

bool raw_streams(void) {
    return true;
}

void raw_stream_call(const struct subject *subject, const struct work *work, uint64_t index) {
    if (__builtin_cpu_supports("avx512f"))
        copy_items(subject, work, index, stream_512);
    else if (__builtin_cpu_supports("avx2"))
        copy_items(subject, work, index, stream_256);
    else
        copy_items(subject, work, index, stream_128);
}
#else
bool raw_streams(void) {
    return false;
}

void raw_stream_call(const struct subject *subject, const struct work *work, uint64_t index) {
    raw_memcpy_call(subject, work, index);
}
#endif

/* ---- process_vm ---- */

void raw_vm_call(const struct subject *subject, const struct work *work, uint64_t index) {
    const struct copier *copier = subject->context;
    struct iovec local[VECTOR_MAX], remote[VECTOR_MAX];
    uint64_t offset = work_offset(work, index);
    ssize_t moved;

    CHECK_SYSTEM(work->items <= VECTOR_MAX);
    for (uint32_t i = 0; i < work->items; i++, offset += work->size) {
        local[i] = (struct iovec){copier->local + offset, work->size};
        remote[i] = (struct iovec){copier->remote + offset, work->size};
    }
    if (work->opcode == MC_READ)
        moved = process_vm_readv(copier->process, local, work->items, remote, work->items, 0);
    else
        moved = process_vm_writev(copier->process, local, work->items, remote, work->items, 0);
    CHECK_SYSTEM(moved == (ssize_t)work_bytes(work));
}
