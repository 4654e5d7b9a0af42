//! Core's atomics; where loom looks at a protocol, loom's.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32};

#[cfg(loom)]
pub(crate) use watched::{AtomicBool, AtomicU32};

/// loom takes `SeqCst` for `AcqRel`, and lets a plain store slip between the halves of a read-modify-write; it would report
/// lost wake-ups that no machine has. A fence around each such access, and an exchange in place of a store, give it
/// the order that the language promises. They give a little more as well: an order to weaker accesses beside them, whose
/// lack is then not found here.
#[cfg(loom)]
mod watched {
    use loom::sync::atomic::{fence, Ordering};

    macro_rules! atomic {
        ($name:ident, $value:ty, $($change:ident)*) => {
            #[derive(Debug)]
            pub(crate) struct $name(loom::sync::atomic::$name);

            impl $name {
                pub(crate) fn new(value: $value) -> $name {
                    $name(loom::sync::atomic::$name::new(value))
                }

                pub(crate) fn load(&self, order: Ordering) -> $value {
                    fenced(order, || self.0.load(match order {
                        Ordering::SeqCst => Ordering::Acquire,
                        weaker => weaker,
                    }))
                }

                pub(crate) fn store(&self, value: $value, order: Ordering) {
                    fenced(order, || match order {
                        Ordering::SeqCst => drop(self.0.swap(value, Ordering::Release)),
                        weaker => self.0.store(value, weaker),
                    });
                }

                $(pub(crate) fn $change(&self, value: $value, order: Ordering) -> $value {
                    fenced(order, || self.0.$change(value, order))
                })*
            }
        };
    }

    atomic!(AtomicU32, u32, fetch_add fetch_or fetch_and);
    atomic!(AtomicBool, bool, swap);

    fn fenced<T>(order: Ordering, access: impl FnOnce() -> T) -> T {
        let strict = order == Ordering::SeqCst;
        if strict {
            fence(Ordering::SeqCst);
        }
        let value = access();
        if strict {
            fence(Ordering::SeqCst);
        }
        value
    }
}
