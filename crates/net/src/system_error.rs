//! What the kernel refuses, in words that say what to do about it.

use std::io;

/// An error of the kernel. Where a limit of the process is its reason: how to raise that.
pub(crate) fn in_words(error: &io::Error) -> String {
    let advice = match error.raw_os_error() {
        Some(libc::EMFILE) => ": this process may open no more. Before it is started: ulimit -n 65536",
        Some(libc::EFBIG) => ": shared memory counts as a file, and may be no larger. Before it is started: ulimit -f unlimited",
        _ => "",
    };
    format!("{error}{advice}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_the_process_is_said_with_how_to_raise_it() {
        let words = |number| in_words(&io::Error::from_raw_os_error(number));
        assert!(
            words(libc::EMFILE).contains("Too many open files") && words(libc::EMFILE).contains("ulimit -n")
        );
        assert!(words(libc::EFBIG).contains("ulimit -f"));
        assert_eq!(words(libc::ENODEV), io::Error::from_raw_os_error(libc::ENODEV).to_string());
    }
}
