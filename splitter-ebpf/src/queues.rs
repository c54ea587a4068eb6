//! The real queues in front of shared tunnels.

use aya_ebpf::Global;
use aya_ebpf::btf_maps::Array;
use aya_ebpf::helpers::bpf_probe_read_kernel;
use aya_ebpf::macros::btf_map;
use splitter_policy::flow::TunnelRole;
use splitter_policy::queue_search::ShortQueues;
use splitter_policy::share::ShortBacklog;

/// 0 on a kernel that lets no program read its memory (`lockdown=confidentiality`), whose verifier
/// would refuse the call.
#[unsafe(no_mangle)]
static READS_QUEUES: Global<u8> = Global::new(1);

#[btf_map]
static SHORT_QUEUES: Array<ShortQueues, 1> = Array::new();

/// The short class of the tunnels, as far as the agent has found it.
pub struct KernelBacklog;

impl ShortBacklog for KernelBacklog {
    #[inline(always)]
    fn bytes(&self, tunnel: TunnelRole) -> u64 {
        if READS_QUEUES.load() == 0 {
            return 0;
        }
        let Some(queues) = SHORT_QUEUES.get(0) else {
            return 0;
        };
        let [short, long] = queues.backlogs;
        let address = match tunnel {
            TunnelRole::Short => short,
            TunnelRole::Long => long,
        };
        if address == 0 {
            return 0;
        }
        // SAFETY: the helper reads what is there and fails where nothing is.
        unsafe { bpf_probe_read_kernel(address as *const u32) }.map_or(0, u64::from)
    }
}
