//! What comes over the boundary, and what goes back: pointers become references, or an error.

use std::ffi::{CStr, c_char};

use super::status::{Failure, cloudburst_status};

/// Takes a text.
///
/// # Safety
///
/// `pointer` is NULL, or points to bytes that end with NUL and that nobody changes while the reference lives.
pub(crate) unsafe fn text<'a>(
    pointer: *const c_char,
    name: &'static str,
) -> Result<&'a str, Failure> {
    if pointer.is_null() {
        return Err(Failure::null(name));
    }
    // SAFETY: it is not NULL, and the rest the caller says.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str()
        .map_err(|error| Failure::argument(format!("`{name}` is no UTF-8: {error}")))
}

/// Writes a text with its NUL, or an empty one if it does not fit. Returns the bytes that it takes.
///
/// # Safety
///
/// `buffer` is NULL, or may be written to for `size` bytes.
pub(crate) unsafe fn put_text(buffer: *mut c_char, size: usize, text: &str) -> usize {
    let needed = text.len() + 1;
    if buffer.is_null() || size == 0 {
        return needed;
    }
    let text = if needed <= size { text } else { "" };
    // SAFETY: the text and its NUL fit into `size` bytes, which may be written to, and are not part of
    // the text, which is the library's own.
    unsafe {
        buffer
            .cast::<u8>()
            .copy_from_nonoverlapping(text.as_ptr(), text.len());
        buffer.add(text.len()).write(0);
    }
    needed
}

/// As [`put_text`], where what does not fit is an error.
///
/// # Safety
///
/// As for [`put_text`].
pub(crate) unsafe fn put_whole_text(
    buffer: *mut c_char,
    size: usize,
    text: &str,
    name: &'static str,
) -> Result<(), Failure> {
    if buffer.is_null() {
        return Err(Failure::null(name));
    }
    // SAFETY: the caller says so.
    let needed = unsafe { put_text(buffer, size, text) };
    if needed > size {
        let reason = format!("`{name}` has {size} bytes, and the text takes {needed}");
        return Err(Failure::new(cloudburst_status::BufferTooSmall, reason));
    }
    Ok(())
}
