//! Settings of an endpoint, each checked when it is set.

use std::{ffi::c_char, net::IpAddr, time::Duration};

use cloudburst::{EndpointConfig, EndpointConfigError, Key, Ports, PublicKey, SecretKey, Security};

use super::{
    arguments::{exclusive, free, handle, place, text},
    status::{Failure, cloudburst_status, guard},
};

/// Settings of an endpoint. Those that are not set have defaults that may be used on the Internet.
pub struct cloudburst_config {
    security: Security,
    settings: Settings,
}

#[derive(Clone, Default)]
struct Settings {
    local: Option<Vec<IpAddr>>,
    ports: Option<Ports>,
    dscp: Option<u8>,
    lifetime: Option<Duration>,
    max_message_bytes: Option<usize>,
    early_requests: Option<bool>,
}

impl Settings {
    fn build(&self, security: Security) -> Result<EndpointConfig, EndpointConfigError> {
        let mut config = EndpointConfig::client(security);
        if let Some(ports) = &self.ports {
            config = config.with_ports(ports.clone())?;
            // Who is to be found at a port may be asked before it begins to listen.
            config = config.with_early_requests(matches!(ports, Ports::Range(_)));
        }
        if let Some(local) = &self.local {
            config = config.with_local(local.iter().copied())?;
        }
        if let Some(dscp) = self.dscp {
            config = config.with_dscp(dscp)?;
        }
        if let Some(lifetime) = self.lifetime {
            config = config.with_lifetime(lifetime)?;
        }
        if let Some(bytes) = self.max_message_bytes {
            config = config.with_max_message_bytes(bytes)?;
        }
        if let Some(are_kept) = self.early_requests {
            config = config.with_early_requests(are_kept);
        }
        Ok(config)
    }
}

impl cloudburst_config {
    fn new(security: Security) -> Self {
        Self {
            security,
            settings: Settings::default(),
        }
    }

    pub(crate) fn build(&self) -> Result<EndpointConfig, EndpointConfigError> {
        self.settings.build(self.security.clone())
    }

    /// Changes a setting, if that goes with all others.
    fn change(&mut self, change: impl FnOnce(&mut Settings)) -> Result<(), Failure> {
        let mut settings = self.settings.clone();
        change(&mut settings);
        settings.build(Security::Unprotected)?;
        self.settings = settings;
        Ok(())
    }
}

/// Makes settings with a key that all ends share, such as `cloudburst keygen --shared` writes: for a few
/// machines of one owner.
///
/// # Safety
///
/// `key` is NULL or a text that ends with NUL; `config` is NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cloudburst_config_shared_key(
    key: *const c_char,
    config: *mut *mut cloudburst_config,
) -> cloudburst_status {
    guard(|| {
        // SAFETY: the caller says so.
        let (key, config) = unsafe { (text(key, "key"), place(config, "config")?) };
        let key: Key = key?.trim().parse()?;
        *config = handle(cloudburst_config::new(Security::shared_key(key)));
        Ok(())
    })
}

/// Makes settings with a secret key of the endpoint's own, such as `cloudburst keygen` writes. Until
/// `cloudburst_config_allow` names others, nobody else may begin to speak to the endpoint.
///
/// # Safety
///
/// `secret_key` is NULL or a text that ends with NUL; `config` is NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cloudburst_config_key_pair(
    secret_key: *const c_char,
    config: *mut *mut cloudburst_config,
) -> cloudburst_status {
    guard(|| {
        // SAFETY: the caller says so.
        let (key, config) = unsafe { (text(secret_key, "secret_key"), place(config, "config")?) };
        let key: SecretKey = key?.trim().parse()?;
        *config = handle(cloudburst_config::new(Security::key_pair(key)));
        Ok(())
    })
}

/// Lets the holder of this public key speak to the endpoint, besides those that were named before. It
/// needs settings of `cloudburst_config_key_pair`.
///
/// # Safety
///
/// `config` is NULL or came from this library; `public_key` is NULL or a text that ends with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cloudburst_config_allow(
    config: *mut cloudburst_config,
    public_key: *const c_char,
) -> cloudburst_status {
    guard(|| {
        // SAFETY: the caller says so.
        let (config, key) = unsafe {
            (
                exclusive(config, "config")?,
                text(public_key, "public_key")?,
            )
        };
        let key: PublicKey = key.trim().parse()?;
        let Security::KeyPair(identity) = &mut config.security else {
            return Err(Failure::new(
                cloudburst_status::InvalidSetting,
                "public keys are held against a secret key of one's own, and these settings have a shared key",
            ));
        };
        identity.allowed.insert(key);
        Ok(())
    })
}

/// Binds these addresses, with commas between, instead of all of the machine: "192.0.2.7" or
/// "192.0.2.7,2001:db8::7".
///
/// # Safety
///
/// `config` is NULL or came from this library; `addresses` is NULL or a text that ends with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cloudburst_config_set_local(
    config: *mut cloudburst_config,
    addresses: *const c_char,
) -> cloudburst_status {
    guard(|| {
        // SAFETY: the caller says so.
        let (config, given) =
            unsafe { (exclusive(config, "config")?, text(addresses, "addresses")?) };
        let addresses = given.split(',').map(|it| it.trim().parse());
        let addresses: Vec<IpAddr> = addresses.collect::<Result<_, _>>().map_err(|_| {
            let reason = format!("`{given}` are no addresses; 192.0.2.7,2001:db8::7 would be two");
            Failure::new(cloudburst_status::InvalidAddress, reason)
        })?;
        config.change(|it| it.local = Some(addresses))
    })
}

/// Binds these ports at each address instead of 16 that the system chooses: "4433", "4433-4436", or
/// "any:4" for so many that it chooses. Ports that are named are those of somebody who is to be found, and
/// requests that come before the first `cloudburst_receive` are kept.
///
/// # Safety
///
/// `config` is NULL or came from this library; `ports` is NULL or a text that ends with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cloudburst_config_set_ports(
    config: *mut cloudburst_config,
    ports: *const c_char,
) -> cloudburst_status {
    guard(|| {
        // SAFETY: the caller says so.
        let (config, ports) = unsafe { (exclusive(config, "config")?, text(ports, "ports")?) };
        let ports: Ports = ports.parse()?;
        config.change(|it| it.ports = Some(ports))
    })
}

/// Marks what is sent with this differentiated services code point, 0 to 63. Linux alone takes others
/// than 0.
///
/// # Safety
///
/// `config` is NULL or came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cloudburst_config_set_dscp(
    config: *mut cloudburst_config,
    dscp: u8,
) -> cloudburst_status {
    // SAFETY: the caller says so.
    guard(|| unsafe { exclusive(config, "config") }?.change(|it| it.dscp = Some(dscp)))
}

/// Abandons messages that are not delivered within so many milliseconds from their first transmission, 10
/// to 60,000. Default 10,000.
///
/// # Safety
///
/// `config` is NULL or came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cloudburst_config_set_lifetime(
    config: *mut cloudburst_config,
    lifetime_ms: u32,
) -> cloudburst_status {
    let lifetime = Duration::from_millis(lifetime_ms.into());
    // SAFETY: the caller says so.
    guard(|| unsafe { exclusive(config, "config") }?.change(|it| it.lifetime = Some(lifetime)))
}

/// Sends and takes messages of so many bytes at most, up to 32 MiB less 17 bytes. Default 4 MiB.
///
/// # Safety
///
/// `config` is NULL or came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cloudburst_config_set_max_message_bytes(
    config: *mut cloudburst_config,
    bytes: usize,
) -> cloudburst_status {
    guard(|| {
        // SAFETY: the caller says so.
        let config = unsafe { exclusive(config, "config") }?;
        config.change(|it| it.max_message_bytes = Some(bytes))
    })
}

/// Keeps requests that come before the first `cloudburst_receive`, or has them answered at once that
/// nobody is there. Default: kept where ports are named.
///
/// # Safety
///
/// `config` is NULL or came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cloudburst_config_set_early_requests(
    config: *mut cloudburst_config,
    are_kept: bool,
) -> cloudburst_status {
    guard(|| {
        // SAFETY: the caller says so.
        let config = unsafe { exclusive(config, "config") }?;
        config.change(|it| it.early_requests = Some(are_kept))
    })
}

/// Frees settings. Endpoints that were bound with them go on.
///
/// # Safety
///
/// `config` is NULL, or came from this library and was not freed before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cloudburst_config_free(config: *mut cloudburst_config) {
    // SAFETY: the caller says so.
    unsafe { free(config) };
}
