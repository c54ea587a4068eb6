//! The scenarios that are built in.

/// A scenario that is built in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Embedded {
    /// What it is called.
    pub name: &'static str,
    /// The file.
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
        "cloudburst-failures",
        "cloudburst-incast",
        "cloudburst-large",
        "cloudburst-oversubscribed",
        "cloudburst-testbed",
        "tr-large",
        "tr-large-cache-follower",
        "tr-large-data-mining",
        "tr-large-web-server",
        "tr-motivation",
        "tr-thresholds",
    ]
}
