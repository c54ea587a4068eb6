//! Programs of somebody else, which let every packet pass.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Loads one of that name and pins it, for `ip link set dev DEVICE xdpdrv pinned PATH`.
pub(crate) fn pin_stranger(name: &str, path: &Path) {
    let program = load(name, BPF_PROG_TYPE_XDP, &INSTRUCTIONS).expect("the verifier accepts it");
    pin(&program, path).expect("the pin is free");
}

/// Loads one for traffic control and pins it, for `tc filter add ... bpf object-pinned PATH`.
pub(crate) fn pin_classifier(name: &str, path: &Path) {
    let program = load(name, BPF_PROG_TYPE_SCHED_CLS, &UNSPECIFIED);
    pin(&program.expect("the verifier accepts it"), path).expect("the pin is free");
}

const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_OBJ_PIN: libc::c_int = 6;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
/// `r0 = TC_ACT_UNSPEC; exit`.
const UNSPECIFIED: [u64; 2] = [0xffff_ffff_0000_00b7, 0x95];
/// `r0 = XDP_PASS; exit`.
const INSTRUCTIONS: [u64; 2] = [0x0000_0002_0000_00b7, 0x95];

/// The beginning of `union bpf_attr` for `BPF_PROG_LOAD`.
#[repr(C)]
#[derive(Default)]
struct Load {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
}

/// Loads a program of that name and type.
pub(crate) fn load(name: &str, kind: u32, instructions: &[u64]) -> io::Result<OwnedFd> {
    let license = c"GPL";
    let mut load = Load {
        kind,
        instruction_count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: license.as_ptr() as u64,
        ..Load::default()
    };
    load.name[..name.len()].copy_from_slice(name.as_bytes());
    let descriptor = call(BPF_PROG_LOAD, &load)?;
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn pin(program: &OwnedFd, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let words = [path.as_ptr() as u64, program.as_raw_fd() as u64];
    call(BPF_OBJ_PIN, &words).map(drop)
}

/// Calls `bpf(2)`.
pub(crate) fn call<T>(command: libc::c_int, attributes: &T) -> io::Result<i32> {
    let size = size_of::<T>();
    // SAFETY: the attributes are as large as is reported, and what they point to outlives the call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size) };
    match result {
        result if result < 0 => Err(io::Error::last_os_error()),
        result => Ok(result as i32),
    }
}
