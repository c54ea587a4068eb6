//! Roles in a fabric that are in place without the file that says so.

use std::path::Path;

use splitter_config::FabricConfig;

use super::Check;

const REMEDY: &str = "write the file again, or take the role down: `splitter fabric down --all` does so with all roles that no agent runs";

/// Examines if a role whose programs are pinned in `pins` is still that of a file: the one of which it was put in place
/// last, as far as that was noted. Without it, nobody who reads files knows that something is attached.
#[must_use]
pub fn examine_role(name: &str, pins: &Path, file: Option<&Path>) -> Check {
    let check = format!("file of the role {name}");
    let pinned = pins.display();
    let Some(file) = file else {
        let detail = format!("pinned in {pinned}, and nobody has noted of which file it is");
        return Check::warn(check, detail, REMEDY);
    };
    let shown = file.display();
    let problem = match FabricConfig::load(file) {
        Ok(config) if config.pin_dir() == pins => return Check::ok(check, shown.to_string()),
        Ok(config) => format!(
            "{shown} is of another role by now, pinned in {}",
            config.pin_dir().display()
        ),
        Err(_) if !file.exists() => format!("{shown} is not there any more"),
        Err(_) => {
            let detail = format!("{shown} cannot be used");
            let remedy = "`splitter -c FILE fabric check` says why; correct it";
            return Check::warn(check, detail, remedy);
        }
    };
    Check::warn(check, format!("pinned in {pinned}, and {problem}"), REMEDY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Status;

    #[test]
    fn role_has_a_file_that_states_it() {
        let directory = tempfile::tempdir().unwrap();
        let (pins, file) = (
            Path::new("/b/splitter-fabric/a"),
            directory.path().join("f"),
        );
        let examined = |file: Option<&Path>| {
            let check = examine_role("a", pins, file);
            assert_eq!(check.check, "file of the role a");
            (check.status, check.detail)
        };
        let (status, detail) = examined(None);
        assert!(status == Status::Warn && detail.contains("nobody has noted"));
        let (status, detail) = examined(Some(&file));
        assert!(status == Status::Warn && detail.contains("is not there any more"));
        let write = |name: &str| {
            let text = format!(
                "name = '{name}'\nbpffs = '/b'\n[fabric]\nrole = 'spine'\ndscp = 41\n\
                 [[fabric.ports]]\ndevice = 'a'\nrate_mbit = 1\n"
            );
            std::fs::write(&file, text).unwrap();
        };
        write("a");
        assert_eq!(examined(Some(&file)).0, Status::Ok);
        write("c");
        let (status, detail) = examined(Some(&file));
        assert!(status == Status::Warn, "{detail}");
        assert!(detail.contains("of another role by now, pinned in /b/splitter-fabric/c"));
        std::fs::write(&file, "role = ").unwrap();
        let (status, detail) = examined(Some(&file));
        assert!(status == Status::Warn && detail.ends_with("cannot be used"));
    }
}
