//! Who a member is: a key pair of its own, made for this process or kept in a file.

use std::fs::{File, TryLockError};
use std::path::Path;

use snow::params::DHChoice;
use snow::types::Dh;

use super::{file, from_hex, hex, resolver};
use tweed_proto::engine::EngineError;

/// The public half of a key pair.
pub(crate) type Key = [u8; 32];

/// The key pair of a process.
pub(crate) struct Identity {
    pub(super) private: [u8; 32],
    pub(crate) public: Key,
}

impl Identity {
    /// The pair kept in `path`, which is made if it is not there; without a path, a new one.
    pub(crate) fn open(path: Option<&Path>) -> Result<Identity, EngineError> {
        let Some(path) = path else { return Identity::fresh() };
        if !path.exists() {
            let text = hex(&Identity::fresh()?.private) + "\n";
            let failed = format!("the key file {} cannot be made", path.display());
            file::write_new(path, &text).map_err(|e| EngineError::setup(&failed, e))?;
        }
        let text = file::read(path, "key file")?;
        let private = from_hex(&text).ok_or_else(|| {
            EngineError::Usage(format!("{} is no key file: it must hold 64 hex digits", path.display()))
        })?;
        Ok(Identity::of(private))
    }

    /// Marks the key file as this process's until the mark is dropped: two processes with one key cut off each other.
    pub(crate) fn hold(path: &Path) -> Result<Held, EngineError> {
        let file =
            File::open(path).map_err(|e| EngineError::setup("the key file cannot be opened again", e))?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => Err(EngineError::Usage(format!(
                "the key file {} is in use already, and two with one key cut off each other: each process needs its own",
                path.display()
            ))),
            // Where files cannot be locked there is no mark.
            Ok(()) | Err(TryLockError::Error(_)) => Ok(Held(file)),
        }
    }

    fn fresh() -> Result<Identity, EngineError> {
        let mut pair = curve();
        let mut rng = resolver().resolve_rng().expect("ring has a source of randomness");
        pair.generate(rng.as_mut()).map_err(|e| EngineError::Usage(format!("no key can be made: {e}")))?;
        let private = pair.privkey().try_into().expect("a private key has 32 bytes");
        Ok(Identity::of(private))
    }

    fn of(private: [u8; 32]) -> Identity {
        let mut pair = curve();
        pair.set(&private);
        let public = pair.pubkey().try_into().expect("a public key has 32 bytes");
        Identity { private, public }
    }
}

/// A key file that no other process may take.
pub(crate) struct Held(File);

impl Drop for Held {
    // Said aloud, as a child of fork may still have the file open.
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

fn curve() -> Box<dyn Dh> {
    resolver().resolve_dh(&DHChoice::Curve25519).expect("the default resolver has the curve")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_file_is_made_once_and_closed_to_others() {
        use std::os::unix::fs::MetadataExt;
        let path = std::env::temp_dir().join(format!("tweed-key-{}", std::process::id()));
        let made = Identity::open(Some(&path)).unwrap().public;
        let again = Identity::open(Some(&path)).unwrap().public;
        let mode = std::fs::metadata(&path).unwrap().mode() & 0o777;
        let held = Identity::hold(&path).unwrap();
        assert!(Identity::hold(&path).is_err());
        drop(held);
        assert!(Identity::hold(&path).is_ok());
        std::fs::remove_file(&path).unwrap();
        assert_eq!((made, mode), (again, 0o600));
        assert_ne!(made, Identity::open(None).unwrap().public);
    }
}
