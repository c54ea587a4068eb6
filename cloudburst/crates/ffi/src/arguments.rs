//! Arguments and results of the C interface: pointers become references, or an error.

use std::{
    ffi::{CStr, c_char},
    slice,
    time::Duration,
};

use super::{
    CLOUDBURST_FOREVER,
    status::{Failure, cloudburst_status},
};

/// Takes a handle or a struct by reference.
///
/// # Safety
///
/// `pointer` is NULL, or points to a `T` that nobody changes or frees while the reference lives.
pub(crate) unsafe fn shared<'a, T>(
    pointer: *const T,
    name: &'static str,
) -> Result<&'a T, Failure> {
    // SAFETY: the caller says so.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failure::null(name))
}

/// Takes a handle to change.
///
/// # Safety
///
/// `pointer` is NULL, or points to a `T` that nobody else uses while the reference lives.
pub(crate) unsafe fn exclusive<'a, T>(
    pointer: *mut T,
    name: &'static str,
) -> Result<&'a mut T, Failure> {
    // SAFETY: the caller says so.
    unsafe { pointer.as_mut() }.ok_or_else(|| Failure::null(name))
}

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

/// Takes the content of a message; NULL may stand for none.
///
/// # Safety
///
/// `pointer` is NULL, or points to `length` bytes that nobody changes while the reference lives.
pub(crate) unsafe fn content<'a>(pointer: *const u8, length: usize) -> Result<&'a [u8], Failure> {
    if length == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(Failure::null("message"));
    }
    if isize::try_from(length).is_err() {
        let reason = format!("a message of {length} bytes cannot be in memory");
        return Err(Failure::argument(reason));
    }
    // SAFETY: it is neither NULL nor longer than memory can be, and the rest the caller says.
    Ok(unsafe { slice::from_raw_parts(pointer, length) })
}

/// Takes the place of a handle to be returned, and puts NULL there.
///
/// # Safety
///
/// `place` is NULL, or may be written to and is nobody else's while the reference lives.
pub(crate) unsafe fn place<'a, T>(
    place: *mut *mut T,
    name: &'static str,
) -> Result<&'a mut *mut T, Failure> {
    if place.is_null() {
        return Err(Failure::null(name));
    }
    // SAFETY: it may be written to. What is there may be uninitialised, and is not read.
    unsafe { place.write(std::ptr::null_mut()) };
    // SAFETY: it is initialised now, and the rest the caller says.
    Ok(unsafe { &mut *place })
}

/// Hands a value over to the caller.
pub(crate) fn handle<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// Takes back what [`handle`] has handed over, and drops it.
///
/// # Safety
///
/// `pointer` is NULL, or came from [`handle`] and was not taken back before.
pub(crate) unsafe fn free<T>(pointer: *mut T) {
    if !pointer.is_null() {
        // SAFETY: it came from a box, and is nobody else's any more.
        let value = unsafe { Box::from_raw(pointer) };
        // A destructor that panics must not do so into C.
        let _ = super::status::guard(move || {
            drop(value);
            Ok(())
        });
    }
}

/// Writes a result, unless the caller wants none.
///
/// # Safety
///
/// `place` is NULL, or may be written to.
pub(crate) unsafe fn put<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the caller says so; what is there need not be initialised.
        unsafe { place.write(value) };
    }
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

/// Tells whether a buffer takes a text with its NUL, and writes nothing.
pub(crate) fn has_room(
    buffer: *const c_char,
    size: usize,
    text: &str,
    name: &'static str,
) -> Result<(), Failure> {
    if buffer.is_null() {
        return Err(Failure::null(name));
    }
    let needed = text.len() + 1;
    if needed > size {
        let reason = format!("`{name}` has {size} bytes, and the text takes {needed}");
        return Err(Failure::new(cloudburst_status::BufferTooSmall, reason));
    }
    Ok(())
}

/// Writes a text with its NUL as [`put_text`] does, where one that does not fit is an error.
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
    // SAFETY: the caller says so.
    unsafe { put_text(buffer, size, text) };
    has_room(buffer, size, text, name)
}

/// Returns a time to wait; none is without an end.
pub(crate) fn patience(milliseconds: u32) -> Option<Duration> {
    (milliseconds != CLOUDBURST_FOREVER).then(|| Duration::from_millis(milliseconds.into()))
}

/// Stands for no end where a call of the library needs one: a century, which every clock can count.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);
