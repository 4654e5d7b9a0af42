//! What is done to members in a run: a value, drawn from a seed.

use tweed_proto::members::Settings;
use tweed_rng::{mix, Rng};

/// A process of a run: members first, then the first witnesses, then those that take their places.
pub type Id = usize;

/// Something that is done to processes or links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A process dies; others hear of it at once, if its host lives and says so.
    Kill(Id, bool),
    /// A process that died is started again; of what it promised it knows what it has stored, if anything.
    Restart(Id),
    /// A witness is started again and has lost what it stored.
    RestartEmpty(Id),
    /// A witness is to be replaced by a new one.
    Replace(Id, Id),
    /// A process that never ran wants to join.
    Join(Id),
    /// A process is started twice.
    Twin(Id),
    /// A process does nothing for so many ticks; what is sent to it waits.
    Stop(Id, u64),
    /// Messages from one process to another get lost for so many ticks.
    Cut(Id, Id, u64),
    /// Processes reach only those of the same part, for so many ticks. By process, its part.
    Split(Vec<u8>, u64),
    /// A process wants to leave in good order.
    Leave(Id),
}

/// All that a run depends on.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed of what is left to chance.
    pub seed: u64,
    /// The members of the first epoch; others that may join follow them.
    pub founders: usize,
    /// All members that there may ever be.
    pub members: usize,
    /// These decide, if there are any; else the members do.
    pub witnesses: usize,
    /// The settings of every node.
    pub settings: Settings,
    /// So many ticks a message takes at most, at least one.
    pub delay: u64,
    /// Of a hundred messages this many get lost until the faults are over.
    pub lost: u64,
    /// Of a hundred messages this many come twice until the faults are over.
    pub doubled: u64,
    /// The faults, and when each happens.
    pub faults: Vec<(u64, Fault)>,
    /// From this tick on nothing new goes wrong.
    pub calm: u64,
    /// An old fault, put back: a witness that is started again has forgotten what it promised, and does not say so.
    pub forgetful: bool,
}

/// What the seed draws: two to eight founders, up to two who join, up to three witnesses, up to eight faults, and a new witness.
pub fn scenario(seed: u64) -> Plan {
    let mut rng = Rng::new(mix(seed));
    let founders = 2 + rng.index(7);
    let members = founders + rng.index(3);
    let witnesses = [0, 0, 0, 1, 3][rng.index(5)];
    let settings = Settings {
        heartbeat: 3,
        silence: 12,
        batch: 6,
        stagger: 4,
        penalty: 10,
        seed,
        ..Settings::new(1 + rng.index(founders.min(3)), members)
    };
    let calm = 40 + rng.below(60);
    let mut plan = Plan {
        seed,
        founders,
        members,
        witnesses,
        settings,
        delay: 1 + rng.below(4),
        lost: [0, 0, 5, 20][rng.index(4)],
        doubled: [0, 10][rng.index(2)],
        faults: Vec::new(),
        calm,
        forgetful: false,
    };
    for id in founders..members {
        plan.faults.push((rng.below(calm), Fault::Join(id)));
    }
    for _ in 0..rng.index(9) {
        draw(&mut rng, &mut plan);
    }
    if witnesses > 0 && rng.bernoulli(0.5) {
        draw_replacement(&mut rng, &mut plan);
    }
    plan.faults.sort_by_key(|(at, _)| *at);
    plan
}

fn draw(rng: &mut Rng, plan: &mut Plan) {
    let all = plan.members + plan.witnesses;
    let at = rng.below(plan.calm);
    // Ends with the calm.
    let ticks = 1 + rng.below((plan.calm - at).min(50));
    let (member, any) = (rng.index(plan.members), rng.index(all));
    let fault = match rng.below(9) {
        0..=2 => {
            plan.faults.push((at, Fault::Kill(any, rng.bernoulli(0.5))));
            let empty = any >= plan.members && rng.bernoulli(0.3);
            if rng.bernoulli(0.4) {
                return;
            }
            let again = if empty { Fault::RestartEmpty(any) } else { Fault::Restart(any) };
            return plan.faults.push((at + ticks, again));
        }
        3 => Fault::Stop(any, ticks),
        4 => Fault::Cut(any, rng.index(all), ticks),
        5 => {
            let other = rng.index(all);
            plan.faults.push((at, Fault::Cut(any, other, ticks)));
            Fault::Cut(other, any, ticks)
        }
        6 => {
            let parts = 2 + rng.below(2);
            Fault::Split((0..all).map(|_| rng.below(parts) as u8).collect(), ticks)
        }
        7 => Fault::Leave(member),
        _ => Fault::Twin(member),
    };
    plan.faults.push((at, fault));
}

/// A witness that may live is replaced by one that may be killed in turn.
fn draw_replacement(rng: &mut Rng, plan: &mut Plan) {
    let (old, new) = (plan.members + rng.index(plan.witnesses), plan.members + plan.witnesses);
    let at = rng.below(plan.calm);
    let ticks = 1 + rng.below((plan.calm - at).min(50));
    if rng.bernoulli(0.5) {
        plan.faults.push((at, Fault::Kill(old, rng.bernoulli(0.5))));
    }
    plan.faults.push((at, Fault::Replace(old, new)));
    if rng.bernoulli(0.5) {
        plan.faults.push((at + rng.below(ticks), Fault::Kill(new, rng.bernoulli(0.5))));
        let again = [Fault::Restart(new), Fault::RestartEmpty(new)];
        plan.faults.extend(again.get(rng.index(3)).map(|again| (at + ticks, again.clone())));
    }
}
