//! The text form of a trace: one fact per line, numbers in decimal, lists with commas, `-` for nothing.

use std::fmt;

use tweed_schedule::Schedule;

use super::{Entry, Event, Trace};
use crate::executor::{Action, Arrival, Combine, Notice, Ready, Signal};
use crate::layout::{Layout, Reach};

pub(super) const VERSION: u32 = 1;

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "tweed trace {VERSION}")?;
        write_schedule(f, &self.schedule)?;
        writeln!(f, "rank {}", self.rank)?;
        write_layout(f, &self.layout)?;
        self.entries.iter().try_for_each(|entry| match entry {
            Entry::In(event) => write_event(f, *event),
            Entry::Out(action) => write_action(f, action),
        })
    }
}

fn write_schedule(f: &mut fmt::Formatter<'_>, schedule: &Schedule) -> fmt::Result {
    writeln!(f, "name {}", schedule.name().split_whitespace().collect::<Vec<_>>().join(" "))?;
    let (collective, root) = (schedule.collective(), schedule.root());
    let (ranks, chunks) = (schedule.ranks(), schedule.chunks());
    writeln!(f, "schedule {collective} {root} {ranks} {chunks} {:016x}", schedule.digest())?;
    for s in schedule.sends() {
        let verb = if s.reduce { '+' } else { '=' };
        let (route, after) = (list(&s.route), list(&s.after));
        writeln!(f, "send {} {} {} {} {verb} {route} {after}", s.step, s.src, s.dst, s.chunk)?;
    }
    Ok(())
}

fn write_layout(f: &mut fmt::Formatter<'_>, layout: &Layout) -> fmt::Result {
    let place = if layout.in_place { "in_place" } else { "staged" };
    let reach = layout.reach.iter().map(|r| if *r == Reach::Shared { 's' } else { 'w' });
    let reach: String = reach.collect();
    writeln!(f, "layout {} {} {place} {reach}", layout.piece, layout.window)?;
    writeln!(f, "bytes {}", list(&layout.chunk_bytes))
}

fn write_event(f: &mut fmt::Formatter<'_>, event: Event) -> fmt::Result {
    match event {
        Event::Ready { slice, send, ready: Ready::Placed } => writeln!(f, "< ready {slice} {send} placed"),
        Event::Ready { slice, send, ready: Ready::Readable(Arrival { at, writable }) } => {
            writeln!(f, "< ready {slice} {send} {} {at}", readable(writable))
        }
        Event::Read { slice, send } => writeln!(f, "< read {slice} {send}"),
        Event::Gone(rank) => writeln!(f, "< gone {rank}"),
        Event::Finished(number) => writeln!(f, "< finished {number}"),
    }
}

fn write_action(f: &mut fmt::Formatter<'_>, action: &Action) -> fmt::Result {
    match action {
        Action::Signal(Signal { to, send, slice, what }) => {
            write!(f, "> signal {to} {send} {slice} ")?;
            match what {
                Notice::Readable { output, writable } => {
                    writeln!(f, "{} {output}", readable(*writable))
                }
                Notice::Placed => writeln!(f, "placed"),
                Notice::Read => writeln!(f, "read"),
            }
        }
        Action::Combine(Combine { input, slice, stage, puts }) => {
            let stage: Vec<u32> = stage.iter().copied().collect();
            let puts: Vec<u32> = puts.iter().flat_map(|&(position, send)| [position, send]).collect();
            writeln!(f, "> combine {input} {slice} {} {}", list(&stage), list(&puts))
        }
        Action::Stage { output, slice } => writeln!(f, "> stage {output} {slice}"),
        Action::Transmit { send, to, output, slice } => {
            writeln!(f, "> transmit {send} {to} {output} {slice}")
        }
    }
}

fn readable(writable: bool) -> &'static str {
    match writable {
        true => "writable",
        false => "readable",
    }
}

fn list<T: ToString>(items: &[T]) -> String {
    match items {
        [] => "-".into(),
        _ => items.iter().map(T::to_string).collect::<Vec<_>>().join(","),
    }
}
