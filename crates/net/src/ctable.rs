//! The table of C functions; `python/tweed/torch/csrc/engine.h` is its other half.

use std::ffi::{c_char, c_void, CStr, CString};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tweed_kernels::{DType, ReduceOp};
use tweed_schedule::Collective;

use crate::group::Group;
use crate::operation::op::Op;
use tweed_proto::engine::request::{Operation, Request, Segment};
use tweed_proto::engine::EngineError;

const ABI: u32 = 1;
const OK: u32 = 0;
const PENDING: u32 = 1;

/// A piece of memory: `tweed_segment` of the C table.
#[repr(C)]
#[derive(Clone, Copy)]
struct CSegment {
    data: *mut c_void,
    bytes: u64,
}

/// What an operation is asked to do: `tweed_request` of the C table.
#[repr(C)]
struct CRequest {
    operation: u32,
    dtype: u32,
    reduce_op: u32,
    root: u32,
    tag: u64,
    urgency: i32,
    blocking: u32,
    factor: f64,
    timeout_ms: i64,
    inputs: *const CSegment,
    n_inputs: usize,
    outputs: *const CSegment,
    n_outputs: usize,
    shape: *const c_char,
}

/// The handle of an operation: `tweed_op` of the C table.
struct COp {
    group: Arc<Group>,
    op: Arc<Op>,
    text: OnceLock<CString>,
}

type Callback = extern "C" fn(*mut c_void);

/// The functions that C code calls: `tweed_table`.
#[repr(C)]
pub struct Table {
    abi: u32,
    group_retain: unsafe extern "C" fn(*const Group) -> *const Group,
    group_release: unsafe extern "C" fn(*const Group),
    submit: unsafe extern "C" fn(*const Group, *const CRequest) -> *mut COp,
    wait: unsafe extern "C" fn(*mut COp, i64) -> u32,
    test: unsafe extern "C" fn(*mut COp) -> u32,
    on_end: unsafe extern "C" fn(*mut COp, Callback, *mut c_void),
    message: unsafe extern "C" fn(*mut COp) -> *const c_char,
    source: unsafe extern "C" fn(*mut COp) -> u32,
    release: unsafe extern "C" fn(*mut COp),
    abort: unsafe extern "C" fn(*const Group, *const c_char),
    alloc: unsafe extern "C" fn(*const Group, u64) -> *mut c_void,
    free: unsafe extern "C" fn(*const Group, *mut c_void),
}

/// The engine's functions, for callers that are not written in Rust.
pub static TABLE: Table = Table {
    abi: ABI,
    group_retain,
    group_release,
    submit,
    wait,
    test,
    on_end,
    message,
    source,
    release,
    abort,
    alloc,
    free,
};

/// The number by which `engine.h` knows how an operation ended.
fn status(op: &COp) -> u32 {
    match (op.op.error(), op.group.check_process()) {
        (Some(error), _) => error.code(),
        (None, _) if op.op.is_ended() => OK,
        // It cannot end here.
        (None, Err(forked)) => forked.code(),
        (None, Ok(())) => PENDING,
    }
}

unsafe extern "C" fn group_retain(group: *const Group) -> *const Group {
    // SAFETY: the caller holds a reference that `Arc::into_raw` made.
    unsafe { Arc::increment_strong_count(group) };
    group
}

unsafe extern "C" fn group_release(group: *const Group) {
    // SAFETY: the caller gives up a reference that `Arc::into_raw` made.
    unsafe { Arc::decrement_strong_count(group) };
}

unsafe extern "C" fn submit(group: *const Group, request: *const CRequest) -> *mut COp {
    // SAFETY: the caller holds a reference, and the request is valid during the call.
    let (group, request) = unsafe {
        Arc::increment_strong_count(group);
        (Arc::from_raw(group), &*request)
    };
    // SAFETY: as above.
    let op = match unsafe { read_request(request) } {
        // SAFETY: `engine.h` asks that the segments stay valid until the operation has ended.
        Ok(request) => unsafe { group.submit(request) },
        Err(error) => Arc::new(Op::failed(error)),
    };
    Box::into_raw(Box::new(COp { group, op, text: OnceLock::new() }))
}

unsafe extern "C" fn wait(op: *mut COp, wait_ms: i64) -> u32 {
    // SAFETY: the caller holds the operation.
    let op = unsafe { &*op };
    op.group.wait(&op.op, u64::try_from(wait_ms).ok().map(Duration::from_millis));
    status(op)
}

unsafe extern "C" fn test(op: *mut COp) -> u32 {
    // SAFETY: the caller holds the operation.
    status(unsafe { &*op })
}

unsafe extern "C" fn on_end(op: *mut COp, callback: Callback, context: *mut c_void) {
    let context = context as usize;
    // SAFETY: the caller holds the operation.
    let op = unsafe { &*op };
    let call = move || callback(context as *mut c_void);
    match status(op) {
        // The lock of an operation that never ends here may be held by a thread of the parent.
        forked if forked != PENDING && !op.op.is_ended() => call(),
        _ => op.op.on_end(Box::new(call)),
    }
}

unsafe extern "C" fn message(op: *mut COp) -> *const c_char {
    // SAFETY: the caller holds the operation.
    let op = unsafe { &*op };
    let forked = || op.group.check_process().err().filter(|_| !op.op.is_ended());
    let Some(error) = op.op.error().cloned().or_else(forked) else { return c"".as_ptr() };
    let disagree = matches!(error, EngineError::ShapeMismatch(_));
    let hint = op.group.hint_at_threads().filter(|_| disagree).unwrap_or_default();
    let text = format!("{error}{hint}").replace('\0', " ");
    op.text.get_or_init(|| CString::new(text).unwrap_or_default()).as_ptr()
}

unsafe extern "C" fn source(op: *mut COp) -> u32 {
    // SAFETY: the caller holds the operation.
    unsafe { &*op }.op.source()
}

unsafe extern "C" fn release(op: *mut COp) {
    // SAFETY: the caller gives up what `submit` made.
    drop(unsafe { Box::from_raw(op) });
}

unsafe extern "C" fn abort(group: *const Group, reason: *const c_char) {
    // SAFETY: the caller holds the group; the text is valid during the call.
    unsafe { (*group).abort(&text(reason)) };
}

unsafe extern "C" fn alloc(group: *const Group, bytes: u64) -> *mut c_void {
    // SAFETY: the caller holds the group.
    unsafe { (*group).alloc(bytes) }.map_or(std::ptr::null_mut(), |p| p.cast())
}

unsafe extern "C" fn free(group: *const Group, address: *mut c_void) {
    // SAFETY: the caller holds the group.
    unsafe { (*group).free(address.cast()) };
}

/// Copies what C describes. Unknown numbers are refused.
///
/// # Safety
/// Pointers and lengths are valid during the call.
unsafe fn read_request(request: &CRequest) -> Result<Request, EngineError> {
    let refuse = |e: &dyn std::fmt::Display| EngineError::Usage(e.to_string());
    Ok(Request {
        operation: operation(request)?,
        dtype: DType::try_from(request.dtype).map_err(|e| refuse(&e))?,
        reduce_op: ReduceOp::try_from(request.reduce_op).map_err(|e| refuse(&e))?,
        factor: request.factor,
        urgency: request.urgency,
        blocking: request.blocking != 0,
        // SAFETY: by the contract.
        inputs: unsafe { segments(request.inputs, request.n_inputs) },
        // SAFETY: by the contract.
        outputs: unsafe { segments(request.outputs, request.n_outputs) },
        // SAFETY: by the contract.
        shape: unsafe { text(request.shape) },
        timeout: u64::try_from(request.timeout_ms).ok().map(Duration::from_millis),
    })
}

fn operation(request: &CRequest) -> Result<Operation, EngineError> {
    use Collective::{AllGather, AllReduce, AllToAll, Broadcast, Gather, Reduce, ReduceScatter, Scatter};
    const COLLECTIVES: [Collective; 8] =
        [AllReduce, ReduceScatter, AllGather, Broadcast, Reduce, Gather, Scatter, AllToAll];
    if let Some(&what) = COLLECTIVES.get(request.operation as usize) {
        return Ok(Operation::Collective { what, root: request.root });
    }
    let tag = u32::try_from(request.tag)
        .map_err(|_| EngineError::Usage(format!("tag {} is above 2^32", request.tag)))?;
    match request.operation {
        8 => Ok(Operation::Send { to: request.root, tag }),
        9 => Ok(Operation::Receive { from: (request.root != u32::MAX).then_some(request.root), tag }),
        10 => Ok(Operation::Barrier),
        other => Err(EngineError::Usage(format!(
            "there is no operation number {other}; was the torch shim built for another tweed?"
        ))),
    }
}

/// # Safety
/// `first` points at `count` segments, or `count` is 0.
unsafe fn segments(first: *const CSegment, count: usize) -> Vec<Segment> {
    if count == 0 {
        return Vec::new();
    }
    // SAFETY: by the contract.
    let all = unsafe { std::slice::from_raw_parts(first, count) };
    all.iter().map(|s| Segment { data: s.data.into(), bytes: s.bytes }).collect()
}

/// # Safety
/// `text` is null or a valid string.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: by the contract.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = include_str!("../../../python/tweed/torch/csrc/engine.h");

    /// The number that the header gives to a name.
    fn number(name: &str) -> u32 {
        let words: Vec<&str> = HEADER.split([' ', ',', '\n']).filter(|w| !w.is_empty()).collect();
        let at = words.iter().position(|&w| w == name).unwrap_or_else(|| panic!("no {name} in engine.h"));
        let text = if words[at + 1] == "=" { words[at + 2] } else { words[at + 1] };
        text.trim_end_matches('u').parse().unwrap_or_else(|_| panic!("{name} is {text}"))
    }

    fn request(name: &str) -> CRequest {
        // SAFETY: numbers and null pointers only.
        let zero: CRequest = unsafe { std::mem::zeroed() };
        CRequest { operation: number(name), ..zero }
    }

    #[test]
    fn the_header_numbers_operations_as_this_file_does() {
        for (name, what) in [
            ("TWEED_ALL_REDUCE", Collective::AllReduce),
            ("TWEED_REDUCE_SCATTER", Collective::ReduceScatter),
            ("TWEED_ALL_GATHER", Collective::AllGather),
            ("TWEED_BROADCAST", Collective::Broadcast),
            ("TWEED_REDUCE", Collective::Reduce),
            ("TWEED_GATHER", Collective::Gather),
            ("TWEED_SCATTER", Collective::Scatter),
            ("TWEED_ALL_TO_ALL", Collective::AllToAll),
        ] {
            assert_eq!(operation(&request(name)), Ok(Operation::Collective { what, root: 0 }), "{name}");
        }
        assert!(matches!(operation(&request("TWEED_SEND")), Ok(Operation::Send { .. })));
        assert!(matches!(operation(&request("TWEED_RECV")), Ok(Operation::Receive { .. })));
        assert_eq!(operation(&request("TWEED_BARRIER")), Ok(Operation::Barrier));
    }

    #[test]
    fn the_header_numbers_ends_and_types_as_the_engine_does() {
        let none = String::new;
        for (name, error) in [
            ("TWEED_USAGE", EngineError::Usage(none())),
            ("TWEED_SHAPE_MISMATCH", EngineError::ShapeMismatch(none())),
            ("TWEED_PEER_LOST", EngineError::PeerLost(none())),
            ("TWEED_DEADLINE", EngineError::Deadline(none())),
            ("TWEED_ABORTED", EngineError::Aborted(none())),
            ("TWEED_FORKED", EngineError::Forked(none())),
        ] {
            assert_eq!(number(name), error.code(), "{name}");
        }
        assert_eq!([number("TWEED_ABI"), number("TWEED_OK"), number("TWEED_PENDING")], [ABI, OK, PENDING]);
        assert_eq!(number("TWEED_BF16"), DType::BF16 as u32);
        assert_eq!(number("TWEED_BOOL"), DType::Bool as u32);
        assert_eq!(number("TWEED_PREMUL_SUM"), ReduceOp::PremulSum as u32);
    }
}
