//! Placeholder: replaced by the packet layer.
/// Keys.
#[derive(Clone, Debug, Default)]
pub struct Keyring(Vec<[u8; 32]>);
impl Keyring {
    /// None.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
