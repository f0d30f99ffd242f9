// caller.rs - the reference's interface as Rust programs declare it: structs by layout, functions by name.
use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::ptr::null_mut;

#[repr(C)]
struct TransferRequest {
    opcode: c_int,
    source: *mut c_void,
    target_id: i32,
    target_offset: u64,
    length: u64,
}

#[repr(C)]
struct TransferStatus {
    status: c_int,
    transferred_bytes: u64,
}

#[repr(C)]
struct NotifyMsg {
    name: *mut c_char,
    msg: *mut c_char,
}

#[link(name = "transfer_engine")]
extern "C" {
    fn createTransferEngine(metadata: *const c_char, name: *const c_char, ip: *const c_char, port: u64, auto: c_int) -> *mut c_void;
    fn destroyTransferEngine(engine: *mut c_void);
    fn getLocalIpAndPort(engine: *mut c_void, buf: *mut c_char, len: usize) -> c_int;
    fn installTransport(engine: *mut c_void, proto: *const c_char, args: *mut *mut c_void) -> *mut c_void;
    fn registerLocalMemory(engine: *mut c_void, addr: *mut c_void, length: usize, location: *const c_char, remote: c_int) -> c_int;
    fn unregisterLocalMemory(engine: *mut c_void, addr: *mut c_void) -> c_int;
    fn openSegment(engine: *mut c_void, name: *const c_char) -> i32;
    fn allocateBatchID(engine: *mut c_void, size: usize) -> u64;
    fn submitTransfer(engine: *mut c_void, batch: u64, entries: *mut TransferRequest, n: usize) -> c_int;
    fn getTransferStatus(engine: *mut c_void, batch: u64, task: usize, out: *mut TransferStatus) -> c_int;
    fn freeBatchID(engine: *mut c_void, batch: u64) -> c_int;
    fn genNotifyInEngine(engine: *mut c_void, target: u64, notify: NotifyMsg) -> c_int;
    fn getNotifsFromEngine(engine: *mut c_void, n: *mut c_int) -> *mut NotifyMsg;
    fn freeNotifsMsgBuf(list: *mut NotifyMsg, n: c_int) -> c_int;
}

fn text(words: &str) -> CString {
    CString::new(words).unwrap()
}

fn main() {
    let mut memory = vec![7u8; 8192];
    let base = memory.as_mut_ptr();
    unsafe {
        let engine = createTransferEngine(text("P2PHANDSHAKE").as_ptr(), text("127.0.0.1").as_ptr(), text("").as_ptr(), 0, 0);
        assert!(!engine.is_null());
        assert!(!installTransport(engine, text("tcp").as_ptr(), null_mut()).is_null());
        assert_eq!(registerLocalMemory(engine, base.cast(), 8192, text("cpu:0").as_ptr(), 1), 0);
        let mut address = [0 as c_char; 64];
        assert_eq!(getLocalIpAndPort(engine, address.as_mut_ptr(), 64), 0);
        let segment = openSegment(engine, address.as_ptr());
        assert!(segment >= 1, "{:?}", CStr::from_ptr(address.as_ptr()));

        base.write_bytes(9, 4096);
        let batch = allocateBatchID(engine, 1);
        let mut request = TransferRequest { opcode: 1, source: base.cast(), target_id: segment, target_offset: base as u64 + 4096, length: 4096 };
        assert_eq!(submitTransfer(engine, batch, &mut request, 1), 0);
        let mut status = TransferStatus { status: 0, transferred_bytes: 0 };
        while status.status < 2 {
            assert_eq!(getTransferStatus(engine, batch, 0, &mut status), 0);
        }
        assert_eq!((status.status, status.transferred_bytes), (4, 4096));
        assert_eq!(freeBatchID(engine, batch), 0);
        assert_eq!(base.add(8191).read(), 9);

        let (name, msg) = (text("from"), text("rust"));
        let notify = NotifyMsg { name: name.as_ptr() as *mut c_char, msg: msg.as_ptr() as *mut c_char };
        assert_eq!(genNotifyInEngine(engine, segment as u64, notify), 0);
        let mut count = 0;
        let list = getNotifsFromEngine(engine, &mut count);
        assert_eq!(count, 1);
        assert_eq!(CStr::from_ptr((*list).msg).to_str(), Ok("rust"));
        assert_eq!(freeNotifsMsgBuf(list, count), 0);

        assert_eq!(unregisterLocalMemory(engine, base.cast()), 0);
        destroyTransferEngine(engine);
    }
}
