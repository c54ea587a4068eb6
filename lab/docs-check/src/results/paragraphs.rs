//! The text of a page that results are held against.

use super::block;

/// Text between blank lines that is neither in a block, nor code, nor measured by hand.
pub(super) struct Paragraph {
    pub(super) line: usize,
    pub(super) text: String,
}

/// Returns the paragraphs of a page that have to agree with results.
pub(super) fn paragraphs(text: &str) -> Vec<Paragraph> {
    let mut found: Vec<Paragraph> = Vec::new();
    let (mut end, mut is_open, mut is_exempt) = (None, false, false);
    for (line, text) in (1..).zip(text.lines()) {
        let trimmed = text.trim();
        if let Some(mark) = &end {
            if trimmed == mark {
                end = None;
            }
        } else if let Some((kind, _)) = block(text) {
            end = Some(format!("<!-- end of {kind} -->"));
            is_open = false;
        } else if trimmed.starts_with("```") {
            end = Some("```".to_owned());
            is_open = false;
        } else if trimmed.starts_with("<!-- by hand: ") {
            (is_open, is_exempt) = (false, true);
        } else if trimmed.is_empty() {
            // A comment may have a blank line behind it.
            is_exempt &= !is_open;
            is_open = false;
        } else if is_open {
            if !is_exempt && let Some(last) = found.last_mut() {
                last.text.push('\n');
                last.text += text;
            }
        } else {
            is_open = true;
            if !is_exempt {
                found.push(Paragraph {
                    line,
                    text: text.to_owned(),
                });
            }
        }
    }
    found
}

/// The words of a text, and its numbers.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|it: char| !it.is_alphanumeric())
}
