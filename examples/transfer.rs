// transfer.rs - moves a buffer into another process.
//
//   rustc --edition 2021 -O transfer.rs $(pkg-config --libs-only-L mooncake)
//   ./transfer serve                    lends a buffer, prints ADDRESS REMOTE, and waits
//   ./transfer write ADDRESS REMOTE     in another terminal: fills it
use std::ffi::{c_char, c_void, CStr, CString};
use std::ptr::{null, null_mut};

const SIZE: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;
const REMOTE_WRITE: u32 = 2; // MC_REMOTE_WRITE

/// What the library knows as an engine: a token, never followed.
type Engine = *mut c_void;

#[repr(C)]
struct Error {
    struct_size: u32,
    code: i32,
    system_errno: i32,
    message: [c_char; 244],
}

#[repr(C)]
struct Notification {
    sender: *const c_char,
    name: *const c_char,
    message: *const c_char,
    sender_length: usize,
    name_length: usize,
    message_length: usize,
}

#[link(name = "mooncake")]
extern "C" {
    fn mc_status_name(status: i32) -> *const c_char;
    fn mc_status_text(status: i32) -> *const c_char;
    fn mc_engine_open(options: *const c_void, engine: *mut Engine, error: *mut Error) -> i32;
    fn mc_engine_close(engine: Engine) -> i32;
    fn mc_engine_address(engine: Engine, text: *mut c_char, size: usize) -> i64;
    fn mc_engine_register(
        engine: Engine,
        address: *mut c_void,
        length: u64,
        location: *const c_char,
        access: u32,
        error: *mut Error,
    ) -> i32;
    fn mc_engine_unregister(engine: Engine, address: *mut c_void, error: *mut Error) -> i32;
    fn mc_engine_receive(engine: Engine, timeout_ns: u64, notification: *mut *mut Notification) -> i32;
    fn mc_notification_free(notification: *mut Notification);
    fn mc_memory_alloc(size: u64, options: *const c_void, memory: *mut u64, address: *mut *mut c_void, error: *mut Error) -> i32;
    fn mc_memory_free(memory: u64) -> i32;
    fn mc_peer_open(engine: Engine, address: *const c_char, peer: *mut u64, error: *mut Error) -> i32;
    fn mc_peer_close(peer: u64) -> i32;
    fn mc_peer_write(
        peer: u64,
        local: *const c_void,
        remote: u64,
        length: u64,
        timeout_ns: u64,
        error: *mut Error,
    ) -> i32;
    fn mc_peer_notify(
        peer: u64,
        name: *const c_char,
        name_length: usize,
        message: *const c_char,
        message_length: usize,
        timeout_ns: u64,
        error: *mut Error,
    ) -> i32;
}

fn text(pointer: *const c_char) -> String {
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

/// Makes a call with a place for the library's words; a negative status becomes an Err.
fn call(function: impl FnOnce(*mut Error) -> i64) -> Result<i64, String> {
    let mut error = Error {
        struct_size: std::mem::size_of::<Error>() as u32,
        code: 0,
        system_errno: 0,
        message: [0; 244],
    };
    let result = function(&mut error);
    if result >= 0 {
        return Ok(result);
    }
    let status = result as i32;
    let words = if error.code == status {
        error.message.as_ptr()
    } else {
        unsafe { mc_status_text(status) }
    };
    Err(format!("{}: {}", text(unsafe { mc_status_name(status) }), text(words)))
}

fn serve(engine: Engine, buffer: *mut c_void) -> Result<(), String> {
    let mut address = [0 as c_char; 300];
    let mut note: *mut Notification = null_mut();
    call(|_| unsafe { mc_engine_address(engine, address.as_mut_ptr(), address.len()) })?;
    println!("{} {:p}", text(address.as_ptr()), buffer);
    // The write needs nothing from this process. It hears of it only because the other one tells it.
    call(|_| unsafe { mc_engine_receive(engine, u64::MAX, &mut note) }.into())?;
    unsafe {
        println!(
            "{}: {} bytes: {}",
            text((*note).name),
            text((*note).message),
            text(buffer.cast())
        );
        mc_notification_free(note);
    }
    Ok(())
}

fn write(engine: Engine, buffer: *mut c_void, address: &str, remote: u64) -> Result<(), String> {
    let (address, length) = (CString::new(address).map_err(|e| e.to_string())?, SIZE.to_string());
    let (name, hello) = ("written", "hello from Rust");
    let mut peer = 0;
    unsafe { std::ptr::copy_nonoverlapping(hello.as_ptr(), buffer.cast(), hello.len()) };
    call(|error| unsafe { mc_peer_open(engine, address.as_ptr(), &mut peer, error) }.into())?;
    call(|error| unsafe { mc_peer_write(peer, buffer, remote, SIZE, 0, error) }.into())?; // 0: the default deadline
    call(|error| {
        unsafe {
            mc_peer_notify(
                peer,
                name.as_ptr().cast(),
                name.len(),
                length.as_ptr().cast(),
                length.len(),
                5 * SECOND,
                error,
            )
        }
        .into()
    })?;
    call(|_| unsafe { mc_peer_close(peer) }.into())?;
    Ok(())
}

fn run(arguments: &[&str]) -> Result<(), String> {
    let (mut engine, mut memory, mut buffer) = (null_mut(), 0, null_mut());
    let access = if arguments.len() == 1 { REMOTE_WRITE } else { 0 };
    call(|error| unsafe { mc_engine_open(null(), &mut engine, error) }.into())?;
    call(|error| unsafe { mc_memory_alloc(SIZE, std::ptr::null(), &mut memory, &mut buffer, error) }.into())?;
    call(|error| unsafe { mc_engine_register(engine, buffer, SIZE, null(), access, error) }.into())?;
    match arguments {
        ["serve"] => serve(engine, buffer)?,
        ["write", address, remote] => {
            let digits = remote.trim_start_matches("0x");
            write(
                engine,
                buffer,
                address,
                u64::from_str_radix(digits, 16).map_err(|e| e.to_string())?,
            )?
        }
        _ => return Err("usage: transfer serve | write ADDRESS REMOTE".into()),
    }
    call(|error| unsafe { mc_engine_unregister(engine, buffer, error) }.into())?;
    call(|_| unsafe { mc_engine_close(engine) }.into())?;
    call(|_| unsafe { mc_memory_free(memory) }.into())?;
    Ok(())
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let Err(words) = run(&arguments) {
        eprintln!("{words}");
        std::process::exit(1);
    }
}
