//! Files that only their owner may read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use tweed_proto::engine::EngineError;

/// No secret and no key is longer.
const MOST_BYTES: u64 = 4096;

/// The text of a file that nobody else can read; refused, with what to type, if others can.
pub(crate) fn read(path: &Path, what: &str) -> Result<String, EngineError> {
    let name = path.display();
    let unread = |e: io::Error| EngineError::Usage(format!("the {what} {name} cannot be read: {e}"));
    let file = File::open(path).map_err(unread)?;
    let metadata = file.metadata().map_err(unread)?;
    if !metadata.is_file() {
        return Err(EngineError::Usage(format!("the {what} {name} is no file; give the path of one")));
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(EngineError::Usage(format!(
            "the {what} {name} can be read by others; type: chmod 600 {name}"
        )));
    }
    let mut text = String::new();
    file.take(MOST_BYTES).read_to_string(&mut text).map_err(unread)?;
    Ok(text.trim().to_owned())
}

/// Writes a file that nobody else can read. It appears whole; one that exists already stays as it is.
pub(crate) fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let draft = path.with_extension(format!("{}.new", std::process::id()));
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&draft)
        .and_then(|mut f| f.write_all(text.as_bytes()))
        .and_then(|()| fs::hard_link(&draft, path));
    let _ = fs::remove_file(&draft);
    match written {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && path.exists() => Ok(()),
        other => other,
    }
}
