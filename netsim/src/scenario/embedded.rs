//! Built-in scenarios, embedded in the binary.

/// A scenario that is built in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Embedded {
    /// Name of the scenario.
    pub name: &'static str,
    /// Text of its file.
    pub text: &'static str,
}

macro_rules! scenarios {
    ($($name:literal),* $(,)?) => {
        &[$(Embedded {
            name: $name,
            text: include_str!(concat!("../../scenarios/", $name, ".toml")),
        }),*]
    };
}

/// All of them; a test holds the list against the directory.
pub fn embedded() -> &'static [Embedded] {
    scenarios![
        "all-to-all",
        "cloudburst-failures",
        "cloudburst-incast",
        "cloudburst-large",
        "cloudburst-oversubscribed",
        "cloudburst-testbed",
        "ring-all-reduce",
        "tr-large",
        "tr-large-cache-follower",
        "tr-large-data-mining",
        "tr-large-web-server",
        "tr-motivation",
        "tr-thresholds",
        "tree-all-reduce",
    ]
}
