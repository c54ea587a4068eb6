//! `cloudburst keygen`.

use std::fs;

use super::{cloudburst, stderr, stdout};

#[cfg(unix)]
#[test]
fn keygen_is_private_and_overwrites_nothing() {
    use std::os::unix::fs::PermissionsExt;

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key");
    let path = file.to_str().unwrap();
    let output = cloudburst(&["keygen", path, "--shared", "--id", "7"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let first = fs::read_to_string(&file).unwrap();
    assert!(
        first.starts_with("7:") && first.len() == 67,
        "a number and 64 digits"
    );
    assert!(
        !stdout(&output).contains(first.trim()),
        "the key is not shown"
    );
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );

    let output = cloudburst(&["keygen", path]);
    assert_eq!(output.status.code(), Some(5));
    assert!(stderr(&output).contains("--force"));
    assert_eq!(fs::read_to_string(&file).unwrap(), first);
    fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    assert!(cloudburst(&["keygen", path, "--force"]).status.success());
    let files = fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(files, 1, "nothing is left next to it");
    assert_ne!(fs::read_to_string(&file).unwrap(), first);
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
}

/// The secret half stays in the file, and the public one is all of standard output.
#[test]
fn a_key_pair_shows_its_public_half_alone() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key");
    let output = cloudburst(&["keygen", file.to_str().unwrap()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let secret = fs::read_to_string(&file).unwrap();
    let digits = secret.trim().strip_prefix("cloudburst-secret:").unwrap();
    let public = stdout(&output);
    assert!(public.starts_with("cloudburst-public:") && public.lines().count() == 1);
    assert!(!public.contains(digits) && !stderr(&output).contains(digits));
}
