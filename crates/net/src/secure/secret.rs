//! What admits to a run: a text that all its ranks were given, and nobody else.

use std::fmt;
use std::path::Path;

use ring::hmac;
use snow::params::HashChoice;

use super::{file, resolver};
use tweed_proto::engine::EngineError;

const DOMAIN: &[u8] = b"tweed secret v1";
const LEAST_CHARACTERS: usize = 16;

/// Keys made from the secret text. The text itself is not kept, and neither is ever printed.
#[derive(Clone)]
pub struct Secret {
    /// What the handshake mixes in.
    pub(super) shared_key: [u8; 32],
    /// What neighbours sign with (`connect::proof`). Whoever sees what was signed can try guesses, so it goes to nobody
    /// but processes of the same user.
    pub(crate) proof_key: hmac::Key,
}

impl Secret {
    /// The secret with this text. One that is too short to be a secret is a usage error.
    pub fn new(text: &str) -> Result<Secret, EngineError> {
        let text = text.trim();
        if text.chars().count() < LEAST_CHARACTERS {
            return Err(EngineError::Usage(format!(
                "the secret has less than {LEAST_CHARACTERS} characters and could be guessed; make one with: openssl rand -hex 32"
            )));
        }
        let (mut shared_key, mut proof_key) = ([0; 32], [0; 32]);
        let mut hash = resolver().resolve_hash(&HashChoice::SHA256).expect("ring has SHA-256");
        hash.hkdf(DOMAIN, text.as_bytes(), 2, &mut shared_key, &mut proof_key, &mut []);
        Ok(Secret { shared_key, proof_key: hmac::Key::new(hmac::HMAC_SHA256, &proof_key) })
    }

    /// Where nobody has to prove anything, as on loopback. Known to all.
    pub(crate) fn open() -> Secret {
        Secret::new("no secret is asked for").expect("it is long enough")
    }

    /// The secret of a text or a file, whichever is given; both must say the same.
    pub fn choose(text: Option<&str>, path: Option<&Path>) -> Result<Option<Secret>, EngineError> {
        let given = text.map(Secret::new).transpose()?;
        let stored = path.map(|p| file::read(p, "secret file").and_then(|t| Secret::new(&t))).transpose()?;
        match (given, stored) {
            (Some(a), Some(b)) if a.shared_key != b.shared_key => Err(EngineError::Usage(
                "TWEED_SECRET and the secret file hold different secrets; give one of them".into(),
            )),
            (given, stored) => Ok(given.or(stored)),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(not shown)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_that_could_be_guessed_is_refused_and_not_repeated() {
        let error = Secret::new("hunter2").unwrap_err().to_string();
        assert!(error.contains("openssl rand -hex 32") && !error.contains("hunter2"), "{error}");
    }

    #[test]
    fn a_secret_is_not_shown() {
        assert!(!format!("{:?}", Secret::new("a secret of sixteen").unwrap()).contains("sixteen"));
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("tweed-secret-{}", std::process::id()));
        std::fs::write(&path, "a secret of sixteen\n").unwrap();
        let set = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        set(0o644);
        let open = Secret::choose(None, Some(&path)).unwrap_err().to_string();
        set(0o600);
        let [closed, other] =
            ["a secret of sixteen", "another of sixteen"].map(|text| Secret::choose(Some(text), Some(&path)));
        std::fs::remove_file(&path).unwrap();
        assert!(open.contains("chmod 600"), "{open}");
        assert!(closed.unwrap().is_some());
        assert!(other.unwrap_err().to_string().contains("different secrets"));
    }
}
