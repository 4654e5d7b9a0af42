//! `HubLinks` for Python.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyByteArray, PyString};
use tweed_net::{from_hex, hex, Admitted, Body, Event, HubLinks, HubOptions, Key, Secret, MOST_QUEUED};

use crate::detached::Detached;
use crate::errors::{engine_error, usage};

/// No wait is longer without a look at signals.
const SLICE: Duration = Duration::from_millis(200);

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyHubLinks>()?;
    module.add_function(wrap_pyfunction!(check_listener, module)?)
}

/// Without a secret: raises `PeerLost` unless a process of this user listens at that address, "ip:port", which has to be of
/// loopback; or within the network namespace `testbed`.
#[pyfunction]
#[pyo3(signature = (address, testbed=None))]
fn check_listener(py: Python<'_>, address: &str, testbed: Option<&str>) -> PyResult<()> {
    let address = resolve(address).map_err(|text| usage(py, text))?;
    tweed_net::check_listener(address, testbed).map_err(|e| engine_error(py, &e))
}

/// Links between a hub and its members, sealed; each side holds one of these.
#[pyclass(name = "HubLinks", module = "tweed._core", frozen)]
pub struct PyHubLinks {
    inner: Detached<HubLinks>,
}

#[pymethods]
impl PyHubLinks {
    /// Has a key, kept in `key_file` if that is given, and no link yet.
    #[new]
    #[allow(clippy::too_many_arguments)]
    #[pyo3(signature = (*, secret=None, secret_file=None, testbed=None, key_file=None, silence_s=60.0, patience_s=10.0, most_bytes=4096))]
    fn new(
        py: Python<'_>,
        secret: Option<&str>,
        secret_file: Option<PathBuf>,
        testbed: Option<String>,
        key_file: Option<PathBuf>,
        silence_s: f64,
        patience_s: f64,
        most_bytes: u64,
    ) -> PyResult<PyHubLinks> {
        let secret = Secret::choose(secret, secret_file.as_deref()).map_err(|e| engine_error(py, &e))?;
        let (silence, patience) = (seconds(silence_s), seconds(patience_s));
        let options =
            HubOptions { secret, testbed, key_file, silence, patience, most_bytes, most_queued: MOST_QUEUED };
        let inner = HubLinks::open(options).map_err(|e| engine_error(py, &e))?;
        Ok(PyHubLinks { inner: Detached::new(inner) })
    }

    /// This process's own key, 64 hex digits.
    #[getter]
    fn key(&self) -> String {
        hex(&self.inner.key())
    }

    /// Lets members call at "host:port". Returns that, with the port if it was 0. By `name` people see what the port is for.
    #[pyo3(signature = (address, name="hub"))]
    fn listen(&self, py: Python<'_>, address: &str, name: &str) -> PyResult<String> {
        let bound = py.detach(|| self.inner.listen(resolve(address)?, name).map_err(|e| e.to_string()));
        bound.map(|bound| bound.to_string()).map_err(|text| usage(py, text))
    }

    /// Calls the hub at "host:port", once; with `key`, it has to be the hub's. Returns the number of the link.
    #[pyo3(signature = (address, key=None))]
    fn call(&self, py: Python<'_>, address: String, key: Option<&str>) -> PyResult<u64> {
        let key = key.map(|text| to_key(py, text)).transpose()?;
        let raised = Mutex::new(None);
        let interrupted = || match Python::attach(|py| py.check_signals()) {
            Ok(()) => false,
            Err(error) => raised.lock().map(|mut place| *place = Some(error)).is_ok(),
        };
        let met = py.detach(|| self.inner.call(&address, key, &interrupted));
        if let Some(error) = raised.into_inner().ok().flatten() {
            return Err(error);
        }
        met.map_err(|e| engine_error(py, &e))
    }

    /// The key of who is at the other end of a link that stands.
    fn key_of(&self, link: u64) -> Option<String> {
        self.inner.key_of(link).map(|key| hex(&key))
    }

    /// Waits for something to happen, for at most so many seconds: pairs of a link's number and the key of who has joined
    /// (bytes), a message (bytearray), or why it has ended (str). Comes back with nothing after `wake`, too.
    fn next<'py>(&self, py: Python<'py>, timeout_s: f64) -> PyResult<Vec<(u64, Bound<'py, PyAny>)>> {
        let until = Instant::now().checked_add(seconds(timeout_s));
        loop {
            let left = until.map_or(SLICE, |u| u.saturating_duration_since(Instant::now()));
            let events = py.detach(|| self.inner.next(left.min(SLICE))).map_err(|e| engine_error(py, &e))?;
            py.check_signals()?;
            if !events.is_empty() || left.is_zero() {
                return Ok(events.into_iter().filter_map(|event| to_python(py, event)).collect());
            }
        }
    }

    /// Sends `head` and then `body`, which links may share; with `more`, together with the next message over this link, or as
    /// soon as `next` is called.
    #[pyo3(signature = (link, head, body=None, more=false))]
    fn send(&self, py: Python<'_>, link: u64, head: &[u8], body: Option<PyBackedBytes>, more: bool) {
        let body = body.map(|bytes| Arc::new(bytes) as Body);
        py.detach(|| match more {
            true => self.inner.enter(link, head, body),
            false => self.inner.send(link, head, body),
        });
    }

    /// Messages over this link may have so many bytes from now on.
    fn allow(&self, link: u64, most_bytes: u64) {
        self.inner.allow(link, most_bytes);
    }

    /// Ends a link, and says why.
    fn cut(&self, py: Python<'_>, link: u64, why: &str) {
        py.detach(|| self.inner.cut(link, why));
    }

    /// Lets whoever waits in `next` come back.
    fn wake(&self, py: Python<'_>) {
        py.detach(|| self.inner.wake());
    }

    /// How many seconds the last message over this link took to come, from its first byte on.
    fn took(&self, py: Python<'_>, link: u64) -> f64 {
        py.detach(|| self.inner.took(link).as_secs_f64())
    }

    /// How many bytes have come of the message that comes now over this link, as far as `next` has read.
    fn come(&self, py: Python<'_>, link: u64) -> usize {
        py.detach(|| self.inner.come(link))
    }

    /// How many links have something to send that the kernel has not taken; of `link` alone, if it is given.
    #[pyo3(signature = (link=None))]
    fn unsent(&self, py: Python<'_>, link: Option<u64>) -> usize {
        py.detach(|| self.inner.unsent(link))
    }

    /// Who may be a member from now on: these keys alone, if they are given, and at most so many at a time.
    #[pyo3(signature = (keys=None, most=None))]
    fn admit(&self, py: Python<'_>, keys: Option<Vec<String>>, most: Option<usize>) -> PyResult<()> {
        let keys = keys.map(|keys| keys.iter().map(|text| to_key(py, text)).collect()).transpose()?;
        self.inner.admit(Admitted { keys, most: most.unwrap_or(usize::MAX) });
        Ok(())
    }

    /// Whoever has this key is cut off, and does not come in any more.
    fn expel(&self, py: Python<'_>, key: &str) -> PyResult<()> {
        self.inner.expel(&to_key(py, key)?);
        Ok(())
    }

    /// How many callers were turned away, by reason.
    fn refused(&self) -> std::collections::BTreeMap<&'static str, u64> {
        self.inner.refused().into_iter().collect()
    }

    /// Nobody comes in any more, and all links end.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.inner.close());
    }
}

/// What Python hears of an event; nothing of a call of `wake`.
fn to_python(py: Python<'_>, event: Event) -> Option<(u64, Bound<'_, PyAny>)> {
    match event {
        Event::Joined(link, key) => Some((link, pyo3::types::PyBytes::new(py, &key).into_any())),
        Event::Message(link, bytes) => Some((link, PyByteArray::new(py, &bytes).into_any())),
        Event::Left(link, why) => Some((link, PyString::new(py, &why).into_any())),
        Event::Woken => None,
    }
}

fn seconds(given: f64) -> Duration {
    Duration::try_from_secs_f64(given).unwrap_or(Duration::MAX)
}

fn resolve(address: &str) -> Result<SocketAddr, String> {
    let wrong = |why: &str| format!("{address:?} is no address to listen on, as 0.0.0.0:7070 is: {why}");
    let mut found = address.to_socket_addrs().map_err(|e| wrong(&e.to_string()))?;
    found.next().ok_or_else(|| wrong("the name has no address"))
}

fn to_key(py: Python<'_>, text: &str) -> PyResult<Key> {
    from_hex(text).ok_or_else(|| usage(py, format!("{text:?} is no key: it must be 64 hex digits")))
}
