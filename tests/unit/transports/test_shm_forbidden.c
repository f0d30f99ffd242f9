/* test_shm_forbidden.c - where the kernel forbids process_vm, as in some containers, ordinary memory goes by another
 * path, and the reason is told. A child of its own has the filter, for it can't be taken off again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/filter.h>
#include <linux/seccomp.h>

#include <cmocka.h>

#include <mooncake/mooncake.h>

#define SIZE 100000u
#define NEED(condition)                                        \
    do {                                                       \
        if (!(condition)) {                                    \
            fprintf(stderr, "the child: line %d\n", __LINE__); \
            _exit(1);                                          \
        }                                                      \
    } while (0)

/* What the child is told. */
struct announcement {
    char address[MC_ADDRESS_MAX];
    uint64_t mapped;
    uint64_t ordinary;
};

static bool forbid(void) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = sizeof(rules) / sizeof(rules[0]), .filter = rules};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

/* By which path a transfer goes is what the words about a guard that doesn't hold say. */
static bool goes_by(mc_engine *engine, uint64_t peer, void *local, uint64_t remote, const char *path) {
    struct mc_error error = {.struct_size = sizeof(error)};
    struct mc_request request = {
        .peer = peer, .opcode = MC_READ, .local = local, .remote = remote, .length = 8, .flags = MC_REQUEST_GUARD};
    char words[32];

    request.guard_address = remote;
    request.guard_value = 12345;
    snprintf(words, sizeof(words), " by %s: ", path);
    return mc_engine_transfer(engine, &request, 1, sizeof(request), 0, &error) == MC_ERR_GUARD_MISMATCH &&
           strstr(error.message, words) != NULL;
}

static void transfer_under_the_filter(int from_parent) {
    const struct mc_engine_options options = {.struct_size = sizeof(options)};
    struct announcement announcement;
    uint8_t *local = malloc(SIZE);
    char text[8192];
    mc_engine *engine;
    uint64_t peer;

    NEED(read(from_parent, &announcement, sizeof(announcement)) == sizeof(announcement));
    NEED(mc_engine_open(&options, &engine, NULL) == MC_OK);
    NEED(mc_engine_register(engine, local, SIZE, NULL, 0, NULL) == MC_OK);
    NEED(mc_peer_open(engine, announcement.address, &peer, NULL) == MC_OK);
    NEED(mc_peer_read(peer, local, announcement.ordinary, SIZE, 0, NULL) == MC_OK);
    for (size_t i = 0; i < SIZE; i++)
        NEED(local[i] == (uint8_t)(i * 3));
    memset(local, 0x44, SIZE);
    NEED(mc_peer_write(peer, local, announcement.ordinary, SIZE, 0, NULL) == MC_OK);
    NEED(goes_by(engine, peer, local, announcement.ordinary, "tcp"));
    NEED(goes_by(engine, peer, local, announcement.mapped, "shm"));
    NEED(mc_peer_explain(peer, text, sizeof(text)) > 0);
    NEED(strstr(text, "process_vm_readv is forbidden") != NULL);
    NEED(mc_engine_close(engine) == MC_OK);
    free(local);
    _exit(0);
}

static void ordinary_memory_goes_by_tcp_where_process_vm_is_forbidden_and_the_reason_is_told(void **state) {
    const struct mc_engine_options options = {.struct_size = sizeof(options)};
    struct announcement announcement;
    uint8_t *ordinary = malloc(SIZE);
    mc_engine *engine;
    void *mapped;
    uint64_t id;
    int ends[2], outcome;
    pid_t child;

    (void)state;
    assert_non_null(ordinary);
    assert_int_equal(pipe(ends), 0);
    child = fork(); /* before there is a thread */
    assert_true(child >= 0);
    if (child == 0) {
        close(ends[1]);
        if (!forbid())
            _exit(77);
        transfer_under_the_filter(ends[0]);
    }
    close(ends[0]);
    for (size_t i = 0; i < SIZE; i++)
        ordinary[i] = (uint8_t)(i * 3);
    assert_int_equal(mc_engine_open(&options, &engine, NULL), MC_OK);
    assert_int_equal(mc_memory_alloc(SIZE, NULL, &id, &mapped, NULL), MC_OK);
    assert_int_equal(mc_engine_register(engine, mapped, SIZE, NULL, MC_REMOTE_READ | MC_REMOTE_WRITE, NULL), MC_OK);
    assert_int_equal(mc_engine_register(engine, ordinary, SIZE, NULL, MC_REMOTE_READ | MC_REMOTE_WRITE, NULL), MC_OK);
    announcement.mapped = (uint64_t)(uintptr_t)mapped;
    announcement.ordinary = (uint64_t)(uintptr_t)ordinary;
    assert_true(mc_engine_address(engine, announcement.address, sizeof(announcement.address)) > 0);
    assert_int_equal(write(ends[1], &announcement, sizeof(announcement)), sizeof(announcement));
    assert_int_equal(waitpid(child, &outcome, 0), child);
    close(ends[1]);
    assert_int_equal(mc_engine_close(engine), MC_OK);
    assert_int_equal(mc_memory_free(id), MC_OK);
    if (WIFEXITED(outcome) && WEXITSTATUS(outcome) == 77) {
        print_message("the kernel takes no seccomp filter\n");
        free(ordinary);
        skip();
    }
    assert_int_equal(outcome, 0);
    for (size_t i = 0; i < SIZE; i++)
        assert_int_equal(ordinary[i], 0x44);
    free(ordinary);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ordinary_memory_goes_by_tcp_where_process_vm_is_forbidden_and_the_reason_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
