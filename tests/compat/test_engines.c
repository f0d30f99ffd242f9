/* test_engines.c - engines are opened where they are told, say where they are, and their handles are checked. */
#include "compat.h"

#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Does somebody listen there? */
static bool listens(const char *host, const char *port) {
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    bool connected = false;
    int fd;

    assert_int_equal(getaddrinfo(host, port, &hints, &found), 0);
    fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    connected = connect(fd, found->ai_addr, found->ai_addrlen) == 0;
    close(fd);
    freeaddrinfo(found);
    return connected;
}

static const char *port_of(const char *address) {
    return strrchr(address, ':') + 1;
}

static void an_engine_listens_where_its_name_says_and_nowhere_else(void **state) {
    transfer_engine_t engine = engine_new("127.0.0.1");
    char address[ADDRESS_TEXT];

    (void)state;
    engine_address(engine, address);
    assert_int_equal(strncmp(address, "127.0.0.1:", 10), 0);
    assert_true(listens("127.0.0.1", port_of(address)));
    assert_false(listens("127.0.0.2", port_of(address)));
    destroyTransferEngine(engine);
    assert_false(listens("127.0.0.1", port_of(address)));
}

static void the_ip_goes_before_the_name(void **state) {
    transfer_engine_t engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "127.0.0.2", 0, 1);
    char address[ADDRESS_TEXT];

    (void)state;
    assert_non_null(engine);
    engine_address(engine, address);
    assert_int_equal(strncmp(address, "127.0.0.2:", 10), 0);
    destroyTransferEngine(engine);
}

static void an_engine_that_listens_everywhere_is_told_by_its_name(void **state) {
    transfer_engine_t engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.3", "0.0.0.0", 0, 1);
    char address[ADDRESS_TEXT];

    (void)state;
    assert_non_null(engine);
    engine_address(engine, address);
    assert_int_equal(strncmp(address, "127.0.0.3:", 10), 0);
    assert_true(listens("127.0.0.2", port_of(address)));
    destroyTransferEngine(engine);
}

static void ports_are_taken_as_given_and_the_parameter_goes_before_the_name(void **state) {
    transfer_engine_t first = engine_new("127.0.0.1"), engine;
    char address[ADDRESS_TEXT], free_port[8], again[ADDRESS_TEXT];

    (void)state;
    engine_address(first, address);
    snprintf(free_port, sizeof(free_port), "%s", port_of(address));
    destroyTransferEngine(first);
    engine = engine_new(address);
    engine_address(engine, again);
    assert_string_equal(again, address);
    destroyTransferEngine(engine);
    engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1:1", "", strtoull(free_port, NULL, 10), 1);
    assert_non_null(engine);
    engine_address(engine, again);
    assert_string_equal(again, address);
    destroyTransferEngine(engine);
}

static void a_port_that_is_taken_is_replaced_and_the_truth_is_told(void **state) {
    transfer_engine_t first = engine_new("127.0.0.1"), second;
    char address[ADDRESS_TEXT], other[ADDRESS_TEXT];

    (void)state;
    engine_address(first, address);
    second = engine_new(address);
    engine_address(second, other);
    assert_string_not_equal(other, address);
    assert_true(listens("127.0.0.1", port_of(other)));
    assert_true(openSegment(first, other) >= 1);
    destroyTransferEngine(second);
    destroyTransferEngine(first);
}

static void ipv6_addresses_are_taken_with_and_without_brackets(void **state) {
    static const char *const names[] = {"::1", "[::1]", "[::1]:0"};

    (void)state;
    if (access("/proc/net/if_inet6", F_OK) != 0) {
        print_message("no IPv6 here\n");
        skip();
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        transfer_engine_t engine = createTransferEngine("P2PHANDSHAKE", names[i], "", 0, 1);
        char address[ADDRESS_TEXT];

        if (engine == NULL) {
            print_message("no IPv6 on the loopback here\n");
            skip();
        }
        engine_address(engine, address);
        assert_int_equal(strncmp(address, "[::1]:", 6), 0);
        assert_true(openSegment(engine, address) >= 1);
        destroyTransferEngine(engine);
    }
}

static void what_cannot_be_opened_is_null(void **state) {
    (void)state;
    assert_null(createTransferEngine("P2PHANDSHAKE", "127.0.0.1:99999", "", 0, 1));
    assert_null(createTransferEngine("P2PHANDSHAKE", "127.0.0.1:1x", "", 0, 1));
    assert_null(createTransferEngine("P2PHANDSHAKE", "[::1", "", 0, 1));
    assert_null(createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 65536, 1));
    assert_null(createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", UINT64_MAX, 1));
    assert_null(createTransferEngine("P2PHANDSHAKE", "no-such-host.invalid", "", 0, 1));
    assert_null(createTransferEngine("P2PHANDSHAKE", "192.0.2.1", "", 0, 1)); /* not an address of this host */
    assert_null(createTransferEngine("etcd://127.0.0.1:1", "127.0.0.1", "", 0, 1));
    assert_null(createTransferEngine("http://127.0.0.1:1/metadata", "127.0.0.1", "", 0, 1));
}

static void an_address_that_does_not_fit_is_an_error_and_not_another_address(void **state) {
    transfer_engine_t engine = engine_new("127.0.0.1");
    char address[ADDRESS_TEXT], text[ADDRESS_TEXT];

    (void)state;
    engine_address(engine, address);
    memset(text, 'x', sizeof(text));
    assert_int_equal(getLocalIpAndPort(engine, text, strlen(address)), -1);
    assert_string_equal(text, "");
    assert_int_equal(text[strlen(address)], 'x');
    assert_int_equal(getLocalIpAndPort(engine, text, strlen(address) + 1), 0);
    assert_string_equal(text, address);
    assert_int_equal(getLocalIpAndPort(engine, NULL, 0), -1);
    assert_int_equal(getLocalIpAndPort(engine, NULL, 64), -1);
    destroyTransferEngine(engine);
}

/* Each function with a handle that is none. */
static void assert_no_engine(transfer_engine_t engine) {
    transfer_request_t request = {0};
    transfer_status_t status;
    buffer_entry_t entry = {.addr = &request, .length = 1};
    notify_msg_t message = {.name = (char[]){"n"}, .msg = (char[]){"m"}};
    void *address = &request;
    size_t count = 7;
    char text[64];
    int n = 7;

    assert_int_equal(discoverTopology(engine), -1);
    assert_int_equal(getLocalIpAndPort(engine, text, sizeof(text)), -1);
    assert_null(installTransport(engine, "tcp", NULL));
    assert_int_equal(uninstallTransport(engine, "tcp"), -1);
    assert_int_equal(openSegment(engine, "127.0.0.1:1"), -1);
    assert_int_equal(openSegmentNoCache(engine, "127.0.0.1:1"), -1);
    assert_int_equal(closeSegment(engine, 1), -1);
    assert_int_equal(warmupEfaSegment(engine, "127.0.0.1:1"), -1);
    assert_int_equal(removeLocalSegment(engine, "name"), -1);
    assert_int_equal(registerLocalMemory(engine, &request, 1, "*", 1), -1);
    assert_int_equal(unregisterLocalMemory(engine, &request), -1);
    assert_int_equal(registerLocalMemoryBatch(engine, &entry, 1, "*"), -1);
    assert_int_equal(unregisterLocalMemoryBatch(engine, &address, 1), -1);
    assert_true(allocateBatchID(engine, 1) == INVALID_BATCH);
    assert_int_equal(submitTransfer(engine, 1, &request, 1), 1);
    assert_int_equal(submitTransferWithNotify(engine, 1, &request, 1, message), 1);
    assert_int_equal(getTransferStatus(engine, 1, 0, &status), 1);
    assert_int_equal(freeBatchID(engine, 1), 1);
    assert_null(getNotifsFromEngine(engine, &n));
    assert_int_equal(n, 0);
    assert_int_equal(genNotifyInEngine(engine, 1, message), -1);
    assert_int_equal(syncSegmentCache(engine), -1);
    assert_int_equal(getNicLoadStats(engine, NULL, &count), -1);
    assert_int_equal(showLinks(engine, text, sizeof(text), 0), -1);
    enableGracefulShutdown(engine);
    destroyTransferEngine(engine);
}

static void a_stale_or_invented_handle_is_an_error_everywhere(void **state) {
    transfer_engine_t engine = engine_new("127.0.0.1"), other;
    int local;

    (void)state;
    destroyTransferEngine(engine);
    assert_no_engine(engine);
    other = engine_new("127.0.0.1"); /* in the place of the old one */
    assert_no_engine(engine);
    destroyTransferEngine(other);
    assert_no_engine(NULL);
    assert_no_engine(&local);
    assert_no_engine((void *)UINTPTR_MAX);
}

static void transports_that_are_there_can_be_installed(void **state) {
    transfer_engine_t engine = engine_new("127.0.0.1");
    void *args[2] = {(char[]){"{\"cpu:0\":[[\"mlx5_0\"],[]]}"}, NULL};

    (void)state;
    assert_non_null(installTransport(engine, "tcp", NULL));
    assert_non_null(installTransport(engine, "tcp", args));
    assert_non_null(installTransport(engine, "shm", NULL));
    assert_null(installTransport(engine, "nvlink", NULL));
    assert_null(installTransport(engine, "libcrypto", NULL)); /* is there, but no transport */
    assert_null(installTransport(engine, "tcp\":\"yes", NULL));
    assert_null(installTransport(engine, "", NULL));
    assert_null(installTransport(engine, NULL, NULL));
    if (access("/sys/class/infiniband", F_OK) != 0)
        assert_null(installTransport(engine, "rdma", args));
    assert_int_equal(uninstallTransport(engine, "tcp"), 0);
    assert_int_equal(discoverTopology(engine), 0);
    assert_int_equal(syncSegmentCache(engine), 0);
    assert_int_equal(removeLocalSegment(engine, "127.0.0.1"), 0);
    destroyTransferEngine(engine);
}

static void there_are_no_nics_to_speak_of(void **state) {
    transfer_engine_t engine = engine_new("127.0.0.1");
    nic_load_stat_t stats[1];
    size_t count = 1;

    (void)state;
    assert_int_equal(getNicLoadStats(engine, stats, &count), 0);
    assert_int_equal(count, 0);
    assert_int_equal(getNicLoadStats(engine, NULL, &count), 0);
    assert_int_equal(getNicLoadStats(engine, NULL, NULL), -1);
    destroyTransferEngine(engine);
}

static void links_are_shown_as_lines_and_as_json_within_the_buffer(void **state) {
    const struct pair *pair = *state;
    char whole[8192], cut[8192], segment[128];
    int json = 0;

    for (; json < 2; json++) {
        memset(whole, 'x', sizeof(whole));
        assert_int_equal(showLinks(pair->here, whole, sizeof(whole), json), 0);
        assert_non_null(strstr(whole, pair->address));
        assert_non_null(strstr(whole, json ? "\"tcp\"" : "\n  tcp is usable\n"));
        snprintf(segment, sizeof(segment),
                 json ? "{\"segment\":%d,\"name\":\"%s\",\"links\":"
                      : "segment %d \"%s\"\n  self is not usable: the peer is another engine\n",
                 pair->segment, pair->address);
        assert_true(json || strchr(whole, '{') == NULL);
        assert_non_null(strstr(whole, segment));
        assert_int_equal(whole[0], json ? '{' : 'e');
        for (size_t size = 0; size <= strlen(whole) + 1; size += 1 + size / 8) {
            memset(cut, 'x', sizeof(cut));
            assert_int_equal(showLinks(pair->here, cut, size, json), size > strlen(whole) ? 0 : -1);
            for (size_t i = size; i < sizeof(cut); i++)
                assert_int_equal(cut[i], 'x');
            if (size > 0) {
                assert_true(strnlen(cut, size) < size);
                assert_memory_equal(cut, whole, strlen(cut));
            }
        }
    }
    assert_int_equal(showLinks(pair->here, NULL, 64, 0), -1);
}

static transfer_engine_t left_open;

static void look_at_the_end(void) {
    char address[ADDRESS_TEXT];

    _exit(getLocalIpAndPort(left_open, address, sizeof(address)) == -1 ? 7 : 8);
}

static void an_engine_that_asked_for_it_is_closed_when_the_process_ends_normally(void **state) {
    (void)state;
    for (int asks = 0; asks < 2; asks++) {
        pid_t child;
        int status;

        fflush(NULL);
        child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            atexit(look_at_the_end); /* runs after what is registered later */
            left_open = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 1);
            if (left_open == NULL)
                _exit(1);
            if (asks)
                enableGracefulShutdown(left_open);
            exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), asks ? 7 : 8);
    }
}

static void a_child_has_no_handles_of_its_parent_and_can_make_new_ones(void **state) {
    const struct pair *pair = *state;
    uint64_t batch = allocateBatchID(pair->here, 1);
    char text[ADDRESS_TEXT];
    int status;
    pid_t child;

    assert_true(batch != INVALID_BATCH);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        transfer_engine_t engine;

        if (getLocalIpAndPort(pair->here, text, sizeof(text)) != -1 || freeBatchID(pair->here, batch) != 1)
            _exit(1);
        engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 1);
        if (engine == NULL || engine == pair->here || engine == pair->there)
            _exit(2);
        if (getLocalIpAndPort(engine, text, sizeof(text)) != 0 || openSegment(engine, pair->address) < 1)
            _exit(3);
        destroyTransferEngine(engine);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(moved(pair, request_at(pair, OPCODE_WRITE, 0, 4096)), STATUS_COMPLETED);
    assert_int_equal(freeBatchID(pair->here, batch), 0);
}

TESTS(engine, cmocka_unit_test(an_engine_listens_where_its_name_says_and_nowhere_else),
      cmocka_unit_test(the_ip_goes_before_the_name),
      cmocka_unit_test(an_engine_that_listens_everywhere_is_told_by_its_name),
      cmocka_unit_test(ports_are_taken_as_given_and_the_parameter_goes_before_the_name),
      cmocka_unit_test(a_port_that_is_taken_is_replaced_and_the_truth_is_told),
      cmocka_unit_test(ipv6_addresses_are_taken_with_and_without_brackets),
      cmocka_unit_test(what_cannot_be_opened_is_null),
      cmocka_unit_test(an_address_that_does_not_fit_is_an_error_and_not_another_address),
      cmocka_unit_test(a_stale_or_invented_handle_is_an_error_everywhere),
      cmocka_unit_test(transports_that_are_there_can_be_installed), cmocka_unit_test(there_are_no_nics_to_speak_of),
      PAIR_TEST(links_are_shown_as_lines_and_as_json_within_the_buffer),
      cmocka_unit_test(an_engine_that_asked_for_it_is_closed_when_the_process_ends_normally),
      PAIR_TEST(a_child_has_no_handles_of_its_parent_and_can_make_new_ones));
