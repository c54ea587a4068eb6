//! Keys of the commands that are measured, as users have them: a pair at each end.

use std::{ffi::OsString, fs};

use anyhow::{Context, Result};
use cloudburst_proto::SecretKey;
use tempfile::TempDir;

const CLIENT: &str = "client.key";
const ALLOWED: &str = "allowed";
const SERVER: &str = "server.key";
const SERVER_PUBLIC: &str = "server.pub";

/// Files with keys, which are removed with this value.
pub(super) struct Keys(TempDir);

impl Keys {
    pub(super) fn new() -> Result<Self> {
        let directory = tempfile::tempdir().context("cannot make a directory for keys")?;
        let [client, server] = [1, 2].map(|number| SecretKey::new([number; 32]));
        let texts = [
            (CLIENT, client.to_string()),
            (ALLOWED, client.public().to_string()),
            (SERVER, server.to_string()),
            (SERVER_PUBLIC, server.public().to_string()),
        ];
        for (name, text) in texts {
            fs::write(directory.path().join(name), text).context("cannot write a key")?;
        }
        Ok(Self(directory))
    }

    /// Arguments of a server.
    pub(super) fn of_server(&self) -> [OsString; 4] {
        self.arguments(["--key-file", "--allow"], [SERVER, ALLOWED])
    }

    /// Arguments of a client of that server.
    pub(super) fn of_client(&self) -> [OsString; 4] {
        self.arguments(["--key-file", "--peer-key"], [CLIENT, SERVER_PUBLIC])
    }

    fn arguments(&self, [first, second]: [&str; 2], files: [&str; 2]) -> [OsString; 4] {
        let [own, other] = files.map(|name| self.0.path().join(name).into());
        [first.into(), own, second.into(), other]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_has_a_secret_of_its_own_and_the_other_s_public_key() {
        let keys = Keys::new().unwrap();
        let read = |argument: &OsString| fs::read_to_string(argument).unwrap();
        let ([_, server, _, allowed], [_, client, _, public]) =
            (keys.of_server(), keys.of_client());
        let public_of = |file| {
            let secret: SecretKey = read(file).parse().unwrap();
            secret.public().to_string()
        };
        assert_eq!(public_of(&server), read(&public));
        assert_eq!(public_of(&client), read(&allowed));
        assert_ne!(read(&server), read(&client));
    }
}
