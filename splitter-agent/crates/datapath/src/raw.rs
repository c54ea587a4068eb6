//! Calls of `bpf(2)` that the library has no safe form of: what a pin holds, letting go of a device
//! at once, what links hold programs to, maps on a NUMA node, and frames that an interface seems to
//! receive.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// What a pin holds.
#[derive(Debug)]
pub(super) enum Pinned {
    /// A program in the chain of a device, which may have gone.
    TcxLink(DeviceLink),
    /// The XDP program of a device, which may have gone.
    XdpLink(DeviceLink),
    /// A program, by its number.
    Program(u32),
    /// Something else.
    Other,
}

/// A program that is attached to a device.
#[derive(Debug)]
pub(super) struct DeviceLink {
    descriptor: OwnedFd,
    /// The program's number.
    pub(super) program_id: u32,
    /// The device's number; 0 once it has gone.
    pub(super) interface: u32,
}

/// What is pinned at `path`; `None` when nothing is.
pub(super) fn pinned(path: &Path) -> io::Result<Option<Pinned>> {
    let descriptor = match open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        descriptor => descriptor?,
    };
    let info = info(&descriptor)?;
    Ok(Some(match info[0] {
        kind @ (LINK_TYPE_TCX | LINK_TYPE_XDP) => {
            let link = DeviceLink {
                program_id: info[2],
                interface: info[4],
                descriptor,
            };
            if kind == LINK_TYPE_TCX {
                Pinned::TcxLink(link)
            } else {
                Pinned::XdpLink(link)
            }
        }
        PROG_TYPE_SCHED_CLS => Pinned::Program(info[1]),
        _ => Pinned::Other,
    }))
}

impl DeviceLink {
    /// Takes the program off the device before this returns; who else holds the link has nothing
    /// of it any more.
    pub(super) fn detach(&self) -> io::Result<()> {
        let mut attributes = [0; ATTRIBUTE_WORDS];
        attributes[0] = self.descriptor.as_raw_fd().cast_unsigned().into();
        call(BPF_LINK_DETACH, &mut attributes).map(drop)
    }
}

/// A program of XDP that lets every frame pass, with a name that lists of programs show.
pub(super) fn load_passing(name: &str) -> io::Result<OwnedFd> {
    // `r0 = XDP_PASS; exit`.
    const INSTRUCTIONS: [u64; 2] = [0x0000_0002_0000_00b7, 0x95];
    const LICENSE: &[u8] = b"Dual MIT/GPL\0";
    let mut attributes = [0; ATTRIBUTE_WORDS];
    attributes[0] = (INSTRUCTIONS.len() as u64) << 32 | u64::from(PROG_TYPE_XDP);
    attributes[1] = INSTRUCTIONS.as_ptr() as u64;
    attributes[2] = LICENSE.as_ptr() as u64;
    [attributes[6], attributes[7]] = label(name);
    let descriptor = call(BPF_PROG_LOAD, &mut attributes)?;
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// The name of a map or program as the kernel takes it.
fn label(name: &str) -> [u64; 2] {
    let mut label = [0; 16];
    // The kernel wants the last byte to be zero.
    label
        .iter_mut()
        .take(15)
        .zip(name.bytes())
        .for_each(|(to, from)| *to = from);
    let half = |at| label[at..].first_chunk().copied().unwrap_or_default();
    [0, 8].map(|at: usize| u64::from_le_bytes(half(at)))
}

/// Has the kernel run a program of XDP on so many copies of a frame as if `interface` had received
/// them, and do with each what the program decides.
pub(super) fn run_on_live_frames(
    program: &OwnedFd,
    interface: u32,
    frame: &[u8],
    count: u32,
) -> io::Result<()> {
    let length = u32::try_from(frame.len()).map_err(io::Error::other)?;
    // `struct xdp_md`: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex.
    let context: [u32; 6] = [0, length, 0, interface, 0, 0];
    let mut attributes = [0; ATTRIBUTE_WORDS];
    attributes[0] = u64::from(program.as_raw_fd().cast_unsigned());
    attributes[1] = u64::from(length);
    attributes[2] = frame.as_ptr() as u64;
    attributes[4] = u64::from(count);
    attributes[5] = size_of_val(&context) as u64;
    attributes[6] = context.as_ptr() as u64;
    attributes[8] = u64::from(BPF_F_TEST_XDP_LIVE_FRAMES);
    // `batch_size` follows `cpu`: as many as the kernel takes at once by itself.
    call(BPF_PROG_TEST_RUN, &mut attributes).map(drop)
}

/// An array map whose memory is on a NUMA node, which the library cannot ask for. It has no type
/// information, which is for people alone.
pub(super) fn create_array_on_node(
    name: &str,
    (value_bytes, entries): (u32, u32),
    flags: u32,
    node: u32,
) -> io::Result<OwnedFd> {
    const KEY_BYTES: u64 = 4;
    let mut attributes = [0; ATTRIBUTE_WORDS];
    attributes[0] = KEY_BYTES << 32 | u64::from(BPF_MAP_TYPE_ARRAY);
    attributes[1] = u64::from(entries) << 32 | u64::from(value_bytes);
    // The map's flags, then a map that another one is made of.
    attributes[2] = u64::from(flags | BPF_F_NUMA_NODE);
    let [first, second] = label(name);
    // The node, then 16 bytes of a name.
    attributes[3] = first << 32 | u64::from(node);
    attributes[4] = second << 32 | first >> 32;
    attributes[5] = second >> 32;
    let descriptor = call(BPF_MAP_CREATE, &mut attributes)?;
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Pins what a descriptor is of.
pub(super) fn pin(descriptor: &OwnedFd, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut attributes = [0; ATTRIBUTE_WORDS];
    attributes[0] = path.as_ptr() as u64;
    attributes[1] = u64::from(descriptor.as_raw_fd().cast_unsigned());
    call(BPF_OBJ_PIN, &mut attributes).map(drop)
}

/// A link, as far as it says which program takes the place of a function of another one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    /// In the kernel's number (`enum bpf_link_type`).
    pub(super) kind: u32,
    /// The number of the program that it holds.
    pub(super) program_id: u32,
    /// Of a tracing link, in the kernel's number (`enum bpf_attach_type`).
    pub(super) attach_type: u32,
    /// Of a tracing link, the number of the program that it is attached to.
    pub(super) target: u32,
}

impl Link {
    /// The number of the program in which a function was replaced; `None` where none was. Such links
    /// count as tracing, but have no attach type.
    pub(super) fn replaced_in(&self) -> Option<u32> {
        (self.kind == LINK_TYPE_TRACING && self.attach_type == 0).then_some(self.target)
    }
}

/// All links of this machine, as far as the caller may see them, which takes CAP_SYS_ADMIN.
pub(super) fn links() -> impl Iterator<Item = Link> {
    let ids = std::iter::successors(next_link(0), |id| next_link(*id));
    // One that has gone meanwhile is none any more.
    ids.filter_map(|id| {
        let descriptor = link(id).ok()?;
        let info = info(&descriptor).ok()?;
        Some(Link {
            kind: info[0],
            program_id: info[2],
            attach_type: info[4],
            target: info[5],
        })
    })
}

/// The number of the next link after this one.
fn next_link(id: u32) -> Option<u32> {
    let mut attributes = [0; ATTRIBUTE_WORDS];
    attributes[0] = id.into();
    call(BPF_LINK_GET_NEXT_ID, &mut attributes).ok()?;
    // Written behind the number that was given.
    Some((attributes[0] >> 32) as u32)
}

fn link(id: u32) -> io::Result<OwnedFd> {
    let mut attributes = [0; ATTRIBUTE_WORDS];
    attributes[0] = id.into();
    let descriptor = call(BPF_LINK_GET_FD_BY_ID, &mut attributes)?;
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_OBJ_PIN: libc::c_int = 6;
const BPF_OBJ_GET: libc::c_int = 7;
const BPF_PROG_TEST_RUN: libc::c_int = 10;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const BPF_LINK_GET_FD_BY_ID: libc::c_int = 30;
const BPF_LINK_GET_NEXT_ID: libc::c_int = 31;
const BPF_LINK_DETACH: libc::c_int = 34;
/// Of `BPF_PROG_TEST_RUN`: what comes of the frames is real (Linux 5.18).
const BPF_F_TEST_XDP_LIVE_FRAMES: u32 = 1 << 1;
/// `BPF_MAP_TYPE_ARRAY`.
const BPF_MAP_TYPE_ARRAY: u32 = 2;
/// Of a map: its memory is on the node that is named.
const BPF_F_NUMA_NODE: u32 = 1 << 2;
/// `BPF_PROG_TYPE_XDP`.
const PROG_TYPE_XDP: u32 = 6;
/// `BPF_PROG_TYPE_SCHED_CLS`, with which the information on a program begins; no link of ours has
/// this number.
const PROG_TYPE_SCHED_CLS: u32 = 3;
/// `BPF_LINK_TYPE_TRACING`.
const LINK_TYPE_TRACING: u32 = 2;
/// `BPF_LINK_TYPE_TCX`, with which the information on a link begins; no program of ours has this
/// number.
const LINK_TYPE_TCX: u32 = 11;
/// Of `struct bpf_link_info`: type, id, program, padding, then device, or attach type and target.
const INFO_WORDS: usize = 8;
/// More than the attributes of the calls above take.
const ATTRIBUTE_WORDS: usize = 10;

pub(super) fn open(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut attributes = [0; ATTRIBUTE_WORDS];
    attributes[0] = path.as_ptr() as u64;
    let descriptor = call(BPF_OBJ_GET, &mut attributes)?;
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn info(descriptor: &OwnedFd) -> io::Result<[u32; INFO_WORDS]> {
    let mut info = [0u32; INFO_WORDS];
    let mut attributes = [0; ATTRIBUTE_WORDS];
    let length = (size_of_val(&info) as u64) << 32;
    attributes[0] = length | u64::from(descriptor.as_raw_fd().cast_unsigned());
    attributes[1] = info.as_mut_ptr() as u64;
    call(BPF_OBJ_GET_INFO_BY_FD, &mut attributes)?;
    Ok(info)
}

/// Words in the order of little-endian machines, which the kernel programs are built for.
fn call(command: libc::c_int, attributes: &mut [u64; ATTRIBUTE_WORDS]) -> io::Result<i32> {
    // SAFETY: the attributes are a valid buffer of the size that is reported, and pointers in them are
    // to values of the caller, which outlive the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            attributes.as_mut_ptr(),
            size_of_val(attributes),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result as i32)
}
/// `BPF_LINK_TYPE_XDP`. Programs of XDP have this number, too, but none is pinned where links are.
const LINK_TYPE_XDP: u32 = 6;
