//! What a peer must know to send us packets. It goes over the peer's stream, which is sealed wherever packets are.

use ring::rand::{SecureRandom, SystemRandom};

use super::seal::{Cipher, Secret};

/// Little endian: version, cipher, port (2), link (4), secret (32).
const BYTES: usize = 40;
const VERSION: u8 = 1;

pub(super) struct Invitation {
    pub(super) cipher: Cipher,
    pub(super) port: u16,
    /// Stands in each packet; says whose it is.
    pub(super) link: u32,
    /// All zeros where packets are not sealed.
    pub(super) secret: Secret,
}

impl Invitation {
    /// With a fresh secret and a link number that nobody can guess.
    pub(super) fn fresh(cipher: Cipher, port: u16) -> Invitation {
        let mut link = [0; 4];
        let mut secret = [0; 32];
        let random = SystemRandom::new();
        random.fill(&mut link).expect("the system has a source of randomness");
        if cipher != Cipher::Clear {
            random.fill(&mut secret).expect("the system has a source of randomness");
        }
        Invitation { cipher, port, link: u32::from_le_bytes(link), secret }
    }

    /// The invitation as bytes, as it is sent.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION, code(self.cipher)];
        out.extend_from_slice(&self.port.to_le_bytes());
        out.extend_from_slice(&self.link.to_le_bytes());
        out.extend_from_slice(&self.secret);
        out
    }

    /// Reads what a peer has sent; the error says what is wrong with it.
    pub(super) fn decode(bytes: &[u8]) -> Result<Invitation, String> {
        let bytes: &[u8; BYTES] =
            bytes.try_into().map_err(|_| format!("it has {} bytes in place of {BYTES}", bytes.len()))?;
        let [version, cipher, low, high, ref rest @ ..] = *bytes;
        if version != VERSION {
            return Err(format!("it is of version {version}, and this side speaks {VERSION}"));
        }
        let (link, secret) = rest.split_first_chunk().expect("the length is fixed");
        let secret: Secret = secret.try_into().expect("the length is fixed");
        let cipher = named(cipher).ok_or_else(|| format!("it names cipher {cipher}, which is unknown"))?;
        let port = u16::from_le_bytes([low, high]);
        match (cipher, secret == [0; 32]) {
            _ if port == 0 => Err("it names no port".into()),
            (Cipher::Clear, false) => Err("it has a secret for packets that are not sealed".into()),
            (Cipher::Aes128Gcm | Cipher::ChaCha20Poly1305, true) => Err("its secret is empty".into()),
            _ => Ok(Invitation { cipher, port, link: u32::from_le_bytes(*link), secret }),
        }
    }
}

fn code(cipher: Cipher) -> u8 {
    match cipher {
        Cipher::Clear => 0,
        Cipher::Aes128Gcm => 1,
        Cipher::ChaCha20Poly1305 => 2,
    }
}

fn named(code: u8) -> Option<Cipher> {
    [Cipher::Clear, Cipher::Aes128Gcm, Cipher::ChaCha20Poly1305]
        .into_iter()
        .find(|&cipher| self::code(cipher) == code)
}

/// For `parsers`: whether these bytes are an invitation.
pub(crate) fn is_invitation(bytes: &[u8]) -> bool {
    Invitation::decode(bytes).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_back_as_it_was() {
        for cipher in [Cipher::Clear, Cipher::Aes128Gcm, Cipher::ChaCha20Poly1305] {
            let sent = Invitation::fresh(cipher, 4711);
            let came = Invitation::decode(&sent.encode()).expect("it is well formed");
            assert_eq!(
                (came.cipher, came.port, came.link, came.secret),
                (cipher, 4711, sent.link, sent.secret)
            );
        }
    }

    #[test]
    fn secrets_and_links_differ() {
        let [one, other] = [1, 1].map(|port| Invitation::fresh(Cipher::Aes128Gcm, port));
        assert_ne!(one.secret, other.secret);
        assert_ne!(one.link, other.link);
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        let good = Invitation::fresh(Cipher::Aes128Gcm, 4711).encode();
        let with = |at: usize, value: u8| {
            let mut bytes = good.clone();
            bytes[at] = value;
            bytes
        };
        let clear = Invitation::fresh(Cipher::Clear, 4711).encode();
        let wrong = [
            (vec![], "bytes"),
            (good[..39].to_vec(), "bytes"),
            ([&good[..], &[0]].concat(), "bytes"),
            (with(0, 2), "version"),
            (with(1, 3), "cipher"),
            (with(1, 0), "not sealed"),
            ([&good[..2], &[0, 0], &good[4..]].concat(), "port"),
            ([&[1, 1], &clear[2..]].concat(), "empty"),
        ];
        for (bytes, word) in wrong {
            let error = Invitation::decode(&bytes).err().expect("it is refused");
            assert!(error.contains(word), "{error}");
        }
    }
}
