//! How a program of the kernel finds the queues that the policy asks about.

/// A search for the queue that a thread is just asking the kernel about; the value of a map.
///
/// The caller writes who it is, asks, and finds the address.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueSearch {
    /// The device of the caller's PID namespace (`st_dev` of `/proc/self/ns/pid`).
    pub namespace_device: u64,
    /// The inode of it.
    pub namespace_inode: u64,
    /// The caller's number in that namespace.
    pub thread: u64,
    /// The address of the kernel's `struct Qdisc`; 0 before it was found.
    pub queue: u64,
}

/// Which queues the programs look into, and where; the value of a map.
///
/// An address may outlive its queue. What is read there then is any number, and decides on no more
/// than whether a flow changes tunnels or stays.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShortQueues {
    /// The addresses, in the kernel's memory, of the bytes that wait in the short class of each
    /// shared tunnel; 0 where nobody has found them.
    pub backlogs: [u64; 2],
    /// The devices of the tunnels whose queues these are.
    pub devices: [u32; 2],
}
