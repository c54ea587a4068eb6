//! The archive that a kernel unpacks into its first file system (cpio in the "newc" format, as in
//! the kernel's Documentation/driver-api/early-userspace/buffer-format.rst).

/// An archive that grows.
#[derive(Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    pub(super) fn add_directory(&mut self, path: &str) {
        self.add(path, 0o040_755, (0, 0), &[]);
    }

    pub(super) fn add_program(&mut self, path: &str, content: &[u8]) {
        self.add(path, 0o100_755, (0, 0), content);
    }

    pub(super) fn add_character_device(&mut self, path: &str, major: u32, minor: u32) {
        self.add(path, 0o020_600, (major, minor), &[]);
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.add("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    fn add(&mut self, path: &str, mode: u32, (major, minor): (u32, u32), content: &[u8]) {
        self.entries += 1;
        // A program of more than 4 GiB would not fit the machine's memory either.
        let content_bytes = u32::try_from(content.len()).unwrap_or(u32::MAX);
        let path_bytes = u32::try_from(path.len() + 1).unwrap_or(u32::MAX);
        let fields = [
            self.entries, // inode
            mode,
            0, // owner
            0, // group
            1, // links
            0, // time
            content_bytes,
            0, // device
            0,
            major,
            minor,
            path_bytes,
            0, // checksum, which this format does not have
        ];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").bytes());
        }
        self.bytes.extend(path.bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend(content);
        self.align();
    }

    /// Names and contents begin at multiples of 4 bytes.
    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name, mode and content of each entry.
    fn entries(mut bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut entries = Vec::new();
        while !bytes.is_empty() {
            let (header, rest) = bytes.split_at(110);
            assert_eq!(&header[..6], b"070701");
            let field = |index: usize| {
                let digits = &header[6 + 8 * index..][..8];
                u32::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap()
            };
            let (content_bytes, name_bytes) = (field(6) as usize, field(11) as usize);
            let name = String::from_utf8(rest[..name_bytes - 1].to_vec()).unwrap();
            let start = (110 + name_bytes).next_multiple_of(4) - 110;
            let content = rest[start..][..content_bytes].to_vec();
            entries.push((name, field(1), content));
            bytes = &rest[(110 + start + content_bytes).next_multiple_of(4) - 110..];
        }
        entries
    }

    #[test]
    fn entries_come_back_as_they_were_put_in() {
        let mut archive = Archive::default();
        archive.add_directory("dev");
        archive.add_character_device("dev/console", 5, 1);
        archive.add_program("init", b"seven b");
        archive.add_program("x", b"");
        let found = entries(&archive.finish());
        let names: Vec<_> = found.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names, ["dev", "dev/console", "init", "x", "TRAILER!!!"]);
        assert_eq!(found[0].1, 0o040_755);
        assert_eq!(found[2].2, b"seven b");
    }
}
