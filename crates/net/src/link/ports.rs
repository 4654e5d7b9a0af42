//! Which ports a process may open, where a firewall lets only some through.

use std::io;

/// A range of ports, of which each process takes the first that is free; by default, any port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    first: u16,
    last: u16,
}

impl Ports {
    /// The ports from `first` to `last`; `None` if that is no range.
    pub fn new(first: u16, last: u16) -> Option<Ports> {
        (0 < first && first <= last).then_some(Ports { first, last })
    }

    /// Whether the system chooses.
    pub(crate) fn is_any(self) -> bool {
        self.first == 0
    }

    /// Opens the first port that `open` finds free.
    pub(crate) fn first_free<T>(self, open: impl Fn(u16) -> io::Result<T>) -> io::Result<T> {
        let taken = |opened: &io::Result<T>| matches!(opened, Err(e) if e.kind() == io::ErrorKind::AddrInUse);
        let opened = (self.first..=self.last).map(open).find(|opened| !taken(opened));
        opened.unwrap_or_else(|| {
            let Ports { first, last } = self;
            let text = format!("all ports from {first} to {last} are in use; each rank of a host needs one");
            Err(io::Error::new(io::ErrorKind::AddrInUse, text))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_free_port_is_taken() {
        let ports = Ports::new(5, 8).unwrap();
        let taken = || io::Error::from(io::ErrorKind::AddrInUse);
        assert_eq!(ports.first_free(|port| if port < 7 { Err(taken()) } else { Ok(port) }).unwrap(), 7);
        let full = ports.first_free(|_| Err::<(), _>(taken())).unwrap_err().to_string();
        assert!(full.contains("all ports from 5 to 8"), "{full}");
        let other = ports.first_free(|_| Err::<(), _>(io::ErrorKind::PermissionDenied.into())).unwrap_err();
        assert_eq!(other.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(Ports::default().first_free(Ok).unwrap(), 0);
        assert_eq!((Ports::new(0, 4), Ports::new(4, 3)), (None, None));
    }
}
