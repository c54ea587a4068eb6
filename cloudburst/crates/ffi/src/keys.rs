//! Keys as texts: making them, and the public half of a secret one.

use std::{ffi::c_char, num::NonZeroU8};

use cloudburst::{IDENTITY_BYTES, Key, SecretKey};
use zeroize::Zeroizing;

use super::{
    arguments::{has_room, put_whole_text, text},
    status::{Failure, cloudburst_status, guard},
};

/// Bytes of a buffer that holds any key as text, with its NUL.
pub const CLOUDBURST_KEY_TEXT_BYTES: usize = 83;

/// Makes a key pair: the secret half for the caller's own file, and the public one for others. Buffers of
/// `CLOUDBURST_KEY_TEXT_BYTES` hold them; if one is too small, neither is written.
///
/// # Safety
///
/// Each buffer is NULL, or may be written to for the bytes that are stated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cloudburst_key_pair_generate(
    secret_key: *mut c_char,
    secret_key_size: usize,
    public_key: *mut c_char,
    public_key_size: usize,
) -> cloudburst_status {
    guard(|| {
        let key = SecretKey::new(*random()?);
        let text = Zeroizing::new(key.to_string());
        let public = key.public().to_string();
        // Half of a pair is of no use.
        has_room(public_key, public_key_size, &public, "public_key")?;
        has_room(secret_key, secret_key_size, &text, "secret_key")?;
        // SAFETY: the caller says so.
        unsafe {
            put_whole_text(public_key, public_key_size, &public, "public_key")?;
            put_whole_text(secret_key, secret_key_size, &text, "secret_key")
        }
    })
}

/// Makes a key that all ends share, with a number from 1 to 255. A buffer of
/// `CLOUDBURST_KEY_TEXT_BYTES` holds it.
///
/// # Safety
///
/// The buffer is NULL, or may be written to for the bytes that are stated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cloudburst_shared_key_generate(
    number: u8,
    key: *mut c_char,
    key_size: usize,
) -> cloudburst_status {
    guard(|| {
        let number = NonZeroU8::new(number)
            .ok_or_else(|| Failure::argument("the number of a key is 0; it must be 1 to 255"))?;
        let text = Zeroizing::new(Key::new(number, *random()?).to_string());
        // SAFETY: the caller says so.
        unsafe { put_whole_text(key, key_size, &text, "key") }
    })
}

/// Returns the public half of a secret key, to be given to others.
///
/// # Safety
///
/// `secret_key` is NULL or a text that ends with NUL; the buffer is NULL, or may be written to for the
/// bytes that are stated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cloudburst_public_key(
    secret_key: *const c_char,
    public_key: *mut c_char,
    public_key_size: usize,
) -> cloudburst_status {
    guard(|| {
        // SAFETY: the caller says so.
        let secret: SecretKey = unsafe { text(secret_key, "secret_key") }?.trim().parse()?;
        let public = secret.public().to_string();
        // SAFETY: the caller says so.
        unsafe { put_whole_text(public_key, public_key_size, &public, "public_key") }
    })
}

fn random() -> Result<Zeroizing<[u8; IDENTITY_BYTES]>, Failure> {
    let mut secret = Zeroizing::new([0; IDENTITY_BYTES]);
    getrandom::fill(&mut *secret)?;
    Ok(secret)
}
