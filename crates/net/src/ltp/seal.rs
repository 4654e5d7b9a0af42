//! Packets are sealed one by one: the packet number is the nonce, the header is authenticated with the body.
//!
//! A link has one secret per direction, made by the receiver of the packets (`invitation`). The key of a packet is
//! derived from it and from the upper bits of the packet's number, so that no key seals more than
//! [`PACKETS_PER_KEY`] packets and the two sides need not agree on when to change: docs/decisions/0011.

use std::collections::VecDeque;

use ring::aead::{
    Aad, Algorithm, LessSafeKey, Nonce, UnboundKey, AES_128_GCM, CHACHA20_POLY1305, MAX_TAG_LEN, NONCE_LEN,
};
use ring::hkdf;
use tweed_proto::ltp::packet::HEADER_BYTES;

/// How packets are sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cipher {
    /// Fast where the processor has instructions for it.
    Aes128Gcm,
    /// Fast enough on any processor.
    ChaCha20Poly1305,
    /// Neither sealed nor authenticated: only for loopback.
    Clear,
}

impl Cipher {
    /// AES where the processor has instructions for it and for GHASH, else ChaCha20.
    pub fn fastest() -> Cipher {
        match has_aes() {
            true => Cipher::Aes128Gcm,
            false => Cipher::ChaCha20Poly1305,
        }
    }

    /// Bytes that sealing adds to a packet.
    pub(super) fn tag_bytes(self) -> usize {
        self.algorithm().map_or(0, |algorithm| algorithm.tag_len())
    }

    fn algorithm(self) -> Option<&'static Algorithm> {
        match self {
            Cipher::Aes128Gcm => Some(&AES_128_GCM),
            Cipher::ChaCha20Poly1305 => Some(&CHACHA20_POLY1305),
            Cipher::Clear => None,
        }
    }
}

fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("pmull");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}

/// What all keys of one direction are derived from.
pub(super) type Secret = [u8; 32];

/// RFC 9001 (6.6, appendix B) allows 2^23 packets of up to 64 KiB under one key of AES-GCM.
const PACKETS_PER_KEY: u64 = 1 << 22;

/// RFC 9001, 6.6, for ChaCha20-Poly1305, the stricter of the two.
const MOST_FORGED: u64 = 1 << 36;

/// Gives the keys of one direction.
struct Chain {
    algorithm: &'static Algorithm,
    root: hkdf::Prk,
}

impl Chain {
    fn new(cipher: Cipher, secret: &Secret) -> Option<Chain> {
        let root = hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, secret);
        cipher.algorithm().map(|algorithm| Chain { algorithm, root })
    }

    /// The key of packets `epoch * PACKETS_PER_KEY` and following. About a microsecond.
    fn key(&self, epoch: u64) -> LessSafeKey {
        let info = [b"tweed ltp key".as_slice(), &epoch.to_le_bytes()];
        let okm = self.root.expand(&info, self.algorithm).expect("a key is not too long for HKDF");
        LessSafeKey::new(UnboundKey::from(okm))
    }
}

/// Seals packets to one peer.
pub(super) struct Sealer {
    chain: Option<Chain>,
    key: Option<(u64, LessSafeKey)>,
}

impl Sealer {
    pub(super) fn new(cipher: Cipher, secret: &Secret) -> Sealer {
        Sealer { chain: Chain::new(cipher, secret), key: None }
    }

    /// Seals `packet`: header, plain body, and as many bytes as the tag takes.
    pub(super) fn seal(&mut self, number: u64, packet: &mut [u8]) {
        let Some(chain) = &self.chain else { return };
        let epoch = number / PACKETS_PER_KEY;
        let (_, key) = match &mut self.key {
            Some(key) if key.0 == epoch => key,
            other => other.insert((epoch, chain.key(epoch))),
        };
        let (header, rest) = packet.split_at_mut(HEADER_BYTES);
        let (body, room) = rest.split_at_mut(rest.len() - chain.algorithm.tag_len());
        let tag = key
            .seal_in_place_separate_tag(nonce(number), Aad::from(&*header), body)
            .expect("a packet is not too long for the cipher");
        room.copy_from_slice(tag.as_ref());
    }
}

/// Opens packets from one peer.
pub(super) struct Opener {
    chain: Option<Chain>,
    /// The two newest epochs in which a genuine packet has come: packets overtake each other.
    keys: VecDeque<(u64, LessSafeKey)>,
    forged: u64,
}

impl Opener {
    pub(super) fn new(cipher: Cipher, secret: &Secret) -> Opener {
        Opener { chain: Chain::new(cipher, secret), keys: VecDeque::new(), forged: 0 }
    }

    /// Whether packets are authenticated.
    pub(super) fn is_sealed(&self) -> bool {
        self.chain.is_some()
    }

    /// Opens `packet` in place. Returns its body, or `None` if it is not genuine.
    pub(super) fn open<'a>(&mut self, number: u64, packet: &'a mut [u8]) -> Option<&'a [u8]> {
        let Some(chain) = &self.chain else { return packet.get(HEADER_BYTES..) };
        if packet.len() < HEADER_BYTES + MAX_TAG_LEN || self.forged >= MOST_FORGED {
            return None;
        }
        let epoch = number / PACKETS_PER_KEY;
        let (header, body) = packet.split_at_mut(HEADER_BYTES);
        let known = self.keys.iter().find(|(of, _)| *of == epoch);
        let fresh = if known.is_none() { Some(chain.key(epoch)) } else { None };
        let key = known.map(|(_, key)| key).or(fresh.as_ref())?;
        let Ok(plain) = key.open_in_place(nonce(number), Aad::from(&*header), body) else {
            self.forged += 1;
            return None;
        };
        if let Some(key) = fresh {
            self.keys.push_back((epoch, key));
            self.keys.make_contiguous().sort_by_key(|(epoch, _)| *epoch);
            if self.keys.len() > 2 {
                self.keys.pop_front();
            }
        }
        Some(plain)
    }
}

fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[NONCE_LEN - 8..].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(number: u64, sealer: &mut Sealer) -> Vec<u8> {
        let mut packet = vec![7; HEADER_BYTES + 100 + MAX_TAG_LEN];
        sealer.seal(number, &mut packet);
        packet
    }

    fn pair(cipher: Cipher) -> (Sealer, Opener) {
        (Sealer::new(cipher, &[3; 32]), Opener::new(cipher, &[3; 32]))
    }

    #[test]
    fn what_is_sealed_opens_in_any_order_across_keys() {
        for cipher in [Cipher::Aes128Gcm, Cipher::ChaCha20Poly1305] {
            let (mut sealer, mut opener) = pair(cipher);
            let numbers = [0, PACKETS_PER_KEY, PACKETS_PER_KEY - 1, 5 * PACKETS_PER_KEY, PACKETS_PER_KEY + 1];
            for number in numbers {
                let mut sealed = packet(number, &mut sealer);
                assert_ne!(sealed[HEADER_BYTES..][..100], [7; 100], "{cipher:?}");
                let opened = opener.open(number, &mut sealed);
                assert_eq!(opened, Some([7; 100].as_slice()), "{cipher:?} {number}");
            }
            assert_eq!(opener.keys.len(), 2);
        }
    }

    #[test]
    fn every_byte_of_a_packet_is_authenticated() {
        for cipher in [Cipher::Aes128Gcm, Cipher::ChaCha20Poly1305] {
            let (mut sealer, mut opener) = pair(cipher);
            let sealed = packet(9, &mut sealer);
            for at in 0..sealed.len() {
                let mut changed = sealed.clone();
                changed[at] ^= 1;
                assert_eq!(opener.open(9, &mut changed), None, "{cipher:?} byte {at}");
            }
            assert_eq!(opener.forged, sealed.len() as u64);
        }
    }

    #[test]
    fn a_packet_opens_only_under_its_number_and_secret() {
        let (mut sealer, mut opener) = pair(Cipher::Aes128Gcm);
        for (number, secret) in [(10, [3; 32]), (9 + PACKETS_PER_KEY, [3; 32]), (9, [4; 32])] {
            let mut other = Opener::new(Cipher::Aes128Gcm, &secret);
            assert_eq!(other.open(number, &mut packet(9, &mut sealer)), None);
            assert!(other.keys.is_empty(), "a forged number leaves no key behind");
        }
        assert!(opener.open(9, &mut [0; HEADER_BYTES + MAX_TAG_LEN - 1]).is_none());
    }

    #[test]
    fn after_too_many_forged_packets_none_is_opened() {
        let (mut sealer, mut opener) = pair(Cipher::ChaCha20Poly1305);
        opener.forged = MOST_FORGED;
        assert_eq!(opener.open(9, &mut packet(9, &mut sealer)), None);
    }

    #[test]
    fn in_the_clear_nothing_is_changed() {
        let (mut sealer, mut opener) = pair(Cipher::Clear);
        let mut sent = packet(9, &mut sealer);
        assert_eq!(sent, vec![7; HEADER_BYTES + 100 + MAX_TAG_LEN]);
        assert_eq!(opener.open(9, &mut sent).map(<[u8]>::len), Some(100 + MAX_TAG_LEN));
    }
}
