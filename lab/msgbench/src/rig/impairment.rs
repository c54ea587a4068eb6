//! Impairments of paths: packet loss and black holes.

use flow_testbed::namespace::NamespaceError;

use super::{PATH_DEVICES, Rig};

/// An impairment of paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Impairment {
    /// Every path loses so many packets of a thousand, in both directions, independently.
    Loss {
        /// Packets of a thousand.
        per_mille: u32,
    },
    /// A black hole: a path loses everything in both directions, unannounced.
    Dead {
        /// Index of the path.
        path: usize,
    },
}

impl Rig {
    /// Impairs the paths like this only; `None` heals them.
    ///
    /// # Errors
    /// When `nft` fails.
    pub fn impair(&self, impairment: Option<Impairment>) -> Result<(), NamespaceError> {
        // Packets are lost where they arrive: they have taken their share of the path by then.
        let rule = impairment.map_or_else(String::new, |it| match it {
            Impairment::Loss { per_mille } => {
                format!("iifname path* numgen random mod 1000 < {per_mille} drop")
            }
            Impairment::Dead { path } => format!("iifname {} drop", PATH_DEVICES[path]),
        });
        let rules = format!(
            "table ip impairment
             delete table ip impairment
             table ip impairment {{
               chain from-paths {{
                 type filter hook prerouting priority raw; policy accept;
                 {rule}
               }}
             }}\n"
        );
        for router in [&self.router_a, &self.router_b] {
            router.run_with_input("nft -f -", &rules)?;
        }
        Ok(())
    }
}
