//! `[attach]`: how the XDP program is attached.

use crate::declaration::key;
use crate::declare::section;
use crate::key::Change::Reload;
use crate::kind::{enumeration, word};

section! {
    /// Says how the XDP program is attached.
    pub struct Attach, GivenAttach {
        /// The program is attached in one of these ways: "native" (in the driver), "generic" (any
        /// device, slower), "auto" (native, else generic; `splitter status` says which).
        mode: AttachMode = key("mode", Reload, word())
            .default(AttachMode::Auto)
            .also("not with `steering.mode = \"mark\"`, nor with `\"dscp\"` and `balance`")
            .trade_off(
                "With `native`, a driver without XDP is an error; with `auto`, a warning. What is \
                 attached already in either mode satisfies `auto`.",
            );
    }
}

enumeration! {
    /// The way in which the XDP program is attached.
    AttachMode {
        /// In the driver, or not at all.
        Native = "native",
        /// In the network stack, for any device; slower.
        Generic = "generic",
        /// Native where the driver has it, else generic; what it became is reported.
        Auto = "auto",
    }
}
