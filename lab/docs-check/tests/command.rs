//! The program from outside.

use std::{fs, process::Command};

#[test]
fn a_page_that_leads_nowhere_fails_with_its_place() {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    for page in ["README.md", "cloudburst/README.md", "CONTRIBUTING.md"] {
        write(page, "");
    }
    for page in ["SECURITY.md", "CHANGELOG.md", "packaging/README.md"] {
        write(page, "");
    }
    write(
        "docs/src/a.md",
        "![a](figures/a.svg) `netsim list`\n\n<!-- not run: does not end -->\n```sh\nnetsim list\n```\n",
    );
    write("docs/figures/a.pikchr", "# A\nbox \"a\" fit\n");
    write("book/a.html", "<a href=\"b.html\">");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_docs-check"));
        command.arg("--root").arg(root.path()).args(arguments);
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        (output.status.code(), text)
    };
    let (code, text) = run(&["figures"]);
    assert_eq!((code, &*text), (Some(0), "docs/src/figures/a.svg\n"));
    let book = root.path().join("book");
    let programs = root.path().join("programs");
    // Whoever lists itself with `true` knows every command.
    fs::create_dir(&programs).unwrap();
    std::os::unix::fs::symlink("/bin/true", programs.join("netsim")).unwrap();
    let check = [
        "check",
        "--book",
        book.to_str().unwrap(),
        "--programs",
        programs.to_str().unwrap(),
    ];
    let (code, text) = run(&check);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("a.html: no file b.html"), "{text}");
    fs::write(book.join("b.html"), "").unwrap();
    let (code, text) = run(&check);
    assert_eq!(code, Some(0), "{text}");
}
