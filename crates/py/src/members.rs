//! `MemberNode` for Python.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tweed_net::{from_hex, hex, Key};
use tweed_proto::members::{
    Action, Epoch, Member, Message, Node, Record, Seat, Settings, Standing, Voters, Witness,
};

use crate::errors::usage;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyMemberNode>()
}

/// A process: its key in hexadecimal digits, and its incarnation.
type Life = (String, u64);
/// A witness: its key, its incarnation, and where it is called.
type WitnessParts = (String, u64, String);
/// An epoch: its number, members in rank order, witnesses (none: members decide), missing links, first step, whether one was lost.
type EpochParts = (u64, Vec<Life>, Vec<WitnessParts>, Vec<(u16, u16)>, u64, bool);

/// Counts and times in ticks, see `Settings` in `crates/proto/src/members`.
#[derive(FromPyObject)]
struct SettingsGiven {
    #[pyo3(item)]
    min_members: usize,
    #[pyo3(item)]
    max_members: usize,
    #[pyo3(item)]
    heartbeat: u64,
    #[pyo3(item)]
    silence: u64,
    #[pyo3(item)]
    batch: u64,
    #[pyo3(item)]
    stagger: u64,
    #[pyo3(item)]
    penalty: u64,
    #[pyo3(item)]
    lead_steps: u64,
    #[pyo3(item)]
    seed: u64,
}

impl From<SettingsGiven> for Settings {
    fn from(given: SettingsGiven) -> Settings {
        let SettingsGiven {
            min_members,
            max_members,
            heartbeat,
            silence,
            batch,
            stagger,
            penalty,
            lead_steps,
            seed,
        } = given;
        Settings { min_members, max_members, heartbeat, silence, batch, stagger, penalty, lead_steps, seed }
    }
}

/// One process that is a member or wants to be: what has happened goes in, what is to be done comes out of `poll`.
#[pyclass(name = "MemberNode", module = "tweed._core", frozen)]
pub struct PyMemberNode {
    inner: Mutex<Node>,
}

#[pymethods]
impl PyMemberNode {
    /// One of the `members` that hold epoch 1 from the start; `witnesses` decide, if there are any.
    #[staticmethod]
    fn founder(
        py: Python<'_>,
        me: Life,
        members: Vec<Life>,
        witnesses: Vec<WitnessParts>,
        settings: SettingsGiven,
    ) -> PyResult<PyMemberNode> {
        let members: PyResult<Vec<Member>> = members.iter().map(|life| member(py, life)).collect();
        let witness =
            |(key, life, address): WitnessParts| Ok(Witness { member: member(py, &(key, life))?, address });
        let witnesses: PyResult<Vec<Witness>> = witnesses.into_iter().map(witness).collect();
        let voters = Some(witnesses?).filter(|some| !some.is_empty());
        let epoch = Epoch::first(members?, voters.map_or(Voters::Members, Voters::Witnesses));
        if !epoch.is_sound() {
            return Err(usage(
                py,
                "the first epoch needs members and witnesses that are named once each".into(),
            ));
        }
        Ok(PyMemberNode::new(Node::founder(member(py, &me)?, epoch, settings.into())))
    }

    /// A process that asks those with the keys `contacts` to be let in.
    #[staticmethod]
    fn joiner(
        py: Python<'_>,
        me: Life,
        contacts: Vec<String>,
        settings: SettingsGiven,
    ) -> PyResult<PyMemberNode> {
        let contacts: PyResult<Vec<Key>> = contacts.iter().map(|text| key(py, text)).collect();
        Ok(PyMemberNode::new(Node::joiner(member(py, &me)?, contacts?, settings.into())))
    }

    /// A witness: the life `me`, or the one that has stored `record`; None if that is no record of its key. It asks those that are
    /// linked for the `seat` of the witness with that key, and is called at that address.
    #[staticmethod]
    fn witness(
        py: Python<'_>,
        me: Life,
        record: Option<&[u8]>,
        seat: (String, String),
        settings: SettingsGiven,
    ) -> PyResult<Option<PyMemberNode>> {
        let (me, settings) = (member(py, &me)?, settings.into());
        let seat = Seat { of: key(py, &seat.0)?, address: seat.1 };
        let Some(record) = record else {
            return Ok(Some(PyMemberNode::new(Node::witness(me, None, seat, Vec::new(), settings))));
        };
        let record = Record::decode(record).filter(|record| record.me.key == me.key);
        Ok(record.map(|record| PyMemberNode::new(Node::restored(record, seat, Vec::new(), settings))))
    }

    /// Another tick has passed.
    fn tick(&self) {
        self.node().handle_tick();
    }

    /// There is a link to the process with this key.
    fn linked(&self, py: Python<'_>, text: &str) -> PyResult<()> {
        self.node().handle_linked(key(py, text)?);
        Ok(())
    }

    /// The link to the process with this key has ended.
    fn lost(&self, py: Python<'_>, text: &str) -> PyResult<()> {
        self.node().handle_lost(key(py, text)?);
        Ok(())
    }

    /// This step is the next that is not counted.
    fn step(&self, step: u64) {
        self.node().handle_step(step);
    }

    /// It wants to leave in good order.
    fn leave(&self) {
        self.node().handle_leave();
    }

    /// A message has come from the process with this key. False if it is none.
    fn receive(&self, py: Python<'_>, sender: &str, message: &[u8]) -> PyResult<bool> {
        let Some(message) = Message::decode(message) else { return Ok(false) };
        self.node().handle_message(key(py, sender)?, message);
        Ok(true)
    }

    /// What is to be done, in this order: pairs of a key and the message to it, or of "" and what is to be stored before.
    fn poll<'py>(&self, py: Python<'py>) -> Vec<(String, Bound<'py, PyBytes>)> {
        let mut node = self.node();
        std::iter::from_fn(|| node.poll())
            .filter_map(|action| match action {
                Action::Send { to, message } => Some((hex(&to), PyBytes::new(py, &message.encode()))),
                Action::Store(record) => Some((String::new(), PyBytes::new(py, &Record::encode(&record)))),
                Action::Entered(_) => None,
            })
            .collect()
    }

    /// Which of the lives of its key it is.
    fn incarnation(&self) -> u64 {
        self.node().me().incarnation
    }

    /// The number of the last epoch that it knows; 0: none.
    fn epoch_number(&self) -> u64 {
        self.node().epoch().map_or(0, |epoch| epoch.number)
    }

    /// The last epoch that it knows.
    fn epoch(&self) -> Option<EpochParts> {
        self.node().epoch().map(parts)
    }

    /// Where it stands, in a word, and why if it waits.
    fn standing(&self) -> (&'static str, String) {
        match self.node().standing() {
            Standing::Settled => ("settled", String::new()),
            Standing::Changing => ("changing", String::new()),
            Standing::Waiting(why) => ("waiting", why.to_string()),
            Standing::Joining => ("joining", String::new()),
            Standing::Evicted => ("evicted", String::new()),
            Standing::Left => ("left", String::new()),
        }
    }
}

impl PyMemberNode {
    fn new(node: Node) -> PyMemberNode {
        PyMemberNode { inner: Mutex::new(node) }
    }

    fn node(&self) -> MutexGuard<'_, Node> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn parts(epoch: &Epoch) -> EpochParts {
    let life = |member: &Member| (hex(&member.key), member.incarnation);
    let witness = |witness: &Witness| {
        let Member { key, incarnation } = witness.member;
        (hex(&key), incarnation, witness.address.clone())
    };
    let witnesses = match &epoch.voters {
        Voters::Members => Vec::new(),
        Voters::Witnesses(witnesses) => witnesses.iter().map(witness).collect(),
    };
    let members = epoch.members.iter().map(life).collect();
    (epoch.number, members, witnesses, epoch.missing.clone(), epoch.first_step, epoch.broken)
}

fn member(py: Python<'_>, life: &Life) -> PyResult<Member> {
    Ok(Member { key: key(py, &life.0)?, incarnation: life.1 })
}

fn key(py: Python<'_>, text: &str) -> PyResult<Key> {
    from_hex(text).ok_or_else(|| usage(py, format!("{text:?} is no key: it must be 64 hex digits")))
}
