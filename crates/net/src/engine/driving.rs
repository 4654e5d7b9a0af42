//! Who drives the engine, and how callers wait: a caller that waits drives it himself, else a thread does.

use std::sync::atomic::Ordering;
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use crate::engine::{Engine, Event};
use crate::error::EngineError;
use crate::link::wakeup::Wakeup;
use crate::node::{lock, Inner};
use crate::operation::op::Op;

/// How the engine stands after it was driven.
pub(crate) struct State {
    /// See [`Engine::needs`].
    needs: Option<u32>,
    busy: bool,
    deadline: Option<Instant>,
    /// Some operation has ended.
    ended: bool,
}

impl Inner {
    fn bell(&self) -> &Wakeup {
        Wakeup::of(&self.arena, self.bell)
    }

    pub(crate) fn ring(&self) {
        self.bell().ring_all();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Leaves something for the engine, to be seen when it is next driven.
    pub(crate) fn enqueue(&self, event: Event) {
        lock(&self.inbox).push(event);
    }

    /// Leaves something for the engine and has it driven.
    pub(crate) fn post(&self, event: Event) {
        self.enqueue(event);
        self.ring();
    }

    /// Has what was enqueued begun: on this thread if it is little and the engine is free, else in the background.
    pub(crate) fn set_off(&self, little: bool) {
        match self.engine.try_lock() {
            Ok(engine) if little => {
                self.drive_for_others(engine);
            }
            _ => self.ring(),
        }
    }

    /// Drives the engine for somebody who does not attend: a caller who does is told of what has ended.
    pub(crate) fn drive_for_others(&self, engine: MutexGuard<'_, Engine>) -> State {
        let state = self.drive(engine);
        if state.ended && self.bell().is_attended() {
            self.ring();
        }
        state
    }

    /// Drives the engine, then tells the callers of what has ended.
    fn drive(&self, mut engine: MutexGuard<'_, Engine>) -> State {
        engine.drive();
        let ended = engine.take_ended();
        let (needs, busy, deadline) = (engine.needs(), engine.is_busy(), engine.next_deadline());
        let state = State { needs, busy, deadline, ended: !ended.is_empty() };
        drop(engine);
        for (op, result) in ended {
            op.end(result);
        }
        state
    }

    pub(crate) fn drive_in_background(&self) {
        while !self.is_stopping() {
            let seen = self.bell().count();
            let State { needs, deadline, .. } = self.drive_for_others(lock(&self.engine));
            let timeout = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            self.bell().sleep_in_background(seen, needs.is_none(), timeout, || self.has_messages());
        }
    }

    fn has_messages(&self) -> bool {
        lock(&self.engine).links.has_messages()
    }

    /// Waits until `op` has ended, driving the engine meanwhile unless somebody else does.
    pub(crate) fn wait(&self, op: &Op, limit: Option<Duration>) -> bool {
        let until = limit.and_then(|l| Instant::now().checked_add(l));
        while !op.is_ended() {
            let left =
                until.map_or(Duration::from_secs(3600), |u| u.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return false;
            }
            match self.attendant.try_lock() {
                Ok(_guard) => {
                    if !self.attend(op, left) {
                        return op.is_ended();
                    }
                }
                Err(_) => op.sleep(left.min(Duration::from_millis(50))),
            }
        }
        true
    }

    /// Drives until `op` has ended; `false` if a signal came in or the time is over.
    fn attend(&self, op: &Op, left: Duration) -> bool {
        self.bell().attend(true);
        let until = Instant::now() + left;
        let mut go_on = true;
        let mut busy = false;
        while go_on && !op.is_ended() {
            let seen = self.bell().count();
            let state = self.drive(lock(&self.engine));
            busy = state.busy;
            if op.is_ended() {
                break;
            }
            let next =
                state.deadline.map_or(until, |d| d.min(until)).saturating_duration_since(Instant::now());
            let undisturbed = self.bell().sleep_as_waiter(seen, state.needs, next, || self.has_messages());
            go_on = undisturbed && Instant::now() < until;
        }
        self.bell().attend(false);
        if busy {
            self.ring();
        }
        go_on
    }

    pub(crate) fn wire_settings(&self) -> String {
        let system =
            || std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap_or_default();
        let congestion = self.options.congestion.clone().unwrap_or_else(system);
        let sealed = if self.keys.is_some() { "sealed" } else { "not sealed" };
        let streams = self.options.streams;
        format!("{streams} TCP streams per pair, {sealed}, congestion control {}", congestion.trim())
    }

    pub(crate) fn alloc(&self, bytes: u64) -> Option<*mut u8> {
        self.arena.lend(bytes)
    }

    pub(crate) fn free(&self, address: *mut u8) {
        self.arena.free(address);
    }

    pub(crate) fn close_group(&self, number: u32) {
        if self.check_process().is_err() {
            return;
        }
        let mut engine = lock(&self.engine);
        engine.drive();
        engine.close_group(number);
        self.drive_for_others(engine);
    }

    /// Refuses to work in a fork of the process that started the engine.
    pub(crate) fn check_process(&self) -> Result<(), EngineError> {
        let here = std::process::id();
        if here == self.process {
            return Ok(());
        }
        Err(EngineError::Forked(format!(
            "process {here} is a fork of process {}, which had started the engine: its threads and links did not come along. \
             Fork first and call init_process_group in the child, or start ranks with spawn or forkserver",
            self.process
        )))
    }
}
