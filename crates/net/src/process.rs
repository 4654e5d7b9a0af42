//! What the kernel tells of a process of this machine, by its number.

use std::fs;

/// When this process started, in the kernel's ticks since the boot.
pub(crate) fn own_start() -> u64 {
    stat("self").map_or(0, |(_, started)| started)
}

/// The kernel's name for this process's namespace of that kind: numbers of processes count in `pid`, sockets in `net`.
pub(crate) fn namespace(kind: &str) -> String {
    let link = fs::read_link(format!("/proc/self/ns/{kind}"));
    link.map_or_else(|_| String::new(), |name| name.display().to_string())
}

/// The kernel's letter for the state of a process's main thread.
pub(crate) fn state(process: &str) -> Option<char> {
    stat(process).map(|(state, _)| state)
}

/// Whether that process has ended. Its number may belong to another by now, which started later. A process of another
/// user may be hidden from us; the kernel still says that there is one.
pub(crate) fn has_ended(pid: u32, started: u64) -> bool {
    match stat(&pid.to_string()) {
        Some((state, since)) => since != started || matches!(state, 'Z' | 'X'),
        None => {
            // SAFETY: signal 0 does nothing: a plain question.
            let there = unsafe { libc::kill(pid as libc::pid_t, 0) } == 0;
            !there && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
        }
    }
}

/// The state of a process and when it started.
fn stat(process: &str) -> Option<(char, u64)> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name before it stands in brackets, and may hold anything.
    let mut fields = text.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_lives() {
        assert!(own_start() > 0);
        assert!(!has_ended(std::process::id(), own_start()));
    }

    #[test]
    fn a_process_that_was_waited_for_or_that_nobody_waits_for_has_ended() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let (pid, (_, started)) = (child.id(), stat(&child.id().to_string()).unwrap());
        assert!(!has_ended(pid, started));
        child.kill().unwrap();
        // A zombie, or on its way to be one.
        while !has_ended(pid, started) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(has_ended(pid, started));
    }

    #[test]
    fn a_number_that_was_given_anew_is_another_process() {
        assert!(has_ended(std::process::id(), own_start() - 1));
    }
}
