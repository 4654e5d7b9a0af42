//! Which schedule runs which call: the rows a group was given, and what was compiled from them.

use std::collections::BTreeMap;
use std::sync::Arc;

use tweed_proto::engine::config::GroupConfig;
use tweed_proto::engine::members::Plan;
use tweed_proto::engine::EngineError;
use tweed_proto::{sums_directly, Program};
use tweed_schedule::{Collective, Rank, Schedule};

/// Which schedule runs a collective up to which size.
#[derive(Clone, Debug)]
pub struct PlanRow {
    /// The collective that it is for.
    pub collective: Collective,
    /// Up to so many bytes of the whole buffer; `None`: any.
    pub up_to_bytes: Option<u64>,
    /// The schedule for root 0, where the collective has a root.
    pub schedule: Arc<Schedule>,
    /// So many bytes of each chunk are under way at once, at most; `None`: as many as the group lets.
    pub in_flight_bytes: Option<u64>,
    /// Pieces have so many bytes at most; `None`: as many as the group lets.
    pub piece_bytes: Option<u64>,
}

/// The rows of a group, and programs compiled from them when they were first needed.
pub(crate) struct Plans {
    rows: Vec<PlanRow>,
    /// The hub of reductions: their schedules are turned so that rank 0's place is its.
    server: Rank,
    compiled: BTreeMap<(usize, Rank), Plan>,
}

impl Plans {
    /// Refuses rows that the engine cannot run.
    pub(crate) fn new(rows: Vec<PlanRow>, config: &GroupConfig) -> Result<Plans, EngineError> {
        check_sums(&rows, config)?;
        // Between two ranks of an all-to-all, nobody else has room for their part.
        let forwards = |row: &&PlanRow| row.collective == Collective::AllToAll && !row.schedule.is_direct();
        match rows.iter().find(forwards) {
            None => Ok(Plans { rows, server: config.server.unwrap_or(0), compiled: BTreeMap::new() }),
            Some(row) => Err(EngineError::Usage(format!(
                "schedule {:?} passes parts of an all_to_all through other ranks; the engine runs direct ones only, such as pairwise",
                row.schedule.name()
            ))),
        }
    }

    /// The part of `rank` in a collective of `bytes` in all.
    pub(crate) fn find(
        &mut self,
        what: Collective,
        root: Rank,
        bytes: u64,
        rank: Rank,
    ) -> Result<Plan, EngineError> {
        let fits = |row: &PlanRow| row.collective == what && row.up_to_bytes.is_none_or(|most| bytes <= most);
        let row = self.rows.iter().position(fits).ok_or_else(|| {
            let name = what.name();
            let text =
                format!("the group has no schedule for {name} of {bytes} bytes; add a row to its plan");
            EngineError::Usage(text)
        })?;
        // By how much ranks are turned.
        let turn = match what {
            Collective::AllReduce | Collective::ReduceScatter => self.server,
            _ if what.is_rooted() => root,
            _ => 0,
        };
        if let Some(plan) = self.compiled.get(&(row, turn)) {
            return Ok(plan.clone());
        }
        let plan = compile(&self.rows[row], turn, rank)?;
        self.compiled.insert((row, turn), plan.clone());
        Ok(plan)
    }
}

/// Loss is told to whoever contributed, so nothing that was summed before may get lost, nor pass as a contribution.
fn check_sums(rows: &[PlanRow], config: &GroupConfig) -> Result<(), EngineError> {
    let lossy = config.ltp.as_ref().is_some_and(|ltp| !ltp.lossless);
    match rows.iter().find(|row| lossy && !sums_directly(&row.schedule)) {
        None => Ok(()),
        Some(row) => Err(EngineError::Usage(format!(
            "schedule {:?} passes sums on, and transport 'ltp' loses parts of contributions only; use one in which \
             every rank sends what it contributes straight to where it is summed: \"pairwise\" or \"star\"",
            row.schedule.name()
        ))),
    }
}

fn compile(row: &PlanRow, turn: Rank, rank: Rank) -> Result<Plan, EngineError> {
    let turned = match turn {
        0 => Arc::clone(&row.schedule),
        _ => Arc::new(row.schedule.turned(turn).map_err(|e| EngineError::Usage(e.to_string()))?),
    };
    let mut program = Program::compile(&turned, rank);
    program.in_flight_bytes = row.in_flight_bytes;
    program.piece_bytes = row.piece_bytes;
    Ok((turned, Arc::new(program)))
}

#[cfg(test)]
mod tests {
    use tweed_schedule::{Draft, Send};

    use super::*;

    #[test]
    fn how_buffers_are_cut_is_in_each_program_of_a_row() {
        let sends = vec![Send::new(0, 0, 1, 0, false), Send::new(0, 0, 2, 0, false)];
        let (name, collective) = ("star".into(), Collective::Broadcast);
        let draft = Draft { name, collective, root: 0, ranks: 3, chunks: 1, sends, topology: None };
        let schedule = Arc::new(Schedule::new(draft).expect("a right schedule"));
        let (in_flight_bytes, piece_bytes) = (Some(7), Some(3));
        let row = PlanRow { collective, up_to_bytes: None, schedule, in_flight_bytes, piece_bytes };
        let mut plans = Plans::new(vec![row], &GroupConfig::default()).expect("rows that can be run");
        for root in [0, 2] {
            let (_, program) = plans.find(collective, root, 1024, 1).expect("a row");
            assert_eq!((program.in_flight_bytes, program.piece_bytes), (Some(7), Some(3)));
        }
    }
}
