// caller.go - the reference's interface as Go programs use it: by its header, through cgo.
package main

// #include <stdlib.h>
// #include <string.h>
// #include <transfer_engine_c.h>
import "C"

import "unsafe"

func must(good bool, what string) {
	if !good {
		panic(what)
	}
}

func main() {
	metadata, name, ip, location := C.CString("P2PHANDSHAKE"), C.CString("127.0.0.1"), C.CString(""), C.CString("cpu:0")
	memory := C.malloc(8192)
	engine := C.createTransferEngine(metadata, name, ip, 0, 0)
	must(engine != nil, "create")
	must(C.installTransport(engine, C.CString("tcp"), nil) != nil, "install")
	must(C.registerLocalMemory(engine, memory, 8192, location, 1) == 0, "register")
	address := (*C.char)(C.malloc(64))
	must(C.getLocalIpAndPort(engine, address, 64) == 0, "address")
	segment := C.openSegmentNoCache(engine, address)
	must(segment >= 1, "open")
	C.memset(memory, 9, 4096)
	batch := C.allocateBatchID(engine, 1)
	request := C.transfer_request_t{
		opcode:        C.OPCODE_WRITE,
		source:        memory,
		target_id:     segment,
		target_offset: C.uint64_t(uintptr(memory) + 4096),
		length:        4096,
	}
	must(C.submitTransfer(engine, batch, &request, 1) == 0, "submit")
	var status C.transfer_status_t
	for status.status == C.STATUS_WAITING || status.status == C.STATUS_PENDING {
		must(C.getTransferStatus(engine, batch, 0, &status) == 0, "status")
	}
	must(status.status == C.STATUS_COMPLETED && status.transferred_bytes == 4096, "completed")
	must(C.freeBatchID(engine, batch) == 0, "free")
	must(*(*byte)(unsafe.Add(memory, 8191)) == 9, "bytes")
	must(C.syncSegmentCache(engine) == 0, "sync")
	must(C.closeSegment(engine, segment) == 0, "close")
	must(C.unregisterLocalMemory(engine, memory) == 0, "unregister")
	C.destroyTransferEngine(engine)
}
