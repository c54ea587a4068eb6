//! The certificate that QUIC servers show and clients trust.

use std::sync::{Arc, LazyLock};

use anyhow::{Result, anyhow};
use rcgen::{CertifiedKey, KeyPair};
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
};

/// Name of the server in its certificate.
pub(super) const SERVER_NAME: &str = "server.test";

/// Signed by itself, and new in every process.
static CERTIFICATE: LazyLock<Result<CertifiedKey<KeyPair>, rcgen::Error>> =
    LazyLock::new(|| rcgen::generate_simple_self_signed([SERVER_NAME.to_owned()]));

/// Returns the server's certificate chain and private key.
pub(super) fn own() -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    let certified = certified()?;
    let key = PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
    Ok((vec![certified.cert.der().clone()], key.into()))
}

/// Returns the certificate store of clients.
pub(super) fn trusted() -> Result<Arc<RootCertStore>> {
    let mut roots = RootCertStore::empty();
    roots.add(certified()?.cert.der().clone())?;
    Ok(Arc::new(roots))
}

fn certified() -> Result<&'static CertifiedKey<KeyPair>> {
    let made = CERTIFICATE.as_ref();
    made.map_err(|error| anyhow!("cannot make a certificate for QUIC: {error}"))
}
