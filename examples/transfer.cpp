// transfer.cpp - moves a buffer into another process; what is opened closes itself.
//
//   g++ transfer.cpp -o transfer $(pkg-config --cflags --libs mooncake)
//   ./transfer serve                    lends a buffer, prints ADDRESS REMOTE, and waits
//   ./transfer write ADDRESS REMOTE     in another terminal: fills it
#include <cstring>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>

#include <mooncake/mooncake.h>

static const std::uint64_t size = 1 << 20, second = 1000000000;
static thread_local mc_error error = {sizeof(mc_error), 0, 0, ""}; // where the library puts its words

// Every call returns a negative status on failure.
static void check(std::int64_t status) {
    auto code = static_cast<std::int32_t>(status);
    if (status < 0)
        throw std::runtime_error(std::string(mc_status_name(code)) + ": " +
                                 (error.code == code ? error.message : mc_status_text(code)));
}

struct Engine {
    Engine() {
        check(mc_engine_open(nullptr, &handle, &error));
    }
    ~Engine() {
        mc_engine_close(handle);
    }
    Engine(const Engine &) = delete;

    std::string address() const {
        std::string text(300, '\0');
        auto length = mc_engine_address(handle, &text[0], text.size());
        check(length);
        text.resize(static_cast<std::size_t>(length));
        return text;
    }

    using Note = std::unique_ptr<mc_notification, decltype(&mc_notification_free)>;
    Note receive() const {
        mc_notification *note = nullptr;
        check(mc_engine_receive(handle, MC_FOREVER, &note));
        return Note(note, mc_notification_free);
    }

    mc_engine *handle = nullptr;
};

struct Memory {
    Memory() {
        void *address = nullptr;
        check(mc_memory_alloc(size, nullptr, &id, &address, &error));
        bytes = static_cast<char *>(address);
    }
    ~Memory() {
        mc_memory_free(id);
    }
    Memory(const Memory &) = delete;

    std::uint64_t id = 0;
    char *bytes = nullptr;
};

// Memory while it is registered. Made after its engine and memory, so it ends before them.
struct Region {
    Region(const Engine &lender, const Memory &lent, std::uint32_t access) : engine(lender), memory(lent) {
        check(mc_engine_register(engine.handle, memory.bytes, size, nullptr, access, &error));
    }
    ~Region() {
        mc_engine_unregister(engine.handle, memory.bytes, nullptr);
    }
    Region(const Region &) = delete;

    const Engine &engine;
    const Memory &memory;
};

struct Peer {
    Peer(const Engine &engine, const char *address) {
        check(mc_peer_open(engine.handle, address, &id, &error));
    }
    ~Peer() {
        mc_peer_close(id);
    }
    Peer(const Peer &) = delete;

    void write(const void *local, std::uint64_t remote, std::uint64_t length) const {
        check(mc_peer_write(id, local, remote, length, 0, &error)); // 0: the default deadline
    }
    void notify(const std::string &name, const std::string &message) const {
        check(mc_peer_notify(id, name.data(), name.size(), message.data(), message.size(), 5 * second, &error));
    }

    std::uint64_t id = 0;
};

static void serve() {
    Engine engine;
    Memory memory;
    Region region(engine, memory, MC_REMOTE_WRITE);
    std::cout << engine.address() << " " << static_cast<void *>(memory.bytes) << std::endl;
    // The write needs nothing from this process. It hears of it only because the other one tells it.
    auto note = engine.receive();
    std::cout << note->name << ": " << note->message << " bytes: " << memory.bytes << "\n";
}

static void write_to(const char *address, std::uint64_t remote) {
    Engine engine;
    Memory memory;
    Region region(engine, memory, 0); // the writer's own end needs no rights for others
    std::strcpy(memory.bytes, "hello from C++");
    Peer peer(engine, address);
    peer.write(memory.bytes, remote, size);
    peer.notify("written", std::to_string(size));
}

int main(int argc, char **argv) {
    std::string role = argc > 1 ? argv[1] : "";
    try {
        if (role == "serve" && argc == 2) {
            serve();
        } else if (role == "write" && argc == 4) {
            write_to(argv[2], std::stoull(argv[3], nullptr, 0));
        } else {
            std::cerr << "usage: " << argv[0] << " serve | write ADDRESS REMOTE\n";
            return 2;
        }
    } catch (const std::exception &failure) {
        std::cerr << failure.what() << "\n";
        return 1;
    }
    return 0;
}
