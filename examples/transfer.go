// transfer.go - moves a buffer into another process.
//
//	go build transfer.go
//	./transfer serve                    lends a buffer, prints ADDRESS REMOTE, and waits
//	./transfer write ADDRESS REMOTE     in another terminal: fills it
package main

/*
#cgo pkg-config: mooncake
#include <stdlib.h>
#include <mooncake/mooncake.h>
*/
import "C"

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"unsafe"
)

const size = 1 << 20
const second = 1000000000

// Each call has its own words: goroutines share nothing.
func newError() *C.struct_mc_error {
	return &C.struct_mc_error{struct_size: C.sizeof_struct_mc_error}
}

func check(status C.int32_t, words *C.struct_mc_error) {
	if status >= 0 {
		return
	}
	text := C.GoString(C.mc_status_text(status))
	if words != nil && words.code == status {
		text = C.GoString(&words.message[0])
	}
	fmt.Fprintf(os.Stderr, "%s: %s\n", C.GoString(C.mc_status_name(status)), text)
	os.Exit(1)
}

func serve(engine *C.mc_engine, buffer []byte) {
	var address [300]C.char
	var note *C.struct_mc_notification
	check(C.int32_t(C.mc_engine_address(engine, &address[0], C.size_t(len(address)))), nil)
	fmt.Printf("%s %p\n", C.GoString(&address[0]), unsafe.Pointer(&buffer[0]))
	// The write needs nothing from this process. It hears of it only because the other one tells it.
	check(C.mc_engine_receive(engine, C.MC_FOREVER, &note), nil)
	text, _, _ := bytes.Cut(buffer[:100], []byte{0})
	fmt.Printf("%s: %s bytes: %s\n", C.GoString(note.name), C.GoString(note.message), text)
	C.mc_notification_free(note)
}

func write(engine *C.mc_engine, buffer []byte, to string, remote uint64) {
	var peer C.uint64_t
	words := newError()
	address, name, length := C.CString(to), C.CString("written"), C.CString(strconv.Itoa(size))
	defer C.free(unsafe.Pointer(address))
	defer C.free(unsafe.Pointer(name))
	defer C.free(unsafe.Pointer(length))
	copy(buffer, "hello from Go")
	check(C.mc_peer_open(engine, address, &peer, words), words)
	check(C.mc_peer_write(peer, unsafe.Pointer(&buffer[0]), C.uint64_t(remote), size, 0, words), words) // 0: the default deadline
	check(C.mc_peer_notify(peer, unsafe.Pointer(name), 7, unsafe.Pointer(length),
		C.size_t(len(strconv.Itoa(size))), 5*second, words), words)
	check(C.mc_peer_close(peer), nil)
}

func main() {
	serving := len(os.Args) == 2 && os.Args[1] == "serve"
	if !serving && !(len(os.Args) == 4 && os.Args[1] == "write") {
		fmt.Fprintf(os.Stderr, "usage: %s serve | write ADDRESS REMOTE\n", os.Args[0])
		os.Exit(2)
	}
	var engine *C.mc_engine // a token: never followed, by Go or by C
	var memory C.uint64_t
	var address unsafe.Pointer
	words, access := newError(), C.uint32_t(0)
	if serving {
		access = C.MC_REMOTE_WRITE
	}
	check(C.mc_engine_open(nil, &engine, words), words)
	// Memory of C, which Go's collector neither moves nor frees: register no other.
	check(C.mc_memory_alloc(size, nil, &memory, &address, words), words)
	buffer := unsafe.Slice((*byte)(address), size)
	check(C.mc_engine_register(engine, address, size, nil, access, words), words)
	if serving {
		serve(engine, buffer)
	} else {
		remote, err := strconv.ParseUint(os.Args[3], 0, 64)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		write(engine, buffer, os.Args[2], remote)
	}
	check(C.mc_engine_unregister(engine, address, words), words)
	check(C.mc_engine_close(engine), nil)
	check(C.mc_memory_free(memory), nil)
}
