//! Which distribution this is (os-release(5)).

/// What /etc/os-release says that matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OsRelease {
    /// `ID`: `debian`, `ubuntu`, `fedora`.
    pub(crate) id: String,
    /// `ID_LIKE`: the distributions that it derives from.
    pub(crate) id_like: Vec<String>,
    /// `PRETTY_NAME`, else the identifier.
    pub(crate) name: String,
}

impl OsRelease {
    /// Reads this system's file, or its fallback place.
    pub(crate) fn of_this_system() -> Self {
        ["/etc/os-release", "/usr/lib/os-release"]
            .into_iter()
            .find_map(|path| std::fs::read_to_string(path).ok())
            .map(|text| Self::parse(&text))
            .unwrap_or_default()
    }

    /// Reads the `NAME=value` lines; unknown names and comments are passed over.
    pub(crate) fn parse(text: &str) -> Self {
        let value = |name: &str| {
            text.lines()
                .filter_map(|line| line.trim().split_once('='))
                .find(|(found, _)| *found == name)
                .map(|(_, value)| unquote(value))
        };
        let id = value("ID").unwrap_or_default();
        Self {
            name: value("PRETTY_NAME").unwrap_or_else(|| id.clone()),
            id_like: value("ID_LIKE")
                .unwrap_or_default()
                .split_whitespace()
                .map(str::to_owned)
                .collect(),
            id,
        }
    }

    /// Whether packages come with apt under Debian's names.
    pub(crate) fn is_debian_like(&self) -> bool {
        let known = |id: &str| matches!(id, "debian" | "ubuntu");
        known(&self.id) || self.id_like.iter().any(|id| known(id))
    }
}

fn unquote(value: &str) -> String {
    let value = value.trim();
    let quoted = |mark: char| value.strip_prefix(mark)?.strip_suffix(mark);
    quoted('"')
        .or_else(|| quoted('\''))
        .unwrap_or(value)
        .replace('\\', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_debian_ubuntu_and_what_derives_from_them() {
        let like = |text: &str| OsRelease::parse(text).is_debian_like();
        assert!(like(
            "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nID=debian\n"
        ));
        assert!(like("ID=ubuntu\nID_LIKE=debian\n"));
        assert!(like("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n"));
        assert!(!like("ID=fedora\n"));
        assert!(!like("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n"));
        assert!(!like(""));
    }

    #[test]
    fn reads_quoted_and_bare_values() {
        let release = OsRelease::parse("# a comment\nID='arch'\nPRETTY_NAME=Arch\\ Linux\n");
        assert_eq!(release.id, "arch");
        assert_eq!(release.name, "Arch Linux");
        assert_eq!(OsRelease::parse("ID=void").name, "void");
    }
}
