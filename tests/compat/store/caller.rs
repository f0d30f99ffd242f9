// caller.rs - the store's interface as Rust programs open it at run time: the library by name, functions by dlsym.
use std::ffi::{c_char, c_int, c_void, CString};
use std::mem::transmute;

extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

fn find(library: *mut c_void, name: &str) -> *mut c_void {
    let name = CString::new(name).unwrap();
    let found = unsafe { dlsym(library, name.as_ptr()) };
    assert!(!found.is_null());
    found
}

type Setup = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char, u64, u64, *const c_char, *const c_char, *const c_char) -> c_int;
type Put = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_void, usize, *const c_void) -> c_int;
type GetInto = unsafe extern "C" fn(*mut c_void, *const c_char, *mut c_void, usize) -> i64;

fn main() {
    let path = CString::new(std::env::args().nth(1).unwrap()).unwrap();
    let empty = CString::new("").unwrap();
    let host = CString::new("127.0.0.1").unwrap();
    let key = CString::new("from rust").unwrap();
    unsafe {
        let library = dlopen(path.as_ptr(), 2);
        assert!(!library.is_null());
        let create: unsafe extern "C" fn() -> *mut c_void = transmute(find(library, "mooncake_store_create"));
        let destroy: unsafe extern "C" fn(*mut c_void) = transmute(find(library, "mooncake_store_destroy"));
        let setup: Setup = transmute(find(library, "mooncake_store_setup"));
        let put: Put = transmute(find(library, "mooncake_store_put"));
        let get_into: GetInto = transmute(find(library, "mooncake_store_get_into"));
        let store = create();
        assert_eq!(setup(store, host.as_ptr(), empty.as_ptr(), 64 << 20, 0, empty.as_ptr(), empty.as_ptr(), empty.as_ptr()), 0);
        let mut back = [0u8; 16];
        assert_eq!(put(store, key.as_ptr(), b"value".as_ptr() as *const c_void, 5, std::ptr::null()), 0);
        assert_eq!(get_into(store, key.as_ptr(), back.as_mut_ptr() as *mut c_void, 16), 5);
        assert_eq!(&back[..5], b"value");
        destroy(store);
    }
}
