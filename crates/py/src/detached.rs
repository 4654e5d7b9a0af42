//! Values of the engine that Python's collector lets go of.

use std::mem::ManuallyDrop;
use std::ops::Deref;

use pyo3::prelude::*;

/// A value that is dropped without the interpreter's lock. To end a group or a node waits for locks of the engine, and
/// who holds those may wait for the interpreter's: a callback of the user, for one.
pub(crate) struct Detached<T: Send>(ManuallyDrop<T>);

impl<T: Send> Detached<T> {
    pub(crate) fn new(value: T) -> Detached<T> {
        Detached(ManuallyDrop::new(value))
    }
}

impl<T: Send> Deref for Detached<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Send> Drop for Detached<T> {
    fn drop(&mut self) {
        // SAFETY: nobody uses the field after this.
        let mut value = Some(unsafe { ManuallyDrop::take(&mut self.0) });
        // It fails while the interpreter ends: then no other thread gets its lock any more, and none may wait for it.
        let dropped = Python::try_attach(|py| py.detach(|| drop(value.take())));
        if dropped.is_none() {
            drop(value);
        }
    }
}
