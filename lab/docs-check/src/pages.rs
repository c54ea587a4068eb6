//! Pages as Markdown: their headings, links, pictures, spans and blocks of code.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// Pages that are read besides the book, below the root.
const OUTSIDE: [&str; 6] = [
    "README.md",
    "cloudburst/README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "packaging/README.md",
];

/// One page, and what is looked at in it.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// Its path below the root.
    pub path: PathBuf,
    /// All of it.
    pub text: String,
    /// Text of the headings, in their order.
    pub headings: Vec<String>,
    /// Targets of links and sources of pictures, with their lines.
    pub links: Vec<(usize, String)>,
    /// Spans of code, with their lines.
    pub spans: Vec<(usize, String)>,
    /// Blocks of code, with their first lines.
    pub blocks: Vec<Block>,
}

/// A fenced block of code, its first line in the page, and what the fence says about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Number of the line behind the fence.
    pub line: usize,
    /// The fence's information, such as `sh`.
    pub language: String,
    /// What stands between the fences.
    pub text: String,
    /// The reason of a comment in front of it that says `not run: REASON`.
    pub not_run: Option<String>,
    /// The reason of a comment in front of it that says `not compared: REASON`.
    pub not_compared: Option<String>,
    /// True where nothing but a comment stands between it and the block before.
    pub follows: bool,
}

impl Page {
    /// Reads a page from its text.
    pub fn parse(path: impl Into<PathBuf>, text: &str) -> Self {
        let mut page = Self {
            path: path.into(),
            text: text.to_owned(),
            ..Self::default()
        };
        let line = |offset: usize| text[..offset].matches('\n').count() + 1;
        let (mut heading, mut block): (Option<String>, Option<Block>) = (None, None);
        let (mut mark, mut is_behind) = (None, false);
        for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
            // Only what stands right in front of a block is about it.
            let in_front = match &event {
                Event::Html(comment) => Some(comment.to_string()),
                Event::End(TagEnd::HtmlBlock) => mark.take(),
                _ => None,
            };
            let before = std::mem::replace(&mut mark, in_front);
            if let Event::Start(Tag::Paragraph | Tag::Heading { .. } | Tag::Item | Tag::Table(_)) =
                event
            {
                is_behind = false;
            }
            match event {
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => page.headings.extend(heading.take()),
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push((line(range.start), dest_url.into_string()));
                }
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) => {
                    block = Some(Block {
                        line: line(range.start) + 1,
                        language: language.into_string(),
                        text: String::new(),
                        not_run: before.as_deref().and_then(|it| reason(it, "not run: ")),
                        not_compared: before.and_then(|it| reason(&it, "not compared: ")),
                        follows: is_behind,
                    });
                }
                Event::End(TagEnd::CodeBlock) => {
                    page.blocks.extend(block.take());
                    is_behind = true;
                }
                Event::Code(span) => {
                    heading.iter_mut().for_each(|it| it.push_str(&span));
                    page.spans.push((line(range.start), span.into_string()));
                }
                Event::Text(piece) => {
                    heading.iter_mut().for_each(|it| it.push_str(&piece));
                    block.iter_mut().for_each(|it| it.text.push_str(&piece));
                }
                _ => {}
            }
        }
        page
    }

    /// Writes the place of a line as compilers do.
    pub fn place(&self, line: usize) -> String {
        format!("{}:{line}", self.path.display())
    }
}

/// The reason in a comment that says what is not done with a block.
fn reason(comment: &str, what: &str) -> Option<String> {
    let inside = comment.trim().strip_prefix("<!--")?.strip_suffix("-->")?;
    Some(inside.trim().strip_prefix(what)?.to_owned())
}

/// Reads the book's pages and those that lie outside of it.
///
/// # Errors
/// When one cannot be read.
pub fn read(root: &Path) -> Result<Vec<Page>> {
    let mut paths: Vec<PathBuf> = OUTSIDE.iter().map(PathBuf::from).collect();
    let mut directories = vec![PathBuf::from("docs/src")];
    while let Some(directory) = directories.pop() {
        let entries = fs::read_dir(root.join(&directory))
            .with_context(|| format!("cannot read {}", directory.display()))?;
        for entry in entries {
            let entry = entry?;
            let path = directory.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|it| it == "md") {
                paths.push(path);
            }
        }
    }
    paths.sort();
    let each = paths.into_iter().map(|path| {
        let text = fs::read_to_string(root.join(&path))
            .with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Page::parse(path, &text))
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_looked_at_has_its_line() {
        let page = Page::parse(
            "a.md",
            "# The `run` command\n\nSee [b](b.md#c).\n\n```sh\nsplitter plan\n```\n\n![d](d.svg) `e`\n",
        );
        assert_eq!(page.headings, ["The run command"]);
        assert_eq!(page.links, [(3, "b.md#c".into()), (9, "d.svg".into())]);
        assert_eq!(page.spans, [(1, "run".into()), (9, "e".into())]);
        let [block] = &page.blocks[..] else {
            panic!("{:?}", page.blocks)
        };
        assert_eq!((block.line, &*block.language), (6, "sh"));
        assert_eq!(block.text, "splitter plan\n");
    }
}
