pub(super) const ENVELOPE_BYTES: usize = 17;
